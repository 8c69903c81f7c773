"""The rule of ``scan``."""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.expr.infer import DTypeError, reduce_dtype
from nautilus.core.expr.nodes import COMBINERS
from nautilus.core.tiles import TileAxis
from nautilus.ma_tile.ir.scan import ScanOp, scan_levels
from nautilus.ma_tile.verify.layout import same_map
from nautilus.ma_tile.verify.module import KernelScope, Rule
from nautilus.ma_tile.verify.shared import element_count


def scan(s: KernelScope, op: ScanOp) -> None:
    """The layout has the digits that a scan needs; scratch is declared if warps split the axis."""
    layout, t = s.use(op.arg), op.arg.type
    s.need(op.combiner in COMBINERS, "known combiners", op.combiner)
    s.need(op.axis in t.names and op.into not in t.names, "a scan leads to a new axis", f"{op.axis} into {op.into}")
    wanted = frozenset(TileAxis(op.into, a.size) if a.name == op.axis else a for a in t.axes)
    s.need(frozenset(op.result.type.axes) == wanted, "a scan keeps the other axes", f"%{op.result.name}")
    try:
        dtype = reduce_dtype(op.combiner, t.dtype)
    except DTypeError as err:
        s.fail("operations are typed", str(err))
    s.need(dtype is op.result.type.dtype, "operations are typed", f"{op.combiner} gives {dtype}")
    levels = scan_levels(layout, op.axis)
    s.need(levels is not None, "a scan runs over low registers, lanes, warps, high registers", f"#{op.arg.layout}")
    assert levels is not None
    own = s.define(op.result)
    s.need(same_map(own, layout.renamed(op.axis, op.into)), "a scan keeps the layout", f"%{op.result.name}")
    s.need(levels.warps.size == 1 or op.scratch is not None, "warps that split a scanned axis need scratch", "")
    if op.scratch is not None:
        s.need(s.consumers == 1, "a kernel or role of several consumers has no scratch", op.scratch)
        buffer = s.smem.get(op.scratch)
        s.need(buffer is not None, "shared buffers are declared", op.scratch)
        assert buffer is not None
        needed = layout.warps * levels.totals * 32
        fits = buffer.dtype is dtype and element_count(buffer) >= needed and buffer.swizzle == buffer.pad == 0
        s.need(fits, "scratch holds one element a warp, total and lane", f"{needed} of {dtype} are needed")


RULES: Mapping[type, Rule] = {ScanOp: scan}
