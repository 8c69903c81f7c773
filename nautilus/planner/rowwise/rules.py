"""The rules of kernels whose structure has tiles of its own.  The first one that holds gives the plan.

* Windows (:mod:`.windows`) have their exact extents in registers, or a loop of the width that the caller states.
* Terms of scatters (:mod:`.terms`) are registers of one thread along the axis of their keys.
* Products for each position of contiguous memory (:mod:`nautilus.planner.lanewise.products`) have neighbouring results.
* Sums of displaced elements (:mod:`nautilus.planner.lanewise.taps`) have threads with several taps.
* Pairs of rows (:mod:`.pairs`) have tiles of both.
* Rows of segments (:mod:`.segments`) have a block each.
* Rows that share vectors (:mod:`.shared_vectors`) have a block together.
* Groups of rows of which columns are reduced too (:mod:`.columns`) have a block each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import TypeAlias

from nautilus.core.schedule import AxisPlan, WarpPlan
from nautilus.planner.draft import Draft
from nautilus.planner.lanewise import products, taps
from nautilus.planner.rowwise import columns, pairs, segments, shared_vectors, terms, windows
from nautilus.scalar.analysis.derived_names import GRID, LOOP, TILE

#: the axis of the loop, the roles of axes, and the mapping
Plan: TypeAlias = tuple[str | None, dict[str, AxisPlan], WarpPlan]


def plan_by_rule(g: Draft, grid: Sequence[str], rest: Sequence[str]) -> WarpPlan | None:
    """The mapping of the first rule that holds for ``g``, which then has its loop and its roles; None if none does.

    ``grid``: the axes of the launch grid; ``rest``: the others.
    """
    for rule in RULES:
        if (found := rule(g, grid, rest)) is not None:
            g.loop, g.roles = found[0], g.roles | found[1]
            return found[2]
    return None


def is_whole(g: Draft, grid: Sequence[str]) -> bool:
    """Whether ``g`` has no products, no running results and no chunks."""
    return not g.dots and not g.scans and not any(g.cut_by(x) for x in grid)


def _windows(g: Draft, grid: Sequence[str], rest: Sequence[str]) -> Plan | None:
    """Reductions that all are over windows of fixed widths."""
    extents = {x: g.extent(x) for x in rest}
    if not is_whole(g, grid) or not windows.is_window(g.defs, extents):
        return None
    phases = windows.phases_of(g.defs)
    order = [a.name for a in reversed(g.defs[-1].par) if a.name in grid and a.name not in phases]
    loop = windows.line_axis(g.defs, extents)
    tiles, warps = windows.block_of(g.defs, order, {x: g.extent(x) for x in g.unified.extents}, loop)
    tiles |= phases
    inner = {x: AxisPlan(x, LOOP, 1) if x == loop else AxisPlan(x, TILE, g.extent(x)) for x in rest}
    return loop, inner | _on_grid(grid, tiles), _direct(1, warps)


def _terms(g: Draft, grid: Sequence[str], _rest: Sequence[str]) -> Plan | None:
    """Scatters, all of which have the same blocks."""
    extents = {x: g.extent(x) for x in grid}
    if not all(d.scatter is not None and extents.keys() >= {a.name for a in d.par} for d in g.defs):
        return None
    first, *rest = (terms.block_of(d, g.vector_axis(), extents) for d in g.defs)
    alike = first is not None and all(block == first for block in rest)
    return (g.loop, _on_grid(grid, first[0]), _direct(*first[1])) if alike and first else None


def _lanewise(g: Draft, grid: Sequence[str], rest: Sequence[str]) -> Plan | None:
    """Products whose operands are contiguous along the results."""
    extents = {x: g.extent(x) for x in g.unified.extents}
    return products.plan_of(g.defs, extents, grid, rest) if is_whole(g, grid) else None


def _taps(g: Draft, grid: Sequence[str], rest: Sequence[str]) -> Plan | None:
    """Sums of displaced elements over groups of positions."""
    extents = {x: g.extent(x) for x in g.unified.extents}
    return None if g.dots or g.scans else taps.plan_of(g.defs, extents, grid, rest)


def _pairs(g: Draft, grid: Sequence[str], rest: Sequence[str]) -> Plan | None:
    """One reduction over pairs."""
    if g.dots or g.scans:
        return None
    extents = {x: g.extent(x) for x in g.unified.extents}
    results = {x: extents[x] for x in grid if not g.cut_by(x)}
    pair = pairs.pair_of(g.defs, results, extents)
    return None if pair is None else pairs.plan_of_pair(g, grid, rest, *pair)


def _reduced_pairs(g: Draft, grid: Sequence[str], _rest: Sequence[str]) -> Plan | None:
    """Pairs whose columns other reductions combine."""
    if g.dots or g.scans:
        return None
    extents = {x: g.extent(x) for x in g.unified.extents}
    pair = pairs.reduced_pair(g.defs, {x: extents[x] for x in grid if not g.cut_by(x)}, grid, extents)
    return None if pair is None else pairs.plan_of_reduced_pair(g, grid, *pair)


def _shared_terms(g: Draft, grid: Sequence[str], rest: Sequence[str]) -> Plan | None:
    """Results that all have the same terms."""
    extents = {x: g.extent(x) for x in grid}
    cuts = {x: c for x in grid if (c := g.cut_by(x)) is not None}
    alike = not g.dots and not g.scans and len(rest) == 1 and not any(c.tile for c in cuts.values())
    shared = pairs.shared_terms(g.defs, extents, cuts) if alike else None
    if shared is None:
        return None
    alone = sum(d.is_reduction for d in g.defs) == 1 and not pairs.branches(g.defs)
    step = 1 if alone else gcd(pairs.STEP, *(c.size for c in cuts.values() if c.size))
    return rest[0], {rest[0]: AxisPlan(rest[0], LOOP, step)} | _on_grid(grid, dict([shared])), _direct(4, 1)


def _segments(g: Draft, grid: Sequence[str], rest: Sequence[str]) -> Plan | None:
    """Rows of segments."""
    extents = {x: g.extent(x) for x in g.unified.extents}
    return None if g.dots else segments.plan_of(g.defs, extents, grid, rest, g.vector_axis())


def _shared_vectors(g: Draft, grid: Sequence[str], rest: Sequence[str]) -> Plan | None:
    """Rows that share vectors."""
    extents = {x: g.extent(x) for x in g.unified.extents}
    return shared_vectors.plan_of(g.defs, extents, grid, rest) if is_whole(g, grid) else None


def _launched_windows(g: Draft, grid: Sequence[str], rest: Sequence[str]) -> Plan | None:
    """Windows whose width is a scalar of the caller."""
    extents = {x: g.extent(x) for x in g.unified.extents}
    return windows.plan_of(g.defs, extents, grid, rest) if is_whole(g, grid) else None


def _rows_and_columns(g: Draft, grid: Sequence[str], rest: Sequence[str]) -> Plan | None:
    """Rows and columns of one tensor."""
    extents = {x: g.extent(x) for x in g.unified.extents}
    whole = is_whole(g, grid) and not g.light and g.vector_axis() in rest
    return columns.plan_of_rows(g.defs, extents, grid, rest, g.vector_axis() or "") if whole else None


def _on_grid(grid: Sequence[str], tiles: dict[str, int]) -> dict[str, AxisPlan]:
    return {x: AxisPlan(x, GRID, tiles.get(x, 1)) for x in grid}


def _direct(down: int, across: int) -> WarpPlan:
    return WarpPlan(warps=(down, across), stages=1, epilogue="direct")


#: in order, as some structures are cases of others
RULES: tuple[Callable[[Draft, Sequence[str], Sequence[str]], Plan | None], ...] = (
    _taps, _windows, _terms, _lanewise, _pairs, _reduced_pairs, _shared_terms, _segments, _shared_vectors,
    _launched_windows, _rows_and_columns,
)  # fmt: skip
