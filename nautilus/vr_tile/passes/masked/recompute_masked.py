"""``recompute-masked``: tiles with inf and NaN are computed again where matrix instructions do not have their terms.

It replaces the masks of dots, which matrix instructions do not have.

An operand is 0 where the mask of a dot is false, so a product with a finite element of the other operand adds 0.  A
product with inf or NaN makes the sum NaN.  The rewrite is::

    kernel O { ... %acc = dot %a, %b + %old over k where %m ... store O[...], f(%acc) }

    kernel O        { ... %acc = dot %a, %b + %old over k ... store O[...], f(%acc)
                      store O_nan[tile, i], (any element of row i of %acc is NaN) }
    kernel O_masked { the body of O for each tile in which a row is NaN, with masked products one by one }

* Without NaN in the accumulators the masks made no difference.  A NaN is never lost between the dot and the end of the
  kernel (``analysis.not_a_number``); where that is not known, the dot itself becomes a loop of rank-one updates
  (``rewriting.rank_one``), and the kernel needs no second one.  The dot also becomes such a loop where the kernel that
  reads the results runs in the same launch (``combine_in_block``, ``cluster``), which a kernel between would prevent.
* A product of stored parts (``parts 3``) has no sum where an operand is inf or NaN: some part is NaN
  (``core.functions.parts``), and so is the sum, or it is inf because it overflows.  The flags are then of all sums that
  are not finite, and the second kernel has parts in registers (``parts 2``).
* The second kernel computes all rows of a tile again, with the same operations except for these dots, and overwrites
  what the first one stored.
* Before it computes a tile again, the second kernel tests the factors that meet structural zeros in it
  (``rewriting.finite_factors``), which are those of the loops with masked dots alone.  If all are finite, the NaN is
  that of the maths, and the tile stays.  So scores that overflow, or a row of NaN, do not cost a second computation.
* A block of the second kernel tests several tiles.  Without NaN it reads one flag a row and ends, so that the
  launch is most of its cost, and the loops of the first kernel are those that they would be without a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from math import gcd

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Ref, Var, substitute
from nautilus.core.functions.parts import PARTS, STORED
from nautilus.core.index.sizes import Extent, as_extent, blocks, extent_expr, volume
from nautilus.core.ops import Kind, map_fields
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity, first_equal
from nautilus.core.schedule import MappingPlan, Schedule, WarpgroupPlan, mapping_of
from nautilus.core.schedule.mapping import is_fused_into_consumer
from nautilus.core.schedule.recomputed import ROWS, recomputing
from nautilus.core.text.names import fresh
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.targets.limits import WGMMA_ROWS
from nautilus.vr_tile.analysis.not_a_number import finished
from nautilus.vr_tile.ir import (
    DotOp,
    ForOp,
    GridAxis,
    LoadOp,
    MapOp,
    ReduceOp,
    StoreOp,
    TileKernel,
    TileModule,
    TileOp,
    Value,
    results,
    walk_ops,
)
from nautilus.vr_tile.passes.dce import clean
from nautilus.vr_tile.rewriting import Peephole, copies, each_op
from nautilus.vr_tile.rewriting.finite_factors import is_plain, met, tests
from nautilus.vr_tile.rewriting.rank_one import rank_one
from nautilus.vr_tile.rewriting.subtiles import independent, subtiles

_BLOCKS = 128  # blocks of the second kernel, at least, if it has as many tiles
_MOST_FLAGS = 8192  # flags that a block of the second kernel reads
_PART = 4096  # flags of columns that a block of the second kernel reads at once
_SOME = 16  # tiles that a block of the second kernel tests where their number is known only at launch


@dataclass(frozen=True, slots=True)
class RecomputeMasked:
    """Replace the masks of dots, and compute sums of stored parts again where they are inf or NaN.

    ``schedule`` says which kernels are combined with their reader.
    """

    schedule: Schedule | None = None
    name = "recompute-masked"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` without masks of dots; a kernel that needs a second one gets it, with a buffer of flags."""
        if not any(_inexact(k) for k in module.kernels):
            return module
        names = {b.name for b in module.buffers} | {x.name for x in module.params} | {k.name for k in module.kernels}
        buffers, kernels = list(module.buffers), list[TileKernel]()
        planned = self.schedule.kernels if self.schedule is not None else ()
        combined = {x.name for x in planned if is_fused_into_consumer(x.mapping)}
        for k in module.kernels:
            taken = frozenset(n for n in names if n.startswith(k.name))  # new names begin with that of the kernel
            mapping = mapping_of(self.schedule, k.name)
            made, flags = _replaced(k, first_equal(mapping), k.name in combined, first_equal(taken))
            kernels += made
            buffers += flags
            names |= {b.name for b in flags} | {x.name for x in made}
        return replace(module, buffers=tuple(buffers), kernels=tuple(kernels))


