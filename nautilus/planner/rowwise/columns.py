"""Scans across contiguous memory: a block has several whole columns in registers, so that its accesses are vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nautilus.planner.rowwise.rows import operands
from nautilus.scalar.analysis.definitions import Def
from nautilus.targets.limits import BLOCK_REGISTERS

LONGEST_COLUMN = 2048  # elements of a column of which a block has several
MIN_COLUMNS, MAX_COLUMNS = 8, 32  # 32 to 128 bytes of f32


def budget(defs: Sequence[Def], row: Mapping[str, int], volume: int) -> int:
    """Elements of the tile of a block whose columns, of ``volume`` elements each, are in registers."""
    room = BLOCK_REGISTERS // max(1, len(operands(defs, row))) // volume
    return volume * max(MIN_COLUMNS, min(MAX_COLUMNS, room))
