"""MA-tile ops of the sm_90a class: bulk copies, warpgroup products, rings with pipelines.

PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "Data Movement: bulk copies and
tensor maps", "mbarrier".

Meaning.

* ``tma.load``, ``tma.store``: one tile between global memory and a stage of a shared buffer by the TMA
  consumer.  The index holds one expression a buffer axis: ``base``, or ``base + AXIS`` for at most one tile axis
  of the slot each (unit stride; every slot axis of size > 1 appears once; the slot's last axis is the buffer's
  last).  ``base`` may be anything uniform.  Elements outside the buffer arrive as zeros and are not stored;
  only axes with a tile axis may leave their range.  The bytes counted are always the whole stage's.
  The buffer's innermost row is a multiple of 16 bytes; a slot with swizzle ``w`` moves slabs of ``w`` bytes of
  columns, one instruction a slab.
* ``tma.load`` without ``mbar`` is the *synchronous* form: all consumers of the role come together, each distinct
  tile is copied once, and everybody goes on when the bytes are there (also seen by products).  Passes replace
  it; the emitter takes the asynchronous form only.  With ``mbar``: issued by one thread (of a ``single`` role,
  or thread 0 of the consumer), completes at an unknown later time and counts its bytes on the barrier.
* ``stream``: nobody else reads these bytes soon, so the L2 cache fetches no more than what is asked for.
* an mbarrier phase completes when its ``arrivals`` have come and all announced bytes have landed.
* ``multicast`` c: the copy goes to the same place in all c blocks of the cluster, each block issues the part
  of its rank (the slot's slabs are dealt out in order; too few of them: runs of its outermost axis), and counts
  on the same barrier of every block.
* ``mma`` with an instruction of :data:`WGMMA` is a warpgroup product: a consumer of 4 warps owns 64 or 128 rows,
  operand ``a`` is a fragment in :func:`wg_a_layout` or a slot, ``b`` a slot (of 2-byte types in either major,
  of others with ``over`` last), each with swizzle 128, 64 or 32.  Not ``pending``: it waits for itself, as if
  fence, commit and wait stood around it.  ``pending``: it is issued only.  Its result, and any stage or
  fragment that it reads, may not be touched before a ``wg.wait`` lists the result; a chain of products into
  one accumulator needs no wait between them (``acc`` may be the pending result of an earlier product).
* ``wg.fence`` stands between the last write by the consumer's threads to a fragment (operand or accumulator) and
  the pending product that uses it.
* ``wg.commit`` closes a group of pending products; ``wg.wait n`` waits until at most n of the consumer's youngest
  groups are in flight and makes the listed results readable.  ``volatile``: the compiler may not move it up.
* ``mbar.arrive .. each warp``: one arrival for each warp of the consumer, behind all its lanes; ``cluster``: on the
  barrier of every block of the cluster.
* ``st.matrix``: a 16-bit fragment in the accumulator's layout to a stage, by stmatrix.
* ``fence.proxy``: what this thread wrote to shared memory may be read by bulk copies issued after a barrier.
* ``tma.store`` is issued by thread 0 of the consumer, reads the stage at an unknown later time; ``tma.commit`` and
  ``tma.wait n [read]`` are that thread's: at most n groups still read shared memory (without ``read``: are
  still not written).  A barrier behind the wait tells the other threads.
* ``cluster.arrive``, ``cluster.wait``: the two halves of a barrier of all threads of the cluster, at the top of a
  kernel; a wait may stand under a condition behind the last arrival, and whoever need not wait goes on.  What
  threads did before they arrived is seen by those who waited, but for a ``relaxed`` arrival, which only counts.
* ``st.shared .. block n`` goes to block n of the cluster, where the stage is at the same place: behind a
  ``cluster.wait``, because before it that block may not run yet, and before its end.  Nothing but such stores writes
  the buffer.
* the variable ``consumer`` may stand in any expression; a barrier's number may depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nautilus.core.expr.nodes import Expr
from nautilus.core.op_fields import (
    CLOSED_EXPR,
    EXPR,
    EXPRS,
    INTEGER,
    OPERAND,
    OPERANDS,
    READ_MEMORY,
    VARIABLE,
    WRITE_MEMORY,
    flag,
)
from nautilus.core.ops import SPAN, Effect, declare, op
from nautilus.core.source import Span
from nautilus.core.types import DType
from nautilus.ma_tile.ir.instruction_tables import check_instructions
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.ir.values import (
    BARRIER,
    BARRIER_STAGE,
    COPY_SLOT,
    MA,
    READ_SLOT,
    STATE,
    WRITE_SLOT,
    Frag,
    Slot,
)

#: the variable that numbers the consumers of a role
CONSUMER = "consumer"
#: warps and threads of a warpgroup
GROUP_WARPS = 4
GROUP_THREADS = 128


@op(MA, "let $var = $expr")
class LetOp:
    """A uniform integer."""

    var: str = declare(VARIABLE)
    expr: Expr = declare(EXPR)
    span: Span = SPAN


@op(MA, "advance $pipeline( by $by)?", Effect.ADVANCE)
class AdvanceOp:
    """Move a pipeline on by ``by`` stages (None: one)."""

    pipeline: str = declare(STATE)
    by: Expr | None = declare(EXPR, default=None)
    span: Span = SPAN


@op(MA, "tma.load $slot, $buffer[$index]( mbar $mbar)?( multicast $multicast)?( $stream)?")
class TmaLoad:
    """A tile to shared memory; ``mbar`` None: synchronous; ``stream``: its bytes are read once."""

    slot: Slot = declare(COPY_SLOT)
    buffer: str = declare(READ_MEMORY)
    index: tuple[Expr, ...] = declare(EXPRS)
    mbar: tuple[str, Expr] | None = declare(BARRIER_STAGE, default=None)
    multicast: int = declare(INTEGER, default=1)
    stream: bool = declare(flag("stream"), default=False)
    span: Span = SPAN


@op(MA, "tma.store $slot, $buffer[$index]")
class TmaStore:
    """A stage of shared memory to a tile of an output."""

    slot: Slot = declare(READ_SLOT)
    buffer: str = declare(WRITE_MEMORY)
    index: tuple[Expr, ...] = declare(EXPRS)
    span: Span = SPAN


@op(MA, "tma.commit", Effect.COMMIT)
class TmaCommit:
    span: Span = SPAN


@op(MA, "tma.wait $pending( $read)?", Effect.WAIT)
class TmaWait:
    """At most ``pending`` store groups are unfinished, or still read shared memory (``read``)."""

    pending: int = declare(INTEGER, default=0)
    read: bool = declare(flag("read"), default=True)
    span: Span = SPAN


@op(MA, "mbar.expect $mbar[$stage] $bytes", Effect.ARRIVE)
class MbarExpect:
    """One arrival that announces ``bytes`` bytes of bulk loads."""

    mbar: str = declare(BARRIER)
    stage: Expr = declare(EXPR)
    bytes: int = declare(INTEGER)
    span: Span = SPAN


@op(MA, "named.arrive $number, $threads", Effect.ARRIVE)
class NamedArrive:
    """Arrive at a named barrier of ``threads`` threads without waiting."""

    number: Expr = declare(CLOSED_EXPR)
    threads: int = declare(INTEGER)
    span: Span = SPAN


@op(MA, "st.matrix $slot, $value")
class MatrixStore:
    """A 16-bit fragment in an accumulator's layout to a stage, by stmatrix."""

    slot: Slot = declare(WRITE_SLOT)
    value: Frag = declare(OPERAND)
    span: Span = SPAN


