"""Value ranges of tiles: interval analysis over the reals, op by op.

The interval of a value contains all its finite elements if the inputs are finite.  Infinities and NaN are outside of
every interval: the constant -inf of a masked element and the initial value of a maximum are in none.  An input has
the range of its type.  A carried value starts with the interval of its initial value; an end that the loop moves is
infinite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import field

from nautilus.core.expr.nodes import Const
from nautilus.core.functions import FUNCTIONS
from nautilus.core.functions.intervals import (
    EMPTY,
    EVERYTHING,
    Interval,
    add,
    increasing,
    joined,
    magnitude,
    mul,
    outward,
    square,
    times,
)
from nautilus.core.index.simplify import bounds
from nautilus.core.records import dataclass
from nautilus.core.types import DType, value_limits
from nautilus.vr_tile.analysis.assumptions import Assumptions
from nautilus.vr_tile.ir import (
    ConstOp,
    DotOp,
    ForOp,
    IndexOp,
    LoadOp,
    MapOp,
    ReduceOp,
    ScanOp,
    StoreOp,
    TileKernel,
    TileOp,
    Value,
    ValueOp,
)

#: the intervals of arguments include their roundings, so the ends decide
_STEPS = {"floor": increasing(math.floor), "ceil": increasing(math.ceil), "round": increasing(round)}
_VANISHES_AT_INFINITY = frozenset({"exp", "exp2", "exp10", "rcp", "rsqrt", "div"})


def value_ranges(k: TileKernel) -> Ranges:
    """The ranges of all values of ``k``."""
    assumptions = Assumptions.of_axes(k.axes)
    for g in k.grid:
        assumptions = assumptions.within(g.var, Const(0, g.extent.dtype), g.extent, loop=False)
    ranges = Ranges()
    ranges.block(k.body, assumptions)
    return ranges


@dataclass(slots=True)
class Ranges:
    """Value name -> interval."""

    found: dict[str, Interval] = field(default_factory=dict)

    def of(self, v: Value) -> Interval:
        """The interval of ``v``; everything where nothing is known."""
        return self.found.get(v.name, EVERYTHING)

    def largest(self, v: Value) -> float:
        """The largest magnitude of a finite element of ``v``; 0 where there is none."""
        return 0.0 if self.of(v) == EMPTY else magnitude(self.of(v))[1]

    def block(self, body: Iterable[TileOp], at: Assumptions) -> None:
        """Enter the intervals of a block's values."""
        for op in body:
            if isinstance(op, ForOp):
                self._loop(op, at)
            elif not isinstance(op, StoreOp):
                lo, hi = self._of(op, at)
                self.found[op.result.name] = (lo, hi) if lo <= hi or (lo, hi) == EMPTY else EVERYTHING

    def _loop(self, op: ForOp, at: Assumptions) -> None:
        inside = at.within(op.var, op.lo, op.hi, loop=True)
        now = [self.of(init) for _, init in op.carried]
        while True:  # an end moves to infinity once, so this ends
            self.found |= {arg.name: i for (arg, _), i in zip(op.carried, now, strict=True)}
            self.block(op.body, inside)
            new = [_widened(a, self.of(y)) for a, y in zip(now, op.yields, strict=True)]
            if new == now:
                break
            now = new
        self.found |= {r.name: i for r, i in zip(op.results, now, strict=True)}

    def _of(self, op: ValueOp, at: Assumptions) -> Interval:
        """The interval of the result of ``op``; integers that leave their type wrap around in it."""
        found, dtype = self._exact(op, at), op.result.type.dtype
        if not dtype.is_int or found == EMPTY:
            return found
        low, high = value_limits(dtype)
        return found if low <= found[0] <= found[1] <= high else (low, high)

    def _exact(self, op: ValueOp, at: Assumptions) -> Interval:
        match op:
            case ConstOp(value=value):
                return (float(value), float(value)) if math.isfinite(value) else EMPTY
            case IndexOp(expr=expr) if expr.dtype is not DType.BOOL:
                lo, hi = bounds(expr, at.ranges, at.conditions)
                return (-math.inf if lo is None else float(lo)), (math.inf if hi is None else float(hi))
            case LoadOp(result=r, mask=mask):
                return joined(value_limits(r.type.dtype), EMPTY if mask is None else (0.0, 0.0))
            case MapOp():
                return self._map(op)
            case ScanOp(exclusive=exclusive) if exclusive or op.is_recurrence:
                return EVERYTHING  # the first element is the identity, or the state of a recurrence
            case ReduceOp(combiner=combiner, arg=arg) | ScanOp(combiner=combiner, arg=arg):
                axes = op.axes if isinstance(op, ReduceOp) else (op.axis,)
                count = float(math.prod(a.size for a in arg.type.axes if a.name in axes))
                low, high = self.of(arg)
                if combiner == "sum" and (low, high) != EMPTY:
                    return outward((times(min(low, 0.0), count), times(max(high, 0.0), count)))
                return (low, high) if combiner in ("max", "min") else EVERYTHING
            case DotOp(a=a, b=b, acc=acc, axes=axes):
                count = float(math.prod(x.size for x in a.type.axes if x.name in axes))
                low, high = mul(self.of(a), self.of(b))
                sums = times(min(low, 0.0), count), times(max(high, 0.0), count)
                return outward(sums if acc is None else add(sums, self.of(acc)))
        return EVERYTHING

    def _map(self, op: MapOp) -> Interval:
        args = [self.of(a) for a in op.args]
        match op.op:
            case "select":
                return joined(args[1], args[2])
            case "max" | "min" if EMPTY in args:
                return joined(*args)
            case "cast" | "narrow":
                return _converted(args[0], op)
            case "mul" if op.args[0] == op.args[1]:
                return outward(square(args[0]))
            case "floor" | "ceil" | "round" as name if EMPTY not in args:
                return _STEPS[name](args[0])
        f = FUNCTIONS[op.op]
        if f.interval is None or EMPTY in args:
            return EVERYTHING
        found = outward(f.interval(*args), f.is_exact)
        return joined(found, (0.0, 0.0)) if op.op in _VANISHES_AT_INFINITY else found


def _widened(a: Interval, b: Interval) -> Interval:
    """``a``, with an end that ``b`` exceeds moved to infinity; ``b`` itself where ``a`` has no element."""
    if EMPTY in (a, b):
        return b if a == EMPTY else a
    return (a[0] if a[0] <= b[0] else -math.inf), (a[1] if b[1] <= a[1] else math.inf)


def _converted(a: Interval, op: MapOp) -> Interval:
    """The interval of numbers of ``a`` rounded to the type of ``op``."""
    limits = value_limits(op.result.type.dtype)
    if a == EMPTY or op.result.type.dtype in (DType.F32, DType.F64):
        return a
    slack = 2.0**-op.result.type.dtype.mantissa if op.result.type.dtype.is_float else 0.0
    lo, hi = a[0] - abs(a[0]) * slack, a[1] + abs(a[1]) * slack
    return (lo, hi) if limits[0] <= lo and hi <= limits[1] else limits