@by_identity(256)
def _replaced(
    k: TileKernel, mapping: MappingPlan | None, alone: bool, taken: frozenset[str]
) -> tuple[tuple[TileKernel, ...], tuple[Buffer, ...]]:  # fmt: skip
    """The kernels that replace ``k``, without dead ops, and the buffers of their flags.

    Compilations of several plans have most kernels in common.  ``alone``: as for :class:`_Rewrite`; ``taken``: names.
    """
    work = _Rewrite(k, {*taken}, mapping, alone)
    kernels = tuple(map(clean, work.kernels()))
    return kernels, tuple(f.buffer for f in work.flags)


def _inexact(k: TileKernel) -> tuple[DotOp, ...]:
    """The dots of ``k`` that other terms than their own may make inf or NaN."""
    dots = (op for op in walk_ops(k.body) if isinstance(op, DotOp))
    return tuple(op for op in dots if op.mask is not None or op.parts == STORED)


@dataclass(frozen=True, slots=True)
class _Flags:
    """``buffer[tile, row]``: whether ``value`` is NaN at position ``row`` of ``axis`` (None: anywhere) in a tile.

    ``finite``: or inf.  ``columns``: an axis of which each position has a flag too, because several consumers may
    divide it; the flags of a tile then lie in one row.
    """

    buffer: Buffer
    value: Value
    axis: str | None
    rows: int
    finite: bool
    columns: TileAxis | None = None

    def bad(self, p: Peephole) -> Value:
        """Emit the flags of a tile."""
        v = p.map("sub", (self.value, self.value)) if self.finite else self.value  # inf - inf is NaN
        kept = {self.axis} if self.columns is None else {self.axis, self.columns.name}
        flags, over = p.map("ne", (v, v)), [n for n in v.type.names if n not in kept]
        return p.reduce("any", flags, over) if over else flags

    @property
    def position(self) -> tuple[Expr, ...]:
        """The position of a flag within a tile."""
        row = integer(0) if self.axis is None else Var(self.axis)
        if self.columns is None:
            return (row,)
        return (calc("add", calc("mul", row, self.columns.size), Var(self.columns.name)),)


