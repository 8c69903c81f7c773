"""Kernels of matrix products on single warps: tiles of the launch grid, the step of the shared loop, and warps.

Tiles have 128 rows and columns; they are smaller where there are fewer, where the accumulators are wide, or where a
product has so few terms that several blocks of a multiprocessor should store at the same time.  Products
of f32 with few terms keep their own sizes, because padding them to matrix instructions takes longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import RELATIONAL, Expr, Load, Op, free_vars, loads
from nautilus.core.index.linear import linear, moves_with
from nautilus.core.schedule import AxisPlan, WarpPlan
from nautilus.core.tiles import ceil_pow2
from nautilus.core.types import DType
from nautilus.planner.draft import Draft
from nautilus.planner.products.dots import full_operands, step_of_digit, step_within
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import GRID, TILE

MAX_ACCUMULATORS = 26_000  # elements of the 2-D locals of one block
IN_PARTS = 64  # accumulators of a thread in products of f32 in parts
WHOLE = 64  # positions that a tile has anyway along other axes of a side, from which on its grid axes are not tiled
FEW_TERMS = 8  # terms of a product of f32 in a step of its matrix instructions
FEW = 16  # terms of a product whose blocks mostly store their results
MOST_ROWS = 128  # rows of several axes that one tile has
NEAR = 4  # an axis along which a tile reads single elements is preferred if it is this many times as long
SMALL = 256  # elements of a result for each one of an operand, which caches then hold
FEW_TILE = 64  # rows and columns of a tile of such a product (mixed heads: 65 us on an H100, 68 before)


def add_tiles(g: Draft, grid: list[str]) -> None:
    """Tiles of 128 rows; smaller tiles where there are fewer rows or the accumulators are wide.

    Raises ScheduleError.
    """
    most, grid_axes = FEW_TILE if _is_short(g) else 128, frozenset(grid)
    for dot in g.dots.values():
        for side, other in ((dot.rows, dot.columns), (dot.columns, dot.rows)):
            mine = [x for x in side if x in grid and g.cut_by(x) is None]
            if g.loop in side:  # such as queries that all batches share: the columns are those of the loop
                filled = g.extent(g.loop) >= WHOLE and not grid_axes.isdisjoint(other)  # and the tile has rows of that
                mine = [] if filled else [x for x in mine if not _is_batch(g, x)]
            whole = prod(g.tile(x) for x in side if x in g.roles and g.roles[x].role == TILE)
            if mine and whole < WHOLE and all(g.tile(x) == 1 for x in mine):
                if all(_few_rows(g, mine)):
                    g.roles |= {x: AxisPlan(x, GRID, ceil_pow2(g.extent(x))) for x in mine}
                    continue
                near = _contiguous(g, mine)
                best = max(mine, key=lambda x: (_worth(g, x, x in near), mine.index(x)))
                least = 1 if _is_small(g) else 16
                g.roles[best] = AxisPlan(best, GRID, max(least, min(most, ceil_pow2(g.extent(best)))))
    tiled = [x for x in grid if g.tile(x) > 16]
    while tiled and _accumulators(g) > MAX_ACCUMULATORS:
        big = max(tiled, key=g.tile)
        g.roles[big] = AxisPlan(big, GRID, g.tile(big) // 2)
        tiled = [x for x in tiled if g.tile(x) > 16]
    if _accumulators(g) > 2 * MAX_ACCUMULATORS:
        raise ScheduleError("the accumulators do not fit in registers")


def _few_rows(g: Draft, rows: list[str]) -> Iterator[bool]:
    """Whether a tile has all elements of ``rows``: several short axes before the loop of a back-to-back GEMM.

    Such are the heads of a group and a few new positions, which read the same keys; a tile of one axis reads them again
    for each element of the other one.
    """
    sizes = [ceil_pow2(g.extent(x)) for x in rows]
    yield sum(n > 1 for n in sizes) > 1 and 16 <= prod(sizes) <= MOST_ROWS and not _is_small(g)
    yield any(g.loop in (*dot.rows, *dot.columns) for dot in g.dots.values())
    yield any(dot.inner == (g.loop,) for dot in g.dots.values())


def _contiguous(g: Draft, axes: Sequence[str]) -> frozenset[str]:
    """Those of ``axes`` along which neighbours of an operand of a product are neighbours in memory.

    Or neighbours of the result, where it has :data:`SMALL` elements for each one of the operand.
    """
    made = {d.name for d in g.defs}
    read = ((d, ld) for d in _products(g) for ld in loads(d.value) if ld.index and ld.buffer not in made)
    last = [e for d, ld in read if (e := _last(g, d, ld)) is not None]
    return frozenset(x for x in axes for e in last if moves_with(e, x))


def _last(g: Draft, d: Def, operand: Load) -> Expr | None:
    """The last index of ``operand`` of the product ``d``, or of its results, if the operand is small and has that."""
    axes = free_vars(operand) & {a.name for a in d.axes}
    if SMALL * prod(map(g.extent, axes)) > prod(g.extent(a.name) for a in d.par):
        return operand.index[-1]
    return d.index[-1] if free_vars(d.index[-1]) <= axes else None


def _worth(g: Draft, axis: str, near: bool) -> int:
    """How good a tile along ``axis`` is beside others; ``near``: it reads neighbours in memory."""
    return min(g.extent(axis), 128) * (NEAR if near else 1) // _moved(g, axis)


def _moved(g: Draft, axis: str) -> int:
    """The positions of the shared loop by which a position along ``axis`` moves a condition, at least 1.

    Rows that are far apart have few terms in common, as those of different groups of ``group * 64 + member``.
    """
    found = [1]
    for c in (c for d in g.defs for c in conjuncts(d.guard)):
        if g.loop is not None and isinstance(c, Op) and c.op in RELATIONAL:
            far = linear(c.args[0]) - linear(c.args[1])
            own, step = (abs(far.slope(x)) for x in (axis, g.loop))
            found += [own // step] if step else []
    return max(found)


def _is_batch(g: Draft, axis: str) -> bool:
    """Whether both factors of a product have ``axis``, whose elements therefore have matrices of their own."""
    found = ((d, g.dots[d.name]) for d in _products(g))
    return any(d.axis(axis) is not None and axis not in (*dot.rows, *dot.columns) for d, dot in found)


def _is_small(g: Draft) -> bool:
    """Whether all products are of f32 in full, with few terms: padding them to matrix instructions takes longer."""
    return g.loop is not None and g.extent(g.loop) <= FEW_TERMS and all(full_operands(d) for d in _products(g))


def _is_short(g: Draft) -> bool:
    """Whether the one product has so few terms that blocks mostly store, as several on a multiprocessor do at once."""
    sums = [d for d in g.defs if d.is_reduction]
    return len(g.dots) == len(sums) == 1 and g.loop is not None and prod(g.extent(a.name) for a in sums[0].red) <= FEW


def _is_thin(g: Draft) -> bool:
    """Whether a product has too few rows or columns for a matrix instruction."""
    sides = [side for dot in g.dots.values() for side in (dot.rows, dot.columns)]
    return any(prod(g.tile(x) for x in side) < 16 for side in sides)


def _products(g: Draft) -> list[Def]:
    return [d for d in g.defs if d.name in g.dots]


def _accumulators(g: Draft) -> int:
    """Elements of the accumulators with two or more tile axes.

    The shared loop counts as 64, or as one matrix where it numbers the matrices of a product.
    """
    total = 0
    for d in g.defs:
        if not d.is_reduction:
            continue
        one = g.loop is not None and d.name in g.dots and numbers_matrices(g, d.name, g.loop)
        tiles = [(1 if one else 64) if a.name == g.loop else g.tile(a.name) for a in d.par]
        if sum(t > 1 for t in tiles) >= 2:
            v = 2 if d.buffer.dtype is DType.F64 else 1  # registers
            for t in tiles:
                v *= t
            total += v
    return total


def step(g: Draft) -> int:
    """The step of the shared loop."""
    assert g.loop is not None
    if any(g.loop in dot.chosen or numbers_matrices(g, n, g.loop) for n, dot in g.dots.items()):
        return 1
    contracted_only = all(a.name != g.loop for d in g.defs for a in d.par)
    least = (1 if _is_thin(g) else FEW_TERMS) if _is_small(g) else 16
    most = step_within(_products(g), max(least, min(32 if contracted_only else 64, ceil_pow2(g.extent(g.loop)))))
    return step_of_digit(_products(g), g.loop, most)


def numbers_matrices(g: Draft, name: str, axis: str) -> bool:
    """Whether ``axis`` numbers the matrices of the product ``name``, both of whose factors have it."""
    dot = g.dots[name]
    sides = (*dot.rows, *dot.columns, *dot.inner)
    return bool(dot.rows and dot.columns) and axis not in sides and any(d.name == name and d.axis(axis) for d in g.defs)


def mapping(g: Draft) -> WarpPlan:
    """The warps of a block, and how it copies."""
    sides = [side for d in g.dots.values() for side in (d.rows, d.columns)]
    most = max((prod(g.tile(x) for x in side if g.roles[x].role == GRID) for side in sides), default=16)
    both = any(
        any(g.roles[x].role == GRID and g.tile(x) > 1 for x in d.rows)
        and any(g.roles[x].role == GRID and g.tile(x) > 1 for x in d.columns)
        for d in g.dots.values()
    )
    if both:
        few = (2 if most >= 32 and not _is_thin(g) else 1, 2)
        full = any(full_operands(d) or d.buffer.dtype is DType.F64 for d in _products(g))
        return WarpPlan(warps=_more_warps(g, few) if full else few, stages=3, raster_order="grouped")
    grid_of_warps = (max(1, min(8, most // 16)), 1)
    return WarpPlan(warps=grid_of_warps, stages=2, raster_order="longest-first" if _uneven(g) else "natural")


def _more_warps(g: Draft, warps: tuple[int, int]) -> tuple[int, int]:
    """More warps for products in parts, which have a second array beside their accumulators (:data:`IN_PARTS`), and
    for those of f64, whose accumulators have two registers."""
    down, across = warps
    each = 2 if any(d.buffer.dtype is DType.F64 for d in _products(g)) else 1
    for dot in g.dots.values():
        m, n = (prod(g.tile(x) for x in side) for side in (dot.rows, dot.columns))
        while m * n * each > 32 * IN_PARTS * down * across and down * across < 16:
            down, across = (2 * down, across) if m // down > n // across else (down, 2 * across)
    return down, across


def _uneven(g: Draft) -> bool:
    """Whether a condition relates the shared loop to a grid axis, so that blocks differ in their iteration counts."""
    grid = {x for x, a in g.roles.items() if a.role == GRID}
    uses = [free_vars(d.guard) for d in g.defs if d.guard is not None]
    return any(g.loop in names and names & grid for names in uses)
