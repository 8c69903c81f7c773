"""MA-tile ops of the sm_90a class: TMA copies, wgmma, mbarriers, pipeline states, cluster barriers.

PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "Data Movement: bulk copies and
tensor maps", "mbarrier".

Meaning.

* ``tma.load`` and ``tma.store`` copy one tile between global memory and a stage of a shared buffer by TMA.  The index
  has one expression for each buffer axis: ``base``, ``base + AXIS`` for a tile axis of the slot (unit stride), or
  ``base`` and a digit ``AXIS // stride % size`` of one (``ma_tile.analysis.digits``).  Every slot axis of size > 1
  appears once, with all its digits, and the slot's last axis counts the buffer's last.  ``base`` is any uniform
  expression.  A load fills elements outside the buffer with zeros, and a store skips them.  The counted bytes are
  always those of the whole stage.  The buffer's innermost row is a multiple of 16 bytes.  A slot with swizzle ``w`` is
  copied in slabs of ``w`` bytes of columns, one instruction for each slab.
* ``tma.load`` without ``mbar`` is the *synchronous* form.  All consumers of the role execute it together, each distinct
  tile is copied once, and all threads continue when the bytes have arrived (wgmma sees them too).  Passes replace
  it; the emitter takes the asynchronous form only.  ``tma.load`` with ``mbar`` is issued by one thread (of a ``single``
  role, or thread 0 of the consumer), completes at an unknown later time and counts its bytes on the mbarrier.
* ``stream`` says that no other block reads these bytes soon.  The L2 cache then fetches only the requested bytes.
* ``mbar.init``: thread 0 of the block initialises all mbarriers of the kernel.  Other threads use them after a
  barrier of all threads of the block, or of the cluster if its blocks arrive at each other's mbarriers.  A kernel
  without ``mbar.init`` begins with initialised mbarriers.  A pass replaces this form, which the emitter refuses.
* An mbarrier phase completes when it has ``arrivals`` arrivals and all expected bytes have arrived.
* ``multicast`` c: the copy has the same destination in all c blocks of the cluster.  Each block issues the part of its
  rank: the slabs of the slot are assigned in order, or runs of its outermost axis where there are too few slabs.  Each
  part counts on the same mbarrier of every block.
* ``mma`` with an instruction of ``WGMMA`` (``ma_tile.ir.instruction_tables``) is a wgmma: a consumer of 4 warps
  computes 64 or 128 rows.  Operand ``a`` is a fragment in ``wg_a_layout`` or a slot, ``b`` is a slot (of 2-byte types
  in either major, of others with ``over`` last), each with swizzle 128, 64 or 32.  Without ``async`` it is synchronous,
  as if fence, commit and wait stood around it; a pass replaces this form, which the emitter refuses.  With ``async`` it
  is only issued.  Its result, and any stage or fragment that it reads, may not be accessed before a ``wg.wait`` lists
  the result.  A chain of MMAs into one accumulator needs no wait between them (``acc`` may be the outstanding result of
  an earlier MMA).
* ``wg.fence`` stands between the last write of the consumer's threads to a fragment (operand or accumulator) and
  the asynchronous MMA that uses it, and at the start of each group, because the assembler may move registers there.
* ``wg.commit`` closes a group of asynchronous MMAs.  ``wg.wait n`` waits until at most the n youngest groups of the
  consumer are outstanding, and makes the listed results readable.  ``volatile``: the compiler may not move it up.
* ``mbar.arrive .. each warp``: each warp of the consumer arrives once, after all its lanes.  ``cluster``: the arrival
  counts on the mbarrier of every block of the cluster.
* ``st.matrix`` stores a 16-bit fragment in the accumulator's layout to a stage, by stmatrix.
* ``fence.proxy``: TMA copies that are issued after a following barrier see what this thread wrote to shared memory.
* ``tma.store`` is issued by thread 0 of the consumer and reads the stage at an unknown later time.  The same thread
  executes ``tma.commit`` and ``tma.wait n [read]``.  After the wait, at most n groups still read shared memory
  (without ``read``: at most n groups are incomplete).  A barrier after the wait informs the other threads.
* ``cluster.arrive`` and ``cluster.wait`` are the two halves of a barrier of all threads of the cluster, at the top
  level of a kernel.  A wait after the last arrival may be conditional; blocks outside the condition continue.  Threads
  that waited see what the others did before they arrived.  A ``relaxed`` arrival only counts and orders nothing.
* ``st.shared .. block n`` stores to block n of the cluster, where the stage has the same offset.  It stands after a
  ``cluster.wait``, because block n may not run before, and before the end of block n.  Only such stores write the
  buffer.
* The variable ``consumer`` may occur in any expression, also in the number of a barrier.
"""

from __future__ import annotations

from typing import TypeAlias

from nautilus.core.expr.nodes import Expr
from nautilus.core.op_fields import (
    CLOSED_EXPR,
    EXPR,
    EXPRS,
    INTEGER,
    NAME,
    OPERAND,
    OPERANDS,
    READ_MEMORY,
    VARIABLE,
    WRITE_MEMORY,
    flag,
)
from nautilus.core.ops import SPAN, Effect, declare, op
from nautilus.core.source import Span
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
    """A uniform integer. It may read elements of inputs, at positions that are uniform too."""

    var: str = declare(VARIABLE)
    expr: Expr = declare(EXPR)
    span: Span = SPAN


