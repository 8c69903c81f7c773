"""MA-tile ops of the sm_90a class: bulk copies, warpgroup products, rings with cursors.

PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "Data Movement: bulk copies and
tensor maps", "mbarrier".  The grammar (continued from ``ma_tile.ir.ops``)::

    op      := 'let' VAR '=' expr                            -- one value a unit; visible to the ops after it
             | 'advance' CURSOR ['by' expr]                  -- stage and phase move on, 1 or ``by`` (>= 0) stages
             | 'tma.load' slot ',' NAME '[' expr, ... ']' ['mbar' NAME '[' expr ']'] ['multicast' NUMBER] ['stream']
             | 'tma.store' slot ',' NAME '[' expr, ... ']'
             | 'tma.commit' | 'tma.wait' NUMBER ['read']
             | 'mbar.expect' NAME '[' expr ']' BYTES         -- one arrival that also announces bytes to come
             | 'named.arrive' number ',' THREADS              -- bar.arrive: counts, does not wait
             | 'st.matrix' slot ',' frag
             | 'fence.proxy' | 'wg.fence' | 'wg.commit'
             | 'cluster.arrive' ['relaxed'] | 'cluster.wait'
             | 'wg.wait' NUMBER ['pinned'] [frag, ...]

Meaning.

* ``tma.load``, ``tma.store``: one tile between global memory and a stage of a shared buffer by the TMA
  unit.  The index holds one expression a buffer axis: ``base``, or ``base + AXIS`` for at most one tile axis
  of the slot each (unit stride; every slot axis of size > 1 appears once; the slot's last axis is the buffer's
  last).  ``base`` may be anything uniform.  Elements outside the buffer arrive as zeros and are not stored;
  only axes with a tile axis may leave their range.  The bytes counted are always the whole stage's.
  The buffer's innermost row is a multiple of 16 bytes; a slot with swizzle ``w`` moves slabs of ``w`` bytes of
  columns, one instruction a slab.
* ``tma.load`` without ``mbar`` is the *synchronous* form: all units of the role come together, each distinct
  tile is copied once, and everybody goes on when the bytes are there (also seen by products).  Passes replace
  it; the emitter takes the asynchronous form only.  With ``mbar``: issued by one thread (of a ``single`` role,
  or thread 0 of the unit), completes at an unknown later time and counts its bytes on the barrier.
* ``stream``: nobody else reads these bytes soon, so the L2 cache fetches no more than what is asked for.
* an mbarrier phase completes when its ``arrivals`` have come and all announced bytes have landed.
* ``multicast`` c: the copy goes to the same place in all c blocks of the cluster, each block issues the part
  of its rank (the slot's slabs are dealt out in order; too few of them: runs of its outermost axis), and counts
  on the same barrier of every block.
* ``mma`` with an instruction of :data:`WGMMA` is a warpgroup product: a unit of 4 warps owns 64 or 128 rows,
  operand ``a`` is a fragment in :func:`wg_a_layout` or a slot, ``b`` a slot (of 2-byte types in either major,
  of others with ``over`` last), each with swizzle 128, 64 or 32.  Not ``pending``: it waits for itself, as if
  fence, commit and wait stood around it.  ``pending``: it is issued only.  Its result, and any stage or
  fragment that it reads, may not be touched before a ``wg.wait`` lists the result; a chain of products into
  one accumulator needs no wait between them (``acc`` may be the pending result of an earlier product).
* ``wg.fence`` stands between the last write by the unit's threads to a fragment (operand or accumulator) and
  the pending product that uses it.
* ``wg.commit`` closes a group of pending products; ``wg.wait n`` waits until at most n of the unit's youngest
  groups are in flight and makes the listed results readable.  ``pinned``: the compiler may not move it up.
* ``mbar.arrive .. each warp``: one arrival for each warp of the unit, behind all its lanes; ``cluster``: on the
  barrier of every block of the cluster.
* ``st.matrix``: a 16-bit fragment in the accumulator's layout to a stage, by stmatrix.
* ``fence.proxy``: what this thread wrote to shared memory may be read by bulk copies issued after a barrier.
* ``tma.store`` is issued by thread 0 of the unit, reads the stage at an unknown later time; ``tma.commit`` and
  ``tma.wait n [read]`` are that thread's: at most n groups still read shared memory (without ``read``: are
  still not written).  A barrier behind the wait tells the other threads.
* ``cluster.arrive``, ``cluster.wait``: the two halves of a barrier of all threads of the cluster, at the top of a
  kernel; a wait may stand under a condition behind the last arrival, and whoever need not wait goes on.  What
  threads did before they arrived is seen by those who waited, but for a ``relaxed`` arrival, which only counts.
* ``st.shared .. block n`` goes to block n of the cluster, where the stage is at the same place: behind a
  ``cluster.wait``, because before it that block may not run yet, and before its end.  Nothing but such stores writes
  the buffer.
* the variable ``unit`` may stand in any expression; a barrier's number may depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nautilus.core.expr.nodes import Expr
from nautilus.core.source import NO_SPAN, Span
from nautilus.core.types import DType
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.ir.values import Frag, Slot

_SPAN = field(default=NO_SPAN, compare=False, repr=False)

#: the variable that numbers the units of a role
UNIT = "unit"
#: warps and threads of a warpgroup
GROUP_WARPS = 4
GROUP_THREADS = 128


@dataclass(frozen=True, slots=True)
class LetOp:
    """A uniform integer."""

    var: str
    expr: Expr
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class AdvanceOp:
    """Move a cursor on by ``by`` stages (None: one)."""

    cursor: str
    by: Expr | None = None
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class TmaLoad:
    """A tile to shared memory; ``mbar`` None: synchronous; ``stream``: its bytes are read once."""

    slot: Slot
    buffer: str
    index: tuple[Expr, ...]
    mbar: tuple[str, Expr] | None = None
    multicast: int = 1
    stream: bool = False
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class TmaStore:
    """A stage of shared memory to a tile of an output."""

    slot: Slot
    buffer: str
    index: tuple[Expr, ...]
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class TmaCommit:
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class TmaWait:
    """At most ``pending`` store groups are unfinished, or still read shared memory (``read``)."""

    pending: int = 0
    read: bool = True
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class MbarExpect:
    """One arrival that announces ``bytes`` bytes of bulk loads."""

    mbar: str
    stage: Expr
    bytes: int
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class NamedArrive:
    """Arrive at a named barrier of ``threads`` threads without waiting."""

    number: Expr
    threads: int
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class MatrixStore:
    """A 16-bit fragment in an accumulator's layout to a stage, by stmatrix."""

    slot: Slot
    value: Frag
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class ProxyFence:
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class WgFence:
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class WgCommit:
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class WgWait:
    """At most ``pending`` groups stay in flight; ``ready`` may be read from here on."""

    pending: int
    ready: tuple[Frag, ...] = ()
    pinned: bool = False
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class ClusterArrive:
    """All threads of the block arrive at the cluster's barrier; ``relaxed``: it orders nothing."""

    relaxed: bool = False
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class ClusterWait:
    """All threads of the cluster have arrived."""

    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class WgInstr:
    """A warpgroup product m64nNk``k``; ``a``, ``b`` operand types, ``n_step``: N is a multiple of it, at most 256.

    ``pack``: consecutive k elements in one register of A; ``both_majors``: B (and A) may be MN-major; ``short``:
    sums keep about 14 bits of mantissa on their way through the matrix unit, less than f32 has, so that one chain
    of products is at most :data:`SHORT_DEPTH` deep and f32 additions join the chains.
    """

    k: int
    operands: frozenset[DType]
    acc: DType
    pack: int
    both_majors: bool
    n_step: int = 8
    short: bool = False
    m: int = 64


