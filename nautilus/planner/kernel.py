"""The plan of one kernel: roles and tiles of the axes of a group of definitions, and its reduction loops.

The rules apply in this order:

* An axis that is parallel in every definition is a ``grid`` axis.  An axis that a few cheap definitions lack is a grid
  axis as well, if no other kernel reads these definitions; every block then recomputes them.  An axis that cuts the
  reduction loop into chunks is a grid axis, if the definitions that lack it lie along the loop; every block then needs
  only its own chunk.
* At most one of the other axes is the ``loop`` axis that all definitions share: a reduction axis that is too long for
  a tile, and that most reductions have.  A further long axis is allowed only where a single definition reduces over
  it (a private loop inside the shared loop).  All remaining axes must fit in a tile.
* Where a condition chooses the matrices of a product (``Dot.chosen``), the loop is over the matrices, and that over the
  contracted axis is inside of it: it has no iteration for a matrix that no row of the tile has.
* A row that fits in a tile needs no loop and no repair term; longer ones that are read again: :mod:`.rowwise.rows`.
* A block has several rows where a tensor is contiguous across them (:mod:`.rowwise.turned`).
* Columns of few elements that several passes read are whole in registers, as many as fill a sector (a norm over the
  middle axis of 32 x 512 x 1024 f16: 25 us on an H200, 58 in a loop over 64 columns that reads them three times).
* Kernels of a structure that has tiles of its own, such as windows and pairs of rows, have a rule each
  (:mod:`.rowwise.rules`).
* A row of several axes is a tile of the axes that are nearest in memory, and a loop over the longest of the others.
* The loops in order are :mod:`.phases`.

The numbers are starting points of the search: 128-row tiles for products, 4096 elements a block for row-wise work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.nodes import free_vars
from nautilus.core.schedule import AxisPlan, KernelPlan, WarpPlan
from nautilus.core.tiles import ceil_pow2, floor_pow2
from nautilus.planner.draft import Draft
from nautilus.planner.phases import Phases, passes, phases
from nautilus.planner.products import warp_tiles
from nautilus.planner.products.back_to_back import whole_tile
from nautilus.planner.products.divided_columns import COLUMNS, may_hold
from nautilus.planner.products.dots import dot_of, half_operands
from nautilus.planner.rowwise import columns, elementwise, rows, shared_operands, turned, windows
from nautilus.planner.rowwise.pairs import counted
from nautilus.planner.rowwise.rows import MAX_ROW
from nautilus.planner.rowwise.rules import is_whole, plan_by_rule
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.definitions import contiguous
from nautilus.scalar.analysis.derived_names import GRID, LOOP, TILE
from nautilus.scalar.analysis.domains import scan_of
from nautilus.targets.limits import BLOCK_REGISTERS
from nautilus.targets.memory_rates import SECTOR

MAX_TILE = 256  # elements of a whole axis that is in accumulators
FEW_TERMS = 64  # terms of a sum of partial results whose tile may be as wide as that of the products before it
BLOCK = 4096  # elements a block of row-wise work handles
ELEMENTS, MANY_ELEMENTS = 1024, 2048  # elements of a block of elementwise work, at least and at most
LEAST = 256  # elements of the least tile of a small kernel: 8 of each thread of a warp
HEAVY = 48  # issue slots of an element that takes longer than its bytes
POSITIONS = 256  # contiguous positions of a step, each with a row of its own, so that threads have whole rows
COLUMN_ROWS = 64  # rows of the tile of a block that reduces columns
FEW_COLUMNS = 16  # columns of such a block at least: two 32-byte sectors of f32
SHORT = 1024  # rows of columns that are not worth a split
FULL = 128  # blocks with which most multiprocessors have one
CHEAP = 4  # recomputed work is at most 1 / CHEAP of the work of its readers
MAX_PRIVATE = 1024  # elements of a private loop inside the shared loop


def plan_kernel(
    unified: Unified, name: str, kept: frozenset[str] = frozenset(), light: bool = False, divided: bool = True
) -> KernelPlan:
    """A plan for one kernel that computes ``unified``; ``kept`` are the definitions that stay in memory.

    ``light``: the plan holds no long rows in registers; ``divided``: consumers may divide long axes of products.

    Raises ScheduleError where no rule applies.
    """
    g = Draft(unified, light=light, divided=divided)
    g.dots |= {d.name: dot for d in g.defs if (dot := dot_of(d)) is not None}
    grid = _without_scans(g, _grid_axes(g, kept))
    rest = [x for x in unified.extents if x not in grid]
    if mapping := plan_by_rule(g, grid, rest):
        return _planned(g, name, grid, rest, mapping)
    if not g.dots and not g.scans and (d := counted(g.defs, {x: g.extent(x) for x in unified.extents})):
        raise ScheduleError(f"threads would combine each result of {d.name} before others read it")
    whole = is_whole(g, grid)
    extents = {x: g.extent(x) for x in unified.extents}
    if whole and any(d.is_reduction for d in g.defs):
        g.least = _across(g, kept, {x: extents[x] for x in grid}, {x: extents[x] for x in rest})
    _inner_roles(g, rest)
    _grid_roles(g, grid)
    if g.loop is not None:
        _loop_step(g)
    row = {x: g.extent(x) for x in rest}
    if whole and not light and _is_repeated(g) and rows.fits(g.defs, row) and turned.fits(g.defs, row, g.least):
        g = Draft(unified, _row_roles(g, rest), least=g.least)
        _grid_roles(g, grid)
    elif whole and not light and _is_repeated(g) and (least := _whole_columns(g, grid, row)):
        g = Draft(unified, _row_roles(g, rest), least=least)
        _grid_roles(g, grid)
        g.roles |= {x: AxisPlan(x, GRID, least.get(x, 1)) for x in grid}
    elif not g.dots and g.volume() > _most(g):
        raise ScheduleError(f"a tile of {g.volume()} elements does not fit in registers")
    return _planned(g, name, grid, rest, _mapping(g, grid))


def spread_tiles(plan: KernelPlan, unified: Unified) -> KernelPlan:
    """``plan`` with smaller tiles where a row-wise kernel has too few blocks: latency binds it, not the memory.

    Rows of more than :data:`LEAST` elements, of which a warp has one, stay as they are.  Elements that take many
    operations, one after another, have several blocks for each multiprocessor.
    """
    g = Draft(unified, {a.name: a for a in plan.axes})
    row = [a for a in plan.axes if a.role == TILE]
    apart = (
        any(dot_of(d) or d.scatter or scan_of(d) for d in g.defs)
        or any(a.role == LOOP or g.cut_by(a.name) for a in plan.axes)
        or prod(a.tile for a in row) > LEAST
        or windows.is_window(g.defs, {a.name: g.extent(a.name) for a in row})
    )
    if apart or not isinstance(plan.mapping, WarpPlan):
        return plan
    fast, before = g.vector_axis(), g.volume()
    heavy = elementwise.slots(g.defs) >= HEAVY
    least, few = (LEAST // 2, 4 * FULL) if heavy else (LEAST, FULL)
    lacking = _shared_along(g, [a.name for a in plan.axes if a.role == GRID]) if heavy else None
    shared = lacking.axes if lacking else {}  # a thread has what results along them share
    while g.volume() > least and prod(-(-g.extent(x) // g.tile(x)) for x in g.roles if g.roles[x].role == GRID) < few:
        wide = [a.name for a in g.roles.values() if a.role == GRID and a.tile > 1 and a.name not in shared]
        if not wide:
            break
        x = next((x for x in wide if x != fast), wide[0])
        g.roles[x] = AxisPlan(x, GRID, g.tile(x) // 2)
    if g.volume() == before:
        return plan
    down, across = plan.mapping.warps
    warps = max(1, down * across * g.volume() // before)
    warps = max(warps, min(down * across, g.volume() // 64)) if heavy else warps
    most = max((a.tile for a in g.roles.values() if a.role == GRID and a.name != fast), default=1)
    down = min(down, warps, most)
    axes = tuple(g.roles[a.name] for a in plan.axes)
    return replace(plan, axes=axes, mapping=replace(plan.mapping, warps=(down, warps // down)))


def _planned(g: Draft, name: str, grid: list[str], rest: list[str], mapping: WarpPlan) -> KernelPlan:
    axes = tuple(g.roles[x] for x in _loop_order(g, grid, rest))
    return KernelPlan(name, tuple(d.name for d in g.defs), axes, _phases_of(g), mapping=mapping)


def _without_scans(g: Draft, grid: list[str]) -> list[str]:
    """``grid`` without the axes of running results, where a block computes all results of a row."""
    g.scans = {d.name: s for d in g.defs if (s := scan_of(d)) is not None}
    kept = [x for x in grid if x not in {s.into for s in g.scans.values() if not s.chunk}]
    if g.scans and (g.dots or not _row_fits(g, [x for x in g.unified.extents if x not in kept])):
        if len(g.defs) > 1:
            raise ScheduleError("a tile does not hold all running results of a row")
        g.scans = {}
        return grid
    return kept


def _grid_axes(g: Draft, kept: frozenset[str]) -> list[str]:
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


def _loop_order(g: Draft, grid: list[str], rest: list[str]) -> list[str]:
    """Grid axes in the order of the last definition, then the shared loop, then the rest."""
    last = [a.name for a in g.defs[-1].par]
    ordered = sorted(grid, key=lambda x: last.index(x) if x in last else len(last))
    shared = [x for x in rest if x == g.loop]
    return [*ordered, *shared, *(x for x in rest if x != g.loop)]


def _inner_roles(g: Draft, rest: list[str]) -> None:
    """Roles of the axes that some definition is not parallel along; chooses the shared loop."""
    reduced = [x for x in rest if g.reducers(x)]
    chunked = [c.axis for x in g.unified.extents if (c := g.cut_by(x)) is not None and c.axis in reduced]
    if not g.dots and not chunked and _row_fits(g, rest):
        g.roles |= _row_roles(g, rest)
        return
    alike = all({*reduced} <= {a.name for a in d.red} for d in g.defs if d.is_reduction)
    if not g.dots and len(reduced) > 1 and alike:
        _box_roles(g, rest, chunked)
        return
    if reduced:
        whole = {x for x in reduced for loop in reduced if loop != x and _is_held_whole(g, x, loop)}
        chosen = [x for dot in g.dots.values() for x in dot.chosen] or _groups(g, reduced)
        long = chosen or [x for x in reduced if g.extent(x) > MAX_TILE and x not in whole]
        long = long or [x for x in reduced if x not in whole]
        if not long:
            raise ScheduleError("each reduced axis would be whole inside the loop over another one")
        g.loop = max(long, key=lambda x: (x in chunked, len(g.reducers(x)), g.extent(x)))
        g.roles[g.loop] = AxisPlan(g.loop, LOOP, 1)
    for x in rest:
        if x != g.loop:
            g.roles[x] = _other_role(g, x)


def _groups(g: Draft, reduced: Sequence[str]) -> list[str]:
    """The axis of ``reduced`` that numbers the matrices of the only product, whose contracted axis fits in a tile.

    A sum of scaled sums of groups of terms is a loop over groups, of which each step has one product.
    """
    if len(g.dots) != 1:
        return []
    ((name, dot),) = g.dots.items()
    outer = [x for x in reduced if x not in dot.inner]
    if not all(any(ld.buffer == name for ld in d.reads()) for x in outer for d in g.reducers(x)):
        return []  # a sum of something else, such as the weights of all heads beside a product for each head
    short = all(g.extent(x) <= MAX_TILE for x in dot.inner)
    return outer if short and len(outer) == 1 and warp_tiles.numbers_matrices(g, name, outer[0]) else []


def _box_roles(g: Draft, rest: list[str], chunked: list[str]) -> None:
    """Roles of a row of several axes (module docstring).

    Where the axis that is contiguous in memory does not fit in a tile, the others leave room for :data:`BLOCK` of it.
    """
    near = sorted(rest, key=lambda x: g.nearness(x), reverse=True)
    fast = g.vector_axis()
    most = COLUMN_ROWS if fast not in rest else MAX_ROW
    volume, left = 1, list[str]()
    sectors = turned.sectors(g.defs, {x: g.extent(x) for x in rest})
    for x in near:
        size = elementwise.short(g.extent(x)) if x == fast else ceil_pow2(g.extent(x))
        room = most // BLOCK if fast in left and fast not in chunked else most
        full = volume * size > room // prod(n for y, n in sectors.items() if y != x and y not in g.roles)
        if x in chunked or full:
            left.append(x)
            continue
        g.roles[x], volume = AxisPlan(x, TILE, size), volume * size
    shared = [x for x in left if len(g.holders(x)) > 1] or [x for x in left if x != fast] or left
    if chunked or shared:
        g.loop = max(chunked or shared, key=g.extent)
        g.roles[g.loop] = AxisPlan(g.loop, LOOP, 1)
    for x in left:
        if x != g.loop and g.holders(x) != g.reducers(x):
            raise ScheduleError(f"axis {x} of {g.extent(x)} elements does not fit in a tile")
        if x != g.loop:
            room = BLOCK if x == fast else most
            room //= prod(n for y, n in sectors.items() if y != x and (y not in g.roles or g.roles[y].role != TILE))
            g.roles[x] = AxisPlan(x, LOOP, min(floor_pow2(max(1, room // volume)), ceil_pow2(g.extent(x))))
    while g.volume() > _most(g) and (inner := [x for x in left if x != g.loop and g.tile(x) > 1]):
        x = max(inner, key=lambda x: (x != fast, g.tile(x)))  # several long axes have the room of one
        g.roles[x] = AxisPlan(x, LOOP, g.tile(x) // 2)


def _most(g: Draft) -> int:
    """Elements of the largest tile of row-wise work."""
    return max(MAX_ROW, _long_step(g), BLOCK_REGISTERS if g.scans or g.least else 0)


def _row_roles(g: Draft, rest: list[str]) -> dict[str, AxisPlan]:
    """Roles of the axes of a row that is one tile."""
    return {x: AxisPlan(x, TILE, ceil_pow2(g.extent(x))) for x in rest}


def _row_fits(g: Draft, rest: list[str]) -> bool:
    if any(g.extent(x) > MAX_ROW for x in rest):
        return False
    if g.least and not turned.fits(g.defs, {x: g.extent(x) for x in rest}, g.least):
        return False
    if _column_like(g, rest):
        return False
    return _row_volume(g, rest) <= MAX_ROW


def _row_volume(g: Draft, rest: list[str]) -> int:
    """Elements of the largest tile along the axes ``rest``, where each has all of its elements."""
    return max(prod(ceil_pow2(g.extent(a.name)) for a in g.held(d) if a.name in rest) for d in g.defs)


def _column_like(g: Draft, rest: list[str]) -> bool:
    """Whether a parallel axis is contiguous in memory, so that blocks should have several of its elements."""
    fast = g.vector_axis()
    if g.scans and (fast in {s.into for s in g.scans.values()} or _scanned(g) <= columns.LONGEST_COLUMN):
        return False
    if fast is None or fast in rest:
        return False
    narrow = BLOCK // _row_volume(g, rest) < min(g.sector(fast), g.extent(fast))
    return narrow or max((g.extent(x) for x in rest), default=1) > 128


def _scanned(g: Draft) -> int:
    """Elements of the longest tile of a scan."""
    return max((ceil_pow2(g.extent(s.axis)) for s in g.scans.values()), default=0)


def _other_role(g: Draft, x: str) -> AxisPlan:
    users, reducers = g.holders(x), g.reducers(x)
    private = len(users) == 1 and len(reducers) == 1
    alone = len(g.defs) == 1 or not any(a.name == g.loop for a in users[0].axes)
    main = [max(d.inner, key=g.extent) for n, d in g.dots.items() if x in d.inner]
    if g.loop is not None and _is_held_whole(g, x, g.loop):
        return AxisPlan(x, TILE, whole_tile(g.extent(x)))
    if private and main and main[0] != x:
        return AxisPlan(x, LOOP, 1)  # a small extra contraction (taps of a filter) has steps of one element
    if private and main and any(g.loop in dot.chosen for dot in g.dots.values()):
        return AxisPlan(x, LOOP, min(64, ceil_pow2(g.extent(x))))
    few = not g.dots and g.terms() <= FEW_TERMS
    if g.extent(x) <= (COLUMNS if few else MAX_TILE) and not (private and not main and len(g.defs) == 1):
        multiple = 16 if any(x in (*dot.rows, *dot.columns, *dot.inner) for dot in g.dots.values()) else 1
        return AxisPlan(x, TILE, -(-ceil_pow2(g.extent(x)) // multiple) * multiple)
    if private and (alone or g.extent(x) <= MAX_PRIVATE):
        near = BLOCK if not g.dots and contiguous(g.defs, x) else 1
        return AxisPlan(x, LOOP, min(64 if main else near, ceil_pow2(g.extent(x))))
    raise ScheduleError(f"axis {x} of {g.extent(x)} elements does not fit in a tile")


def _is_held_whole(g: Draft, x: str, loop: str) -> bool:
    """Whether :mod:`.products.divided_columns` gives a tile along ``loop`` all elements of ``x``."""
    if not g.divided or not may_hold(x, g.extent, loop, g.dots.values()):
        return False
    return all(half_operands(d) for d in g.defs if d.name in g.dots)


def _grid_roles(g: Draft, grid: list[str]) -> None:
    for x in grid:
        g.roles[x] = AxisPlan(x, GRID, 1)
    if g.dots:
        warp_tiles.add_tiles(g, grid)
        return
    fast = g.vector_axis()
    last = [a.name for a in g.defs[-1].par]
    chunks = {s.into: s.chunk for s in g.scans.values() if s.chunk}  # a block has one chunk of running results
    g.roles |= {x: AxisPlan(x, GRID, chunk) for x, chunk in chunks.items()}
    whole = _whole_axes(g, grid)
    order = sorted(whole, key=lambda x: (x == fast, last.index(x) if x in last else -1), reverse=True)
    budget = rows.block(g.defs, BLOCK) if g.loop is None else BLOCK // COLUMN_ROWS if fast in grid else 1
    if len({a.name for d in g.defs for a in d.red} - set(grid)) > 1 and g.loop is not None and fast in grid:
        budget = BLOCK // COLUMN_ROWS * g.volume()  # the tile has rows of columns already
    if fast in whole and COLUMN_ROWS < _scanned(g) <= columns.LONGEST_COLUMN:
        budget = columns.budget(g.defs, {x: g.extent(x) for x in g.unified.extents if x not in grid}, g.volume())
    if not any(d.is_reduction for d in g.defs):
        budget = ELEMENTS
        lacking, across = _shared_along(g, grid), elementwise.read_along(g.defs, {x: g.extent(x) for x in whole})
        if lacking is not None:
            budget = 4 * lacking.warp  # of a block of four warps
            g.roles |= {x: AxisPlan(x, GRID, n) for x, n in lacking.axes.items()}
            order = [x for x in order if x not in lacking.axes]
        elif across is not None:
            order, (line, tile) = [across.axis], elementwise.turned_tile(g.defs[-1], across.shared)
            budget = max(budget, tile)
            if not any(d.is_reduction for d in g.defs):  # whose blocks start beside the work of others
                few = line * min(budget // line, ceil_pow2(g.extent(across.axis)))  # a short axis leaves room for lines
                line *= elementwise.elements(g.defs, {x: g.extent(x) for x in grid}, few, budget) // few
            g.roles[last[-1]] = AxisPlan(last[-1], GRID, min(line, ceil_pow2(g.extent(last[-1]))))
        else:
            budget = elementwise.elements(g.defs, {x: g.extent(x) for x in grid}, ELEMENTS, MANY_ELEMENTS)
            if last and last[-1] in order:  # operands along another axis are small
                order = [last[-1], *(x for x in order if x != last[-1])]
    elements = not any(d.is_reduction for d in g.defs)
    several = elements or any(multiplies_matrices(d) for d in g.defs)  # of many matrices, each of which is small
    for n, x in enumerate(order):
        if n >= (3 if several else 2) and not (elements and g.volume() < elementwise.FEW):
            break  # other axes are in a tile where those before have few elements: the axes of tiny tensors
        room = max(1, budget // g.volume())
        tile = floor_pow2(min(room, ceil_pow2(g.extent(x))))
        if x != order[0] and x != order[-1] and elements:
            tile = elementwise.fitting(g.extent(x), tile, 1, elementwise.WASTE_BESIDE)  # the next axis fills the block
        if x == order[0] and (elements or x == fast):
            line = (elementwise.LINE if elements else 2 * SECTOR) // min(d.buffer.dtype.bytes for d in g.defs)
            beside = room // max((ceil_pow2(g.extent(y)) for y in order[1:2]), default=1) if elements else 1
            tile = elementwise.exact(g.extent(x), tile, max(line, beside))
        if x == fast and g.loop is not None and g.terms() <= SHORT:
            others = prod(g.extent(y) for y in grid if y != x)
            while tile > FEW_COLUMNS and others * -(-g.extent(x) // tile) < FULL:
                tile //= 2
        g.roles[x] = AxisPlan(x, GRID, tile)
    for x, tile in g.least.items():
        g.roles[x] = AxisPlan(x, GRID, max(tile, g.tile(x)))


def _across(g: Draft, kept: frozenset[str], grid: dict[str, int], row: dict[str, int]) -> dict[str, int]:
    """The least tiles of axes of the grid, apart from that along which most inputs are contiguous.

    Raises ScheduleError where registers hold too few rows, so that a kernel of its own stores or loads the tensor.
    """
    fast = g.vector_axis()
    found = {x: n for x, n in turned.least_tiles(g.defs, kept, grid, row).items() if x != fast}
    room = not g.light and turned.fits(g.defs, row, found)
    if found and len(g.defs) > 1 and prod(row.values()) > LEAST and not room:
        raise ScheduleError(f"the registers of a block do not hold the rows of whole sectors along {', '.join(found)}")
    return found


def _whole_columns(g: Draft, grid: list[str], row: dict[str, int]) -> dict[str, int]:
    """The least tiles with which a block has whole columns in registers, as few as fill a sector; {} where none fit."""
    fast = g.vector_axis()
    if fast is None or fast not in grid or not row:
        return {}
    least = {**g.least, fast: max(g.least.get(fast, 1), g.sector(fast))}
    tile = prod(map(ceil_pow2, row.values()))
    few = tile * prod(least.values()) <= BLOCK * 2 or rows.fills(prod(row.values()), tile)
    blocks = prod(-(-g.extent(x) // least.get(x, 1)) for x in grid)
    fits = few and blocks >= FULL and g.extent(fast) >= least[fast]
    return least if fits and turned.fits(g.defs, row, least) else {}


def _whole_axes(g: Draft, grid: list[str]) -> list[str]:
    """The axes of ``grid`` that are cut in tiles: a block has one chunk."""
    chunks = {s.into for s in g.scans.values() if s.chunk}
    return [x for x in grid if g.cut_by(x) is None and x not in chunks]


def _shared_along(g: Draft, grid: list[str]) -> shared_operands.Lacking | None:
    """The axis of an elementwise kernel along which its results share elements of a large operand, or costly values."""
    if g.dots or any(d.is_reduction for d in g.defs):
        return None
    fast, par = g.vector_axis(), [a.name for a in g.defs[-1].par]
    fast = par[-1] if fast is None and par else fast
    if fast is not None and fast in par and g.extent(fast) <= shared_operands.COLOURS and not _reads_along(g, fast):
        fast = max(par, key=g.extent)  # lanes are along the longest axis beside matrices of a few elements
    return shared_operands.lacking_axis(g.defs, fast, {x: g.extent(x) for x in _whole_axes(g, grid)})


def _reads_along(g: Draft, axis: str) -> bool:
    """Whether an operand has elements along ``axis``."""
    return any(axis in free_vars(ld) for d in g.defs for ld in d.reads())


def _loop_step(g: Draft) -> None:
    """The step of the shared loop, which divides the chunks of the loop."""
    _unchunked_step(g)
    assert g.loop is not None
    for c in (c for x in g.unified.extents if (c := g.cut_by(x)) is not None and c.axis == g.loop and c.size):
        tile = g.tile(g.loop)
        while c.size % tile:
            tile //= 2
        tile = c.tile or tile
        g.roles[g.loop] = AxisPlan(g.loop, LOOP, tile)


def _unchunked_step(g: Draft) -> None:
    assert g.loop is not None
    if g.dots:
        g.roles[g.loop] = AxisPlan(g.loop, LOOP, warp_tiles.step(g))
        return
    extent = ceil_pow2(g.extent(g.loop))
    each = g.volume(frozenset({g.loop}))
    long = _long_step(g)
    room = max(1, max(MAX_ROW, long) // each)
    fast = g.vector_axis()
    spread = any(a.role == GRID and a.tile > 1 for a in g.roles.values())  # a block has several rows, or columns
    least = max(COLUMN_ROWS, (BLOCK if spread else max(BLOCK, long)) // each)
    limit = max(4096, long) if fast == g.loop else least
    step = min(floor_pow2(min(room, limit)), extent)
    if fast == g.loop and any(d.is_reduction and g.loop in {a.name for a in d.par} for d in g.defs):
        step = max(step, min(POSITIONS, floor_pow2(BLOCK_REGISTERS // each), extent))
    halved = fast == g.loop and not long and g.extent(g.loop) % step and g.extent(g.loop) % (step // 2) == 0
    g.roles[g.loop] = AxisPlan(g.loop, LOOP, step // 2 if halved else step)  # the last step has work for all threads


def _long_step(g: Draft) -> int:
    """Elements of a long row in one step of the shared loop, by its own rule; 0 where that does not hold."""
    long = g.loop is not None and not g.dots and _is_repeated(g)
    return rows.step(g.defs, g.loop, g.extent(g.loop), g.volume(frozenset({g.loop}))) if long and g.loop else 0


def _mapping(g: Draft, grid: list[str]) -> WarpPlan:
    if g.dots:
        return warp_tiles.mapping(g)
    # 16 to 32 elements a thread, 64 of a long row in registers; elementwise work 8, one vector, or 16 in large tiles.
    shares = _shared_along(g, grid)
    large = BLOCK if elementwise.read_along(g.defs, {x: g.extent(x) for x in _whole_axes(g, grid)}) else MANY_ELEMENTS
    each = shares.warp if shares else 1024 if g.volume() > BLOCK else 512 if g.volume() >= large else 256
    each = rows.block(g.defs, BLOCK) // 4 if any(d.is_reduction for d in g.defs) else each  # of four warps
    if not (long := g.loop is None and g.volume() > rows.MAX_ROW) and rows.streams_bytes(g.defs):
        each = rows.WARP_OF_BYTES
    warps = rows.warps(g.volume()) if long else max(1, min(16, floor_pow2(max(1, g.volume() // each))))
    most = max((g.tile(x) for x in g.roles if g.roles[x].role == GRID and x != g.vector_axis()), default=1)
    down = 1 if shares else min(most, warps)  # a thread has all results of an element that they share
    return WarpPlan(warps=(down, warps // down), stages=1, epilogue="direct")


def _phases_of(g: Draft) -> Phases:
    return phases(g.unified, g.loop, frozenset(x for x, a in g.roles.items() if a.role == LOOP and x != g.loop))


def _is_repeated(g: Draft) -> bool:
    """Whether several passes run over the axis of the shared loop."""
    return g.loop is not None and passes(g.unified, g.loop, _phases_of(g)) > 1
