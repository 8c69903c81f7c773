"""Interval arithmetic with directed rounding: both ends of every result are rounded outwards.

An interval contains every finite result of a kernel that computes in f32 or better: an operation errs by at most
2^-22 of its result, or by 2^-126 where it is subnormal or flushed; functions of the hardware err by 2^-18.  A result
that may be inf has an infinite end.  NaN is in no interval: it stays NaN whatever is done with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

Interval: TypeAlias = tuple[float, float]

EVERYTHING: Interval = (-math.inf, math.inf)
_INF = math.inf
_LARGEST = 3.5e38  # beyond it, a result of f32 is inf
_STEP, _FUNCTION, _TINY = 2.0**-22, 2.0**-18, 2.0**-126


def outward(lo: float, hi: float, error: float = _STEP) -> Interval:
    """``[lo, hi]`` with the error of one operation; everything for an end that is NaN."""
    if math.isnan(lo) or math.isnan(hi):
        return EVERYTHING
    low = math.nextafter(lo - abs(lo) * error - _TINY, -_INF) if math.isfinite(lo) else lo
    high = math.nextafter(hi + abs(hi) * error + _TINY, _INF) if math.isfinite(hi) else hi
    return (-_INF if low < -_LARGEST else low), (_INF if high > _LARGEST else high)


def joined(a: Interval, b: Interval) -> Interval:
    """The least interval with the values of both."""
    return min(a[0], b[0]), max(a[1], b[1])


def met(a: Interval, b: Interval) -> Interval:
    """The interval of values in both; ``a`` where there are none, because one of them then is of no finite value."""
    found = max(a[0], b[0]), min(a[1], b[1])
    return found if found[0] <= found[1] else a


def _times(x: float, y: float) -> float:
    return 0.0 if x == 0.0 or y == 0.0 else x * y


def add(a: Interval, b: Interval) -> Interval:
    """The interval of a sum."""
    return outward(a[0] + b[0], a[1] + b[1])


def negative(a: Interval) -> Interval:
    """The interval of ``-x``."""
    return -a[1], -a[0]


def multiply(a: Interval, b: Interval) -> Interval:
    """The interval of a product."""
    corners = [_times(x, y) for x in a for y in b]
    return outward(min(corners), max(corners))


def divide(a: Interval, b: Interval) -> Interval:
    """The interval of a quotient; everything where the divisor may be 0."""
    if b[0] <= 0.0 <= b[1]:
        return EVERYTHING
    return multiply(a, outward(1.0 / b[1], 1.0 / b[0]))


def magnitude(a: Interval) -> Interval:
    """The interval of ``|x|``."""
    least = 0.0 if a[0] <= 0.0 <= a[1] else min(abs(a[0]), abs(a[1]))
    return least, max(abs(a[0]), abs(a[1]))


def square(a: Interval) -> Interval:
    """The interval of ``x * x``."""
    lo, hi = magnitude(a)
    return max(0.0, outward(lo * lo, hi * hi)[0]), outward(lo * lo, hi * hi)[1]


def repeated(a: Interval, count: float) -> Interval:
    """The interval of a sum of at most ``count`` values, whose roundings add up."""
    lo, hi = _times(min(a[0], 0.0), count), _times(max(a[1], 0.0), count)
    return outward(lo, hi, min(1.0, _STEP * max(count, 1.0)))


def _rising(f: Callable[[float], float], least: float = -_INF) -> Callable[[Interval], Interval]:
    """The rule of a function that never falls, on arguments of at least ``least``."""

    def at(x: float) -> float:
        try:
            return f(x)
        except OverflowError:
            return _INF

    def found(a: Interval) -> Interval:
        lo, hi = outward(at(max(a[0], least)), at(max(a[1], least)), _FUNCTION)
        return lo, hi

    return found


def _positive(found: Interval) -> Interval:
    return max(found[0], 0.0), found[1]


def _within(lo: float, hi: float) -> Callable[[Interval], Interval]:
    return lambda _: outward(lo, hi, _FUNCTION)


_exp, _exp2, _sqrt = _rising(math.exp), _rising(lambda x: 2.0**x), _rising(math.sqrt, 0.0)

#: functions of one argument; any other one may have any value
FUNCTIONS: Mapping[str, Callable[[Interval], Interval]] = {
    "neg": negative,
    "abs": magnitude,
    "exp": lambda a: _positive(_exp(a)),
    "exp2": lambda a: _positive(_exp2(a)),
    "sqrt": lambda a: _positive(_sqrt(a)),
    "rsqrt": lambda a: divide((1.0, 1.0), _positive(_sqrt(a))),
    "rcp": lambda a: divide((1.0, 1.0), a),
    "tanh": _within(-1.0, 1.0),
    "erf": _within(-1.0, 1.0),
    "sin": _within(-1.0, 1.0),
    "cos": _within(-1.0, 1.0),
    "sign": _within(-1.0, 1.0),
    "sigmoid": lambda a: _positive(outward(0.0, 1.0, _FUNCTION)),
}
