"""Accumulators leave by the TMA unit: through a swizzled buffer of each unit's own, as one box.

Switch: ``MemoryPlan.epilogue`` ``bulk`` or ``bulk-reuse``.  A store of an accumulator fragment becomes

* a cast to the buffer's type, if it has another;
* ``bulk.wait 0 read`` and a barrier of the unit: the store before no longer reads the stage;
* ``st.matrix`` to the stage, ``fence.proxy``, a barrier of the unit;
* ``bulk.store`` and ``bulk.commit``.

The stores of a kernel share buffers of one shape.  At the end of the kernel the last store is waited for
until it has read the stage; its bytes are written when the kernel has ended.

``bulk-reuse``: the stage is that of a loaded left operand of the same shape, type and axes, if each unit has
its own and nothing reads it between the store and the next load; its release then comes behind the wait
(``specialise_warps``).  ScheduleError where there is none.

A store stays as it is where the TMA unit cannot do it: elements of other than 16 bits, a layout that is no
accumulator's, columns that fill no swizzled row, rows in memory that are no multiples of 16 bytes, an index
that is not ``base + AXIS`` in two axes, a mask that says more than "inside the buffer".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from nautilus.core.errors import ScheduleError
from nautilus.core.expr import Const, Expr, Op, Ref, Var, free_vars, walk
from nautilus.core.index import TRUE, bounds, conjuncts, linear_in, simplify
from nautilus.core.schedule import MemoryPlan, Schedule
from nautilus.core.types import DType
from nautilus.memory.bulk import MOST_AXES, ROW_BYTES, SWIZZLES
from nautilus.memory.ops import ForOp, GlobalStore, IfOp, MapOp, MemKernel, MemModule, MemOp, RolesOp, walk_ops
from nautilus.memory.passes.barriers import unit_barrier
from nautilus.memory.passes.walk import bound, plan_of, rebuild, touch
from nautilus.memory.values import Frag, Slot, Smem
from nautilus.memory.verify_layout import same_map
from nautilus.memory.warpgroup_ops import (
    UNIT,
    BulkCommit,
    BulkLoad,
    BulkStore,
    BulkWait,
    MatrixStore,
    ProxyFence,
    wg_acc_layout,
)
from nautilus.scalar.ops import Buffer
from nautilus.tile.ops import TileAxis, TileType

Ranges = dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class BulkStores:
    """``epilogue`` overrides the schedule."""

    schedule: Schedule | None = None
    epilogue: str | None = None
    name: str = "bulk-stores"

    def apply(self, module: MemModule) -> MemModule:
        def one(k: MemKernel) -> MemKernel:
            plan = plan_of(self.schedule, k)
            plan = plan if self.epilogue is None else replace(plan, epilogue=self.epilogue)
            return bulk_stores(k, module, plan)

        kernels = tuple(one(k) for k in module.kernels)
        return module if kernels == module.kernels else replace(module, kernels=kernels)


def bulk_stores(kernel: MemKernel, module: MemModule, plan: MemoryPlan) -> MemKernel:
    """``kernel`` with its accumulators stored by the TMA unit where that can be."""
    ops = list(walk_ops(kernel.body))
    if plan.epilogue not in ("bulk", "bulk-reuse") or any(isinstance(op, RolesOp) for op in ops):
        return kernel
    work = _Stores(kernel, module, plan)
    body = rebuild(kernel.body, lambda op: work.store(op) if isinstance(op, GlobalStore) else (op,))
    if not work.used:
        return kernel
    return replace(kernel, smem=(*kernel.smem, *work.own), body=(*body, BulkWait(0, True, kernel.span)))


class _Stores:
    """The stores of one kernel."""

    def __init__(self, kernel: MemKernel, module: MemModule, plan: MemoryPlan) -> None:
        self.kernel, self.plan = kernel, plan
        self.buffers = {b.name: b for b in module.buffers}
        self.units = plan.units if plan.own_tiles else kernel.units
        self.names = {f.name for op in walk_ops(kernel.body) for f in bound(op)}
        self.ranges = known_ranges(kernel)
        self.own: list[Smem] = []
        self.used = False

    def store(self, op: GlobalStore) -> tuple[MemOp, ...]:
        """What becomes of ``op``."""
        axes = self._accumulator(op.value)
        found = None if axes is None else box(op, self.buffers[op.buffer], axes, self.ranges)
        if axes is None or found is None:
            return (op,)
        dtype, swizzle = self.buffers[op.buffer].dtype, _swizzle(axes[1])
        assert swizzle
        self.used = True
        stage = self._stage(op, dtype, axes, swizzle)
        value, span = op.value, op.span
        cast: tuple[MemOp, ...] = ()
        if value.type.dtype is not dtype:
            value = Frag(self._fresh(f"{value.name}_{dtype}"), TileType(dtype, value.type.axes), value.layout)
            cast = (MapOp(value, "cast", (op.value,), span),)
        meet = unit_barrier()
        return (
            *cast, BulkWait(0, True, span), meet, MatrixStore(stage, value, span), ProxyFence(span), meet,
            BulkStore(stage, op.buffer, found, span), BulkCommit(span),
        )  # fmt: skip

    def _accumulator(self, value: Frag) -> tuple[TileAxis, TileAxis] | None:
        """Rows and columns of ``value``, if it lies as an accumulator that stmatrix can store."""
        axes = [a for a in value.type.axes if a.size > 1]
        if len(axes) != 2:
            return None
        for m, n in (axes, axes[::-1]):
            if m.size % 64 == 0 and n.size % 8 == 0 and _swizzle(n):
                layout = self.kernel.layouts[value.layout]
                if layout.warps == 4 and same_map(layout, wg_acc_layout(m.name, n.name, m.size, n.size)):
                    return m, n
        return None

    def _fresh(self, name: str) -> str:
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name

    def _stage(self, op: GlobalStore, dtype: DType, axes: tuple[TileAxis, ...], swizzle: int) -> Slot:
        if self.plan.epilogue == "bulk-reuse":
            return self._dead(op, dtype, axes)
        for s in self.own:
            if (s.dtype, s.axes) == (dtype, axes):
                return Slot(s.name, Var(UNIT), swizzle)
        taken = {s.name for s in (*self.kernel.smem, *self.own)}
        name = next(n for n in (f"out_{op.buffer}", *(f"out{i}_{op.buffer}" for i in range(99))) if n not in taken)
        self.own.append(Smem(name, dtype, axes, self.units, swizzle))
        return Slot(name, Var(UNIT), swizzle)

    def _dead(self, op: GlobalStore, dtype: DType, axes: tuple[TileAxis, ...]) -> Slot:
        """The stage of an operand that is not read behind ``op``, before it is loaded again."""
        top = next((n for n, x in enumerate(self.kernel.body) if x is op), None)
        for s in self.kernel.smem if top is not None else ():
            loads = [x for x in self.kernel.body if isinstance(x, BulkLoad) and x.slot.buffer == s.name]
            inner = any(s.name in _buffers(x) for x in self.kernel.body if isinstance(x, IfOp | ForOp) and _loads(x))
            later = any(s.name in _buffers(x) for x in self.kernel.body[top:])
            apart = loads and (loads[0].slot.stage == Var(UNIT) or (self.units == 1 and s.stages == 1))
            fits = (s.dtype, s.axes) == (dtype, axes) and s.swizzle == _swizzle(axes[1])
            if fits and apart and len(loads) == 1 and not inner and not later:
                return loads[0].slot
        where = f"kernel {self.kernel.name}"
        raise ScheduleError(f"epilogue bulk-reuse: no operand leaves a stage to the store of {op.buffer}", where)


def _buffers(op: MemOp) -> frozenset[str]:
    return frozenset(s.buffer for x in walk_ops((op,)) for s in touch(x).all)


def _loads(op: MemOp) -> bool:
    return any(isinstance(x, BulkLoad) for x in walk_ops((op,)))


def _swizzle(columns: TileAxis) -> int:
    """The widest swizzle that rows of 16-bit elements fill; 0 for none."""
    return next((w for w in SWIZZLES if columns.size * 2 % w == 0), 0)


def known_ranges(kernel: MemKernel) -> Ranges:
    """Ranges of the unit, the block number and the grid variables."""
    out: Ranges = {UNIT: (0, kernel.units - 1)}
    if isinstance(kernel.blocks, Const):
        out["block"] = (0, int(kernel.blocks.value) - 1)
    for name, e in kernel.decode:
        low, high = bounds(e, out)
        if low is not None and high is not None:
            out[name] = (low, high)
    return out


def box(op: GlobalStore, buffer: Buffer, axes: tuple[TileAxis, ...], ranges: Ranges) -> tuple[Expr, ...] | None:
    """The index of ``op`` as the bulk store of a tile over ``axes``, rows and columns; None where it is no box."""
    shape = [n for n in buffer.shape if isinstance(n, int)]
    fits = len(shape) == len(buffer.shape) <= MOST_AXES and shape[-1] * buffer.dtype.bytes % ROW_BYTES == 0
    if not fits or buffer.dtype.bytes != 2 or any(isinstance(x, Ref) for e in op.index for x in walk(e)):
        return None
    names = {a.name for a in op.value.type.axes}
    index: list[Expr] = []
    walked: dict[str, int] = {}
    for at, e in enumerate(op.index):
        along = sorted(free_vars(e) & names)
        form = linear_in(e, along[0]) if len(along) == 1 else None
        if not along:
            index.append(e)
            continue
        if form is None or form[0] != 1 or along[0] in walked:
            return None
        walked[along[0]] = at
        axis = Var(along[0])
        index.append(axis if form[1] == Const(0, DType.I32) else Op("add", (form[1], axis), DType.I32))
    rows, columns = axes
    if set(walked) != {rows.name, columns.name} or walked[columns.name] != len(shape) - 1:
        return None
    inside = [c for at in walked.values() for c in _inside(op.index[at], shape[at])]
    known = {**ranges, **{a.name: (0, a.size - 1) for a in op.value.type.axes}}
    masks = () if op.mask is None else conjuncts(op.mask)
    return tuple(index) if all(simplify(m, known, inside) == TRUE for m in masks) else None


def _inside(e: Expr, extent: int) -> tuple[Expr, Expr]:
    """``0 <= e`` and ``e < extent``."""
    return (
        Op("ge", (e, Const(0, DType.I32)), DType.BOOL),
        Op("lt", (e, Const(extent, DType.I32)), DType.BOOL),
    )
