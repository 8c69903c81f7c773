"""Blocks that make partial results of one result become units of one block, which combines them itself.

Switch: ``MemoryPlan.join`` of a kernel whose results only one other kernel reads.  Kernel A writes temps that
nobody but kernel B reads, and each of B's R blocks reads exactly what U blocks of A write: then A's blocks are units
of B's blocks, and the temps live in shared memory::

    kernel B grid R warps U * (warps of A)
      roles { role partial warps 0..U * (warps of A) units U {
        let chunk = 4 * part + unit   -- A's grid variables as B's and the unit make them
        A's body: every shared buffer in U slices, barriers of the unit's threads
        barrier                       -- nobody needs the slices any more
        st.shared part[unit], %x      -- was: st.global T[chunk, ...], %x
      } }
      barrier
      B's body: ld.shared all_parts   -- was: ld.global T[chunk axis, ...]

No partial result goes through global memory, no second launch waits for the first, and the units of a block
share nothing on their way, so none waits for another before the end.

What is required of each temp: one store in A's top block, one element of the temp for each element of A's tile (one
index a dimension, ``base`` or ``base + AXIS``); in B only loads of the same form (zeros where masked), in which one
axis of B's tile runs over the units in the dimension where A has its unit's number, and the others begin where A's tile
begins.  A tile of A may be larger than B's by registers that nobody wants (rows beyond the last of a matrix
instruction).
What A's grid variables are follows from the indices of both sides; that every block of A is one unit of one block
is then checked for all of them.

ScheduleError where the kernels do not fit together so.  Runs last: both kernels are synchronised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nautilus.core.calc import calc, integer
from nautilus.core.errors import ScheduleError
from nautilus.core.expr import Const, Expr, Ref, Var, free_vars, substitute, walk
from nautilus.core.index import simplify
from nautilus.core.schedule import Schedule
from nautilus.core.targets import Limits, limits
from nautilus.core.types import DType
from nautilus.memory.access import affine
from nautilus.memory.layout import FragLayout, slice_registers
from nautilus.memory.ops import (
    AsyncCopy,
    Barrier,
    ConstOp,
    Frag,
    GlobalLoad,
    GlobalStore,
    IndexOp,
    MapOp,
    MbarWait,
    MemKernel,
    MemModule,
    MemOp,
    ReduceOp,
    Role,
    RolesOp,
    SharedLoad,
    SharedStore,
    SliceOp,
    Slot,
    Smem,
    walk_ops,
)
from nautilus.memory.passes.allocate_shared import alignment, checked, place_mbars
from nautilus.memory.passes.barriers import STORE, of_unit
from nautilus.memory.passes.block_values import Ints, grid_values, value
from nautilus.memory.passes.renaming import Names, Renaming, fresh, kernel_apart, layout_name, without_axis_names
from nautilus.memory.passes.specialise_warps import used_lets
from nautilus.memory.passes.walk import map_slots, plan_of, rebuild
from nautilus.memory.staging import pad_for, shared_vec
from nautilus.memory.warpgroup_ops import UNIT, BulkLoad, LetOp, MbarExpect
from nautilus.scalar.ops import Space
from nautilus.tile.ops import TileAxis, TileType

_ZERO = integer(0)
_MOST_BARRIERS = 16  # named barriers of a block; 0 is its own
SMALL = 1024  # bytes that need not share their place


@dataclass(frozen=True, slots=True)
class JoinBlocks:
    """``join`` overrides the schedule's switch."""

    schedule: Schedule | None = None
    join: bool | None = None
    name: str = "join-blocks"

    def apply(self, module: MemModule) -> MemModule:
        target = limits(module.target)
        for a in module.kernels:
            wanted = plan_of(self.schedule, a).join if self.join is None else self.join
            if wanted:
                module = _joined(module, a, target)
        return module