@op(MA, "fence.proxy", Effect.FENCE)
class ProxyFence:
    span: Span = SPAN


@op(MA, "wg.fence", Effect.FENCE)
class WgFence:
    span: Span = SPAN


@op(MA, "wg.commit", Effect.COMMIT)
class WgCommit:
    span: Span = SPAN


@op(MA, "wg.wait $pending( $volatile)?( $ready)?", Effect.WAIT)
class WgWait:
    """At most ``pending`` groups stay in flight; ``ready`` may be read from here on."""

    pending: int = declare(INTEGER)
    ready: tuple[Frag, ...] = declare(OPERANDS, default=())
    volatile: bool = declare(flag("volatile"), default=False)
    span: Span = SPAN


@op(MA, "cluster.arrive( $relaxed)?", Effect.ARRIVE)
class ClusterArrive:
    """All threads of the block arrive at the cluster's barrier; ``relaxed``: it orders nothing."""

    relaxed: bool = declare(flag("relaxed"), default=False)
    span: Span = SPAN


@op(MA, "cluster.wait", Effect.WAIT)
class ClusterWait:
    """All threads of the cluster have arrived."""

    span: Span = SPAN


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
#: element types whose products no warpgroup instruction computes
WITHOUT_WGMMA = frozenset({DType.F64, DType.F32, DType.I64, DType.I32, DType.I16, DType.BOOL})
check_instructions("WGMMA", WGMMA, WITHOUT_WGMMA)


def wg_acc_layout(m: str, n: str, rows: int, cols: int) -> FragLayout:
    """Accumulator of one consumer (4 warps): ``rows`` a multiple of 64, ``cols`` of 8.

    Register number = c + 4 * (column tile + column tiles * block of 64 rows), c as in the PTX ISA,
    "Register fragments for wgmma.mma_async.m64nNk16".
    """
    return FragLayout(
        reg=(Mode(2, n, 1), Mode(2, m, 8), Mode(cols // 8, n, 8), Mode(rows // 64, m, 64)),
        lane=(Mode(4, n, 2), Mode(8, m, 1)),
        warp=(Mode(GROUP_WARPS, m, 16),),
    )


def wg_a_layout(instr: str, m: str, k: str, rows: int, depth: int) -> FragLayout:
    """A operand in registers of one consumer: ``rows`` x ``depth``; the order of registers within a k-step and
    block of 64 rows is that of the instruction."""
    i = WGMMA[instr]
    p = i.pack
    return FragLayout(
        reg=(Mode(p, k, 1), Mode(2, m, 8), Mode(2, k, 4 * p), Mode(depth // i.k, k, i.k), Mode(rows // 64, m, 64)),
        lane=(Mode(4, k, p), Mode(8, m, 1)),
        warp=(Mode(GROUP_WARPS, m, 16),),
    )
