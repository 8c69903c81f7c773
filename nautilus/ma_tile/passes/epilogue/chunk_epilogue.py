"""Processes finished accumulators in chunks of columns, so that few other values are live beside them.

The switch is ``WarpgroupPlan.store_columns``, the columns of a chunk (0: whole tiles).  The pass rewrites stores after
the last MMA of a kernel whose value has the layout of a warpgroup accumulator, ``rows`` x ``columns``.  Such a store
becomes several stores of 64 rows x ``store_columns`` each (or of as many columns as divide the tile)::

    %x = ld.global bias[j0 + j]          for every chunk of columns c, and in it every block of 64 rows:
    %y = add %acc, %x                        %acc_c = slice %acc at j 64 c
    st.global C[i0 + i, j0 + j], %y          %x_c = ld.global bias[j0 + j + 64 c] volatile
                                             %y_c = add %acc_c, %x_c
                                             st.global C[i0 + i, j0 + j + 64 c], %y_c

The pass copies an op into each chunk if only these stores read its result, the result varies along the columns, and
the op is a map, an index, or a load from a buffer that the kernel does not write.  Every other value, such as the
accumulator, is sliced; a slice selects registers and moves no data.  A small buffer therefore suffices for the TMA
stores of ``tma-stores``, which runs later.

Chunks of columns are the outer loop and blocks of rows the inner one.  A value that varies along the columns only, such
as a bias, is then loaded once for all rows, and it is dead after its chunk.  The loads of a chunk precede its
arithmetic and are ``volatile``; otherwise the C compiler moves all loads to the front and spills registers.

Stores whose tiles have the same shape are processed together, chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from math import gcd

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Var, free_vars
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpgroupPlan
from nautilus.core.tiles import TileAxis, TileType
from nautilus.ma_tile.ir.async_ops import GROUP_WARPS, TmaLoad, TmaStore
from nautilus.ma_tile.ir.instruction_tables import WGMMA, wg_acc_layout
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import (
    AsyncCopy,
    ConstOp,
    ForOp,
    Frag,
    GlobalLoad,
    GlobalStore,
    IndexOp,
    MapOp,
    MemKernel,
    MemModule,
    MemOp,
    MmaOp,
    ParamOp,
    RolesOp,
    SliceOp,
    walk_ops,
)
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp
from nautilus.ma_tile.ir.traverse import Ops, bound, each_planned_kernel, expressions, reads, refs
from nautilus.ma_tile.passes.finalise.dead_fragments import clean
from nautilus.ma_tile.rewriting.renaming import Names, Renaming
from nautilus.ma_tile.verify.layout import same_map
from nautilus.targets.limits import WGMMA_ROWS

#: least columns of a chunk: a row of 16-bit elements that can be swizzled
_LEAST = 16


@dataclass(frozen=True, slots=True)
class ChunkEpilogue:
    """``store_columns`` overrides the schedule's."""

    schedule: Schedule | None = None
    store_columns: int | None = None
    name = "chunk-epilogue"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose epilogues process chunks of columns."""

        def one(k: MemKernel, plan: WarpgroupPlan) -> MemKernel:
            return chunk(k, plan.store_columns) if plan.store_columns else k

        return each_planned_kernel(module, self, WarpgroupPlan, one)


def chunk(kernel: MemKernel, columns: int) -> MemKernel:
    """``kernel`` with its accumulators stored in chunks of ``columns`` columns."""
    if not any(isinstance(op, MmaOp) and op.instr in WGMMA for op in walk_ops(kernel.body)):
        return kernel
    work = _Kernel(kernel, columns)
    body = work.scope(kernel.body)
    if body == kernel.body:
        return kernel
    return clean(replace(kernel, body=body, layouts=work.layouts))


@dataclass(frozen=True, slots=True)
class _Group:
    """Stores of one block, by position, of tiles ``m`` x ``n`` in one layout; ``width`` columns a chunk."""

    at: tuple[int, ...]
    m: TileAxis
    n: TileAxis
    width: int


class _Kernel:
    """The data that all chunks of one kernel share."""

    def __init__(self, kernel: MemKernel, columns: int) -> None:
        self.columns, self.names = columns, Names(kernel)
        self.layouts = dict(kernel.layouts)
        ops = list(walk_ops(kernel.body))
        self.written = {op.buffer for op in ops if isinstance(op, GlobalStore | TmaStore)}
        self.loaded = {op.buffer for op in ops if isinstance(op, GlobalLoad | AsyncCopy | TmaLoad)}
        self.frags = {f.name: f for op in ops for f in bound(op)}
        self.moving = {v for c in kernel.pipelines for v in (c.stage, c.phase)}

    def scope(self, body: Ops) -> Ops:
        """``body`` with its stores in chunks, and those of the roles and tile loops in it."""
        out: list[MemOp] = []
        for op in body:
            match op:
                case TileSchedulerOp():
                    op = replace(op, body=self.scope(op.body))
                case RolesOp():
                    op = replace(op, roles=tuple(replace(r, body=self.scope(r.body)) for r in op.roles))
            out.append(op)
        new = tuple(out)
        while (group := self._group(new)) is not None:
            new = self._chunked(new, group)
        return new

    # -- which stores ---------------------------------------------------------------------------
    def _group(self, body: Ops) -> _Group | None:
        """The first stores that are processed together: consecutive ones to different buffers."""
        found: _Group | None = None
        seen: set[str] = set()
        for at, op in list(enumerate(body))[_after_mma(body) :]:
            if not isinstance(op, GlobalStore):
                continue
            own = self._shape(at, op)
            if found is None:
                found = own
            elif own is not None and (own.m, own.n) == (found.m, found.n) and op.buffer not in seen:
                found = replace(found, at=(*found.at, at))
            elif op.buffer in seen:
                break
            if found is not None:
                seen.add(op.buffer)
        return found

    def _shape(self, at: int, op: GlobalStore) -> _Group | None:
        """The group of ``op`` alone, if its tile has more than one chunk."""
        axes = [a for a in op.value.type.axes if a.size > 1]
        layout = self.layouts[op.value.layout]
        if len(axes) != 2 or layout.warps != GROUP_WARPS or op.buffer in self.loaded or _mentions(op, self.moving):
            return None
        for m, n in (axes, axes[::-1]):
            width = gcd(n.size, self.columns)
            if m.size % WGMMA_ROWS or n.size % 8 or width < _LEAST or (m.size, n.size) == (WGMMA_ROWS, width):
                continue
            if same_map(layout, wg_acc_layout(m.name, n.name, m.size, n.size)):
                return _Group((at,), m, n, width)
        return None

    # -- their chunks -----------------------------------------------------------------------------
    def _chunked(self, body: Ops, group: _Group) -> Ops:
        """``body`` with the group's stores in chunks, at the position of the last store."""
        work = _Chunks(self, group, self._cloned(body, group))
        last = group.at[-1]
        stores = [op for at in group.at if isinstance(op := body[at], GlobalStore)]
        before = tuple(op for at, op in enumerate(body[:last]) if at not in group.at)
        return (*before, *work.all(stores), *body[last + 1 :])

    def _cloned(self, body: Ops, group: _Group) -> dict[str, MemOp]:
        """Result name -> op, of the ops that are computed in each chunk, because only these stores read them."""
        readers: dict[str, set[int]] = {}
        for at, op in enumerate(body):
            for inner in walk_ops((op,)):
                for name in reads(inner):
                    readers.setdefault(name, set()).add(at)
        out: dict[str, MemOp] = {}
        inside = set(group.at)
        for at in range(group.at[-1] - 1, -1, -1):
            op = body[at]
            if not isinstance(op, ConstOp | IndexOp | ParamOp | MapOp | GlobalLoad) or _mentions(op, self.moving):
                continue
            alone = readers.get(op.result.name, set()) <= inside
            fixed = isinstance(op, GlobalLoad) and op.buffer in self.written
            if group.n.name in op.result.type.names and not fixed and (alone or not isinstance(op, MapOp | GlobalLoad)):
                out[op.result.name] = op
                inside |= {at} if alone else set()
        return out

    def layout(self, new: FragLayout, like: str, suffix: int) -> str:
        """The name of ``layout`` in the kernel, which declares it if it is new."""
        found = next((name for name, x in self.layouts.items() if x == new), None)
        if found is None:
            found = f"{like}_{suffix}"
            while found in self.layouts:
                found += "_"
            self.layouts[found] = new
        return found


