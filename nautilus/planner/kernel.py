"""The plan of one kernel: roles and tiles of the axes of a group of definitions, and its reduction loops.

The rules apply in this order:

* An axis that is parallel in every definition is a ``grid`` axis.  An axis that a few cheap definitions lack is a grid
  axis as well, if no other kernel reads these definitions; every block then recomputes them.  An axis that cuts the
  reduction loop into chunks is a grid axis, if the definitions that lack it lie along the loop; every block then needs
  only its own chunk.
* At most one of the other axes is the ``loop`` axis that all definitions share: a reduction axis that is too long for
  a tile, and that most reductions have.  A further long axis is allowed only where a single definition reduces over
  it (a private loop inside the shared loop).  All remaining axes must fit in a tile.
* A row that fits in a tile needs no loop and no repair term.
* Longer rows that are read again have rules of their own (:mod:`.rowwise.rows`).
* Windows (:mod:`.rowwise.windows`) are tiles of their exact extents.
* A row of several axes is a tile of the axes that are nearest in memory, and a loop over the longest of the others.
* The loops in order are :mod:`.phases`.

The numbers are starting points of the search: 128-row tiles for matrix products, 4096 elements a block for row-wise
work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.nodes import Axis, Var, free_vars
from nautilus.core.schedule import AxisPlan, KernelPlan, WarpPlan
from nautilus.planner.dots import Dot, ceil_pow2, dot_of, floor_pow2, full_operands
from nautilus.planner.phases import Phases, passes, phases
from nautilus.planner.rowwise import rows, windows
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.chunks import Chunks, chunks_of
from nautilus.scalar.analysis.definitions import Def, contiguous
from nautilus.scalar.analysis.derived_names import GRID, LOOP, TILE
from nautilus.scalar.analysis.domains import Scan, scan_of

MAX_TILE = 256  # elements of a whole axis that lives in accumulators
MAX_ROW = 8192  # elements of a row that lives in one tile
BLOCK = 4096  # elements a block of row-wise work handles
MAX_ACCUMULATORS = 26_000  # elements of the 2-D locals of one block
COLUMN_ROWS = 64  # rows of the tile of a block that reduces columns
FEW_COLUMNS = 16  # columns of such a block at least: two 32-byte sectors of f32
SHORT = 1024  # rows of columns that are not worth a split
FULL = 128  # blocks with which most multiprocessors have one
IN_PARTS = 64  # accumulators of a thread in products of f32 in parts
FEW_TERMS = 8  # of a product of f32, the step of its matrix instructions
CHEAP = 4  # recomputed work is at most one part in so many of the work of its readers
MAX_PRIVATE = 1024  # elements of a private loop inside the shared loop


@dataclass(slots=True)
class _Group:
    unified: Unified
    roles: dict[str, AxisPlan] = field(default_factory=dict)
    dots: dict[str, Dot] = field(default_factory=dict)
    loop: str | None = None
    window: bool = False  # all reductions are over windows
    warps: int = 1  # of a block with windows
    scans: dict[str, Scan] = field(default_factory=dict)  # definitions whose running results are one tile
    shares: bool = False  # elementwise, with tiles along an axis that a large operand lacks
    step: int = 0  # elements of a long row in one step of its loop, by a rule of its own

    @property
    def defs(self) -> tuple[Def, ...]:
        return self.unified.defs

    def extent(self, axis: str) -> int:
        """The extent; a large number where it is known only at launch."""
        e = self.unified.extents[axis]
        return e if isinstance(e, int) else 1 << 20

    def reducers(self, axis: str) -> tuple[Def, ...]:
        return tuple(d for d in self.defs if any(a.name == axis for a in d.red))

    def holders(self, axis: str) -> tuple[Def, ...]:
        return tuple(d for d in self.defs if d.axis(axis) is not None)

    def cut_by(self, axis: str) -> Chunks | None:
        """The chunks that ``axis`` numbers; None where it numbers none."""
        found = [c for d in self.defs if (c := chunks_of(d)) is not None and c.by == axis]
        return found[0] if found else None

    def work(self, d: Def) -> int:
        """Points of the index space of ``d``."""
        return prod(self.extent(a.name) for a in d.axes)

    def terms(self) -> int:
        """Terms of the longest reduction."""
        return max((prod(self.extent(a.name) for a in d.red) for d in self.defs), default=1)

    def tile(self, axis: str) -> int:
        return self.roles[axis].tile if axis in self.roles else 1

    def volume(self, skip: frozenset[str] = frozenset()) -> int:
        """The largest tile of any definition that has the axes ``skip``, over the other axes that have a plan."""
        best = 1
        for d in (d for d in self.defs if skip <= {a.name for a in d.axes}):
            best = max(best, prod(self.tile(a.name) for a in self.held(d) if a.name not in skip))
        return best

    def held(self, d: Def) -> tuple[Axis, ...]:
        """The axes of the largest tile that ``d`` needs: a scan has no tile over both of its axes."""
        return tuple(a for a in d.axes if d.name not in self.scans or a.name != self.scans[d.name].into)


def plan_kernel(unified: Unified, name: str, kept: frozenset[str] = frozenset(), light: bool = False) -> KernelPlan:
    """A plan for one kernel that computes ``unified``; ``kept`` are the definitions that stay in memory.

    ``light``: the plan holds no long rows in registers.

    Raises ScheduleError where no rule applies.
    """
    g = _Group(unified)
    for d in g.defs:
        if (dot := dot_of(d)) is not None:
            g.dots[d.name] = dot
    grid = _without_scans(g, _grid_axes(g, kept))
    rest = [x for x in unified.extents if x not in grid]
    whole = not g.dots and not g.scans and not any(g.cut_by(x) for x in grid)
    g.window = whole and windows.is_window(g.defs, {x: g.extent(x) for x in rest})
    _inner_roles(g, rest)
    _grid_roles(g, grid)
    if g.loop is not None:
        _loop_step(g)
    if whole and not light and _is_repeated(g) and rows.fits(g.defs, {x: g.extent(x) for x in rest}):
        g = _Group(unified, _row_roles(g, rest))
        _grid_roles(g, grid)
    elif not g.dots and not g.window and g.volume() > max(MAX_ROW, g.step, rows.LONGEST if g.scans else 0):
        raise ScheduleError(f"a tile of {g.volume()} elements does not fit in registers")
    ops = tuple(d.name for d in g.defs)
    order = _loop_order(g, grid, rest)
    axes = tuple(g.roles[x] for x in order)
    return KernelPlan(name, ops, axes, _phases_of(g), mapping=_mapping(g))


def _without_scans(g: _Group, grid: list[str]) -> list[str]:
    """``grid`` without the axes of running results, where a block computes all results of a row."""
    g.scans = {d.name: s for d in g.defs if (s := scan_of(d)) is not None}
    kept = [x for x in grid if x not in {s.into for s in g.scans.values() if not s.chunk}]
    if g.scans and (g.dots or not _row_fits(g, [x for x in g.unified.extents if x not in kept])):
        if len(g.defs) > 1:
            raise ScheduleError("a tile does not hold all running results of a row")
        g.scans = {}
        return grid
    return kept


def _grid_axes(g: _Group, kept: frozenset[str]) -> list[str]:
    """The axes of the launch grid (module docstring)."""
    grid = [x for x in g.unified.extents if all(any(a.name == x for a in d.par) for d in g.defs)]
    times = {d.name: 1 for d in g.defs}  # how often a definition is computed
    for x in g.unified.extents:
        without = [d for d in g.defs if d.axis(x) is None]
        cut = g.cut_by(x) if x not in grid else None
        if cut is not None and all(d.name not in kept and cut.axis in {a.name for a in d.par} for d in without):
            grid.append(x)
        if x in grid or g.reducers(x) or any(d.name in kept or d.name in g.dots for d in without):
            continue
        again = sum(g.work(d) * times[d.name] * g.extent(x) for d in without)
        if again * CHEAP <= sum(g.work(d) for d in g.holders(x)):
            grid.append(x)
            times.update({d.name: times[d.name] * g.extent(x) for d in without})
    return grid


def _loop_order(g: _Group, grid: list[str], rest: list[str]) -> list[str]:
    """Grid axes in the order of the last definition, then the shared loop, then the rest."""
    last = [a.name for a in g.defs[-1].par]
    ordered = sorted(grid, key=lambda x: last.index(x) if x in last else len(last))
    shared = [x for x in rest if x == g.loop]
    return [*ordered, *shared, *(x for x in rest if x != g.loop)]


def _inner_roles(g: _Group, rest: list[str]) -> None:
    """Roles of the axes that some definition is not parallel along; chooses the shared loop."""
    reduced = [x for x in rest if g.reducers(x)]
    chunked = [c.axis for x in g.unified.extents if (c := g.cut_by(x)) is not None and c.axis in reduced]
    if g.window or (not g.dots and not chunked and _row_fits(g, rest)):
        g.roles |= _row_roles(g, rest)
        return
    alike = all({*reduced} <= {a.name for a in d.red} for d in g.defs if d.is_reduction)
    if not g.dots and len(reduced) > 1 and alike:
        _box_roles(g, rest, chunked)
        return
    if reduced:
        long = [x for x in reduced if g.extent(x) > MAX_TILE] or reduced
        g.loop = max(long, key=lambda x: (x in chunked, len(g.reducers(x)), g.extent(x)))
        g.roles[g.loop] = AxisPlan(g.loop, LOOP, 1)
    for x in rest:
        if x != g.loop:
            g.roles[x] = _other_role(g, x)


def _box_roles(g: _Group, rest: list[str], chunked: list[str]) -> None:
    """Roles of a row of several axes (module docstring)."""
    near = sorted(rest, key=lambda x: _nearness(g, x), reverse=True)
    most = COLUMN_ROWS if _vector_axis(g) not in rest else MAX_ROW
    volume, left = 1, list[str]()
    for x in near:
        size = ceil_pow2(g.extent(x))
        if x in chunked or volume * size > most:
            left.append(x)
            continue
        g.roles[x], volume = AxisPlan(x, TILE, size), volume * size
    shared = [x for x in left if len(g.holders(x)) > 1] or [x for x in left if x != _vector_axis(g)] or left
    if chunked or shared:
        g.loop = max(chunked or shared, key=g.extent)
        g.roles[g.loop] = AxisPlan(g.loop, LOOP, 1)
    for x in left:
        if x != g.loop and (len(g.holders(x)) > 1 or len(g.reducers(x)) != 1):
            raise ScheduleError(f"axis {x} of {g.extent(x)} elements does not fit in a tile")
        if x != g.loop:
            room = BLOCK if x == _vector_axis(g) else most
            g.roles[x] = AxisPlan(x, LOOP, min(floor_pow2(max(1, room // volume)), ceil_pow2(g.extent(x))))


def _nearness(g: _Group, axis: str) -> tuple[int, int]:
    """(dimensions, position from the last one) of the input of most dimensions that has ``axis`` in its index."""
    names = {d.name for d in g.defs}
    reads = [ld for d in g.defs for ld in d.reads() if ld.buffer not in names]
    found = [(len(ld.index), n) for ld in reads for n, e in enumerate(ld.index) if axis in free_vars(e)]
    places = [(dimensions, n - dimensions) for dimensions, n in found]
    return max(places, default=(0, 0))


def _row_roles(g: _Group, rest: list[str]) -> dict[str, AxisPlan]:
    """Roles of the axes of a row that is one tile, or of a window."""
    return {x: AxisPlan(x, TILE, g.extent(x) if g.window else ceil_pow2(g.extent(x))) for x in rest}


def _row_fits(g: _Group, rest: list[str]) -> bool:
    if any(g.extent(x) > MAX_ROW for x in rest):
        return False
    if _column_like(g, rest):
        return False
    return all(prod(ceil_pow2(g.extent(a.name)) for a in g.held(d) if a.name in rest) <= MAX_ROW for d in g.defs)


def _column_like(g: _Group, rest: list[str]) -> bool:
    """Whether a parallel axis is contiguous in memory, so that blocks should have several of its elements."""
    fast = _vector_axis(g)
    if g.scans and (fast in {s.into for s in g.scans.values()} or _scanned(g) <= rows.COLUMN_ROW):
        return False
    return fast is not None and fast not in rest and max((g.extent(x) for x in rest), default=1) > 128


def _scanned(g: _Group) -> int:
    """Elements of the longest tile of a scan."""
    return max((ceil_pow2(g.extent(s.axis)) for s in g.scans.values()), default=0)


def _other_role(g: _Group, x: str) -> AxisPlan:
    users, reducers = g.holders(x), g.reducers(x)
    private = len(users) == 1 and len(reducers) == 1
    alone = len(g.defs) == 1 or not any(a.name == g.loop for a in users[0].axes)
    main = [max(d.inner, key=g.extent) for n, d in g.dots.items() if x in d.inner]
    if private and main and main[0] != x:
        return AxisPlan(x, LOOP, 1)  # a small extra contraction (taps of a filter) has steps of one element
    if g.extent(x) <= MAX_TILE and not (private and not main and len(g.defs) == 1):
        multiple = 16 if any(x in (*dot.rows, *dot.columns, *dot.inner) for dot in g.dots.values()) else 1
        return AxisPlan(x, TILE, -(-ceil_pow2(g.extent(x)) // multiple) * multiple)
    if private and (alone or g.extent(x) <= MAX_PRIVATE):
        near = BLOCK if not g.dots and contiguous(g.defs, x) else 1
        return AxisPlan(x, LOOP, min(64 if main else near, ceil_pow2(g.extent(x))))
    raise ScheduleError(f"axis {x} of {g.extent(x)} elements does not fit in a tile")


def _vector_axis(g: _Group) -> str | None:
    """The axis that is contiguous in memory in most inputs (the last index position)."""
    counts: dict[str, int] = {}
    names = {d.name for d in g.defs}
    for d in g.defs:
        for ld in d.reads():
            if ld.buffer not in names and ld.index and isinstance(ld.index[-1], Var):
                counts[ld.index[-1].name] = counts.get(ld.index[-1].name, 0) + len(ld.index)
    return max(counts, key=lambda x: counts[x]) if counts else None


def _grid_roles(g: _Group, grid: list[str]) -> None:
    for x in grid:
        g.roles[x] = AxisPlan(x, GRID, 1)
    if g.dots:
        _dot_tiles(g, grid)
        return
    fast = _vector_axis(g)
    last = [a.name for a in g.defs[-1].par]
    if g.window:
        order = [x for x in reversed(last) if x in grid]
        tiles, g.warps = windows.block_of(g.defs, order, {x: g.extent(x) for x in order}, g.terms())
        g.roles |= {x: AxisPlan(x, GRID, tile) for x, tile in tiles.items()}
        return
    chunks = {s.into: s.chunk for s in g.scans.values() if s.chunk}  # a block has one chunk of running results
    g.roles |= {x: AxisPlan(x, GRID, chunk) for x, chunk in chunks.items()}
    whole = [x for x in grid if g.cut_by(x) is None and x not in chunks]  # a block has one chunk
    order = sorted(whole, key=lambda x: (x == fast, last.index(x) if x in last else -1), reverse=True)
    budget = BLOCK if g.loop is None else BLOCK // COLUMN_ROWS if fast in grid else 1
    if len({a.name for d in g.defs for a in d.red} - set(grid)) > 1 and g.loop is not None and fast in grid:
        budget = BLOCK // COLUMN_ROWS * g.volume()  # the tile has rows of columns already
    if fast in whole and COLUMN_ROWS < _scanned(g) <= rows.COLUMN_ROW:
        budget = rows.column_budget(g.defs, {x: g.extent(x) for x in g.unified.extents if x not in grid}, g.volume())
    if not any(d.is_reduction for d in g.defs):
        budget = 1024
        shared = rows.sharing(g.defs, fast, {x: g.extent(x) for x in whole})
        if shared is not None:
            g.roles[shared], budget = AxisPlan(shared, GRID, min(rows.SHARED, ceil_pow2(g.extent(shared)))), BLOCK
            order.remove(shared)
            g.shares = True
    for x in order[:2]:
        room = max(1, budget // g.volume())
        tile = floor_pow2(min(room, ceil_pow2(g.extent(x))))
        if x == fast and g.loop is not None and g.terms() <= SHORT:
            others = prod(g.extent(y) for y in grid if y != x)
            while tile > FEW_COLUMNS and others * -(-g.extent(x) // tile) < FULL:
                tile //= 2
        g.roles[x] = AxisPlan(x, GRID, tile)


def _dot_tiles(g: _Group, grid: list[str]) -> None:
    """Tiles of 128 rows; smaller tiles where there are fewer rows or the accumulators are wide."""
    for dot in g.dots.values():
        for side in (dot.rows, dot.columns):
            mine = [x for x in side if x in grid and g.cut_by(x) is None]
            if mine and all(g.tile(x) == 1 for x in mine):
                best = max(mine, key=lambda x: (min(g.extent(x), 128), mine.index(x)))
                least = 1 if _is_small(g) else 16
                g.roles[best] = AxisPlan(best, GRID, max(least, min(128, ceil_pow2(g.extent(best)))))
    tiled = [x for x in grid if g.tile(x) > 16]
    while tiled and _accumulators(g) > MAX_ACCUMULATORS:
        big = max(tiled, key=g.tile)
        g.roles[big] = AxisPlan(big, GRID, g.tile(big) // 2)
        tiled = [x for x in tiled if g.tile(x) > 16]
    if _accumulators(g) > 2 * MAX_ACCUMULATORS:
        raise ScheduleError("the accumulators do not fit in registers")


def _is_small(g: _Group) -> bool:
    """Whether all products are of f32 in full, with few terms: padding them to matrix instructions takes longer."""
    return g.loop is not None and g.extent(g.loop) <= FEW_TERMS and all(full_operands(d) for d in _products(g))


def _is_thin(g: _Group) -> bool:
    """Whether a product has too few rows or columns for a matrix instruction."""
    sides = [side for dot in g.dots.values() for side in (dot.rows, dot.columns)]
    return any(prod(g.tile(x) for x in side) < 16 for side in sides)


def _products(g: _Group) -> list[Def]:
    return [d for d in g.defs if d.name in g.dots]


def _accumulators(g: _Group) -> int:
    """Elements of the accumulators with two or more tile axes (the shared loop counts as 64)."""
    total = 0
    for d in g.defs:
        if not d.is_reduction:
            continue
        tiles = [64 if a.name == g.loop else g.tile(a.name) for a in d.par]
        if sum(t > 1 for t in tiles) >= 2:
            v = 1
            for t in tiles:
                v *= t
            total += v
    return total


def _loop_step(g: _Group) -> None:
    """The step of the shared loop, which divides the chunks of the loop."""
    _unchunked_step(g)
    assert g.loop is not None
    for c in (c for x in g.unified.extents if (c := g.cut_by(x)) is not None and c.axis == g.loop and c.size):
        tile = g.tile(g.loop)
        while c.size % tile:
            tile //= 2
        tile = c.tile or tile
        g.roles[g.loop] = AxisPlan(g.loop, LOOP, tile)


def _unchunked_step(g: _Group) -> None:
    assert g.loop is not None
    extent = ceil_pow2(g.extent(g.loop))
    if g.dots:
        contracted_only = all(a.name != g.loop for d in g.defs for a in d.par)
        want = 32 if contracted_only else 64
        least = (1 if _is_thin(g) else FEW_TERMS) if _is_small(g) else 16
        g.roles[g.loop] = AxisPlan(g.loop, LOOP, max(least, min(want, extent)))
        return
    each = g.volume(frozenset({g.loop}))
    g.step = rows.step(g.defs, g.loop, g.extent(g.loop), each) if _is_repeated(g) else 0
    room = max(1, max(MAX_ROW, g.step) // each)
    fast = _vector_axis(g)
    limit = max(4096, g.step) if fast == g.loop else COLUMN_ROWS
    if g.terms() <= SHORT and fast in g.roles and g.roles[fast].role == GRID:
        limit = max(limit, BLOCK // g.tile(fast))
    g.roles[g.loop] = AxisPlan(g.loop, LOOP, min(floor_pow2(min(room, limit)), extent))


def _mapping(g: _Group) -> WarpPlan:
    if g.window:
        return WarpPlan(warps=(1, g.warps), stages=1, epilogue="direct")
    if not g.dots:
        # 16 to 32 elements a thread; elementwise work 8, one vector.
        each = 1024 if g.shares or any(d.is_reduction for d in g.defs) else 256
        long = g.loop is None and g.volume() > rows.GENERAL
        warps = rows.warps(g.volume()) if long else max(1, min(16, g.volume() // each))
        most = max((g.tile(x) for x in g.roles if g.roles[x].role == GRID and x != _vector_axis(g)), default=1)
        down = 1 if g.shares else min(most, warps)  # a thread has all results of an element that they share
        return WarpPlan(warps=(down, warps // down), stages=1, epilogue="direct")
    grid = [g.tile(x) for d in g.dots.values() for x in (*d.rows, *d.columns) if g.roles[x].role == GRID]
    most = max(grid, default=16)
    both = any(
        any(g.roles[x].role == GRID and g.tile(x) > 1 for x in d.rows)
        and any(g.roles[x].role == GRID and g.tile(x) > 1 for x in d.columns)
        for d in g.dots.values()
    )
    if both:
        few = (2 if most >= 32 and not _is_thin(g) else 1, 2)
        full = any(full_operands(d) for d in _products(g))
        return WarpPlan(warps=_more_warps(g, few) if full else few, stages=3, raster_order="grouped")
    grid_of_warps = (max(1, min(8, most // 16)), 1)
    return WarpPlan(warps=grid_of_warps, stages=2, raster_order="longest-first" if _uneven(g) else "natural")


def _more_warps(g: _Group, warps: tuple[int, int]) -> tuple[int, int]:
    """More warps for products in parts, which have a second array beside their accumulators (:data:`IN_PARTS`)."""
    down, across = warps
    for dot in g.dots.values():
        m, n = (prod(g.tile(x) for x in side) for side in (dot.rows, dot.columns))
        while m * n > 32 * IN_PARTS * down * across and down * across < 16:
            down, across = (2 * down, across) if m // down > n // across else (down, 2 * across)
    return down, across


def _uneven(g: _Group) -> bool:
    """Whether a condition relates the shared loop to a grid axis, so that blocks differ in their iteration counts."""
    grid = {x for x, a in g.roles.items() if a.role == GRID}
    uses = [free_vars(d.guard) for d in g.defs if d.guard is not None]
    return any(g.loop in names and names & grid for names in uses)


def _phases_of(g: _Group) -> Phases:
    return phases(g.unified, g.loop, frozenset(x for x, a in g.roles.items() if a.role == LOOP and x != g.loop))


def _is_repeated(g: _Group) -> bool:
    """Whether several passes run over the axis of the shared loop."""
    return g.loop is not None and passes(g.unified, g.loop, _phases_of(g)) > 1
