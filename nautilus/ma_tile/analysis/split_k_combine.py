"""Analysis for fusing a split-K producer into its only consumer kernel.

It maps their blocks to one another and places the partial results in shared memory.

Kernel A writes temps that only kernel B reads, and each of B's R blocks reads exactly what P blocks of A
write.  Passes that make those P blocks run beside each other (``combine-in-block``: consumers of one block,
``combine-in-cluster``: blocks of one cluster) number them by a variable and need the same facts:

* of each temp: one store in A's top block, one element of the temp for each element of A's tile (one index a
  dimension, ``base`` or ``base + AXIS``); in B only loads of the same form (zeros where masked), in which one axis of
  B's tile runs over the parts in the dimension where A has its part's number, and the others begin where A's tile
  begins.  A tile of A may be larger than B's by registers that B does not use (rows beyond the last of a matrix
  instruction);
* what A's grid variables are in terms of B's and of the part, which follows from the indices of both sides; that
  every block of A is one part of one block is then checked for all of them, or proved from the digits of the block's
  number (``grid_variables``) where the number of blocks is known only at launch;
* shared memory that takes a temp's place: one stage a part, and all stages seen as one tile.

The functions raise ScheduleError where the kernels do not fit together in this way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from nautilus.core.buffers import Space
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import ZERO, calc
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Const, Expr, Ref, Var, free_vars, substitute, walk
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.text.expressions import format_expr
from nautilus.core.text.names import fresh
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.access import affine
from nautilus.ma_tile.analysis.grid_variables import BLOCK, Monomial, bijective, extents, from_tensors, grid_values
from nautilus.ma_tile.ir.layout import FragLayout, Ints, slice_registers
from nautilus.ma_tile.ir.ops import (
    AsyncCopy,
    ConstOp,
    Frag,
    GlobalLoad,
    GlobalStore,
    IndexOp,
    MapOp,
    MemKernel,
    MemModule,
    MemOp,
    SharedLoad,
    SharedStore,
    SliceOp,
    Slot,
    Smem,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import expressions
from nautilus.ma_tile.lowering.staging import pad_for, shared_vec
from nautilus.ma_tile.rewriting.renaming import Names, kernel_apart, layout_name, without_axis_names


@dataclass(frozen=True, slots=True)
class Pair:
    """Kernel ``a``, all of whose ``temps`` only ``b`` reads."""

    a: MemKernel
    b: MemKernel
    temps: tuple[str, ...]


def pair_of(module: MemModule, a: MemKernel, why: str) -> Pair:
    """``a`` and the one kernel that reads its results. Raises ScheduleError, which begins with ``why``."""
    temps = {b.name for b in module.buffers if b.space is Space.TEMP}
    mine = tuple(op.buffer for op in walk_ops(a.body) if isinstance(op, GlobalStore) and op.buffer in temps)
    readers = {k.name for k in module.kernels for op in walk_ops(k.body) if _read(op) in mine}
    writers = {k.name for k in module.kernels for op in walk_ops(k.body) if _written(op) in mine}
    if not mine or len(readers) != 1 or a.name in readers or writers != {a.name}:
        raise ScheduleError(f"{why}: its results are not read by one other kernel alone", kernel=a.name)
    (b,) = (k for k in module.kernels if k.name in readers)
    return Pair(a, b, mine)


def merged(module: MemModule, pair: Pair, whole: MemKernel) -> MemModule:
    """``module`` with ``whole`` in place of both kernels of ``pair``, and without its temps."""
    kernels = tuple(whole if k.name == pair.b.name else k for k in module.kernels if k.name != pair.a.name)
    buffers = tuple(x for x in module.buffers if x.name not in pair.temps)
    return replace(module, kernels=kernels, buffers=buffers)


def _read(op: MemOp) -> str | None:
    return op.buffer if isinstance(op, GlobalLoad | AsyncCopy) else None


def _written(op: MemOp) -> str | None:
    return op.buffer if isinstance(op, GlobalStore) else None


def several(a: MemKernel, b: MemKernel) -> int:
    """Blocks of ``a`` for each block of ``b``. Raises ScheduleError where that is not a number from 2 on."""
    parts = Monomial.of(a.blocks).divided(Monomial.of(b.blocks))
    if parts is None or parts.factors or parts.number < 2:
        detail = (
            f"{format_expr(a.blocks)} blocks cannot be divided into two or more for each of {format_expr(b.blocks)}"
        )
        raise ScheduleError(detail, kernel=a.name)
    return parts.number


@dataclass(frozen=True, slots=True)
class _Dimension:
    """One index of an access: the tile axis in it (None: none), and where it begins."""

    axis: str | None
    base: Expr


@dataclass(frozen=True, slots=True)
class Part:
    """Where a temp is now: ``store`` one stage a part, ``view`` all of them as one tile; ``cut``: of A's tile."""

    store: Smem
    view: Smem
    cut: tuple[TileAxis, ...]


