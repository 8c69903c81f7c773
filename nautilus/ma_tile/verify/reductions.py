"""The rules of ``reduce`` and ``scan``."""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.expr.infer import DTypeError, reduce_dtype
from nautilus.core.expr.nodes import COMBINERS
from nautilus.core.tiles import TileAxis
from nautilus.core.types import DType
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import ReduceOp
from nautilus.ma_tile.ir.scan import ScanOp, scan_levels, state_levels, state_matrix
from nautilus.ma_tile.verify.layout import same_map
from nautilus.ma_tile.verify.scope import KernelScope, Rule
from nautilus.ma_tile.verify.shared import element_count


def reduce(s: KernelScope, op: ReduceOp) -> None:
    """The reduced axes are axes of the operand; scratch is declared if warps split them."""
    layout, t = s.use(op.arg), op.arg.type
    _factors(s, op, layout)
    s.need(bool(op.axes) and set(op.axes) <= set(t.names), "reduced axes are the operand's", ", ".join(op.axes))
    rest = frozenset(a for a in t.axes if a.name not in op.axes)
    if op.into is not None:
        s.need(op.scratch is None, "partials need no scratch", op.into)
        s.need(op.into not in t.names, "partials lie along a new axis", op.into)
        layout = layout.partial(op.axes, op.into)
        rest |= {TileAxis(op.into, layout.extent(op.into))}
    s.need(frozenset(op.result.type.axes) == rest, "a reduction keeps the other axes", f"%{op.result.name}")
    _typed(s, op)
    own = s.define(op.result)
    projection = layout.project(op.result.type.names)
    s.need(same_map(own, projection), "results of reductions are projections", f"%{op.result.name}")
    split = any(m.axis in op.axes and m.size > 1 for m in layout.warp)
    s.need(not split or op.scratch is not None, "warps that split a reduced axis need scratch", "none is given")
    _scratch(s, op, layout.warps * projection.registers * 32, "register")


def _factors(s: KernelScope, op: ReduceOp, layout: FragLayout) -> None:
    """Factors and conditions are those of terms of a sum of floats."""
    for f, dtype in ((op.times, op.arg.type.dtype), (op.where, DType.BOOL)):
        if f is not None:
            s.projected(layout, f)
            s.need(op.combiner == "sum" and op.arg.type.dtype.is_float, "factors are those of sums", f"%{f.name}")
            s.need(f.type.dtype is dtype, "operations are typed", f"%{f.name}")


def scan(s: KernelScope, op: ScanOp) -> None:
    """The layout has the digits that a scan needs; scratch is declared if warps split the axis."""
    layout, t = s.use(op.arg), op.arg.type
    along = op.into == op.axis
    named = op.axis in t.names and (along or (op.into not in t.names and not op.is_recurrence))
    s.need(named, "a scan leads to its own axis or a new one", f"{op.axis} into {op.into}")
    wanted = frozenset(TileAxis(op.into, a.size) if a.name == op.axis else a for a in t.axes)
    s.need(frozenset(op.result.type.axes) == wanted, "a scan keeps the other axes", f"%{op.result.name}")
    _typed(s, op)
    levels = scan_levels(layout, op.axis)
    s.need(levels is not None, "a scan runs over low registers, lanes, warps, high registers", f"#{op.arg.layout}")
    assert levels is not None
    own = s.define(op.result)
    s.need(same_map(own, layout.renamed(op.axis, op.into)), "a scan keeps the layout", f"%{op.result.name}")
    s.need(levels.warps.size == 1 or op.scratch is not None, "warps that split a scanned axis need scratch", "")
    if op.states is not None:
        _states(s, op, op.states, layout)
        return
    each = 1
    if op.by is not None:
        each, factors = 2, s.use(op.by)
        plain = op.combiner == "sum" and not op.exclusive and op.by.type.dtype is op.result.type.dtype
        s.need(plain, "a scan with factors is an inclusive sum of their type", f"%{op.by.name}")
        fits = set(op.by.type.names) <= set(t.names) and same_map(factors, layout.project(op.by.type.names))
        s.need(fits, "factors have the layout of a scan", f"%{op.by.name}")
    _scratch(s, op, layout.warps * levels.totals * each * 32, "total")


def _states(s: KernelScope, op: ScanOp, states: str, layout: FragLayout) -> None:
    """A thread has all states at its positions; factors have the layout of a scan without the states."""
    found, t = state_levels(layout, op.axis, states), op.arg.type
    s.need(found is not None, "a thread has all states of a scan", f"#{op.arg.layout}")
    assert found is not None
    levels, digit = found
    plain = op.combiner == "sum" and not op.exclusive and op.by is None and t.dtype.is_float
    s.need(plain, "a scan with factors is an inclusive sum of their type", f"%{op.result.name}")
    for f in op.factors:
        own = s.use(f)
        fits = set(f.type.names) <= set(t.names) - {states} and f.type.dtype is t.dtype
        s.need(fits and same_map(own, layout.project(f.type.names)), "factors have the layout of a scan", f"%{f.name}")
    places = len(op.places) == len(op.factors) and list(op.places) == sorted(set(op.places))
    inside = bool(op.places) and op.places[0] >= 0 and op.places[-1] < digit.size**2
    s.need(places and inside, "each factor has a place in the matrix, in order", ", ".join(map(str, op.places)))
    lanes = 1 if levels.whole_lanes else 32
    _scratch(s, op, layout.warps * state_matrix(op).exchanged(levels.totals) * lanes, "number")


def _typed(s: KernelScope, op: ReduceOp | ScanOp) -> None:
    s.need(op.combiner in COMBINERS, "known combiners", op.combiner)
    try:
        dtype = reduce_dtype(op.combiner, op.arg.type.dtype)
    except DTypeError as err:
        s.fail("operations are typed", str(err))
    s.need(dtype is op.result.type.dtype, "operations are typed", f"{op.combiner} gives {dtype}")


def _scratch(s: KernelScope, op: ReduceOp | ScanOp, needed: int, each: str) -> None:
    """Scratch, if any, holds ``needed`` elements: one a warp, lane and ``each``."""
    if op.scratch is None:
        return
    s.need(s.consumers == 1, "a kernel or role of several consumers has no scratch", op.scratch)
    s.need(s.role is None, "warps exchange parts at a barrier of the whole block", f"{op.scratch} in role {s.role}")
    buffer, dtype = s.smem.get(op.scratch), op.result.type.dtype
    s.need(buffer is not None, "shared buffers are declared", op.scratch)
    assert buffer is not None
    fits = buffer.dtype is dtype and element_count(buffer) >= needed and buffer.swizzle == buffer.pad == 0
    s.need(fits, f"scratch holds one element a warp, {each} and lane", f"{needed} of {dtype} are needed")


RULES: Mapping[type, Rule] = {ReduceOp: reduce, ScanOp: scan}