class _Rewrite:
    """The kernels that replace ``k``.

    ``names``: those of the module, to which new ones are added.  ``alone``: ``k`` must not get a second kernel.
    """

    def __init__(self, k: TileKernel, names: set[str], mapping: MappingPlan | None, alone: bool = False) -> None:
        self.k, self.names, self.mapping = k, names, mapping
        loops = {op.var for op in walk_ops(k.body) if isinstance(op, ForOp)}
        self.variables = {a.name for a in k.axes} | {g.var for g in k.grid} | loops
        self.extents = [as_extent(g.extent) for g in k.grid]
        self.tiles = volume(self.extents)
        self.seen: set[str] = set()  # the dots whose NaN a flag shows
        self.flags = self.find_flags() if not alone else []

    def find_flags(self) -> list[_Flags]:
        """Flags for the inexact dots whose NaN reaches the end of the kernel."""
        found: dict[str, _Flags] = {}
        for op in _inexact(self.k):
            end = finished(self.k, op.result)
            if end is None or not end.type.axes:
                continue
            self.seen.add(op.result.name)
            if end.name in found:
                found[end.name] = replace(found[end.name], finite=found[end.name].finite or op.parts == STORED)
            else:
                axis = self.rows_of(op, end)
                rows = next((a.size for a in end.type.axes if a.name == axis), 1)
                name = fresh(f"{self.k.name}_nan", self.names)
                columns = next((a for a in end.type.axes if a.name != axis), None) if self.divided(rows) else None
                shape = (self.tiles, rows if columns is None else rows * columns.size)
                buffer = Buffer(name, DType.BOOL, shape, Space.TEMP, self.k.span)
                found[end.name] = _Flags(buffer, end, axis, rows, op.parts == STORED, columns)
        return list(found.values())

    def divided(self, rows: int) -> bool:
        """Whether consumers divide the columns of a tile of ``rows`` rows, because each has all of its rows."""
        plan = self.mapping
        several = isinstance(plan, WarpgroupPlan) and plan.tile_scheduling == "cooperative" and plan.warpgroups > 1
        return several and rows <= WGMMA_ROWS

    def rows_of(self, op: DotOp, end: Value) -> str | None:
        """The axis of ``end`` that has a flag for each position: of the left operand's rows, or of the mask.

        The other axes are reduced, which the rows of an instruction cannot be.  They are those of the left operand
        unless the right one is computed.
        """
        made = {r.name: x for x in walk_ops(self.k.body) for r in results(x)}
        right = made.get(op.b.name)
        while isinstance(right, MapOp) and right.op == "cast":
            right = made.get(right.args[0].name)
        left = [n for n in op.a.type.names if n not in op.axes and n not in op.b.type.names]
        of = op.a if op.mask is None else op.mask
        names = [*(left if isinstance(right, LoadOp) else ()), *of.type.names]
        return next((n for n in names if n in end.type.names), None)

    def kernels(self) -> tuple[TileKernel, ...]:
        """``k`` itself where no dot is inexact; else the kernels that replace it."""
        if not _inexact(self.k):
            return (self.k,)
        first = self.without_masks(self.seen)
        if not self.flags:
            return (first,)
        p = Peephole(first)
        p.span = self.k.span
        p.out = list(first.body)
        for f in self.flags:
            p.emit(StoreOp(f.buffer.name, (self.number(), *f.position), f.bad(p), None, p.span))
        return replace(first, body=tuple(p.out)), self.second()

    def without_masks(self, plain: set[str]) -> TileKernel:
        """``k`` in which the dots ``plain`` ignore their masks and keep stored parts.

        Other masked dots are rank-one updates, and other stored parts are in registers.
        """

        def rule(p: Peephole, op: TileOp) -> Value | None:
            if not isinstance(op, DotOp) or op.mask is None or op.result.name in plain:
                return None
            return rank_one(p, op, p.defs, fresh(f"{op.axes[0]}_one", self.variables))

        changed = Peephole(self.k).run(rule)

        def done(op: TileOp) -> TileOp:
            if not isinstance(op, DotOp):
                return op
            return replace(op, mask=None, parts=op.parts if op.result.name in plain or op.parts is None else PARTS)

        return replace(changed, body=tuple(each_op(op, done) for op in changed.body))

    def number(self) -> Expr:
        """The number of a tile in the grid."""
        out: Expr = integer(0)
        for g, n in zip(self.k.grid, self.extents, strict=True):
            if n != 1:  # else the position is 0
                out = Var(g.var) if out == integer(0) else calc("add", calc("mul", out, n), Var(g.var))
        return out

    @property
    def each(self) -> int:
        """Tiles that a block of the second kernel tests."""
        most = max(1, _MOST_FLAGS // (self.part.size * max(f.rows for f in self.flags)))
        return min(-(-self.tiles // _BLOCKS) if isinstance(self.tiles, int) else _SOME, most)

    @cached_property
    def part(self) -> TileAxis:
        """The flags of columns that the second kernel reads at once; one where the flags are those of rows."""
        sizes = [f.rows * f.columns.size for f in self.flags if f.columns is not None]
        return TileAxis(fresh("column", self.variables), gcd(_PART, *sizes) if sizes else 1)

    # -- the second kernel ---------------------------------------------------------------------
    def second(self) -> TileKernel:
        """The kernel that computes the tiles with NaN again::

        for t in 0..(flags of any of the tiles of the block) * tiles {
          for again in 0..(flags of tile t) * parts { the body of k for a part of tile t }
        }
        """
        k, each = self.k, self.each
        tile, t, block, again = (fresh(x, self.variables) for x in ("tile", "t", "c", "again"))
        lines = [TileAxis(fresh("row", self.variables), f.rows) for f in self.flags]
        parts, exact = self.in_parts(self.without_masks(set()), Var(again))
        more = [a for a in (TileAxis(tile, each), *lines, self.part) if a.size > 1]
        p = Peephole(replace(exact, axes=(*more, *exact.axes)))
        p.span = k.span
        first = calc("mul", Var(block), each) if each > 1 else Var(block)
        some = self.any_flag(p, calc("add", first, Var(tile)) if each > 1 else first, [tile] if each > 1 else [], lines)
        outer, p.out = p.out, []
        number = calc("add", first, Var(t)) if each > 1 else first
        here = self.any_flag(p, number, [], lines)
        at = dict(zip((g.var for g in k.grid), _digits(number, self.extents), strict=True))

        def moved(op: TileOp) -> TileOp:
            new: TileOp = map_fields(op, {Kind.EXPR: lambda e: substitute(e, at)})
            return new

        body = tuple(each_op(op, moved) for op in exact.body)
        needed = self.needed(p, here, moved)
        p.emit(ForOp((), again, integer(0), calc("mul", needed, parts), (), body, (), None, k.span))
        count = calc("mul", some, each) if each > 1 else some
        loop = ForOp((), t, integer(0), count, (), tuple(p.out), (), None, k.span)
        grid = (GridAxis(block, extent_expr(blocks(self.tiles, each))),)
        name = fresh(recomputing(k.name), self.names)
        return TileKernel(name, grid, p.kernel.axes, (*outer, loop), k.span)

    def needed(self, p: Peephole, here: Expr, moved: Callable[[TileOp], TileOp]) -> Expr:
        """1 where ``here`` is 1 and a factor of a masked dot is not finite in a tile, else 0.

        Where all are finite, the masks made no difference, and NaN is what the maths has.
        """
        factors = self.factors()
        if factors is None:
            return here
        body, ends = tests(p, self.k.body, factors)
        _, tested = self.in_parts(replace(self.k, body=body), integer(0))
        copied, names = copies(p, tested.body)
        once, flag = fresh("once", self.variables), TileType(DType.BOOL)
        start, before, found = p.const(False, flag), p.fresh(flag, "differs"), p.fresh(flag, "differs")
        outer, p.out = p.out, []
        for op in copied:
            p.emit(each_op(op, moved))
        after = before
        for v in (names[v.name] for v in ends):
            after = p.map("or", (after, p.reduce("any", p.map("ne", (v, v)), v.type.names)))
        inner, p.out = tuple(p.out), outer
        p.emit(ForOp((found,), once, integer(0), here, ((before, start),), inner, (after,), None, self.k.span))
        return self.counted(p, found)

    def counted(self, p: Peephole, flag: Value) -> Expr:
        """1 if ``flag`` is set, else 0."""
        one, zero = (p.const(n, TileType(DType.I32)) for n in (1, 0))
        return Ref(p.select(flag, one, zero).name, DType.I32)

    def factors(self) -> dict[str, tuple[Value, ...]] | None:
        """The operands of masked dots whose inf and NaN matter, by dot; None where a test of them is not known."""
        if any(f.finite for f in self.flags) or _sums_pairs(self.k):
            return None
        defs = {r.name: op for op in walk_ops(self.k.body) for r in results(op)}
        rows = self.flags[0].axis
        out: dict[str, tuple[Value, ...]] = {}
        for op in _inexact(self.k):
            found = met(op, defs)
            if op.result.name not in self.seen:
                continue
            if found is None or not all(is_plain(v, defs) and rows not in v.type.names for v in found):
                return None
            out[op.result.name] = found
        return out

    def in_parts(self, k: TileKernel, part: Expr) -> tuple[int, TileKernel]:
        """How many parts of a tile ``k`` computes one after the other, and ``k`` for part ``part``."""
        axis, rows = self.flags[0].axis, self.flags[0].rows
        if axis is None or rows <= ROWS or rows % ROWS or not independent(k, axis):
            return 1, k
        return rows // ROWS, subtiles(k, axis, ROWS, part)

    def any_flag(self, p: Peephole, tile: Expr, names: Sequence[str], lines: Sequence[TileAxis]) -> Expr:
        """1 if a flag of ``tile``, which varies with ``names``, is set, else 0. ``lines``: the axes of the rows."""
        total: Value | None = None
        whole = isinstance(self.tiles, int) and self.tiles % self.each == 0
        mask = None if whole else calc("lt", tile, self.tiles)
        for f, line in zip(self.flags, lines, strict=True):
            row = Var(line.name) if f.rows > 1 else integer(0)
            bad = self.any_of(p, f, (tile, row), [*names, line.name if f.columns is None else self.part.name], mask)
            total = bad if total is None else p.map("or", (total, bad))
        assert total is not None
        return self.counted(p, total)

    def any_of(self, p: Peephole, f: _Flags, place: tuple[Expr, ...], names: Sequence[str], mask: Expr | None) -> Value:
        """Whether a flag of ``f`` at ``place`` is set; flags of columns are combined in a loop over parts of them."""
        hint, tile = f.buffer.name.lower(), p.type(DType.BOOL, names)

        def flags(index: tuple[Expr, ...]) -> Value:
            flag = p.fresh(tile, hint)
            p.emit(LoadOp(flag, f.buffer.name, index, mask, p.span))
            return flag

        if f.columns is None:
            found = flags(place)
        else:
            size, var = self.part.size, fresh("columns", self.variables)
            start, before, found = p.const(False, tile), p.fresh(tile, hint), p.fresh(tile, hint)
            outer, p.out = p.out, []
            at = calc("add", calc("mul", Var(var), size), Var(self.part.name))
            both = p.map("or", (before, flags((place[0], at))))
            body, p.out = tuple(p.out), outer
            count = integer(f.rows * f.columns.size // size)
            p.emit(ForOp((found,), var, integer(0), count, ((before, start),), body, (both,), None, p.span))
        return p.reduce("any", found, tile.names) if tile.axes else found


def _sums_pairs(k: TileKernel) -> bool:
    """Whether ``k`` reduces tiles of three axes, which a second copy of its body has no shared memory for."""
    return any(isinstance(op, ReduceOp) and len(op.result.type.names) > 1 for op in walk_ops(k.body))


def _digits(number: Expr, extents: Sequence[Extent]) -> list[Expr]:
    """The position of tile ``number`` along each axis of a grid, the last of which varies fastest."""
    out: list[Expr] = []
    for n in reversed(extents):
        out.insert(0, integer(0) if n == 1 else calc("mod", number, n))
        number = number if n == 1 else calc("floordiv", number, n)
    return out