@op(MA, "advance $pipeline( by $by)?", Effect.ADVANCE)
class AdvanceOp:
    """Advance a pipeline by ``by`` stages (None: one)."""

    pipeline: str = declare(STATE)
    by: Expr | None = declare(EXPR, default=None)
    span: Span = SPAN


@op(MA, "tma.load $slot, $buffer[$index]( mbar $mbar)?( multicast $multicast)?( $stream)?")
class TmaLoad:
    """Copies a tile to shared memory; ``mbar`` None: synchronous; ``stream``: its bytes are read once."""

    slot: Slot = declare(COPY_SLOT)
    buffer: str = declare(READ_MEMORY)
    index: tuple[Expr, ...] = declare(EXPRS)
    mbar: tuple[str, Expr] | None = declare(BARRIER_STAGE, default=None)
    multicast: int = declare(INTEGER, default=1)
    stream: bool = declare(flag("stream"), default=False)
    span: Span = SPAN


@op(MA, "tma.store $slot, $buffer[$index]")
class TmaStore:
    """Copies a stage of shared memory to a tile of an output."""

    slot: Slot = declare(READ_SLOT)
    buffer: str = declare(WRITE_MEMORY)
    index: tuple[Expr, ...] = declare(EXPRS)
    span: Span = SPAN


@op(MA, "tma.commit", Effect.COMMIT)
class TmaCommit:
    """Ends a group of TMA stores."""

    span: Span = SPAN


@op(MA, "tma.wait $pending( $read)?", Effect.WAIT)
class TmaWait:
    """Wait until at most ``pending`` store groups are incomplete, or still read shared memory (``read``)."""

    pending: int = declare(INTEGER, default=0)
    read: bool = declare(flag("read"), default=True)
    span: Span = SPAN


@op(MA, "mbar.init", Effect.INITIALISE)
class MbarInit:
    """Thread 0 of the block initialises all mbarriers of the kernel."""

    span: Span = SPAN


@op(MA, "mbar.expect $mbar[$stage] $bytes", Effect.ARRIVE)
class MbarExpect:
    """One arrival that expects ``bytes`` bytes of TMA loads."""

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
    """Stores a 16-bit fragment in an accumulator's layout to a stage, by stmatrix."""

    slot: Slot = declare(WRITE_SLOT)
    value: Frag = declare(OPERAND)
    span: Span = SPAN


@op(MA, "fence.proxy", Effect.FENCE)
class ProxyFence:
    """Makes writes of threads to shared memory visible to TMA and wgmma."""

    span: Span = SPAN


@op(MA, "wg.fence", Effect.FENCE)
class WgFence:
    """Orders accesses to registers before the wgmma after it."""

    span: Span = SPAN


@op(MA, "wg.commit", Effect.COMMIT)
class WgCommit:
    """Ends a group of asynchronous wgmma."""

    span: Span = SPAN


@op(MA, "wg.wait $pending( $volatile)?( $ready)?", Effect.WAIT)
class WgWait:
    """Wait until at most ``pending`` groups are outstanding; the results in ``ready`` are readable afterwards."""

    pending: int = declare(INTEGER)
    ready: tuple[Frag, ...] = declare(OPERANDS, default=())
    volatile: bool = declare(flag("volatile"), default=False)
    span: Span = SPAN


@op(MA, "cluster.arrive( $relaxed)?", Effect.ARRIVE)
class ClusterArrive:
    """All threads of the block arrive at the cluster barrier; a ``relaxed`` arrival orders nothing."""

    relaxed: bool = declare(flag("relaxed"), default=False)
    span: Span = SPAN


@op(MA, "cluster.wait", Effect.WAIT)
class ClusterWait:
    """Wait until all threads of the cluster have arrived."""

    span: Span = SPAN


@op(MA, "mbar.arrive $mbar[$stage]( each $each)?( $cluster)?", Effect.ARRIVE)
class MbarArrive:
    """``each``: ``thread`` (every thread arrives) or ``warp`` (each warp arrives once, after all its lanes)."""

    mbar: str = declare(BARRIER)
    stage: Expr = declare(EXPR)
    each: str = declare(NAME, default="thread")
    cluster: bool = declare(flag("cluster"), default=False)
    span: Span = SPAN


@op(MA, "mbar.wait $mbar[$stage] parity $parity", Effect.WAIT)
class MbarWait:
    """Wait until the phase of ``parity`` of the mbarrier is complete."""

    mbar: str = declare(BARRIER)
    stage: Expr = declare(EXPR)
    parity: Expr = declare(EXPR)
    span: Span = SPAN


#: the ops of this file
AsyncOp: TypeAlias = (
    LetOp | AdvanceOp | TmaLoad | TmaStore | TmaCommit | TmaWait | MbarInit | MbarExpect | NamedArrive | MatrixStore
    | ProxyFence | WgFence | WgCommit | WgWait | ClusterArrive | ClusterWait | MbarArrive | MbarWait
)  # fmt: skip
