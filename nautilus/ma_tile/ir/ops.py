"""MA-tile IR: the placement of tiles in registers and shared memory, the copies between them, and their order.

All threads of a role execute every op, in order.  A fragment value is a physical array (warp, lane, register); a
shared buffer is a range of bytes at an offset.  Synchronisation is explicit: a copy has arrived only after a wait,
and only barriers order threads.

The grammar derives from the declarations of the ops: ``ma_tile.text.grammar``.

Meaning.

* ``reduce`` combines registers first, then lanes by butterfly shuffles over the lane modes of the reduced axes, then,
  where warps split a reduced axis, warps through ``scratch`` (every warp writes its partials, a barrier,
  every warp reads all).  All threads that hold a result element end with the same bits.  With ``into`` only
  the registers are combined: the partial of each lane and warp that splits the reduced axes remains, as
  a position along the new axis of that name (one reduced axis, no ``scratch``).
* ``mul_unless_one x, y``: a warp executes the multiplication only if one of its threads holds a ``y`` that is not 1.
* ``ld.global .. nearest``: the vectors whose last position is between its bounds are aligned neighbours in memory.
* ``ld.global .. shift n``: both aligned vectors are in the tensor, and the mask has one value for the elements of each.
* ``undefined`` initialises a carried value that the loop overwrites before it reads it.
* ``ld.global .. volatile``: the compiler may not move the load up.  The kernel does not write the buffer.
* ``st.global .. atomic .. in NAME``: the trailing dimensions that the index reaches by values of fragments are a shared
  buffer of one axis, which the block fills with the identity when it starts.  The leading ones are the same in all its
  iterations.
* ``st.shared`` stores whole stages.  Of the warps that hold copies of an element, the first one stores it.
  ``ld.shared`` loads a whole stage or its beginning: fewer positions along some axes, or only the first one (the
  fragment has no such axis).  Positions on the buffer's axes are the fragment's; with ``from n`` either op accesses a
  part of the stage, which begins at ``n`` along the first axis of the buffer.
* ``ld.matrix`` reads the part of a stage that starts at position NUMBER along AXIS and extends over the
  fragment's size there, in an ``a_layout`` or ``b_layout`` of one k-step (16-bit types).
* ``cp.async``: the fragment layout ``threads`` assigns elements to threads; one instruction copies ``vec``
  consecutive elements of 4, 8 or 16 bytes in all.  Of the threads to which ``threads`` assigns one vector, the first
  one copies it.  Masked vectors arrive as zeros.  The copy completes at an unknown later time, in no order, before a
  ``cp.wait n`` of the *same thread* that leaves at most n of its younger groups pending.  Other threads see it after a
  barrier that follows that wait.  With ``mbar`` the copy instead arrives on that mbarrier when it completes.
* ``mma``: ``result = acc + a . b`` over ``over``, in steps of the instruction's k.  A shared operand is
  read through ``ldmatrix`` (16-bit types, both majors) or plain loads; ``ahead`` k-steps of shared
  operands are read before they are used.  ``zero_init``: where the uniform condition holds, ``acc`` counts as zero
  and is not read (wgmma only).  INSTR is a name in ``MMA`` or ``WGMMA``
  (``ma_tile.ir.instruction_tables``) and fixes the physical fragments.  ``fma`` is the scalar instruction for every
  type; it takes both operands from shared memory, or from registers whose layout does not split ``over`` between
  lanes.  Two operands in registers may both be fragments of *runs*, which have the terms in another common order.
  ``m16n8k8.tf32x2`` multiplies f32 operands in parts (``core.functions.parts``), in shared memory or in slices.
* ``for``, ``chain``: as in the VR-tile IR.  ``unroll``: the number of iterations in the body of the loop in
  machine code, also of the loop over k of an ``fma`` MMA.  Without it the C++ compiler chooses for a loop,
  and the loop over k completely.
* ``convert`` permutes the registers of each thread.  With equal layouts the result has the registers of the operand;
  with ``copy`` it always has registers of its own.
* ``paired``: one ldmatrix reads the fragments of two neighbouring column tiles of the right operand.
* ``roles``: disjoint warp ranges run different code concurrently.  A role of several ``consumers`` is divided into
  equal parts of whole warps.  Each consumer runs the whole body, its layouts cover the warps of one consumer,
  and the variable ``consumer`` (also in the body of a kernel with ``consumers``) is its number.  ``single``: only
  thread 0 of the first warp runs the body, which may contain control flow, ``let``, ``advance``, mbarrier ops, TMA
  copies and tile-scheduler ops, but no op on a fragment.  ``registers``: the number that each thread of the role has.
  ``increase`` or ``decrease`` says how it compares with what the launch allocates (PTX ISA, "setmaxnreg").

The physical interpreter (``ma_tile.interp.module``) chooses adversarially wherever the hardware may choose.  The
verifier (``ma_tile.verify.module``) rejects by default and requires one definition per fragment, layouts that cover
their tiles, projections where operands broadcast, slots inside their buffers where the expression is constant,
access swizzles equal to the buffer's, offsets aligned (16 bytes; 1024 for swizzle 128) and not overlapping unless
their live ranges are disjoint or one lies ``over`` the other, vectors that divide the contiguous run, shared memory
within the target's limit, fragments of matrix instructions in the instruction's own layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from nautilus.core.buffers import Buffer, Fact, HasBuffers, ScalarParam
from nautilus.core.common_ops import CommonConst, CommonFor, CommonIndex, CommonMap, CommonParam
from nautilus.core.expr.build import ZERO, calc
from nautilus.core.expr.nodes import Expr
from nautilus.core.index.simplify import simplify
from nautilus.core.op_fields import (
    AXES,
    AXIS,
    CLOSED_EXPR,
    COMBINER,
    EXPR,
    EXPRS,
    INTEGER,
    NAME,
    OPERAND,
    READ_MEMORY,
    REGION,
    WRITE_MEMORY,
    flag,
)
from nautilus.core.ops import RESULT, SPAN, Effect, FieldRole, Kind, declare, op, part, walk
from nautilus.core.source import Span
from nautilus.core.text import syntax
from nautilus.core.text.modules import BUFFERS, FACTS, PARAMS, kernels
from nautilus.ma_tile.ir.async_ops import AdvanceOp as AdvanceOp
from nautilus.ma_tile.ir.async_ops import AsyncOp as AsyncOp
from nautilus.ma_tile.ir.async_ops import ClusterArrive as ClusterArrive
from nautilus.ma_tile.ir.async_ops import ClusterWait as ClusterWait
from nautilus.ma_tile.ir.async_ops import LetOp as LetOp
from nautilus.ma_tile.ir.async_ops import MatrixStore as MatrixStore
from nautilus.ma_tile.ir.async_ops import MbarArrive as MbarArrive
from nautilus.ma_tile.ir.async_ops import MbarExpect as MbarExpect
from nautilus.ma_tile.ir.async_ops import MbarInit as MbarInit
from nautilus.ma_tile.ir.async_ops import MbarWait as MbarWait
from nautilus.ma_tile.ir.async_ops import NamedArrive as NamedArrive
from nautilus.ma_tile.ir.async_ops import ProxyFence as ProxyFence
from nautilus.ma_tile.ir.async_ops import TmaCommit as TmaCommit
from nautilus.ma_tile.ir.async_ops import TmaLoad as TmaLoad
from nautilus.ma_tile.ir.async_ops import TmaStore as TmaStore
from nautilus.ma_tile.ir.async_ops import TmaWait as TmaWait
from nautilus.ma_tile.ir.async_ops import WgCommit as WgCommit
from nautilus.ma_tile.ir.async_ops import WgFence as WgFence
from nautilus.ma_tile.ir.async_ops import WgWait as WgWait
from nautilus.ma_tile.ir.dependent_launch import DependentLaunchOp as DependentLaunchOp
from nautilus.ma_tile.ir.dependent_launch import GridLaunchDependents as GridLaunchDependents
from nautilus.ma_tile.ir.dependent_launch import GridWait as GridWait
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.row_store import RowStore as RowStore
from nautilus.ma_tile.ir.scan import ScanOp as ScanOp
from nautilus.ma_tile.ir.slices import SliceOp as SliceOp
from nautilus.ma_tile.ir.slices import StackOp as StackOp
from nautilus.ma_tile.ir.slices import WindowOp as WindowOp
from nautilus.ma_tile.ir.tile_scheduler import BreakOp as BreakOp
from nautilus.ma_tile.ir.tile_scheduler import QueuePop as QueuePop
from nautilus.ma_tile.ir.tile_scheduler import QueuePush as QueuePush
from nautilus.ma_tile.ir.tile_scheduler import SchedulerOp as SchedulerOp
from nautilus.ma_tile.ir.tile_scheduler import TileFetch as TileFetch
from nautilus.ma_tile.ir.tile_scheduler import TileFirst as TileFirst
from nautilus.ma_tile.ir.tile_scheduler import TileReset as TileReset
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp as TileSchedulerOp
from nautilus.ma_tile.ir.unpack import UnpackOp as UnpackOp
from nautilus.ma_tile.ir.values import (
    BARRIER_STAGE,
    COPY_SLOT,
    DECODE,
    LAYOUT,
    LAYOUTS,
    MA,
    OPERAND_OR_SLOT,
    READ_SLOT,
    SCRATCH,
    WRITE_SLOT,
)
from nautilus.ma_tile.ir.values import Frag as Frag
from nautilus.ma_tile.ir.values import Mbar as Mbar
from nautilus.ma_tile.ir.values import PipelineState as PipelineState
from nautilus.ma_tile.ir.values import Slot as Slot
from nautilus.ma_tile.ir.values import Smem as Smem

PAIRED = flag("paired")
INCREASE, DECREASE = "increase", "decrease"
CHANGE = FieldRole(Kind.ATTRIBUTE, syntax.words({w: w for w in (INCREASE, DECREASE)}))


@op(MA)
class ConstOp(CommonConst[Frag]):
    """Every element is ``value``."""


@op(MA, "index $expr( $split)?")
class IndexOp(CommonIndex[Frag]):
    """``split``: computed from a term of the thread and a constant of the register, where the result is the same."""

    split: bool = declare(flag("split"), default=False)


@op(MA)
class ParamOp(CommonParam[Frag]):
    """A scalar argument."""


@op(MA)
class MapOp(CommonMap[Frag]):
    """Elementwise ``op`` with broadcasting by axis name."""


@op(MA, "reduce $combiner $arg( times $times)?( where $where)? over $axes( scratch $scratch)?( into $into)?")
class ReduceOp:
    """``combiner`` over ``axes``; ``scratch``: shared memory for results of warps; ``into``: the axis of parts.

    A sum may be one of products ``arg`` ``times`` another operand, added up with one rounding each, and of those terms
    alone ``where`` a condition holds.
    """

    result: Frag = declare(RESULT)
    combiner: str = declare(COMBINER)
    arg: Frag = declare(OPERAND)
    axes: tuple[str, ...] = declare(AXES)
    scratch: str | None = declare(SCRATCH, default=None)
    into: str | None = declare(AXIS, default=None)
    times: Frag | None = declare(OPERAND, default=None)
    where: Frag | None = declare(OPERAND, default=None)
    span: Span = SPAN


@op(MA, "convert $arg( $copy)?( interleaved $interleaved)?")
class ConvertOp:
    """``arg`` in the element type and the layout of ``result``; ``copy``: in registers of its own."""

    result: Frag = declare(RESULT)
    arg: Frag = declare(OPERAND)
    copy: bool = declare(flag("copy"), default=False)
    interleaved: str | None = declare(AXIS, default=None)  # has positions in the result (core.expr.interleaved)
    span: Span = SPAN


@op(MA, "undefined")
class UndefinedOp:
    """Registers without a value."""

    result: Frag = declare(RESULT)
    span: Span = SPAN


@op(MA, "ld.global $buffer[$index]( where $mask)? vec $vec( repeat $repeat)?( shift $shift)?( $nearest)?( $volatile)?")
class GlobalLoad:
    """Loads ``vec`` registers with each instruction; ``volatile``: the compiler does not move it.

    ``repeat``: neighbouring registers that hold one element, as those of the elements that share a byte do.
    ``shift``: the registers lie this many elements after a multiple of ``vec``, in two aligned vectors.
    ``nearest``: the last position is the nearest one between two bounds, and between these are whole vectors: the
    registers of a vector beyond a bound have the element there.
    """

    result: Frag = declare(RESULT)
    buffer: str = declare(READ_MEMORY)
    index: tuple[Expr, ...] = declare(EXPRS)
    mask: Expr | None = declare(EXPR, default=None)
    vec: int = declare(INTEGER, default=1)
    volatile: bool = declare(flag("volatile"), default=False)
    repeat: int | None = declare(INTEGER, default=None)
    span: Span = SPAN
    shift: int | None = declare(INTEGER, default=None)
    nearest: bool = declare(flag("nearest"), default=False)


@op(MA, "st.global $buffer[$index], $value( where $mask)? vec $vec( atomic $combiner)?( in $scratch)?")
class GlobalStore:
    """``combiner``: the elements are combined with what is there, one by one (PTX ``red``); in any order.

    ``scratch``: the block combines its elements in this shared buffer first, and that one with memory when it ends.
    """

    buffer: str = declare(WRITE_MEMORY)
    index: tuple[Expr, ...] = declare(EXPRS)
    value: Frag = declare(OPERAND)
    mask: Expr | None = declare(EXPR, default=None)
    vec: int = declare(INTEGER, default=1)
    span: Span = SPAN
    combiner: str | None = declare(COMBINER, default=None)
    scratch: str | None = declare(SCRATCH, default=None)


@op(MA, "ld.shared $slot( from $start)? vec $vec")
class SharedLoad:
    """Loads a stage of shared memory to registers, ``vec`` elements with each instruction.

    ``start``: where the part that is loaded begins along the first axis of the buffer.
    """

    result: Frag = declare(RESULT)
    slot: Slot = declare(READ_SLOT)
    vec: int = declare(INTEGER, default=1)
    span: Span = SPAN
    start: int | None = declare(INTEGER, default=None)


@op(MA, "ld.matrix $slot at $axis $start( $paired)?")
class MatrixLoad:
    """Operand fragments of one k-step through ldmatrix; ``axis`` is contracted, ``start`` in elements."""

    result: Frag = declare(RESULT)
    slot: Slot = declare(READ_SLOT)
    axis: str = declare(AXIS)
    start: int = declare(INTEGER)
    paired: bool = declare(PAIRED, default=False)
    span: Span = SPAN


@op(MA, "st.shared $slot( from $start)?( block $block)?, $value vec $vec")
class SharedStore:
    """``block``: the destination block of the cluster; None: this block.

    ``start``: where the part that is stored begins along the first axis of the buffer; None: the value is a whole tile.
    """

    slot: Slot = declare(WRITE_SLOT)
    value: Frag = declare(OPERAND)
    vec: int = declare(INTEGER, default=1)
    block: int | None = declare(INTEGER, default=None)
    span: Span = SPAN
    start: int | None = declare(INTEGER, default=None)


@op(MA, "cp.async $slot, $buffer[$index]( where $mask)? vec $vec( $cached)? threads $threads( mbar $mbar)?")
class AsyncCopy:
    """Copies a global tile to a stage of shared memory; ``index`` and ``mask`` are over the buffer's tile axes.

    ``cached``: vectors of 16 bytes stay in L1, as shorter ones do.
    """

    slot: Slot = declare(COPY_SLOT)
    buffer: str = declare(READ_MEMORY)
    index: tuple[Expr, ...] = declare(EXPRS)
    mask: Expr | None = declare(EXPR)
    vec: int = declare(INTEGER)
    threads: str = declare(LAYOUT)
    mbar: tuple[str, Expr] | None = declare(BARRIER_STAGE, default=None)
    span: Span = SPAN
    cached: bool = declare(flag("cached"), default=False)


@op(MA, "cp.commit", Effect.COMMIT)
class AsyncCommit:
    """Ends a group of ``cp.async`` copies."""

    span: Span = SPAN


@op(MA, "cp.wait $pending", Effect.WAIT)
class AsyncWait:
    """Wait until at most ``pending`` groups of ``cp.async`` copies are incomplete."""

    pending: int = declare(INTEGER)
    span: Span = SPAN


@op(MA, "barrier( $team)?( $number(, $threads)?)?", Effect.ARRIVE, Effect.WAIT)
class Barrier:
    """A barrier of all threads of the block (``threads`` None), or of ``threads`` threads, named ``number``.

    ``team``: of all threads of all blocks of a team, which then see what the others have stored in global memory.
    """

    number: Expr = declare(CLOSED_EXPR, default=ZERO)
    threads: int | None = declare(INTEGER, default=None)
    span: Span = SPAN
    team: bool = declare(flag("team"), default=False)


@op(
    MA,
    "mma $instr $a, $b( + $acc)? over $over( terms $terms)?( ahead $ahead)?( $paired)?( $is_async)?"
    "( zero_init $zero_init)?( unroll $unroll)?",
)
class MmaOp:
    """``result = acc + a . b`` over axis ``over``; acc None means zero.

    ``is_async``: a wgmma that is only issued (``ma_tile.ir.async_ops``); ``zero_init``: where this condition holds,
    the accumulator starts from zero.  ``terms``: a wgmma multiplies the first ones of ``over`` alone; the others are 0.
    """

    result: Frag = declare(RESULT)
    instr: str = declare(NAME)
    a: Frag | Slot = declare(OPERAND_OR_SLOT)
    b: Frag | Slot = declare(OPERAND_OR_SLOT)
    acc: Frag | None = declare(OPERAND)
    over: str = declare(AXIS)
    terms: int | None = declare(INTEGER, default=None)
    ahead: int = declare(INTEGER, default=0)
    paired: bool = declare(PAIRED, default=False)
    is_async: bool = declare(flag("async"), default=False)
    zero_init: Expr | None = declare(EXPR, default=None)
    unroll: int | None = declare(INTEGER, default=None)
    span: Span = SPAN


@op(MA, "if $cond {$body}")
class IfOp:
    """Runs ``body`` where the uniform ``cond`` holds."""

    cond: Expr = declare(EXPR)
    body: tuple[MemOp, ...] = declare(REGION)
    span: Span = SPAN


@op(MA, "for $var in $lo..$hi( chain $chain)?( unroll $unroll)? carry($carried) {$body yield $yields}")
class ForOp(CommonFor[Frag, "MemOp"]):
    """``for var in lo..hi``; ``carried`` pairs body arguments with initial values."""

    unroll: int | None = declare(INTEGER, default=None)


@part(
    "role $name warps $first_warp..$last_warp( registers $registers( $change)?)?( consumers $consumers)?( $single)?"
    " {$body}"
)
class Role:
    """``consumers``: number of equal parts that each run the body; ``single``: only one thread runs it.

    ``change``: how ``registers`` compares with what the launch allocates (None: not decided yet).
    """

    name: str = declare(NAME)
    first_warp: int = declare(INTEGER)
    last_warp: int = declare(INTEGER)  # exclusive
    registers: int | None = declare(INTEGER)
    body: tuple[MemOp, ...] = declare(REGION)
    consumers: int = declare(INTEGER, default=1)
    single: bool = declare(flag("single"), default=False)
    change: str | None = declare(CHANGE, default=None)


@op(MA, "roles {$roles}")
class RolesOp:
    """Ranges of warps that run their own code, ``roles``, at the same time."""

    roles: tuple[Role, ...] = declare(FieldRole(Kind.PARTS, syntax.parts(Role, "role")))
    span: Span = SPAN


MemOp: TypeAlias = (
    ConstOp | IndexOp | ParamOp | MapOp | ReduceOp | ScanOp | ConvertOp | SliceOp | StackOp | WindowOp | UndefinedOp
    | UnpackOp | GlobalLoad | GlobalStore | SharedLoad | MatrixLoad | SharedStore | RowStore
    | AsyncCopy | AsyncCommit | AsyncWait | Barrier
    | MmaOp | IfOp | ForOp | RolesOp | AsyncOp | SchedulerOp | DependentLaunchOp
)  # fmt: skip
MA.close(MemOp)


@part(
    "kernel $name grid $blocks warps $warps min_blocks $min_blocks( consumers $consumers)?( cluster $cluster)?"
    "( spread $spread)?( team $team in $arrivals)?( packed $packed)? {$decode $layouts $smem $mbars $pipelines $body}"
)
class MemKernel:
    """One launch: ``blocks`` blocks of ``warps`` warps. ``decode`` gives grid variables from ``block``, and integers
    that a block reads from inputs at positions made of them.

    ``consumers``: number of equal parts of the block that each run the code outside of roles, each with its own
    ``consumer``.  ``cluster``: number of consecutive blocks in a cluster.  ``spread``: number of blocks of the launch
    that run one block of this kernel as a cluster.  Each runs as many of its warps, ``barrier`` is one of the cluster,
    and there is no shared memory, so that warps exchange values in global memory alone.  ``team``: number of
    consecutive blocks, the points of the last axis of the grid, that wait for each other at barriers of the team.  All
    blocks of such a launch run at the same time (a cooperative launch).  ``arrivals``: the temp in which they count
    their arrivals, a row for each team, whose first element is 0 before the launch.  ``packed``: number of blocks of
    one warp that a block of the launch runs, one in each of its warps.
    """

    name: str = declare(NAME)
    blocks: Expr = declare(EXPR)
    warps: int = declare(INTEGER)
    min_blocks: int = declare(INTEGER)
    decode: tuple[tuple[str, Expr], ...] = declare(DECODE)
    layouts: Mapping[str, FragLayout] = declare(LAYOUTS)
    smem: tuple[Smem, ...] = declare(FieldRole(Kind.ATTRIBUTE, syntax.parts(Smem, "smem")))
    mbars: tuple[Mbar, ...] = declare(FieldRole(Kind.ATTRIBUTE, syntax.parts(Mbar, "mbar")))
    body: tuple[MemOp, ...] = declare(REGION)
    span: Span = SPAN
    consumers: int = declare(INTEGER, default=1)
    pipelines: tuple[PipelineState, ...] = declare(
        FieldRole(Kind.ATTRIBUTE, syntax.parts(PipelineState, "pipeline")), default=()
    )
    cluster: int = declare(INTEGER, default=1)
    spread: int = declare(INTEGER, default=1)
    team: int = declare(INTEGER, default=1)
    arrivals: str = declare(NAME, default="")
    packed: int = declare(INTEGER, default=1)

    @property
    def together(self) -> int:
        """The number of consecutive blocks that wait for each other, as a cluster or a team."""
        return max(self.cluster, self.team)

    @property
    def threads(self) -> int:
        """Threads of a block of the launch."""
        return 32 * self.warps * self.packed // self.spread

    @property
    def launched(self) -> Expr:
        """The number of blocks of the launch."""
        if self.packed > 1:
            return simplify(calc("floordiv", calc("add", self.blocks, self.packed - 1), self.packed))
        return self.blocks if self.spread == 1 else simplify(calc("mul", self.blocks, self.spread))

    @property
    def pdl(self) -> bool:
        """Whether the launch is a programmatic dependent launch."""
        return any(isinstance(op, GridWait) for op in self.body)

    @property
    def smem_bytes(self) -> int:
        """Dynamic shared memory of the launch, in bytes."""
        ends = [s.offset + s.bytes for s in self.smem] + [m.offset + 8 * m.stages for m in self.mbars]
        return max(ends, default=0)


@part("module $name target $target {$buffers $params $facts $kernels}")
class MemModule(HasBuffers):
    """A whole spec at the MA-tile level, for one architecture (``sm_80`` ...)."""

    name: str = declare(NAME)
    target: str = declare(NAME)
    buffers: tuple[Buffer, ...] = declare(BUFFERS)
    params: tuple[ScalarParam, ...] = declare(PARAMS)
    kernels: tuple[MemKernel, ...] = declare(kernels(MemKernel))
    facts: tuple[Fact, ...] = declare(FACTS, default=())


def walk_ops(body: tuple[MemOp, ...]) -> Iterator[MemOp]:
    """Every op under ``body`` in program order, a structured op before its bodies."""
    return walk(body)
