"""The work of reductions and scans, which combine the elements of a tile."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from nautilus.core.records import dataclass
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.scan import scan_levels


@dataclass(frozen=True, slots=True)
class Combining:
    """Instructions of a warp, those of which that are steps between lanes, and barriers of the block."""

    slots: float
    shuffles: int
    barriers: float


def combining(op: ma.ReduceOp | ma.ScanOp, layouts: Mapping[str, FragLayout]) -> Combining:
    """The work of ``op``. A barrier counts twice, because the next use of the scratch needs another one."""
    barriers = 2.0 if op.scratch is not None else 0.0
    layout = layouts[op.arg.layout]
    if isinstance(op, ma.ReduceOp):
        lanes = prod(x.size for x in layout.lane if x.axis in op.axes)
        shuffles = 0 if op.into is not None else max(0, lanes.bit_length() - 1)
        return Combining(layout.registers + 3.0 * shuffles * layouts[op.result.layout].registers, shuffles, barriers)
    levels = scan_levels(layout, op.axis)
    assert levels is not None
    steps = levels.lanes.size.bit_length() + 1 if levels.lanes.size > 1 else 0
    exchanged = 3.0 * steps + (3.0 * levels.warps.size if levels.warps.size > 1 else 0.0)
    return Combining(2.0 * layout.registers + exchanged * levels.totals, steps, barriers)