#: Elements that an instruction with short sums contracts into one result: each loses up to 2^-13 of the partial
#: sum (measured by DeepSeek-AI, "DeepSeek-V3 Technical Report", section 3.5.2, which takes the same depth).
SHORT_DEPTH = 128

#: PTX ISA, "Asynchronous wgmma matrix shapes and types".
WGMMA: Mapping[str, WgInstr] = {
    "wgmma.f16": WgInstr(16, frozenset({DType.F16}), DType.F32, 2, True),
    "wgmma.bf16": WgInstr(16, frozenset({DType.BF16}), DType.F32, 2, True),
    "wgmma.tf32": WgInstr(8, frozenset({DType.TF32}), DType.F32, 1, False),
    "wgmma.e4m3": WgInstr(32, frozenset({DType.F8E4M3}), DType.F32, 4, False, short=True),
    "wgmma.e5m2": WgInstr(32, frozenset({DType.F8E5M2}), DType.F32, 4, False, short=True),
    "wgmma.s8": WgInstr(32, frozenset({DType.I8}), DType.I32, 4, False, 16),
    "wgmma.u8": WgInstr(32, frozenset({DType.U8}), DType.I32, 4, False, 16),
}


def wg_acc_layout(m: str, n: str, rows: int, cols: int) -> FragLayout:
    """Accumulator of one unit (4 warps): ``rows`` a multiple of 64, ``cols`` of 8.

    Register number = c + 4 * (column tile + column tiles * block of 64 rows), c as in the PTX ISA,
    "Register fragments for wgmma.mma_async.m64nNk16".
    """
    return FragLayout(
        reg=(Mode(2, n, 1), Mode(2, m, 8), Mode(cols // 8, n, 8), Mode(rows // 64, m, 64)),
        lane=(Mode(4, n, 2), Mode(8, m, 1)),
        warp=(Mode(GROUP_WARPS, m, 16),),
    )


def wg_a_layout(instr: str, m: str, k: str, rows: int, depth: int) -> FragLayout:
    """A operand in registers of one unit: ``rows`` x ``depth``; the order of registers within a k-step and
    block of 64 rows is that of the instruction."""
    i = WGMMA[instr]
    p = i.pack
    return FragLayout(
        reg=(Mode(p, k, 1), Mode(2, m, 8), Mode(2, k, 4 * p), Mode(depth // i.k, k, i.k), Mode(rows // 64, m, 64)),
        lane=(Mode(4, k, p), Mode(8, m, 1)),
        warp=(Mode(GROUP_WARPS, m, 16),),
    )