@dataclass(slots=True)
class _Chunks:
    """The chunks of one group. ``memo``: (value, first column, first row) -> the part of the value."""

    kernel: _Kernel
    group: _Group
    cloned: dict[str, MemOp]
    memo: dict[tuple[str, int, int], Frag] = field(default_factory=dict)
    out: list[MemOp] = field(default_factory=list)

    def all(self, stores: Sequence[GlobalStore]) -> Iterator[MemOp]:
        """The ops of all chunks; in each chunk the loads, then the arithmetic, then the stores."""
        for column in range(0, self.group.n.size, self.group.width):
            for row in range(0, self.group.m.size, WGMMA_ROWS):
                for store in stores:
                    self.out.append(self._renamed(store, column, row, {}))
                yield from sorted(self.out, key=lambda op: not (isinstance(op, GlobalLoad) and not refs(op)))
                self.out.clear()

    def _part(self, value: Frag, column: int, row: int) -> Frag:
        """The part of ``value`` from ``column`` and ``row`` on; the ops that compute it are appended to ``out``."""
        g, names = self.group, value.type.names
        column = column if g.n.name in names else 0
        row = row if g.m.name in names else 0
        if not self._shrinks(value, g.n, g.width) and not self._shrinks(value, g.m, WGMMA_ROWS):
            return value
        key = (value.name, column, row)
        if key not in self.memo:
            op = self.cloned.get(value.name)
            made = self._sliced(value, column, row) if op is None else self._copied(op, value, column, row)
            self.memo[key] = made
        return self.memo[key]

    def _shrinks(self, value: Frag, axis: TileAxis, size: int) -> bool:
        return axis.size > size and axis.name in value.type.names

    def _new(self, value: Frag, column: int, row: int, width: int) -> Frag:
        """A fragment for the part of ``value`` of 64 rows and ``width`` columns."""
        g = self.group
        sizes = {g.m.name: WGMMA_ROWS, g.n.name: width}
        axes = tuple(TileAxis(a.name, min(a.size, sizes.get(a.name, a.size))) for a in value.type.axes)
        whole = wg_acc_layout(g.m.name, g.n.name, WGMMA_ROWS, width)
        layout = whole if {g.m.name, g.n.name} <= set(value.type.names) else whole.project(value.type.names)
        suffix = f"{column}" if row == 0 else f"{column}_{row}"
        frag = self.kernel.names.frag(value, suffix)
        return replace(
            frag, type=TileType(value.type.dtype, axes), layout=self.kernel.layout(layout, value.layout, width)
        )

    def _sliced(self, value: Frag, column: int, row: int) -> Frag:
        """A slice of ``value``: first of rows, because registers of adjacent columns are adjacent then."""
        g = self.group
        if self._shrinks(value, g.m, WGMMA_ROWS):
            key = (value.name, -1, row)
            if key not in self.memo:
                self.memo[key] = self._new(value, 0, row, g.n.size)
                self.out.append(SliceOp(self.memo[key], value, g.m.name, row))
            value = self.memo[key]
        if not self._shrinks(value, g.n, g.width):
            return value
        part = self._new(value, column, 0, g.width)
        self.out.append(SliceOp(part, value, g.n.name, column))
        return part

    def _copied(self, op: MemOp, value: Frag, column: int, row: int) -> Frag:
        """A copy of ``op`` for this chunk."""
        part = self._new(value, column, row, self.group.width)
        new = self._renamed(op, column, row, {value.name: part})
        if isinstance(new, GlobalLoad):
            new = replace(new, volatile=value.type.dtype.bytes <= 4)
        self.out.append(new)
        return part

    def _renamed(self, op: MemOp, column: int, row: int, made: dict[str, Frag]) -> MemOp:
        """``op`` on parts in place of whole values; its positions count from the start of the chunk."""
        known = self.kernel.frags
        parts = {name: self._part(known[name], column, row) for name in reads(op)}
        starts = {self.group.n.name: column, self.group.m.name: row}
        moved: dict[str, Expr] = {axis: calc("add", Var(axis), start) for axis, start in starts.items() if start}
        return Renaming(parts | made, moved).op(op)


def _after_mma(body: Ops) -> int:
    """The first position after all MMAs of ``body``; the length of ``body`` if it has none."""
    last = [
        at for at, op in enumerate(body) if isinstance(op, ForOp) or any(isinstance(x, MmaOp) for x in walk_ops((op,)))
    ]
    return last[-1] + 1 if last else len(body)


def _mentions(op: MemOp, variables: set[str]) -> bool:
    return any(not variables.isdisjoint(free_vars(e)) for e in expressions(op))