def _joined(module: MemModule, a: MemKernel, target: Limits) -> MemModule:
    """``module`` with ``a`` in the kernel that reads its results."""
    temps = {b.name for b in module.buffers if b.space is Space.TEMP}
    mine = [op.buffer for op in walk_ops(a.body) if isinstance(op, GlobalStore) and op.buffer in temps]
    readers = {k.name for k in module.kernels for op in walk_ops(k.body) if _read(op) in mine}
    writers = {k.name for k in module.kernels for op in walk_ops(k.body) if _written(op) in mine}
    if not mine or len(readers) != 1 or a.name in readers or writers != {a.name}:
        raise ScheduleError("join: its results are not read by one other kernel alone", f"kernel {a.name}")
    (b,) = (k for k in module.kernels if k.name in readers)
    whole = checked(_Joint(a, b, tuple(mine)).kernel(), target.smem_block)
    kernels = tuple(whole if k.name == b.name else k for k in module.kernels if k.name != a.name)
    buffers = tuple(x for x in module.buffers if x.name not in mine)
    return replace(module, kernels=kernels, buffers=buffers)


def _read(op: MemOp) -> str | None:
    return op.buffer if isinstance(op, GlobalLoad | AsyncCopy) else None


def _written(op: MemOp) -> str | None:
    return op.buffer if isinstance(op, GlobalStore) else None


@dataclass(frozen=True, slots=True)
class _Dimension:
    """One index of an access: the tile axis in it (None: none), and where it begins."""

    axis: str | None
    base: Expr


@dataclass(frozen=True, slots=True)
class _Part:
    """Where a temp lives now: ``store`` one stage a unit, ``view`` all of them as one tile; ``cut``: of A's tile."""

    store: Smem
    view: Smem
    cut: tuple[TileAxis, ...]


