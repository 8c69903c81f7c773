"""Segments: rows whose terms follow each other, from one element of a tensor to the next, ``ptr[n] <= e < ptr[n + 1]``.

Rows of sparse matrices, edges of a graph by target and ragged batches have this form.  Two rows have no term in common,
so that a tile of several rows computes nearly nothing but terms that it leaves out, and a matrix product of rows and
columns is none.  A block has one row instead, and a loop over the tiles of its terms.  A row has as many terms as the
axis has for each row on average.  Where rows are short, single numbers and many, a block has up to :data:`ROWS` of them
all the same: it reads their terms once, and the terms that each row leaves out cost less than the starts of blocks.

The ends may be in two tensors, ``start[n] <= e < stop[n]``.  Such rows may share terms, as those of the queries of one
document do, so that products stay products, and may be long: their tiles have :data:`OVERLAPPING` terms at least.

A block with one row of single numbers has steps of :data:`UNEQUAL` times that many terms, up to :data:`WIDEST`, because
lengths differ: the longest row of a batch, whose time is that of the kernel, takes less time.  Maxima of 4096 segments
of 256 terms take 6.2 us on an H200 with steps of 256 and of 512, and 50 and 19 us where lengths follow Zipf's law.
Where rows of several columns are long and blocks are few, a block has :data:`FEW_ELEMENTS` elements of fewer columns in
several warps: means of 262,144 rows of 512 elements by 200 keys are predicted at 86 us, with blocks of one warp at 486
(all kernels of such means, the order of the rows included, take 121 us on an H200).  A row of single numbers has a warp
for each :data:`ALONE` terms: 4096 rows of 2048 terms of a sparse matrix take 35 us with four warps.

A block of one warp with a few thousand elements, of which many share a multiprocessor, hides the latency of positions
that are read from tensors.  It has up to :data:`COLUMNS` columns; more, in several warps, where there are so many rows
that the starts of blocks would take most of the time, as in the gradient of a table with a few terms a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.expr.conditions import all_conjuncts
from nautilus.core.expr.nodes import Expr, Load, Op, Var, free_vars
from nautilus.core.index.linear import linear
from nautilus.core.index.sizes import nominal
from nautilus.core.records import dataclass
from nautilus.core.schedule import AxisPlan, WarpPlan
from nautilus.core.tiles import ceil_pow2, floor_pow2
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import GRID, LOOP, TILE

LONGEST, LONGEST_WIDE = 2048, 8192  # terms of a row on average, also of rows of many columns; longer ones are dense
ELEMENTS = 2048  # elements of a tile
OVERLAPPING = 64  # least number of terms of a tile of rows that may overlap
COLUMNS, MOST_COLUMNS = 128, 1024  # columns of a tile, and at most where rows of fewer have too many blocks
UNEQUAL, WIDEST = 4, 512  # average lengths of a row in a step, and its terms at most where the average is lower
LEAST = 8  # terms of a tile
FEW_COLUMNS, FEW_ELEMENTS = 64, 8192  # of a block of several warps, where rows are long and blocks are few
ALONE = 512  # terms of a warp of a block that has one row of single numbers
ROWS = 8  # rows of a block; each of them tests the terms of all
TERMS = 128  # terms of all rows of a block
BLOCKS = 4096  # blocks of one warp that fill the GPU
STARTED = 16384  # blocks of a kernel above which their starts take longer than the work of a few terms


@dataclass(frozen=True, slots=True)
class Segments:
    """The terms along ``axis`` are in segments, one for each position of ``rows`` and of ``outer``.

    ``disjoint``: no two of them have a term in common.  ``outer``: axes whose positions number segments together with
    those of ``rows``, which are the fastest digit, as in ``ptr[16 * e + c] <= t < ptr[16 * e + c + 1]``.
    """

    axis: str
    rows: str
    disjoint: bool = True
    outer: tuple[str, ...] = ()

    def number(self, extents: Mapping[str, int]) -> int:
        """The number of segments."""
        return prod(extents[x] for x in (self.rows, *self.outer))


def segments_of(d: Def, longest: int = LONGEST) -> Segments | None:
    """The segments of the reduction ``d``; None where its terms have no such condition, or more than ``longest`` a row.

    Its results may be those of segments, as scores of the edges of a graph.
    """
    extents, parallel = {a.name: nominal(a.extent) for a in d.axes}, {a.name for a in d.par}
    for axis, start, end in ends_of(d.guard):
        found = _rows(start, end) if axis in extents else None
        if found is not None and {found.rows, *found.outer} <= parallel:
            one = replace(found, axis=axis)
            if extents[axis] <= longest * one.number(extents):
                return one
    return None


def ends_of(guard: Expr | None) -> Iterator[tuple[str, Load, Load]]:
    """The variables that ``guard`` bounds by elements of tensors on both sides, with the elements."""
    parts = tuple(all_conjuncts(guard))
    starts = [(a.name, x) for c in parts for a, x in _compared(c, "le", "ge")]
    ends = [(a.name, x) for c in parts for a, x in _compared(c, "gt", "lt")]
    return ((axis, start, end) for axis, start in starts for name, end in ends if name == axis)


def _compared(c: Expr, forwards: str, backwards: str) -> Iterator[tuple[Var, Load]]:
    """A variable and an element of a tensor, where ``c`` is ``element forwards variable``, or the same turned."""
    match c:
        case Op(op=op, args=(Load() as x, a)) if op == forwards and (var := _variable(a)) is not None:
            yield var, x
        case Op(op=op, args=(a, Load() as x)) if op == backwards and (var := _variable(a)) is not None:
            yield var, x


def _variable(e: Expr) -> Var | None:
    """The variable that ``e`` is; it has more bits where it is compared with an element of 64 bits."""
    match e:
        case Var() as var:
            return var
        case Op(op="cast", args=(Var() as var,), dtype=DType.I64):
            return var
    return None


def follow(start: Load, end: Load) -> bool:
    """Whether ``end`` is the element of a tensor after ``start``, so that such segments follow each other."""
    found = _rows(start, end)
    return found is not None and found.disjoint


def _rows(start: Load, end: Load) -> Segments | None:
    """The rows of segments with these ends, of which the axis is not known; None where there are none."""
    names = frozenset[str]().union(*map(free_vars, start.index))
    if start.buffer != end.buffer:
        return Segments("", min(names), disjoint=False) if start.index == end.index and len(names) == 1 else None
    differ = [n for n, (a, b) in enumerate(zip(start.index, end.index, strict=True)) if a != b]
    if len(differ) != 1:
        return None
    (n,) = differ
    own = linear(start.index[n])
    far = linear(end.index[n]) - own
    variables = sorted((v.name for v in own.terms if isinstance(v, Var)), key=own.coeff)
    if far.terms or far.const != 1 or not variables or len(variables) < len(free_vars(start.index[n])):
        return None
    rows, *outer = variables
    return Segments("", rows, outer=tuple(outer)) if not outer or own.coeff(rows) == 1 else None


def shared_segments(defs: Iterable[Def], longest: int = LONGEST) -> Segments | None:
    """The segments that all reductions along their axis have; None where there are none.  ``longest``: of a row."""
    found = {s for d in defs if (s := segments_of(d, longest)) is not None}
    if len(found) != 1:
        return None
    (one,) = found
    along = [d for d in defs if any(a.name == one.axis for a in d.red)]
    return one if all(segments_of(d, longest) == one for d in along) else None


def plan_of(
    defs: Sequence[Def], extents: Mapping[str, int], grid: Sequence[str], rest: Sequence[str], fast: str | None
) -> tuple[str, dict[str, AxisPlan], WarpPlan] | None:
    """The loop, the roles of axes and the mapping of a kernel of segments; None where the rules of dense rows hold.

    ``grid``: the axes along which all ``defs`` are parallel; ``rest``: the others; ``fast``: the axis that is
    contiguous in memory.
    """
    wide = fast is not None and fast in grid and extents[fast] >= FEW_COLUMNS
    found = shared_segments(defs, LONGEST_WIDE if wide else LONGEST)
    held = [[a.name for a in d.axes if a.name in rest] for d in defs]
    tiles = None if found is None else tiles_of(found, extents, grid, held, fast)
    if found is None or tiles is None:
        return None
    roles = {x: AxisPlan(x, GRID, tiles[x]) for x in grid}
    roles |= {x: AxisPlan(x, LOOP if x == found.axis else TILE, tiles[x]) for x in rest}
    largest = max(prod(tiles[a.name] for a in d.axes if a.name in tiles) for d in defs)
    wide = prod(tiles[x] for x in grid) > COLUMNS  # a warp then has fewer terms than a thread could keep in flight
    alone = largest == tiles[found.axis] and prod(tiles[x] for x in grid) == 1
    each = ALONE if alone else ELEMENTS if wide or largest > 2 * ELEMENTS else 2 * ELEMENTS
    warps = max(1, min(4, largest // each))
    return found.axis, roles, WarpPlan(warps=(1, warps), stages=1, epilogue="direct")


def tiles_of(
    found: Segments, extents: Mapping[str, int], grid: Sequence[str], held: Sequence[Sequence[str]], fast: str | None
) -> dict[str, int] | None:
    """Tiles of all axes of a kernel with the segments ``found``, as :func:`plan_of`; None where rows are dense.

    ``held``: the axes of each definition that are not in ``grid``.
    """
    rest = dict.fromkeys(x for axes in held for x in axes)
    average = -(-extents[found.axis] // max(1, found.number(extents)))
    average = average if found.disjoint else max(average, OVERLAPPING)
    if not {found.rows, *found.outer} <= set(grid) or found.axis not in rest:
        return None
    tiles = {x: ceil_pow2(extents[x]) for x in rest if x != found.axis}
    volume = max(prod(tiles.get(x, 1) for x in axes) for axes in held)
    if volume > COLUMNS:
        return None
    width, across = COLUMNS, prod(extents[x] for x in grid)
    few = found.disjoint and across // width < BLOCKS and average * width > ELEMENTS
    width = max(volume, FEW_COLUMNS) if few else width
    while found.disjoint and width < MOST_COLUMNS and across // width > STARTED:
        width *= 2
    tiles |= dict.fromkeys(found.outer, 1)
    columns = [x for x in grid if x not in (found.rows, *found.outer)]
    for x in sorted(columns, key=lambda x: (x != fast, -list(grid).index(x))):
        tiles[x] = min(floor_pow2(width // volume), ceil_pow2(extents[x]))
        volume *= tiles[x]
    several = min(ROWS, TERMS // average, extents[found.rows] // BLOCKS) if found.disjoint and volume == 1 else 1
    tiles[found.rows] = floor_pow2(max(1, several))
    alone = found.disjoint and volume == 1 and tiles[found.rows] == 1
    terms = ceil_pow2(average * tiles[found.rows])
    terms = max(terms, min(UNEQUAL * terms, WIDEST)) if alone else terms
    most = FEW_ELEMENTS if few and volume > 1 else ELEMENTS
    tiles[found.axis] = min(max(LEAST, most // volume), max(LEAST, terms, 32 // volume))
    return tiles
