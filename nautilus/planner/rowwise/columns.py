"""Columns in memory where a block has whole rows or columns of them in registers.

*Scans across contiguous memory*: a block has several whole columns, so that its accesses are vectors.

*Rows and columns of one tensor*: definitions reduce each row, and the columns of a group of rows
(:mod:`nautilus.planner.chunks.row_chunks`).  A block has a group: a loop over its rows, each of which is a tile, and
the running results of all columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import gcd, prod

from nautilus.core.schedule import AxisPlan, WarpPlan
from nautilus.core.tiles import ceil_pow2
from nautilus.planner.rowwise.pairs import BLOCKS
from nautilus.planner.rowwise.rows import operands
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import GRID, LOOP, TILE
from nautilus.targets.limits import BLOCK_REGISTERS

LONGEST_COLUMN = 2048  # elements of a column of which a block has several
MIN_COLUMNS, MAX_COLUMNS = 8, 32  # 32 to 128 bytes of f32
LONGEST_ROW = 8192  # elements of a row beside the running results of its columns
EACH = 1024  # elements of a row, or of the rows of a step, that a warp has: fewer warps wait less for each other


def budget(defs: Sequence[Def], row: Mapping[str, int], volume: int) -> int:
    """Elements of the tile of a block whose columns, of ``volume`` elements each, are in registers."""
    room = BLOCK_REGISTERS // max(1, len(operands(defs, row))) // volume
    return volume * max(MIN_COLUMNS, min(MAX_COLUMNS, room))


def plan_of_rows(
    defs: Sequence[Def], extents: Mapping[str, int], grid: Collection[str], rest: Sequence[str], column: str
) -> tuple[str, dict[str, AxisPlan], WarpPlan] | None:  # fmt: skip
    """The loop over rows, the roles of axes and the mapping of rows and columns; None where ``defs`` are no such.

    ``grid``, ``rest``: the axes of the launch grid and the two others, with their ``extents``; ``column``: that of
    ``rest`` along which memory is contiguous.
    """
    over = {tuple(a.name for a in d.red) for d in defs if d.is_reduction}
    if len(rest) != 2 or over != {(x,) for x in rest} or prod(extents[x] for x in grid) < BLOCKS:
        return None
    rows = next(x for x in rest if x != column)
    row = ceil_pow2(extents[column])
    if not _ends_rows(defs, rows) or row > LONGEST_ROW or row * extents[rows] <= BLOCK_REGISTERS:
        return None
    step = gcd(extents[rows], max(1, EACH // row))
    warps = max(1, step * row // EACH)
    roles = {rows: AxisPlan(rows, LOOP, step), column: AxisPlan(column, TILE, row)}
    roles |= {x: AxisPlan(x, GRID, 1) for x in grid}
    return rows, roles, WarpPlan(warps=(1, warps), stages=1, epilogue="direct")


def _ends_rows(defs: Sequence[Def], rows: str) -> bool:
    """Whether no definition reads what is reduced over ``rows``, and others reduce rows."""
    ends = {d.name for d in defs if rows in {a.name for a in d.red}}
    return bool(ends) and not any(ld.buffer in ends for d in defs for ld in d.reads())