class SplitKFusion:
    """The fusion of two kernels into one, in which variable ``number`` is the part that A computes, a ``what``.

    ``a`` and ``b``: the kernels with disjoint names; ``solved``: A's grid variables in terms of B's and
    of the part.  Raises ScheduleError if they do not fit.
    """

    def __init__(self, pair: Pair, number: str, what: str) -> None:
        a, b = pair.a, pair.b
        self.kernel = a.name
        self.temps, self.number, self.what = pair.temps, number, what
        self.count = several(a, b)
        if any(BLOCK in free_vars(e) for op in walk_ops(a.body) for e in expressions(op)):
            raise ScheduleError("its body depends on the block number", kernel=self.kernel)
        b = without_axis_names(b, {x for k in (a, b) for layout in k.layouts.values() for x in layout.axes})
        self.b = b
        self.a = kernel_apart(a, b)
        self.solved: dict[str, Expr] = {}
        self.values = self._values()
        self.names, self.theirs = Names(self.a), Names(b)
        self.layouts = {**b.layouts, **self.a.layouts}
        self.parts: dict[str, Part] = {}
        for name in self.temps:
            self.parts[name] = self._part(name)
        self._check_all()

    def _values(self) -> dict[str, Ints] | None:
        """B's grid variables and the part in every part of every block; None where their number is not known."""
        if not isinstance(self.b.blocks, Const):
            return None
        blocks = int(self.b.blocks.value)
        values = {v: np.tile(x, self.count) for v, x in grid_values(self.b, blocks).items()}
        return values | {self.number: np.repeat(np.arange(self.count), blocks)}

    # -- temps --------------------------------------------------------------------------------
    def _part(self, temp: str) -> Part:
        """Shared memory for ``temp``; determines A's grid variables from its indices."""
        stores = [op for op in self.a.body if isinstance(op, GlobalStore) and op.buffer == temp]
        everywhere = [op for op in walk_ops(self.a.body) if isinstance(op, GlobalStore) and op.buffer == temp]
        if len(stores) != 1 or len(everywhere) != 1:
            raise ScheduleError(f"{temp} is stored more than once", kernel=self.kernel)
        store, load = stores[0], self._load_of(temp)
        return self._match_dimensions(
            temp, store.value, self._dimensions(store.index, store.value.type, temp),
            load.result.type, self._dimensions(load.index, load.result.type, temp),
        )  # fmt: skip

    def _load_of(self, temp: str) -> GlobalLoad:
        """The load of ``temp`` in B. All loads of it have the same index."""
        loads = [op for op in walk_ops(self.b.body) if _read(op) == temp]
        first = loads[0]
        if not isinstance(first, GlobalLoad):
            raise ScheduleError(f"{temp} is copied, not loaded", kernel=self.kernel)
        if any(not isinstance(op, GlobalLoad) or op.index != first.index for op in loads):
            raise ScheduleError(f"{temp} is loaded in several ways", kernel=self.kernel)
        return first

    def _dimensions(self, index: tuple[Expr, ...], tile: TileType, temp: str) -> list[_Dimension]:
        out = []
        for e in index:
            if any(isinstance(n, Ref) for n in walk(e)):
                raise ScheduleError(f"the position of {temp} depends on computed values", kernel=self.kernel)
            axes = [x for x in tile.names if x in free_vars(e)]
            form = affine(e)
            if len(axes) > 1 or any(form.slope(x) != 1 for x in axes):
                raise ScheduleError(f"an index of {temp} is not `base` or `base + AXIS`", kernel=self.kernel)
            base = simplify(substitute(e, dict.fromkeys(axes, ZERO)))
            out.append(_Dimension(axes[0] if axes else None, base))
        named = [d.axis for d in out if d.axis is not None]
        if len(set(named)) != len(named):
            raise ScheduleError(f"an axis occurs in two indices of {temp}", kernel=self.kernel)
        return out

    def _match_dimensions(
        self, temp: str, frag: Frag, written: list[_Dimension], tile: TileType, read: list[_Dimension]
    ) -> Part:
        """Matches the store and the load of ``temp``, dimension by dimension."""
        ours, theirs = ({x.name: x for x in t.axes} for t in (frag.type, tile))
        chunk: TileAxis | None = None
        cut: list[TileAxis] = []
        view: list[TileAxis] = []
        for w, r in zip(written, read, strict=True):
            base = r.base
            if w.axis is None and r.axis is not None:
                if chunk is not None or theirs[r.axis].size != self.count:
                    raise ScheduleError(f"{temp} does not hold one partial result per {self.what}", kernel=self.kernel)
                chunk = theirs[r.axis]
                base = calc("add", base, Var(self.number))
            self._match_index(temp, w.base, base)
            if w.axis is None:
                continue
            axis = ours[w.axis]
            wanted = theirs[r.axis].size if r.axis is not None else 1
            size = self._least(frag, axis, wanted)
            if size < wanted:
                detail = f"{axis.size} rows of {temp} are written, but {wanted} are read"
                raise ScheduleError(detail, kernel=self.kernel)
            cut.append(TileAxis(axis.name, size))
            view.append(TileAxis(axis.name if r.axis is None else r.axis, size))
        if chunk is None:
            raise ScheduleError(f"{temp} does not hold one partial result per {self.what}", kernel=self.kernel)
        return self._shared(temp, frag.type.dtype, chunk, tuple(cut), tuple(view))

    def _match_index(self, temp: str, ours: Expr, theirs: Expr) -> None:
        """Equates A's index with B's, and solves for the grid variable in it if that is still unknown."""
        theirs = simplify(theirs)
        form = affine(ours)
        unknown = [t for t in form.terms if isinstance(t, Var) and t.name not in self.solved]
        if len(unknown) == 1 and len(form.terms) == 1 and form.const == 0 and form.terms[unknown[0]] > 0:
            scale = form.terms[unknown[0]]
            found = theirs if scale == 1 else calc("floordiv", theirs, scale)
            self.solved[unknown[0].name] = found = simplify(found)
            if self.values is not None:
                shape = self.values[self.number].shape
                self.values[unknown[0].name] = np.broadcast_to(self._value(temp, found, self.values), shape)
        if self.values is None:
            same = simplify(calc("sub", substitute(ours, self.solved), theirs)) == ZERO
        else:
            same = bool((self._value(temp, ours, self.values) == self._value(temp, theirs, self.values)).all())
        if not same:
            raise ScheduleError(f"a block reads another part of {temp} than its {self.what}s write", kernel=self.kernel)

    def _value(self, temp: str, e: Expr, values: dict[str, Ints]) -> Ints:
        """``e`` in every part of every block."""
        try:
            found: Ints = evaluate(e, values)
            return found
        except KeyError as name:
            raise ScheduleError(f"the position of {temp} depends on {name.args[0]}", kernel=self.kernel) from None

    def _check_all(self) -> None:
        """Every block of A is one part of one block. Raises ScheduleError."""
        read = from_tensors(self.a)
        for name, e in self.a.decode:
            if name in read:
                self.solved[name] = simplify(substitute(e, self.solved))
            elif name not in self.solved:
                if not isinstance(e, Const):
                    raise ScheduleError(f"no partial result determines grid variable {name}", kernel=self.kernel)
                self.solved[name] = e
        if not (self._proved() if self.values is None else self._counted(self.values)):
            raise ScheduleError(f"its blocks are not the {self.what}s of the blocks that read them", kernel=self.kernel)

    def _proved(self) -> bool:
        """The claim of :meth:`_check_all` for every number of blocks."""
        ours, theirs = extents(self.a), extents(self.b)
        if ours is None or theirs is None:
            return False
        return bijective(ours, {**theirs, self.number: Monomial(self.count)}, self.solved)

    def _counted(self, values: dict[str, Ints]) -> bool:
        """The claim of :meth:`_check_all` for the number of blocks that there are."""
        total = values[self.number].size
        point = np.zeros(total, np.int64)
        ours = grid_values(self.a, total)
        order = np.zeros(total, np.int64)
        for name in (name for name, _ in self.a.decode if name in ours and name in values):
            size = int(max(ours[name].max(), values[name].max())) + 1
            point, order = point * size + values[name], order * size + ours[name]
        return np.array_equal(np.sort(point), np.sort(order))

    def _shared(
        self, temp: str, dtype: DType, chunk: TileAxis, cut: tuple[TileAxis, ...], view: tuple[TileAxis, ...]
    ) -> Part:
        """One stage a part, and all stages seen as one tile."""
        name, other = self._fresh(f"part_{temp}"), self._fresh(f"parts_{temp}")
        pad = pad_for(cut[-1].size * dtype.bytes) if len(cut) > 1 else 0
        return Part(Smem(name, dtype, cut, self.count, 0, pad), Smem(other, dtype, (chunk, *view), 1, 0, pad), cut)

    def _fresh(self, name: str) -> str:
        taken = {s.name for s in (*self.a.smem, *self.b.smem)} | {
            s.name for p in self.parts.values() for s in (p.store, p.view)
        }
        return fresh(name, taken)

    def variables(self) -> tuple[dict[str, Expr], list[tuple[str, Expr]]]:
        """The new names of A's grid variables in its body, and those of them that need a definition."""
        rename: dict[str, Expr] = {}
        defined: list[tuple[str, Expr]] = []
        taken = {x for layout in self.layouts.values() for x in layout.axes} | self.names.variables
        taken |= {name for name, _ in self.b.decode}
        for name, e in self.solved.items():
            if isinstance(e, Const | Var):
                rename[name] = e
                continue
            new = fresh(f"{name}_{self.what}", taken)
            defined.append((new, e))
            rename[name] = Var(new)
        return rename, defined

    def split(self, body: Sequence[MemOp]) -> tuple[tuple[MemOp, ...], tuple[GlobalStore, ...]]:
        """A's top block without its stores of parts, and these."""
        stores = tuple(op for op in body if isinstance(op, GlobalStore) and op.buffer in self.parts)
        return tuple(op for op in body if op not in stores), stores

    def _least(self, frag: Frag, axis: TileAxis, wanted: int) -> int:
        """The least number of positions, ``wanted`` at least, that registers of ``frag`` can be left out for."""
        layout = self.layouts[frag.layout]
        fixed = 1 + sum((m.size - 1) * m.stride for m in (*layout.lane, *layout.warp) if m.axis == axis.name)
        size = axis.size
        for m in sorted((m for m in layout.reg if m.axis == axis.name), key=lambda m: -m.stride):
            if m.stride >= max(wanted, fixed) and m.stride * m.size == size:
                size = m.stride
        return size

    # -- accesses -----------------------------------------------------------------------------
    def store(self, op: GlobalStore, block: int | None = None) -> Iterator[MemOp]:
        """A partial result to its stage (``block``: of the cluster); what is not wanted of it stays in registers.

        Raises ScheduleError.
        """
        part, frag = self.parts[op.buffer], op.value
        for axis in part.cut:
            size = next(x.size for x in frag.type.axes if x.name == axis.name)
            if axis.size < size:
                type_ = TileType(frag.type.dtype, tuple(axis if x.name == axis.name else x for x in frag.type.axes))
                whole = self.layouts[frag.layout]
                layout = _first(whole, axis)
                if slice_registers(whole, layout, axis.name, 0) is None:
                    detail = f"the first {axis.size} elements along {axis.name} do not occupy registers of their own"
                    raise ScheduleError(detail, kernel=self.kernel)
                name = layout_name(self.layouts, layout, "part")
                new = self.names.frag(replace(frag, type=type_, layout=name), "first")
                yield SliceOp(new, frag, axis.name, 0, op.span)
                frag = new
        vec = shared_vec(self.layouts[frag.layout], part.store.axes, frag.type.dtype)
        yield SharedStore(Slot(part.store.name, Var(self.number)), frag, vec, block, op.span)

    def load(self, op: MemOp) -> tuple[MemOp, ...]:
        """B's loads from where the parts are."""
        if not (isinstance(op, GlobalLoad) and op.buffer in self.parts):
            return (op,)
        view, out = self.parts[op.buffer].view, op.result
        vec = shared_vec(self.layouts[out.layout], view.axes, view.dtype)
        if op.mask is None:
            return (SharedLoad(out, Slot(view.name, ZERO), vec, op.span),)
        whole, zero = self.theirs.frag(out, "all"), self.theirs.frag(out, "zero")
        inside = replace(self.theirs.frag(out, "inside"), type=TileType(DType.BOOL, out.type.axes))
        return (
            SharedLoad(whole, Slot(view.name, ZERO), vec, op.span),
            IndexOp(inside, op.mask, span=op.span),
            ConstOp(zero, 0.0 if out.type.dtype.is_float else 0, op.span),
            MapOp(out, "select", (inside, whole, zero), op.span),
        )


def _first(layout: FragLayout, axis: TileAxis) -> FragLayout:
    """``layout`` without the registers beyond the first ``axis.size`` positions."""
    return replace(layout, reg=tuple(m for m in layout.reg if m.axis != axis.name or m.stride < axis.size))
