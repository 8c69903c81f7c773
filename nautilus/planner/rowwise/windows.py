"""Tiles of reductions over windows: few terms, at positions that neighbouring results share or step over.

Pooling, filters of one channel and stencils are such reductions.  In a *window*

* an index of the operand depends on a kept axis and on a reduced one (``x + r``);
* the last index of the operand moves with a kept axis, by at most :data:`MAX_STEP` elements;
* the reduced axes of each reduction have at most :data:`MAX_TERMS` points together.

Then

* a thread computes whole windows, so that no result is shared between threads: the reduced axes have their exact
  extents, and the layout gives them registers only.  Windows of more than :data:`LINE_TERMS` terms are a loop over
  their lines, so that a thread has more results, whose windows overlap;
* a block has up to :data:`RESULTS` results, along the last axes of the result.  The tile of an axis is the largest
  power of two that leaves at most one part in :data:`WASTE` of the positions unused.  It has :data:`LANES` elements at
  least along the last axis, so that neighbouring threads read neighbouring elements, and :data:`LINES` along others.

Windows along the last index, of a width that only the caller knows, are a loop over their terms too (:func:`plan_of`).

Where the last index has no reduced axis (the channels of ``X[b, x + r, c]``), a thread computes the windows of one
vector of channels at neighbouring positions ``x``, up to :data:`HELD` terms: their windows overlap, so that the block
reads most elements from memory once, and all of them have the same weights.  Windows of more than :data:`LINE_TERMS`
terms along one axis are then a loop over their terms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import gcd, prod

from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Load, Param, Var, free_vars, loads, walk
from nautilus.core.index.linear import Linear, divided, linear, linear_parts
from nautilus.core.index.sizes import nominal
from nautilus.core.records import dataclass
from nautilus.core.schedule import AxisPlan, WarpPlan
from nautilus.core.tiles import ceil_pow2, floor_pow2
from nautilus.planner.rowwise.elementwise import fitting
from nautilus.planner.rowwise.rows import MAX_WARPS, MIN_WARPS, WASTE
from nautilus.scalar.analysis.definitions import Def, size, slides
from nautilus.scalar.analysis.derived_names import GRID, LOOP
from nautilus.targets.limits import VECTOR_BYTES
from nautilus.targets.memory_rates import SECTOR

MAX_TERMS = 64  # terms that a thread holds in registers
MOST_TERMS = 1024  # terms of a window whose lines are a loop
LINE_TERMS = 16  # largest number of terms of a window that a thread holds whole
LEAST_TERMS = 9  # terms of a window, at least, for a kernel of its own where rows of its results are reduced
MAX_STEP = 4  # elements between the windows of neighbouring threads; further apart they share few sectors
RESULTS = 1024  # largest number of results of a block
LAUNCHED = 512  # results of a block whose windows have a width that is known at launch, in four warps
LANES = 32  # least number of results along the last axis, which neighbouring threads have
LINES = 8  # results along another axis at least: neighbours share most of their windows there
BLOCK_TERMS = 16384  # largest number of terms of a block
VECTORS = 4  # least number of vectors of channels of neighbouring threads
MEMBERS = 4  # results of a window that are contiguous, at most, such as those of the filters of a channel
NEIGHBOURS = 4  # results of a thread along an axis, whose windows overlap
HELD, HELD_RESULTS = 512, 64  # terms of the windows of one thread along vectors, and results
HELD_APART = 128  # terms of those that have no element in common
OVERLAPS = 2  # neighbouring windows that have each element, on average and at least, where they step over some
SHARING = 4  # neighbouring windows that have an element, at least
SMALL = 8  # an operand of less than 1 / SMALL of the largest one may be read in parts of sectors
RUNNING = 8  # terms, at least, as which running results of a thread count: they have registers in all steps
ELEMENTS = 128  # of windows of two axes that a thread holds with more than neighbouring results
PHASES = 8  # results of a thread along an axis of phases, at most
PER_WARP = 1024  # terms of a warp, 32 a thread; up to 48 where a power of two of warps needs it


def is_window(defs: Sequence[Def], rest: Mapping[str, int]) -> bool:
    """Whether ``defs`` reduce over windows (module docstring).  ``rest``: the axes that are not spread over blocks."""
    reductions = [d for d in defs if d.is_reduction]
    reduced = {a.name for d in reductions for a in d.red}
    terms = max((prod(rest.get(a.name, 1) for a in d.red) for d in reductions), default=1)
    line = rest.get(line_axis(defs, rest) or "", 1)
    if not reductions or reduced != set(rest) or terms > MOST_TERMS or terms // line > MAX_TERMS:
        return False
    return all(_slides(d) and _kept_is_last(d) for d in reductions)


def line_axis(defs: Sequence[Def], rest: Mapping[str, int]) -> str | None:
    """The reduced axis along which the lines of windows are a loop; None where a thread holds whole windows.

    It is the first one that slides along an index of the largest operand, and each reduction has it and another one.
    """
    reductions = [d for d in defs if d.is_reduction]
    if not reductions or prod(rest.values()) <= LINE_TERMS:
        return None
    found = {_first_reduced(d) for d in reductions}
    axis = found.pop()
    others = prod(n for x, n in rest.items() if x != axis)
    return axis if not found and (others > 1 or _of_vectors(reductions)) else None


def _of_vectors(reductions: Sequence[Def]) -> bool:
    """Whether windows along one axis are those of vectors, of which a thread has several results in a loop.

    There are as many positions as terms: else results are sums of whole lines but for their ends.  Windows of
    neighbouring positions overlap: else, as in sums over blocks and over gathered rows, no thread reads a vector again.
    """
    extents = {a.name: nominal(a.extent) for d in reductions for a in d.axes}
    vectors = vectors_of(reductions, extents)
    terms = max((prod(extents[a.name] for a in d.red) for d in reductions), default=0)
    if vectors is None or extents[vectors.positions] < terms:
        return False
    return all(_overlap(d, vectors.positions, extents) for d in reductions)


def _overlap(d: Def, positions: str, extents: Mapping[str, int]) -> bool:
    """Whether :data:`SHARING` or more neighbouring windows of a read of ``d`` share elements."""
    moved = (linear(e) for ld in d.reads() for e in ld.index)
    return any(
        0 < SHARING * abs(f.slope(positions)) <= abs(f.slope(a.name)) * extents[a.name] for f in moved for a in d.red
    )


def _first_reduced(d: Def) -> str | None:
    reduced = [a.name for a in d.red]
    largest = max(d.reads(), key=lambda ld: len(free_vars(ld)), default=None)
    moved = (x for e in (largest.index[:-1] if largest is not None else ()) for x in reduced if x in free_vars(e))
    return next(moved, None)


def plan_of(
    defs: Sequence[Def], extents: Mapping[str, int], grid: Sequence[str], rest: Sequence[str]
) -> tuple[str, dict[str, AxisPlan], WarpPlan] | None:
    """The loop, the roles and the mapping of windows along the last index whose width is a scalar of the caller.

    Every thread visits the terms of its own results, as far as the width goes.  None where there are no such windows.
    """
    loop = launched_axis(defs, rest)
    if loop is None:
        return None
    last = defs[-1].par[-1].name
    tiles = {last: min(LAUNCHED, ceil_pow2(extents[last]))}
    roles = {loop: AxisPlan(loop, LOOP, 1)} | {x: AxisPlan(x, GRID, tiles.get(x, 1)) for x in grid}
    return loop, roles, WarpPlan(warps=(1, MIN_WARPS), stages=1, epilogue="direct")


def launched_axis(defs: Sequence[Def], rest: Collection[str]) -> str | None:
    """The only axis ``rest`` that the reductions of ``defs`` have, if they are windows of such a width."""
    reductions = [d for d in defs if d.is_reduction]
    if len(rest) != 1 or not reductions:
        return None
    (axis,) = rest
    return axis if all(_is_launched(d, axis) and _slides(d) and _kept_is_last(d) for d in reductions) else None


def _is_launched(d: Def, axis: str) -> bool:
    """Whether a condition of ``d`` compares ``axis`` with scalars of the caller alone."""
    conditions = (c for c in conjuncts(d.guard) if free_vars(c) == {axis})
    return any(isinstance(e, Param) for c in conditions for e in walk(c))


def shares_windows(defs: Sequence[Def], loops: Collection[str] = ()) -> bool:
    """Whether one of ``defs`` reduces over windows, of which another one reduces the results along a row.

    The tile of a row then has an axis for the terms of a window, which neighbouring results do not share, if these are
    none of ``loops``.
    """
    tiled = (d for d in defs if d.is_reduction and not {a.name for a in d.red} <= set(loops))
    found = (d for d in tiled if prod(size(a) or MAX_TERMS for a in d.red) >= LEAST_TERMS)
    rests = ((d, {a.name: size(a) or 2 * MAX_TERMS for a in d.red}) for d in found)
    windows = [d for d, rest in rests if is_window((d,), rest) or launched_axis((d,), rest)]
    rows = {a.name for d in defs if d.is_reduction for a in d.red}
    return any(rows & {a.name for a in d.par} for d in windows)


def _slides(d: Def) -> bool:
    """Whether an index depends on a kept axis and on a reduced one."""
    return slides(d, {a.name for a in d.par}, {a.name for a in d.red})


def _kept_is_last(d: Def) -> bool:
    """Whether the last index of the operands with the most axes moves with a kept axis, by few elements."""
    kept, axes = {a.name for a in d.par}, {a.name for a in d.axes}
    operands = [ld for ld in d.reads() if ld.index]
    largest = max((len(free_vars(ld) & axes) for ld in operands), default=0)
    last = [ld.index[-1] for ld in operands if len(free_vars(ld) & axes) == largest]
    steps = [[abs(divided(e).slope(x)) for x in free_vars(e) & kept] for e in last]
    return all(found and max(found) <= MAX_STEP for found in steps)


@dataclass(frozen=True, slots=True)
class Vectors:
    """Windows along ``positions`` of vectors of ``width`` elements along ``channels``.

    ``lines``: the axis along which windows of other positions share whole lines; empty where there is none.  ``apart``:
    the elements of a window are anywhere, as in rows that another tensor chooses.  ``members``: the contiguous axis of
    the results, where it has few that share a window each; empty where there is none.  ``beside``: axes along which
    another large operand is contiguous, such as weights for each position, with the elements that fill a sector.
    """

    channels: str
    positions: str
    width: int
    lines: str = ""
    apart: bool = False
    members: str = ""
    beside: tuple[tuple[str, int], ...] = ()

    def tiles(self, extents: Mapping[str, int], terms: int) -> tuple[dict[str, int], int]:
        """The tiles of a block of at most :data:`MIN_WARPS` warps, and its warps.  ``terms``: of a window."""
        threads = 32 * MIN_WARPS
        count = -(-extents[self.channels] // self.width)
        across = min(threads, floor_pow2(count))
        across = fitting(count, across, min(across, VECTORS), WASTE) or across
        most = HELD_APART // terms if self.apart else min(HELD // terms, HELD_RESULTS)
        results = ceil_pow2(extents[self.members]) if self.members else 1
        held = floor_pow2(max(1, most // (self.width * results)))
        sectors = prod(n for _, n in self.beside)
        room = held * max(1, threads // (across * sectors))
        lines = min(NEIGHBOURS, held, ceil_pow2(extents[self.lines])) if self.lines else 1
        down = min(room // lines, ceil_pow2(extents[self.positions]))
        tiles = dict.fromkeys(extents, 1) | {self.channels: across * self.width, self.positions: down}
        tiles |= {self.lines: lines} if self.lines else {}
        tiles |= {self.members: results} if self.members else {}
        return tiles | dict(self.beside), max(1, across * sectors * down * lines // held // 32)


def phases_of(defs: Sequence[Def]) -> dict[str, int]:
    """The axis of phases (``separate-phases``) with its extent: a thread has the results of all of them.

    Empty where the windows have so few terms that writing neighbours together is worth more.
    """
    ends = {a.name: nominal(a.extent) for d in defs for a in d.par}
    found = dict[str, int]()
    for form in (linear(e) for d in defs for e in d.at or ()):
        slopes = {x.name: n for x, n in form.terms.items() if isinstance(x, Var)}
        found |= {x: ends[x] for x, n in slopes.items() if n == 1 and ends.get(x, 0) in slopes.values()}
    long = all(prod(nominal(a.extent) for a in d.red) > LINE_TERMS // 2 for d in defs if d.is_reduction)
    return found if long and len(found) == 1 and max(found.values()) <= PHASES else {}


def block_of(
    defs: Sequence[Def], order: Sequence[str], extents: Mapping[str, int], line: str | None = None
) -> tuple[dict[str, int], int]:
    """The tiles of the result axes ``order``, the innermost one first, and the warps of a block.

    ``line``: the axis of the loop over the lines of windows.
    """
    terms = max(prod(extents[a.name] for a in d.red if a.name != line) for d in defs if d.is_reduction)
    extents = {x: extents[x] for x in order}
    vectors = vectors_of(defs, extents)
    if vectors is not None:
        vectors = replace(vectors, beside=_beside(defs, vectors, extents))
        if line is not None:  # windows of other lines meet in other steps
            return replace(vectors, lines="").tiles(extents, max(terms, RUNNING))
        return vectors.tiles(extents, terms)
    tiles = result_tiles(order, extents, terms)
    results = prod(tiles.values())
    held, most = _together(defs, order, line), warps(results, terms)
    return tiles, most if held == 1 else min(most, max(1, results // (32 * held)))


def _beside(defs: Sequence[Def], vectors: Vectors, extents: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """The axes of ``extents`` along which operands beside those of ``vectors`` are contiguous, with their tiles."""
    own = {vectors.channels, vectors.positions, vectors.lines, vectors.members}
    reads = {ld for d in defs if d.is_reduction for ld in d.reads() if ld.index}
    sizes = {ld: ld.dtype.bytes * _volume(ld, defs, extents) for ld in reads}
    out = dict[str, int]()
    for ld in sorted(reads, key=lambda ld: sizes[ld], reverse=True):
        last = ld.index[-1]
        if isinstance(last, Var) and last.name in extents.keys() - own and sizes[ld] * SMALL > max(sizes.values()):
            out[last.name] = min(ceil_pow2(extents[last.name]), SECTOR // ld.dtype.bytes)
    return tuple(out.items())


def _volume(ld: Load, defs: Sequence[Def], extents: Mapping[str, int]) -> int:
    """Elements of the tensor that ``ld`` reads, of which those of windows count once."""
    terms = {a.name: nominal(a.extent) for d in defs for a in d.red}
    alone = {
        x: n for x, n in terms.items() if all(free_vars(e).isdisjoint(extents) for e in ld.index if x in free_vars(e))
    }
    return prod(n for x, n in {**extents, **alone}.items() if x in free_vars(ld))


def _together(defs: Sequence[Def], order: Sequence[str], line: str | None) -> int:
    """Results of a thread whose windows overlap along the last axis, the first of ``order``; 1 where they do not.

    Windows of two axes have :data:`NEIGHBOURS` times as many, which share positions and weights, if registers hold
    their elements.
    """
    reads = {ld for d in defs if d.is_reduction for ld in d.reads()}
    reduced = {a.name: nominal(a.extent) for d in defs for a in d.red}
    moved = [(e, form) for ld in reads for e in ld.index for form in linear_parts(e)]
    moved = [(e, form) for e, form in moved if any(form.slope(x) for x in reduced)]
    sliding = {x for e, form in moved for x in free_vars(e) - reduced.keys() if _is_shared(form, x, reduced)}
    if not order or order[0] not in sliding:
        return 1
    terms = {x: n for x, n in reduced.items() if x != line}
    more = any(x in sliding for x in order[1:2])
    held = NEIGHBOURS * sum(_elements(ld, order[0], terms) for ld in reads)
    return NEIGHBOURS * (NEIGHBOURS if more and held <= ELEMENTS else 1)


def _is_shared(form: Linear, position: str, reduced: Mapping[str, int]) -> bool:
    """Whether windows at neighbouring places of ``position`` have many elements in common, as ``form`` moves them."""
    step, terms = abs(form.slope(position)), {0}
    for x, n in reduced.items():
        if form.slope(x) and len(terms) * n <= MOST_TERMS:
            terms = {first + form.slope(x) * k for first in terms for k in range(n)}
    distinct = {first + step * k for first in terms for k in range(NEIGHBOURS)}
    return step == 1 or (step > 0 and OVERLAPS * len(distinct) <= NEIGHBOURS * len(terms))


def _elements(ld: Load, position: str, terms: Mapping[str, int]) -> int:
    """Elements that ``ld`` reads for :data:`NEIGHBOURS` neighbouring windows along ``position``; 0 if it has none.

    ``terms``: of a window.
    """
    along = [free_vars(e) & terms.keys() for e in ld.index if position in free_vars(e)]
    steps = [abs(form.slope(position)) for e in ld.index for form in linear_parts(e)]
    inside = frozenset[str]().union(*along)
    whole = prod(terms[x] for x in free_vars(ld) & terms.keys())
    last = prod(terms[x] for x in inside)
    return whole // last * ((NEIGHBOURS - 1) * max(1, *steps) + last) if inside else 0


def vectors_of(defs: Sequence[Def], extents: Mapping[str, int]) -> Vectors | None:
    """The vectors of the windows of ``defs``; None unless all reductions have the same.  ``extents``: of results."""
    found = {_vectors(d, extents) for d in defs if d.is_reduction}
    return found.pop() if len(found) == 1 else None


def _vectors(d: Def, extents: Mapping[str, int]) -> Vectors | None:
    kept, reduced = {a.name for a in d.par}, {a.name for a in d.red}
    for ld in sorted(d.reads(), key=lambda ld: -len(free_vars(ld))):
        sliding = [free_vars(e) & kept for e in ld.index if free_vars(e) & reduced and free_vars(e) & kept]
        last = ld.index[-1] if ld.index else None
        if sliding and isinstance(last, Var) and last.name in kept:
            width = gcd(VECTOR_BYTES // ld.dtype.bytes, extents[last.name])
            positions = max(sliding[-1])
            lines = [x for names in sliding[:-1] for x in names if x not in (positions, last.name)]
            apart = any(loads(e) for e in ld.index)
            members = _members(d, ld, {positions, *lines}, extents)
            found = Vectors(last.name, positions, width, lines[-1] if lines and not apart else "", apart, members)
            return found if last.name != positions and width > 1 else None
    return None


def _members(d: Def, operand: Load, others: Collection[str], extents: Mapping[str, int]) -> str:
    """The contiguous axis of the results of ``d``, where few of them share each window of ``operand``, or ""."""
    last = d.index[-1] if d.index else None
    if not isinstance(last, Var) or last.name in {*free_vars(operand), *others}:
        return ""
    return last.name if 1 < extents[last.name] <= MEMBERS else ""


def result_tiles(order: Iterable[str], extents: Mapping[str, int], most: int) -> dict[str, int]:
    """The tile of each result axis of ``order``, the innermost one first.  ``most``: terms of a window."""
    budget = min(RESULTS, floor_pow2(BLOCK_TERMS // most))
    out: dict[str, int] = {}
    for x in order:
        out[x] = _tile(extents[x], budget, LINES if out else LANES)
        budget //= out[x]
    return out


def _tile(extent: int, most: int, least: int) -> int:
    """The largest power of two that leaves little unused, from ``least`` on; else one of :data:`LANES`, or ``most``."""
    tile = floor_pow2(min(most, ceil_pow2(extent)))
    return fitting(extent, tile, least, WASTE) or min(tile, LANES)


def warps(results: int, most: int) -> int:
    """Warps of a block with ``results`` results of at most ``most`` terms each."""
    return max(MIN_WARPS, min(MAX_WARPS, floor_pow2(results * most * 3 // (2 * PER_WARP))))
