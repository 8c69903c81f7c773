"""Tiles of products of a matrix and a vector whose elements take more bytes than those of the matrix.

A block that has one row reads the vector for that row alone.  Memory delivers the matrix, but L2 and L1 deliver both,
and what is computed from elements of the vector is computed for each row again.  So a block has several rows of the
matrix, :data:`ROWS` where that leaves :data:`BLOCKS` blocks, in a loop over the terms.

The same holds where no tensor is a matrix, as for the overlap of a box with all other boxes: what the terms read and
compute apart from the row is the same for all rows.  A loop that a condition cuts short stays that of one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Load, Op, Var, free_vars
from nautilus.core.schedule import AxisPlan, WarpPlan
from nautilus.core.tiles import floor_pow2
from nautilus.planner.rowwise import rows
from nautilus.planner.rowwise.pairs import positions
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import GRID, LOOP

ROWS = 8  # rows of a block at most
BLOCKS = 528  # blocks at least: four for each multiprocessor
STEP = 512  # terms of a step of the loop
LEAST = 2 * STEP  # terms of the shortest row with a loop


def plan_of(
    defs: Sequence[Def], extents: Mapping[str, int], grid: Sequence[str], rest: Sequence[str]
) -> tuple[str, dict[str, AxisPlan], WarpPlan] | None:
    """The loop, the roles of axes and the mapping of such a product; None for any other kernel."""
    reductions = [d for d in defs if d.is_reduction]
    if len(reductions) != 1 or len(rest) != 1 or [a.name for a in reductions[0].red] != [*rest]:
        return None
    axis = rest[0]
    across = _rows(reductions[0], axis) or _alike(reductions[0], axis)
    if across is None or across not in grid or extents[axis] < LEAST or rows.streams_bytes(defs):
        return None
    many = prod(extents[x] for x in grid)
    held = min(ROWS, floor_pow2(max(1, many // BLOCKS)), floor_pow2(extents[across]))
    if held == 1:
        return None
    roles = {x: AxisPlan(x, GRID, held if x == across else 1) for x in grid} | {axis: AxisPlan(axis, LOOP, STEP)}
    return axis, roles, WarpPlan(warps=(1, rows.MIN_WARPS), stages=1, epilogue="direct")


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


def _alike(d: Def, axis: str) -> str | None:
    """The last axis of the results of ``d``, if all of them have the same operands along ``axis``, of two or more."""
    row = d.par[-1].name if d.par else ""
    read = [free_vars(ld) for ld in d.reads()]
    along = [names for names in read if axis in names]
    cut = any(axis in positions(c) for c in conjuncts(d.guard) if not (isinstance(c, Op) and c.op == "or"))
    shared = len(along) > 1 and all(row not in names for names in along)
    return row if shared and any(row in names for names in read) and not cut else None


def _is_plain(ld: Load, axis: str) -> bool:
    """Whether ``ld`` has variables for indices, of which ``axis`` is the last one."""
    return all(isinstance(e, Var) for e in ld.index) and ld.index[-1] == Var(axis)
