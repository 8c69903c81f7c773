"""Tiles of products of a matrix and a vector whose elements take more bytes than those of the matrix.

A block that has one row reads the vector for that row alone.  Memory delivers the matrix, but L2 and L1 deliver both,
and what is computed from elements of the vector is computed for each row again.  So a block has several rows of the
matrix, :data:`ROWS` where that leaves :data:`BLOCKS` blocks, in a loop over the terms.

The same holds where no tensor is a matrix, as for the overlap of a box with all other boxes: what the terms read and
compute apart from the row is the same for all rows.  A loop that a condition cuts short stays that of one row.

Forces between particles have components, which share most of what a pair computes::

    F[i, k] = sum[j](f(distance(x[i], x[j])) * (x[j, k] - x[i, k]))

A thread then has all components of a pair, in steps of :data:`PAIRS` terms: lanes along the components would compute
each pair again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Load, Op, Var, free_vars, loads, walk
from nautilus.core.functions import FUNCTIONS
from nautilus.core.schedule import AxisPlan, WarpPlan
from nautilus.core.tiles import floor_pow2
from nautilus.planner.rowwise import rows, shared_operands
from nautilus.planner.rowwise.pairs import positions
from nautilus.scalar.analysis.contractions.shared_parts import slots
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import GRID, LOOP, TILE

ROWS = 8  # rows of a block at most
BLOCKS = 528  # blocks at least: four for each multiprocessor
STEP = 512  # terms of a step of the loop
LEAST = 2 * STEP  # terms of the shortest row with a loop
PAIRS = 128  # terms of a step whose results have components: 8 pairs of each thread
COMPONENTS = 4  # at most
COSTLY = 4  # issue slots that components share, at least
LARGE_TERMS = 64  # issue slots of a term of which a thread has as few, since all of them are in registers


def plan_of(
    defs: Sequence[Def], extents: Mapping[str, int], grid: Sequence[str], rest: Sequence[str]
) -> tuple[str, dict[str, AxisPlan], WarpPlan] | None:
    """The loop, the roles of axes and the mapping of such a product; None for any other kernel.

    ``grid``: axes with a block for each position; ``rest``: the other parallel axes.
    """
    reductions = [d for d in defs if d.is_reduction]
    found = {tuple(a.name for a in d.red) for d in reductions}
    if len(found) != 1 or len(names := found.pop()) != 1:
        return None
    axis, d = names[0], reductions[0]
    parts = next((x for r in reductions if (x := _components(r, axis, extents)) is not None), None)
    if {*rest} not in ({axis}, {axis, parts}):
        return None
    across = _rows(d, axis) if parts is None and len(reductions) == 1 else None
    across = across or _alike(d, axis, parts)
    if any(_alike(r, axis, parts) != across for r in reductions[1:]):
        return None
    if across is None or across not in grid or extents[axis] < LEAST or rows.streams_bytes(defs):
        return None
    many = prod(extents[x] for x in grid if x != parts)
    held = min(ROWS, floor_pow2(max(1, many // BLOCKS)), floor_pow2(extents[across]))
    if held == 1:
        return None
    roles = {x: AxisPlan(x, GRID, held if x == across else 1) for x in grid}
    if parts is not None:
        roles[parts] = AxisPlan(parts, GRID if parts in grid else TILE, extents[parts])
    long = max(slots(r.value) for r in reductions) < LARGE_TERMS and parts is None
    roles[axis] = AxisPlan(axis, LOOP, STEP if long else PAIRS)
    return axis, roles, WarpPlan(warps=(1, rows.MIN_WARPS), stages=1, epilogue="direct")


def _components(d: Def, axis: str, extents: Mapping[str, int]) -> str | None:
    """The last axis of the results of ``d``, if it has few elements that share what a term computes along ``axis``."""
    parts = d.par[-1].name if len(d.par) > 1 else ""
    if not 1 < extents.get(parts, 0) <= COMPONENTS:
        return None
    terms = (d.value,) if d.guard is None else (d.value, d.guard)
    found = (e for x in terms for e in shared_operands.without(x, parts) if axis in free_vars(e))
    shared = {n for e in found for n in walk(e)}
    costs = sum(FUNCTIONS[n.op].slots for n in shared if isinstance(n, Op) and n.dtype.is_float)
    return parts if costs >= COSTLY else None


def _rows(d: Def, axis: str) -> str | None:
    """The rows of the only matrix that ``d`` reads along ``axis``; None where no longer vector is read beside it."""
    along = [ld for ld in d.reads() if axis in free_vars(ld)]
    matrices = [ld for ld in along if free_vars(ld) >= {a.name for a in d.axes} and len(ld.index) > 1]
    if len(matrices) != 1 or d.guard is not None or not _is_plain(matrices[0], axis):
        return None
    row = matrices[0].index[-2]
    if not isinstance(row, Var):
        return None
    vectors = [ld for ld in along if ld is not matrices[0]]
    shared = all(row.name not in free_vars(ld) and _is_plain(ld, axis) for ld in vectors)
    longer = sum(ld.dtype.bytes for ld in vectors) > matrices[0].dtype.bytes
    return row.name if shared and longer else None


def _alike(d: Def, axis: str, parts: str | None = None) -> str | None:
    """The last axis of the results of ``d``, if all of them have the same operands along ``axis``, of two or more.

    ``parts``: an axis of components beside it.  Elements of small tables for a pair are no operands along the axis.
    """
    kept = [a.name for a in d.par if a.name != parts]
    row = kept[-1] if kept else ""
    read = [free_vars(ld) for ld in d.reads() if not any(map(loads, ld.index))]
    along = [names for names in read if axis in names]
    cut = any(axis in positions(c) for c in conjuncts(d.guard) if not (isinstance(c, Op) and c.op in ("or", "ne")))
    shared = len(along) > 1 and all(row not in names for names in along)
    return row if shared and any(row in names for names in read) and not cut else None


def _is_plain(ld: Load, axis: str) -> bool:
    """Whether ``ld`` has variables for indices, of which ``axis`` is the last one."""
    return all(isinstance(e, Var) for e in ld.index) and ld.index[-1] == Var(axis)
