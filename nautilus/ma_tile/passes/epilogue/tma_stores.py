"""TMA stores: each accumulator is stored as one box, through a swizzled shared buffer of its consumer.

Switch: ``WarpgroupPlan.epilogue`` ``tma``, ``tma-aliased`` or ``tma-staged``.  A store of an accumulator becomes

* a cast to the buffer's type, if the types differ;
* ``tma.wait 0 read`` and a barrier of the consumer: the previous store no longer reads the stage;
* ``st.matrix`` to the stage, ``fence.proxy``, a barrier of the consumer;
* ``tma.store`` and ``tma.commit``.

The stores of a kernel share buffers of one shape.  If whole tiles do not fit beside the load pipelines, a store is
divided into pieces of 64 columns (or as many as divide the tile).  The pieces are slices of the fragment and alternate
between two stages per consumer, with one barrier each.  Consecutive stores of one shape (``chunk-epilogue`` makes them)
alternate between two stages likewise (``rewriting.double_buffered_stores``).  The end of the kernel waits until the
last store has read the stage; the bytes of the store are written when the store completes.

``tma-aliased``: the stage is that of a loaded left operand of the same shape and type, if each consumer has its own
stage and no op reads it between the store and the next load.  Its release then stands after the wait
(``specialise-warps``).  If the operand's columns are another axis, the columns of the stored tile take that axis's name
(``rewriting.rename_axis``).  The pass raises ScheduleError where
there is no such operand.

``tma-staged``: always in pieces or double-buffered.  The buffer has no bytes of its own: ``specialise-warps`` places it
in a stage of a load pipeline (``rewriting.stage_aliasing``).

A store is not changed if the TMA unit cannot do it: elements of other than 16 bits, a layout that is not an
accumulator's, columns that fill no swizzled row, rows in memory that are no multiples of 16 bytes, an index that is not
``base + AXIS`` or digits of the two axes, or a mask other than "inside the buffer".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nautilus.core.buffers import Buffer
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import calc, integer, within
from nautilus.core.expr.nodes import Expr, Op, Ref, Var, free_vars, substitute, walk
from nautilus.core.index.simplify import TRUE, conjuncts, linear_in, simplify
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpgroupPlan
from nautilus.core.schedule.mapping import WarpgroupEpilogue
from nautilus.core.text.names import fresh
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.digits import Digit, digit_of, is_whole
from nautilus.ma_tile.analysis.pipelines import find_pipelines
from nautilus.ma_tile.analysis.tma_boxes import SWIZZLES, device_ends, whole_rows
from nautilus.ma_tile.ir.async_ops import CONSUMER, MatrixStore, ProxyFence, TmaCommit, TmaLoad, TmaStore, TmaWait
from nautilus.ma_tile.ir.instruction_tables import wg_acc_layout
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import GlobalStore, MapOp, MemKernel, MemModule, MemOp, RolesOp, SliceOp, walk_ops
from nautilus.ma_tile.ir.traverse import each_planned_kernel, rebuild, touch
from nautilus.ma_tile.ir.values import Frag, Slot, Smem
from nautilus.ma_tile.passes.copies.specialise_warps import obstacle
from nautilus.ma_tile.passes.finalise.allocate_shared import reallocate
from nautilus.ma_tile.rewriting.double_buffered_stores import StoreStage, double_buffered
from nautilus.ma_tile.rewriting.named_barriers import consumer_barrier
from nautilus.ma_tile.rewriting.rename_axis import rename_axis
from nautilus.ma_tile.rewriting.renaming import Names, known_ranges
from nautilus.ma_tile.verify.layout import same_map
from nautilus.targets.limits import TENSOR_MAP_AXES, limits

#: bytes left for the tile-scheduler queue, barriers and alignment
_SPARE = 1024

Ranges = dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class TmaStores:
    """``epilogue`` overrides the schedule, ``limit`` the target's bytes of shared memory a block."""

    schedule: Schedule | None = None
    epilogue: WarpgroupEpilogue | None = None
    limit: int | None = None
    name = "tma-stores"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with TMA stores of accumulators.  Raises ScheduleError where a plan does not fit."""
        limit = self.limit if self.limit is not None else limits(module.target).smem_block

        return each_planned_kernel(module, self, WarpgroupPlan, lambda k, plan: store_by_tma(k, module, plan, limit))


def store_by_tma(kernel: MemKernel, module: MemModule, plan: WarpgroupPlan, limit: int) -> MemKernel:
    """``kernel`` with its accumulators stored by the TMA unit if it can do so."""
    ops = list(walk_ops(kernel.body))
    if plan.epilogue == "direct" or any(isinstance(op, RolesOp) for op in ops):
        return kernel
    if plan.epilogue == "tma-aliased":
        kernel = _matched(kernel, module, plan, limit)
    work = _Stores(kernel, module, plan, limit)
    body = rebuild(kernel.body, lambda op: work.store(op) if isinstance(op, GlobalStore) else (op,))
    if not work.used:
        return kernel
    out = replace(
        kernel,
        layouts=dict(kernel.layouts) | work.layouts,
        smem=(*kernel.smem, *work.new),
        body=(*body, TmaWait(0, True, kernel.span)),
    )
    return reallocate(out, limits(module.target))


class _Stores:
    """The stores of one kernel."""

    def __init__(self, kernel: MemKernel, module: MemModule, plan: WarpgroupPlan, limit: int) -> None:
        self.kernel, self.plan = kernel, plan
        self.room = limit - pipeline_bytes(kernel, plan)
        self.buffers = {b.name: b for b in module.buffers}
        self.consumers = plan.warpgroups if plan.tile_scheduling == "pingpong" else kernel.consumers
        self.names = Names(kernel).frags
        self.ranges = known_ranges(kernel)
        self.new: list[Smem] = []
        self.uses: dict[str, str] = {}  # use of a new buffer: whole, pieces, or double-buffered
        self.layouts: dict[str, FragLayout] = {}
        self.used = False
        self.stages_of = double_buffered(kernel.body, self._shape) if plan.epilogue != "tma-aliased" else {}

    def store(self, op: GlobalStore) -> tuple[MemOp, ...]:
        """The ops that replace ``op``."""
        axes = self.accumulator(op.value) if op.combiner is None else None
        found = None if axes is None else box(op, self.buffers[op.buffer], axes, self.ranges)
        if axes is None or found is None:
            return (op,)
        self.used = True
        dtype = self.buffers[op.buffer].dtype
        if self.plan.epilogue == "tma-aliased":
            return self._whole(op, self._dead(op, dtype, axes), found)
        if id(op) in self.stages_of and self._fits_twice(dtype, axes):
            buffer = self._buffer(op, dtype, axes, "double-buffered")
            return self._double_buffered(op, op.value, buffer, found, self.stages_of[id(op)])
        if self.plan.epilogue == "tma" and self._fits(dtype, axes):
            stage = Slot(self._buffer(op, dtype, axes, "whole"), Var(CONSUMER), _swizzle(axes[1]))
            return self._whole(op, stage, found)
        return self._pieces(op, axes, found)

    def _whole(self, op: GlobalStore, stage: Slot, index: tuple[Expr, ...]) -> tuple[MemOp, ...]:
        """Store through one stage."""
        cast, value = self._cast(op, op.value)
        barrier, span = consumer_barrier(), op.span
        return (
            *cast, TmaWait(0, True, span), barrier, MatrixStore(stage, value, span), ProxyFence(span), barrier,
            TmaStore(stage, op.buffer, index, span), TmaCommit(span),
        )  # fmt: skip

    def _cast(self, op: GlobalStore, value: Frag) -> tuple[tuple[MemOp, ...], Frag]:
        """``value`` in the type of the buffer that ``op`` stores to, and the op that makes it so."""
        dtype = self.buffers[op.buffer].dtype
        if value.type.dtype is dtype:
            return (), value
        half = Frag(fresh(f"{value.name}_{dtype}", self.names), TileType(dtype, value.type.axes), value.layout)
        return (MapOp(half, "cast", (value,), op.span),), half

    def _shape(self, op: GlobalStore) -> tuple[DType, tuple[TileAxis, TileAxis]] | None:
        """Type and axes of the stage of ``op``, if it can be a TMA store."""
        axes = self.accumulator(op.value) if op.combiner is None else None
        buffer = self.buffers[op.buffer]
        return None if axes is None or box(op, buffer, axes, self.ranges) is None else (buffer.dtype, axes)

    def _fits_twice(self, dtype: DType, axes: tuple[TileAxis, TileAxis]) -> bool:
        """Whether two stages per consumer fit beside the pipelines and the existing buffers, or alias a stage."""
        if self.plan.epilogue == "tma-staged":
            return True
        if any((s.dtype, s.axes, self.uses[s.name]) == (dtype, axes, "double-buffered") for s in self.new):
            return True
        left = self.room - sum(s.bytes for s in self.new)
        return 2 * self.consumers * axes[0].size * axes[1].size * dtype.bytes <= left

    def _double_buffered(
        self, op: GlobalStore, part: Frag, buffer: str, index: tuple[Expr, ...], staged: StoreStage
    ) -> tuple[MemOp, ...]:
        """Store ``part``, one of consecutive stores through two stages (``rewriting.double_buffered_stores``)."""
        number = simplify(calc("add", calc("mul", Var(CONSUMER), 2), staged.number % 2))
        stage = Slot(buffer, number, next(s.swizzle for s in self.new if s.name == buffer))
        cast, value = self._cast(op, part)
        barrier, wait, span = consumer_barrier(), TmaWait(0, True, op.span), op.span
        return (
            *((wait, barrier) if staged.waits else ()), *cast, MatrixStore(stage, value, span), ProxyFence(span),
            wait, barrier, TmaStore(stage, op.buffer, index, span), TmaCommit(span),
        )  # fmt: skip

    def _pieces(self, op: GlobalStore, axes: tuple[TileAxis, TileAxis], index: tuple[Expr, ...]) -> tuple[MemOp, ...]:
        """Store in pieces, which are consecutive stores of their own."""
        m, n = axes
        width = piece_width(n)
        part = TileAxis(n.name, width)
        buffer = self._buffer(op, self.buffers[op.buffer].dtype, (m, part), "pieces")
        layout = self._layout(wg_acc_layout(m.name, n.name, m.size, width), n.name)
        kind = TileType(op.value.type.dtype, tuple(part if a.name == n.name else a for a in op.value.type.axes))
        out: list[MemOp] = []
        for p in range(n.size // width):
            value = Frag(fresh(f"{op.value.name}_{p * width}", self.names), kind, layout)
            out.append(SliceOp(value, op.value, n.name, p * width, op.span))
            at = tuple(_shifted(e, part, p * width) for e in index)
            # the first piece waits: the stage of the previous store is unknown
            out += self._double_buffered(op, value, buffer, at, StoreStage(p, p == 0))
        return tuple(out)

    def _layout(self, layout: FragLayout, axis: str) -> str:
        found = next((n for n, x in (*self.kernel.layouts.items(), *self.layouts.items()) if x == layout), None)
        if found is not None:
            return found
        taken = {*self.kernel.layouts, *self.layouts}
        name = next(n for n in (f"part_{axis}", *(f"part{i}_{axis}" for i in range(99))) if n not in taken)
        self.layouts[name] = layout
        return name

    def _fits(self, dtype: DType, axes: tuple[TileAxis, TileAxis]) -> bool:
        """Whether stages for whole tiles fit beside the pipelines and the existing buffers."""
        m, n = axes
        if (
            any((s.dtype, s.axes, self.uses[s.name]) == (dtype, axes, "whole") for s in self.new)
            or piece_width(n) * 2 >= n.size
        ):
            return True
        left = self.room - sum(s.bytes for s in self.new)
        return self.consumers * m.size * n.size * dtype.bytes <= left

    def accumulator(self, value: Frag) -> tuple[TileAxis, TileAxis] | None:
        """Rows and columns of ``value``, if its layout is that of an accumulator that stmatrix can store."""
        axes = [a for a in value.type.axes if a.size > 1]
        if len(axes) != 2:
            return None
        for m, n in (axes, axes[::-1]):
            if m.size % 64 == 0 and n.size % 8 == 0 and _swizzle(n):
                layout = self.kernel.layouts[value.layout]
                if layout.warps == 4 and same_map(layout, wg_acc_layout(m.name, n.name, m.size, n.size)):
                    return m, n
        return None

    def _buffer(self, op: GlobalStore, dtype: DType, axes: tuple[TileAxis, ...], use: str) -> str:
        """A buffer with one stage a consumer (``use`` whole) or two; stores of one shape and use share it."""
        stages = self.consumers * (1 if use == "whole" else 2)
        for s in self.new:
            if (s.dtype, s.axes, self.uses[s.name]) == (dtype, axes, use):
                return s.name
        taken = {s.name for s in (*self.kernel.smem, *self.new)}
        name = next(n for n in (f"out_{op.buffer}", *(f"out{i}_{op.buffer}" for i in range(99))) if n not in taken)
        self.uses[name] = use
        self.new.append(Smem(name, dtype, axes, stages, _swizzle(axes[-1])))
        return name

    def _dead(self, op: GlobalStore, dtype: DType, axes: tuple[TileAxis, ...]) -> Slot:
        """The stage of an operand that is not read between ``op`` and its next load."""
        for s, slot in self.dead(op, dtype, axes):
            if s.axes == axes:
                return slot
        raise ScheduleError(
            f"epilogue tma-aliased: no operand has a free stage for the store of {op.buffer}", kernel=self.kernel.name
        )

    def dead(self, op: GlobalStore, dtype: DType, axes: tuple[TileAxis, ...]) -> Iterator[tuple[Smem, Slot]]:
        """Operands of the shape of ``axes`` that are dead at ``op``, and the stage of this consumer."""
        top = next((n for n, x in enumerate(self.kernel.body) if x is op), len(self.kernel.body))
        everywhere = [x for x in walk_ops(self.kernel.body) if isinstance(x, TmaLoad)]
        shape = [a.size for a in axes]
        for s in self.kernel.smem:
            loads = [x for x in everywhere if x.slot.buffer == s.name]
            once = len(loads) == 1 and loads[0] in self.kernel.body[:top]
            later = any(s.name in _buffers(x) for x in self.kernel.body[top:])
            if not once or later or top == len(self.kernel.body):
                continue
            apart = loads[0].slot.stage == Var(CONSUMER) or self.kernel.consumers == 1
            same = (s.dtype, s.swizzle) == (dtype, _swizzle(axes[-1])) and [a.size for a in s.axes] == shape
            if apart and same and s.axes[0] == axes[0]:
                yield s, loads[0].slot


def _matched(kernel: MemKernel, module: MemModule, plan: WarpgroupPlan, limit: int) -> MemKernel:
    """``kernel`` with the columns of each store renamed to those of an operand whose stage it may alias."""
    for n in range(sum(isinstance(op, GlobalStore) for op in kernel.body)):
        work = _Stores(kernel, module, plan, limit)
        op = [x for x in kernel.body if isinstance(x, GlobalStore)][n]
        axes = work.accumulator(op.value)
        found = list(work.dead(op, work.buffers[op.buffer].dtype, axes)) if axes is not None else []
        if axes is None or any(s.axes == axes for s, _ in found):
            continue
        renamed = (rename_axis(kernel, axes[1].name, s.axes[1].name) for s, _ in found)
        kernel = next((k for k in renamed if k is not None), kernel)
    return kernel


def _buffers(op: MemOp) -> frozenset[str]:
    return frozenset(s.buffer for x in walk_ops((op,)) for s in touch(x).all)


def _swizzle(columns: TileAxis) -> int:
    """The widest swizzle that rows of 16-bit elements fill; 0 for none."""
    return next((w for w in SWIZZLES if columns.size * 2 % w == 0), 0)


def piece_width(columns: TileAxis) -> int:
    """Columns of one piece of a store: one swizzled row."""
    return _swizzle(columns) // 2


def pipeline_bytes(kernel: MemKernel, plan: WarpgroupPlan, spare: int = _SPARE) -> int:
    """Upper bound of the shared memory that the kernel needs for its load pipelines and its other buffers.

    ``spare``: for the barriers and buffers of later passes, and for alignment.
    """
    pipelines = find_pipelines(kernel, plan) if plan.warp_specialised and obstacle(kernel) is None else ()
    stages = {b: r.stages_of(b) for r in pipelines for b in r.buffers}
    barriers = sum(16 * r.depth for r in pipelines) + spare
    return barriers + sum(s.stage_bytes * stages.get(s.name, s.stages) for s in kernel.smem)


def box(op: GlobalStore, buffer: Buffer, axes: tuple[TileAxis, ...], ranges: Ranges) -> tuple[Expr, ...] | None:
    """The index of ``op`` as the TMA store of a tile over ``axes``, rows and columns; None where it is no box."""
    shape = buffer.shape
    fits = 0 < len(shape) <= TENSOR_MAP_AXES and whole_rows(buffer) and not device_ends(buffer)
    if not fits or buffer.dtype.bytes != 2 or any(isinstance(x, Ref) for e in op.index for x in walk(e)):
        return None
    sizes = {a.name: a.size for a in op.value.type.axes if a.size > 1}
    positions = {name: (0, size - 1) for name, size in sizes.items()}
    index: list[Expr] = []
    counted: list[Digit] = []
    for e in op.index:
        if any(linear_in(e, name) is None for name in sizes):
            e = simplify(e, positions)  # a digit of a part of an axis may be the same everywhere
        digit = digit_of(e, sizes)
        if free_vars(e).isdisjoint(sizes):
            index.append(e)
            continue
        if digit is None:
            return None
        counted.append(digit)
        index.append(_base_first(e, digit))
    columns = axes[1]
    whole = all(is_whole(counted, a.name, a.size) for a in axes)
    last = digit_of(index[-1], sizes)
    if not whole or last is None or last.axis != columns.name or last.stride != 1 or last.size % piece_width(columns):
        return None
    inside = [c for e, n in zip(index, shape, strict=True) for c in within(e, n)]
    known = {**ranges, **positions}
    masks = () if op.mask is None else conjuncts(op.mask)
    return tuple(index) if all(simplify(m, known, inside) == TRUE for m in masks) else None


def _base_first(e: Expr, digit: Digit) -> Expr:
    """``e`` as ``base + AXIS`` where it counts a whole axis."""
    form = linear_in(e, digit.axis)
    if form is None:
        return e
    axis = Var(digit.axis)
    return axis if form[1] == integer(0) else calc("add", form[1], axis)


def _shifted(e: Expr, part: TileAxis, by: int) -> Expr:
    """``e``, at ``base + AXIS`` or a digit of ``part``, moved on by ``by`` elements."""
    if by == 0 or part.name not in free_vars(e):
        return e
    match e:
        case Op(op="add", args=(base, Var() as axis)):
            return replace(e, args=(calc("add", base, by), axis))
        case Var():
            return calc("add", by, e)
    moved = substitute(e, {part.name: calc("add", Var(part.name), by)})
    return simplify(moved, {part.name: (0, part.size - 1)})