class _Joint:
    """Two kernels on their way into one. Raises ScheduleError where they do not fit."""

    def __init__(self, a: MemKernel, b: MemKernel, temps: Sequence[str]) -> None:
        self.where = f"kernel {a.name}"
        self.temps = temps
        if not (isinstance(a.blocks, Const) and isinstance(b.blocks, Const)):
            raise ScheduleError("the number of blocks is known at launch only", self.where)
        self.blocks = int(b.blocks.value)
        self.units, rest = divmod(int(a.blocks.value), self.blocks)
        if rest or self.units < 2:
            raise ScheduleError(f"{a.blocks.value} blocks are not several for each of {self.blocks}", self.where)
        for k in (a, b):
            roles = any(isinstance(op, RolesOp) for op in walk_ops(k.body))
            if roles or k.units > 1 or k.cursors or k.cluster > 1 or (k is b and k.mbars):
                raise ScheduleError(f"kernel {k.name} has roles, units or mbarriers already", self.where)
        if any(isinstance(op, ReduceOp) and op.scratch is not None for op in walk_ops(a.body)):
            raise ScheduleError("its warps meet in scratch of their own", self.where)
        if STORE + self.units > _MOST_BARRIERS:
            raise ScheduleError(f"{self.units} units have no barriers each", self.where)
        if b.warps != self.units * a.warps:
            detail = f"{self.units} units of {a.warps} warps, but {b.name} has {b.warps} warps"
            raise ScheduleError(detail, self.where)
        b = without_axis_names(b, {x for k in (a, b) for layout in k.layouts.values() for x in layout.axes})
        self.b = b
        self.a = kernel_apart(a, b)
        self.values = {v: np.tile(x, self.units) for v, x in grid_values(b, self.blocks).items()}
        self.values[UNIT] = np.repeat(np.arange(self.units), self.blocks)
        self.solved: dict[str, Expr] = {}  # A's grid variables in terms of B's, and of the unit
        self.names, self.theirs = Names(self.a), Names(b)
        self.layouts = {**b.layouts, **self.a.layouts}
        self.parts: dict[str, _Part] = {}

    def kernel(self) -> MemKernel:
        """The kernel that both become."""
        a, b = self.a, self.b
        for name in self.temps:
            self.parts[name] = self._part(name)
        self._check_all()
        body = self._unit_body()
        role = Role("partial", 0, b.warps, None, body, self.units)
        tail = rebuild(b.body, self._load)
        whole = replace(
            b,
            min_blocks=a.min_blocks,
            early=a.early,
            layouts=self.layouts,
            smem=self._placed(),
            mbars=tuple(replace(m, stages=self.units * m.stages) for m in a.mbars),
            body=(RolesOp((role,), a.span), Barrier(span=a.span), *tail),
        )
        return place_mbars(whole)

    # -- temps --------------------------------------------------------------------------------
    def _part(self, temp: str) -> _Part:
        """Shared memory for ``temp``; what A's grid variables must be for it."""
        stores = [op for op in self.a.body if isinstance(op, GlobalStore) and op.buffer == temp]
        everywhere = [op for op in walk_ops(self.a.body) if isinstance(op, GlobalStore) and op.buffer == temp]
        if len(stores) != 1 or len(everywhere) != 1:
            raise ScheduleError(f"{temp} is stored more than once", self.where)
        store, load = stores[0], self._load_of(temp)
        return self._meeting(
            temp, store.value, self._dimensions(store.index, store.value.type, temp),
            load.result.type, self._dimensions(load.index, load.result.type, temp),
        )  # fmt: skip

    def _load_of(self, temp: str) -> GlobalLoad:
        """The one way in which B reads ``temp``."""
        loads = [op for op in walk_ops(self.b.body) if _read(op) == temp]
        first = loads[0]
        if not isinstance(first, GlobalLoad):
            raise ScheduleError(f"{temp} is copied, not loaded", self.where)
        if any(not isinstance(op, GlobalLoad) or op.index != first.index for op in loads):
            raise ScheduleError(f"{temp} is loaded in several ways", self.where)
        return first

    def _dimensions(self, index: tuple[Expr, ...], tile: TileType, temp: str) -> list[_Dimension]:
        out = []
        for e in index:
            if any(isinstance(n, Ref) for n in walk(e)):
                raise ScheduleError(f"where {temp} is depends on computed values", self.where)
            axes = [x for x in tile.names if x in free_vars(e)]
            form = affine(e)
            if len(axes) > 1 or any(form.slope(x) != 1 for x in axes):
                raise ScheduleError(f"an index of {temp} is not `base` or `base + AXIS`", self.where)
            base = simplify(substitute(e, dict.fromkeys(axes, _ZERO)))
            out.append(_Dimension(axes[0] if axes else None, base))
        named = [d.axis for d in out if d.axis is not None]
        if len(set(named)) != len(named):
            raise ScheduleError(f"an axis is in two indices of {temp}", self.where)
        return out

    def _meeting(
        self, temp: str, frag: Frag, written: list[_Dimension], tile: TileType, read: list[_Dimension]
    ) -> _Part:
        """The two sides of ``temp`` against each other, dimension by dimension."""
        ours, theirs = ({x.name: x for x in t.axes} for t in (frag.type, tile))
        chunk: TileAxis | None = None
        cut: list[TileAxis] = []
        view: list[TileAxis] = []
        for w, r in zip(written, read, strict=True):
            base = r.base
            if w.axis is None and r.axis is not None:
                if chunk is not None or theirs[r.axis].size != self.units:
                    raise ScheduleError(f"{temp} is not one partial result a unit", self.where)
                chunk = theirs[r.axis]
                base = calc("add", base, Var(UNIT))
            self._meet(temp, w.base, base)
            if w.axis is None:
                continue
            axis = ours[w.axis]
            wanted = theirs[r.axis].size if r.axis is not None else 1
            size = self._least(frag, axis, wanted)
            if size < wanted:
                raise ScheduleError(f"{axis.size} rows of {temp} are made, {wanted} are read", self.where)
            cut.append(TileAxis(axis.name, size))
            view.append(TileAxis(axis.name if r.axis is None else r.axis, size))
        if chunk is None:
            raise ScheduleError(f"{temp} is not one partial result a unit", self.where)
        return self._shared(temp, frag.type.dtype, chunk, tuple(cut), tuple(view))

    def _meet(self, temp: str, ours: Expr, theirs: Expr) -> None:
        """A's index is B's: what the grid variable in it must then be, if it is not known yet."""
        theirs = simplify(theirs)
        form = affine(ours)
        unknown = [t for t in form.terms if isinstance(t, Var) and t.name not in self.solved]
        if len(unknown) == 1 and len(form.terms) == 1 and form.const == 0 and form.terms[unknown[0]] > 0:
            scale = form.terms[unknown[0]]
            found = theirs if scale == 1 else calc("floordiv", theirs, scale)
            self.solved[unknown[0].name] = found = simplify(found)
            self.values[unknown[0].name] = np.broadcast_to(self._value(temp, found), self.values[UNIT].shape)
        same = (self._value(temp, ours) == self._value(temp, theirs)).all()
        if not same:
            raise ScheduleError(f"a block reads another part of {temp} than its units write", self.where)

    def _value(self, temp: str, e: Expr) -> Ints:
        """``e`` in every unit of every block."""
        try:
            return value(e, self.values)
        except KeyError as name:
            raise ScheduleError(f"where {temp} is depends on {name.args[0]}", self.where) from None

    def _check_all(self) -> None:
        """Every block of A is one unit of one block. Raises ScheduleError."""
        point = np.zeros(self.values[UNIT].shape, np.int64)
        ours = grid_values(self.a, self.units * self.blocks)
        order = np.zeros(self.units * self.blocks, np.int64)
        for name, e in self.a.decode:
            if name not in self.solved:
                if not isinstance(e, Const):
                    raise ScheduleError(f"no partial result says what {name} is", self.where)
                self.solved[name] = e
                continue
            size = int(max(ours[name].max(), self.values[name].max())) + 1
            point, order = point * size + self.values[name], order * size + ours[name]
        if not np.array_equal(np.sort(point), np.sort(order)):
            raise ScheduleError("its blocks are not the units of the blocks that read them", self.where)

    def _shared(
        self, temp: str, dtype: DType, chunk: TileAxis, cut: tuple[TileAxis, ...], view: tuple[TileAxis, ...]
    ) -> _Part:
        """One stage a unit, and all stages seen as one tile."""
        name, other = self._fresh(f"part_{temp}"), self._fresh(f"parts_{temp}")
        pad = pad_for(cut[-1].size * dtype.bytes) if len(cut) > 1 else 0
        return _Part(Smem(name, dtype, cut, self.units, 0, pad), Smem(other, dtype, (chunk, *view), 1, 0, pad), cut)

    def _fresh(self, name: str) -> str:
        taken = {s.name for s in (*self.a.smem, *self.b.smem)} | {
            s.name for p in self.parts.values() for s in (p.store, p.view)
        }
        return fresh(name, taken)

    def _placed(self) -> tuple[Smem, ...]:
        """Everything at its offset: A's slices share with each other no more, because units keep no step.

        Behind the barrier they are dead: a large part lies over one of them, and so does all that B needs, which
        keeps the places that B's barriers are made for.
        """
        out: list[Smem] = []
        top = 0

        def put(s: Smem) -> Smem:
            nonlocal top
            start = -(-top // alignment(s)) * alignment(s)
            top = start + s.bytes
            out.append(replace(s, offset=start))
            return out[-1]

        free = [put(replace(s, stages=self.units * s.stages)) for s in sorted(self.a.smem, key=lambda s: -s.bytes)]

        def host(size: int) -> Smem | None:
            found = next((s for s in free if s.bytes >= size), None)
            if found is not None:
                free.remove(found)
            return found

        for p in sorted(self.parts.values(), key=lambda p: -p.store.bytes):
            base = host(p.store.bytes) if p.store.bytes > SMALL else None
            if base is None:
                base = put(p.store)
            else:
                out.append(replace(p.store, over=base.name, offset=base.offset))
            out.append(replace(p.view, over=base.name, offset=base.offset))
        own = max((s.offset + s.bytes for s in self.b.smem), default=0)
        base = host(own) if own > SMALL else None
        start = -(-top // 1024) * 1024 if base is None else base.offset
        return (*out, *(replace(s, offset=start + s.offset) for s in self.b.smem))

    def _least(self, frag: Frag, axis: TileAxis, wanted: int) -> int:
        """The least number of positions, ``wanted`` at least, that registers of ``frag`` can be left out for."""
        layout = self.layouts[frag.layout]
        fixed = 1 + sum((m.size - 1) * m.stride for m in (*layout.lane, *layout.warp) if m.axis == axis.name)
        size = axis.size
        for m in sorted((m for m in layout.reg if m.axis == axis.name), key=lambda m: -m.stride):
            if m.stride >= max(wanted, fixed) and m.stride * m.size == size:
                size = m.stride
        return size

    # -- bodies -------------------------------------------------------------------------------
    def _unit_body(self) -> tuple[MemOp, ...]:
        """A's body as a unit runs it."""
        a = self.a
        rename: dict[str, Expr] = {}
        lets: list[MemOp] = []
        taken = {x for layout in self.layouts.values() for x in layout.axes} | self.names.variables
        taken |= {name for name, _ in self.b.decode}
        for name, e in self.solved.items():
            if isinstance(e, Const | Var):
                rename[name] = e
                continue
            new = fresh(f"{name}_unit", taken)
            lets.append(LetOp(new, e, a.span))
            rename[name] = Var(new)
        body = Renaming(variables=rename).ops(a.body)
        stores = [op for op in body if isinstance(op, GlobalStore) and op.buffer in self.parts]
        first = min(n for n, op in enumerate(body) if op in stores)
        body = rebuild((*body[:first], *(op for op in body[first:] if op not in stores)), self._sliced)
        tail = [x for op in stores for x in self._store(op)]
        return used_lets((*lets, *body, Barrier(span=a.span), *tail))

    def _sliced(self, op: MemOp) -> tuple[MemOp, ...]:
        """``op`` with this unit's slices of shared memory, and its barriers."""
        stages = {s.name: s.stages for s in self.a.smem} | {m.name: m.stages for m in self.a.mbars}

        def own(name: str, stage: Expr) -> Expr:
            base: Expr = Var(UNIT)
            if stages[name] > 1:
                base = calc("mul", base, stages[name])
            return base if stage == _ZERO else calc("add", base, stage)

        match op:
            case Barrier():
                return (Barrier(of_unit(STORE), 32 * self.a.warps, op.span),)
            case MbarExpect(mbar=name, stage=stage) | MbarWait(mbar=name, stage=stage):
                return (replace(op, stage=own(name, stage)),)
            case BulkLoad(mbar=(name, stage)):
                op = replace(op, mbar=(name, own(name, stage)))
        return (map_slots(op, lambda s: replace(s, stage=own(s.buffer, s.stage))),)

    def _store(self, op: GlobalStore) -> Iterator[MemOp]:
        """The unit's partial result to its stage; what is not wanted of it stays in registers."""
        part, frag = self.parts[op.buffer], op.value
        for axis in part.cut:
            size = next(x.size for x in frag.type.axes if x.name == axis.name)
            if axis.size < size:
                type_ = TileType(frag.type.dtype, tuple(axis if x.name == axis.name else x for x in frag.type.axes))
                whole = self.layouts[frag.layout]
                layout = _first(whole, axis)
                if slice_registers(whole, layout, axis.name, 0) is None:
                    raise ScheduleError(f"the first {axis.size} of {axis.name} are no registers", self.where)
                name = layout_name(self.layouts, layout, "part")
                new = self.names.frag(replace(frag, type=type_, layout=name), "first")
                yield SliceOp(new, frag, axis.name, 0, op.span)
                frag = new
        vec = shared_vec(self.layouts[frag.layout], part.store.axes, frag.type.dtype)
        yield SharedStore(Slot(part.store.name, Var(UNIT)), frag, vec, op.span)

    def _load(self, op: MemOp) -> tuple[MemOp, ...]:
        """B's loads from where its units left their results."""
        if not (isinstance(op, GlobalLoad) and op.buffer in self.parts):
            return (op,)
        view, out = self.parts[op.buffer].view, op.result
        vec = shared_vec(self.layouts[out.layout], view.axes, view.dtype)
        if op.mask is None:
            return (SharedLoad(out, Slot(view.name, _ZERO), vec, op.span),)
        whole, zero = self.theirs.frag(out, "all"), self.theirs.frag(out, "zero")
        inside = replace(self.theirs.frag(out, "inside"), type=TileType(DType.BOOL, out.type.axes))
        return (
            SharedLoad(whole, Slot(view.name, _ZERO), vec, op.span),
            IndexOp(inside, op.mask, op.span),
            ConstOp(zero, 0.0 if out.type.dtype.is_float else 0, op.span),
            MapOp(out, "select", (inside, whole, zero), op.span),
        )


def _first(layout: FragLayout, axis: TileAxis) -> FragLayout:
    """``layout`` without the registers beyond the first ``axis.size`` positions."""
    return replace(layout, reg=tuple(m for m in layout.reg if m.axis != axis.name or m.stride < axis.size))
