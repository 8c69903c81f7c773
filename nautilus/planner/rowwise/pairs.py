"""Reductions over pairs: each result combines a row of one operand with a row of another one.

Distances, comparisons of codes and products in other semirings (``max[k](A[i, k] + B[k, j])``) have the operands of a
matrix product and no MMA.  A block has a square of results and a loop over the reduction, whose steps have a sector of
each row in shared memory (:mod:`nautilus.ma_tile.lowering.operands.shared_tiles`), so that a thread uses each element
that it loads for several results.  Larger squares are faster where there are enough of them (:data:`SQUARES`): L1
distances of 2048 x 2048 x 128 took 92 us on an H200 with operands from L1 in squares of 64 rows, with 32 rows 287 us.
A block has several squares of rows or columns that are fewer, as of the pairs within groups of 16.  Chunks of long rows
have squares too: Hamming distances of 256 x 256 x 1024 in 16 chunks are predicted at 15 us, with a block for each
result of a chunk at 658 us.
Few terms of many operations take as long to compute as in rows, which more threads share: they have no squares.
The operands of a condition count as well: ``sum[k](f32(A[i, k] != C[j, k]))`` is a sum of 1 where that holds.

Where no operand has both an axis of the results and that of the terms, as in ``sum[k](i32(x[n] > bound[k]))``, all
results have the same terms: a thread has results of its own and no other thread has terms of them.  A block has a
row of :data:`RESULTS` results and a loop over the terms.  Steps have one term, since the C compiler unrolls such loops,
and :data:`STEP` terms where a function of the terms has a branch, behind which no load of the next term is issued.

Where other reductions combine the columns, as the nearest of many points does, a block has rows, a loop over columns in
steps of :data:`WIDE`, and a loop over the terms inside of it, so that no pair is stored: the nearest of 16384 points to
each of 2048 in 64 dimensions is predicted at 425 us, with a block for each row at 826 us.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import gcd, prod

from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, children, free_vars, walk
from nautilus.core.functions import FUNCTIONS
from nautilus.core.schedule import AxisPlan, WarpPlan
from nautilus.core.tiles import ceil_pow2, floor_pow2
from nautilus.planner.draft import Draft
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import GRID, LOOP, TILE
from nautilus.targets.memory_rates import SECTOR

WIDE, SIDE = 64, 32  # rows of results of a block
#: rows and columns of results of a block, and blocks that there are at least: a thread has 32 or 8 results
SQUARES = ((WIDE, WIDE, 128), (SIDE, SIDE, 0))
BLOCKS = 128  # blocks with which most multiprocessors have one
SHORT_STEP, MOST_TERMS = 4, 16  # terms of a step, at least and at most
LEAST, LEAST_TERMS = 16, 5  # rows and columns, and terms, that are worth a tile
FEW_TERMS, CHEAP = 15, 8  # of terms that are no more, those of at most so many operations are worth a tile
RESULTS = 512, 256  # results of a block whose terms are the same, where such blocks fill the GPU
BUSY = 4  # such blocks of a multiprocessor that hide their latency, where chunks leave a choice
MANY = 1 << 23  # pairs whose results are worth a kernel of their own
STEP = 16  # terms of a step where several reductions read each other's running results
WASTE = 8  # one part of the terms of all steps may be beyond the last term
MAPPING = WarpPlan(warps=(4, 1), stages=3, epilogue="direct")
FROM_L1 = WarpPlan(warps=(2, 2), stages=1, epilogue="direct")  # of several squares: lanes are apart in shared memory


def pair_of(defs: Sequence[Def], grid: Mapping[str, int], extents: Mapping[str, int]) -> tuple[str, str, str] | None:
    """The axes of rows, columns and terms of the reductions of ``defs``; None where they reduce no pairs.

    They have the same axes.  ``grid``: extents of the axes of all results; ``extents``: of all axes.
    """
    found = [d for d in defs if d.is_reduction]
    if not found or not found[0].red or not found[0].par:
        return None
    d, names = found[0], {x.name for x in defs}
    if any([a.name for a in x.axes] != [a.name for a in d.axes] for x in found):
        return None
    terms = max((a.name for a in d.red), key=lambda x: extents[x])
    reads = [free_vars(ld) for x in found for ld in x.reads() if ld.buffer not in names]
    operands = [used for used in reads if terms in used]
    columns = [a.name for a in reversed(d.par) if grid.get(a.name, 0) >= LEAST]
    for column in columns:
        rows = [x for x in columns if x != column and _apart(operands, x, column)]
        if rows and _worth_sharing(found, extents[terms]):
            return max(rows, key=lambda x: grid[x]), column, terms
    return None


def _worth_sharing(defs: Sequence[Def], terms: int) -> bool:
    """Whether loads are a large part of the work for a result with ``terms``: more threads compute rows of results."""
    most = max(sum(isinstance(n, Op) for n in set(walk(d.value))) for d in defs)
    return terms > FEW_TERMS or (terms >= LEAST_TERMS and most <= CHEAP)


def reduced_pair(
    defs: Sequence[Def], results: Mapping[str, int], grid: Collection[str], extents: Mapping[str, int]
) -> tuple[str, str, str] | None:  # fmt: skip
    """The axes of rows, columns and terms of pairs whose columns all other reductions of ``defs`` combine, or None.

    Such as the nearest of many points.  ``results``, ``extents``: as ``grid``, ``extents`` of :func:`pair_of`;
    ``grid``: also the axes that number chunks.
    """
    found = {d.name: d for d in defs if d.is_reduction}
    inner = [d for d in found.values() if len(d.red) == 1 and all(a.name not in grid for a in d.red)]
    for d in inner:
        others = [o for o in found.values() if o is not d]
        columns = {a.name for o in others for a in o.red}
        terms = d.red[0].name
        if len(columns) != 1 or terms in columns or extents[terms] < LEAST_TERMS:
            continue
        (column,) = columns
        operands = [names for ld in d.reads() if terms in (names := free_vars(ld))]
        rows = [a.name for a in d.par if results.get(a.name, 0) >= LEAST and _apart(operands, a.name, column)]
        apart = extents.keys() <= {column, terms, *grid}  # no result has an axis of its own
        if rows and apart and extents[column] >= WIDE:
            return max(rows, key=lambda x: results[x]), column, terms
    return None


def shared_terms(
    defs: Sequence[Def], grid: Mapping[str, int], chunks: Collection[str] = (), numbers: bool = False
) -> tuple[str, int] | None:  # fmt: skip
    """The axis of results that have the same terms, and the results of a block; None without them.

    ``grid``: extents of the axes of all results; ``chunks``: those among them that number chunks of the terms;
    ``numbers``: results may also differ by their positions alone, as in ``max[b | start[b] <= t](start[b])``.
    """
    reduced = {a.name for d in defs for a in d.red}
    column = defs[-1].par[-1].name if defs[-1].par else ""
    results = prod(grid.values())
    blocks = BLOCKS * (BUSY if chunks else 1)
    found = next((n for n in RESULTS if results >= blocks * n and grid.get(column, 0) >= n), None)
    if found is None or len(reduced) != 1:
        return None
    names = {d.name for d in defs}
    (terms,) = reduced
    operands = [free_vars(ld) for d in defs for ld in d.reads() if ld.buffer not in names]
    if numbers:
        found_in = (positions(e) for d in defs for e in (d.value, *conjuncts(d.guard)))
        operands += [frozenset((column,))] if any(column in x for x in found_in) else []
    conditions = [c for d in defs for c in conjuncts(d.guard) if free_vars(c).isdisjoint(chunks)]
    bounded = any(terms in positions(c) for c in conditions)  # as the terms of segments are
    return (column, found) if _apart(operands, column, terms) and not bounded else None


def counted(defs: Sequence[Def], extents: Mapping[str, int]) -> Def | None:
    """The reduction of pairs whose results other reductions of ``defs`` combine and should read in memory, or None.

    In one kernel, the threads of a block would combine their parts of each result, which takes longer than the pairs.
    """
    found = [d for d in defs if d.is_reduction]
    names = {d.name for d in defs}
    for d in found:
        columns = [a.name for a in d.par if any(a.name in {r.name for r in o.red} for o in found)]
        if len(d.red) != 1 or not columns or prod(extents[a.name] for a in d.axes) < MANY:
            continue
        operands = [free_vars(ld) for ld in d.reads() if ld.buffer not in names]
        if any(_apart(operands, c, d.red[0].name) for c in columns):
            return d
    return None


def branches(defs: Sequence[Def]) -> bool:
    """Whether the code of a term has a branch, such as that of a quotient which rounds once."""
    ops = (n for d in defs if d.is_reduction for n in walk(d.value) if isinstance(n, Op))
    return any(FUNCTIONS[n.op].branches and not isinstance(n.args[-1], Const) for n in ops)


def positions(e: Expr) -> frozenset[str]:
    """The variables that ``e`` has as numbers, not to read elements."""
    if isinstance(e, Load):
        return frozenset()
    return frozenset((e.name,)) if isinstance(e, Var) else frozenset[str]().union(*map(positions, children(e)))


def square(results: int) -> tuple[int, int]:
    """Rows and columns of a block, for this many ``results``."""
    return next((rows, columns) for rows, columns, blocks in SQUARES if results >= blocks * rows * columns)


def step_of(defs: Sequence[Def], terms: str, extent: int) -> int:
    """The terms of a step: a sector of the narrowest rows, or half of one where the last step would be mostly empty."""
    width = min((ld.dtype.bytes for d in defs for ld in d.reads() if terms in free_vars(ld)), default=4)
    step = min(MOST_TERMS, max(SHORT_STEP, SECTOR // width))
    while step > SHORT_STEP and -(-extent // step) * step * WASTE > extent * (WASTE + 1):
        step //= 2
    return step


def block(grid: Mapping[str, int], row: str, column: str, sides: tuple[int, int]) -> dict[str, int]:
    """The tile of a block: rows and columns, or of short rows and columns as many squares.

    ``grid``: the axes of the results, of which the last ones hold the squares; ``sides``: most rows and columns.
    """
    tiles = dict.fromkeys(grid, 1)
    tiles |= {x: min(side, ceil_pow2(grid[x])) for x, side in zip((row, column), sides, strict=True)}
    room = sides[0] * sides[1] // (tiles[row] * tiles[column])
    for x in reversed([x for x in grid if x not in (row, column)]):
        tiles[x] = min(room, floor_pow2(grid[x]))
        room //= tiles[x]
    return tiles


def plan_of_pair(
    g: Draft, grid: Sequence[str], rest: Sequence[str], row: str, column: str, terms: str
) -> tuple[str, dict[str, AxisPlan], WarpPlan]:
    """The loop, the roles of axes and the mapping of a reduction over pairs."""
    sides, step = square(prod(g.extent(x) for x in grid)), step_of(g.defs, terms, g.extent(terms))
    tiles = block({x: g.extent(x) for x in grid if not g.cut_by(x)}, row, column, sides)
    several = any(n > 1 for x, n in tiles.items() if x not in (row, column))
    loops = {x: AxisPlan(x, LOOP, (SHORT_STEP if several else step) if x == terms else 1) for x in rest}
    roles = loops | {x: AxisPlan(x, GRID, tiles.get(x, 1)) for x in grid}
    return terms, roles, FROM_L1 if several else MAPPING


def plan_of_reduced_pair(
    g: Draft, grid: Sequence[str], row: str, column: str, terms: str
) -> tuple[str, dict[str, AxisPlan], WarpPlan]:
    """The loop over the columns of pairs that other reductions combine, the roles of axes and the mapping."""
    side, _ = square(prod(g.extent(x) for x in grid) * WIDE)
    step = step_of(g.defs, terms, g.extent(terms))
    cut = next((c for x in grid if (c := g.cut_by(x)) is not None and c.axis == column), None)
    wide = WIDE if cut is None else cut.tile or gcd(cut.size or WIDE, WIDE)
    few = g.extent(terms) <= MOST_TERMS  # registers hold those of all rows
    inner = AxisPlan(terms, TILE, ceil_pow2(g.extent(terms))) if few else AxisPlan(terms, LOOP, step)
    roles = {column: AxisPlan(column, LOOP, wide), terms: inner}
    roles |= {x: AxisPlan(x, GRID, side if x == row else 1) for x in grid}
    return column, roles, MAPPING


def _apart(operands: Sequence[frozenset[str]], row: str, column: str) -> bool:
    """Whether some operand has ``row``, another ``column``, and none both."""
    return all(any(x in o for o in operands) for x in (row, column)) and not any({row, column} <= o for o in operands)
