"""Interval arithmetic over the reals: the rule of each function, an interval of results from intervals of arguments.

An interval holds the value whenever it is a finite number; an end may be infinite.  A rule may give a larger
interval than the image, never a smaller one.  The rules round to nearest in float64; :func:`outward` moves both ends
outwards by more than that error, so a chain of rules and :func:`outward` is directed rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Interval = tuple[float, float]

INF = math.inf
EVERYTHING: Interval = (-INF, INF)
EMPTY: Interval = (INF, -INF)  # the neutral element of :func:`joined`
_ROUNDING = 2.0**-48  # relative, 16 ulp: more than the error of a rule, whose library functions are within 4 ulp


def joined(a: Interval, b: Interval) -> Interval:
    """The smallest interval that contains both."""
    return min(a[0], b[0]), max(a[1], b[1])


def outward(a: Interval, exact: bool = False) -> Interval:
    """``a`` with its ends moved outwards by the rounding error of a rule; 0 is exact and stays, and so do all ends of
    an ``exact`` function, which rounds nothing."""
    if exact:
        return a
    return a[0] - abs(a[0]) * _ROUNDING, a[1] + abs(a[1]) * _ROUNDING


def add(a: Interval, b: Interval) -> Interval:
    """The interval of a sum."""
    return a[0] + b[0], a[1] + b[1]


def neg(a: Interval) -> Interval:
    """The interval of ``-x``."""
    return -a[1], -a[0]


def sub(a: Interval, b: Interval) -> Interval:
    """The interval of a difference."""
    return add(a, neg(b))


def times(x: float, y: float) -> float:
    """A product of ends, where 0 times an infinite end is 0."""
    return 0.0 if x == 0 or y == 0 else x * y


def mul(a: Interval, b: Interval) -> Interval:
    """The interval of a product."""
    corners = [times(x, y) for x in a for y in b]
    return min(corners), max(corners)


def rcp(a: Interval) -> Interval:
    """The interval of ``1 / x``."""
    if a[0] <= 0 <= a[1]:
        return EVERYTHING if a[0] < 0 else (0.0, INF) if a[1] == INF or a[1] == 0 else (1 / a[1], INF)
    return 1 / a[1], 1 / a[0]


def div(a: Interval, b: Interval) -> Interval:
    """The interval of a quotient."""
    return mul(a, rcp(b))


def fma(a: Interval, b: Interval, c: Interval) -> Interval:
    """The interval of ``x * y + z``."""
    return add(mul(a, b), c)


def magnitude(a: Interval) -> Interval:
    """The interval of ``|a|``."""
    top = max(abs(a[0]), abs(a[1]))
    return (0.0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1]))), top


def square(a: Interval) -> Interval:
    """The interval of ``x * x``."""
    lo, hi = magnitude(a)
    return times(lo, lo), times(hi, hi)


def power(a: Interval, n: int) -> Interval:
    """The interval of ``x ** n``."""
    if n < 0:
        return rcp(power(a, -n))
    ends = sorted(_end(lambda x: x**n, float(x), math.copysign(INF, x)) for x in a)
    if n % 2 == 0:
        lo, hi = magnitude(a)
        ends = [_end(lambda x: x**n, lo, INF), _end(lambda x: x**n, hi, INF)]
    return ends[0], ends[1]


def raised(a: Interval, b: Interval) -> Interval:
    """The interval of ``x ** y``, which is monotone in either argument where ``x`` is positive.

    Of other numbers nothing is known, but for powers of 0 that are no quotients.
    """
    if a[0] < 0 or (a[0] == 0 and b[0] < 0):
        return EVERYTHING
    ends = [_raised(x, y) for x in a for y in b]
    return (0.0, INF) if any(map(math.isnan, ends)) else (min(ends), max(ends))


def _raised(x: float, y: float) -> float:
    try:
        return float(x**y)
    except (OverflowError, ZeroDivisionError):
        return INF


def least(a: Interval, b: Interval) -> Interval:
    """The interval of the lesser number."""
    return min(a[0], b[0]), min(a[1], b[1])


def greatest(a: Interval, b: Interval) -> Interval:
    """The interval of the greater number."""
    return max(a[0], b[0]), max(a[1], b[1])


def within(lo: float, hi: float) -> Callable[..., Interval]:
    """The rule of a function of which only the range is known."""

    def rule(*_: Interval) -> Interval:
        return lo, hi

    return rule


def widened(below: float, above: float) -> Callable[[Interval], Interval]:
    """The rule of a function that differs from its argument by at most so much."""

    def rule(a: Interval) -> Interval:
        return a[0] - below, a[1] + above

    return rule


def increasing(f: Callable[[float], float], lo: float = -INF, hi: float = INF) -> Callable[[Interval], Interval]:
    """The rule of an increasing function on [lo, hi]; an end where ``f`` fails or overflows is infinite."""

    def rule(a: Interval) -> Interval:
        x, y = (min(max(end, lo), hi) for end in a)
        return _end(f, x, -INF), _end(f, y, INF)

    return rule


def decreasing(f: Callable[[float], float], lo: float = -INF, hi: float = INF) -> Callable[[Interval], Interval]:
    """The rule of a decreasing function on [lo, hi] that does not overflow."""

    def rule(a: Interval) -> Interval:
        x, y = (min(max(end, lo), hi) for end in a)
        return f(y), f(x)

    return rule


def even(f: Callable[[float], float]) -> Callable[[Interval], Interval]:
    """The rule of an even function that increases above 0."""
    rule = increasing(f)
    return lambda a: rule(magnitude(a))


def _end(f: Callable[[float], float], x: float, default: float) -> float:
    try:
        return f(x)
    except OverflowError:
        return INF if x > 0 else -INF
    except ValueError:
        return default


def exp(x: float) -> float:
    """``e ** x``; 0 of -inf."""
    return 0.0 if x == -INF else math.exp(x)


def exp2(x: float) -> float:
    """``2 ** x``; 0 of -inf."""
    return 0.0 if x == -INF else 2.0**x


def exp10(x: float) -> float:
    """``10 ** x``; 0 of -inf."""
    return 0.0 if x == -INF else 10.0**x


def sigmoid(x: float) -> float:
    """``1 / (1 + exp(-x))``."""
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def log(x: float) -> float:
    """The natural logarithm; inf of inf."""
    return INF if x == INF else math.log(x)


def log2(x: float) -> float:
    """The logarithm to base 2; inf of inf."""
    return INF if x == INF else math.log2(x)


def sqrt(a: Interval) -> Interval:
    """The interval of a square root, whose argument is at least 0."""
    return math.sqrt(max(a[0], 0.0)), math.sqrt(max(a[1], 0.0))


def rsqrt(a: Interval) -> Interval:
    """The interval of ``1 / sqrt(x)``."""
    return rcp(sqrt(a))


def tan(a: Interval) -> Interval:
    """The tangent increases between its poles next to 0; elsewhere it may be any number."""
    if -math.pi / 2 < a[0] and a[1] < math.pi / 2:
        return math.tan(a[0]), math.tan(a[1])
    return EVERYTHING


def hypot(a: Interval, b: Interval) -> Interval:
    """The interval of ``sqrt(x * x + y * y)``."""
    x, y = magnitude(a), magnitude(b)
    return math.hypot(x[0], y[0]), math.hypot(x[1], y[1])


def fmod(a: Interval, b: Interval) -> Interval:
    """The result has the sign of ``a``, and its magnitude is at most that of ``a`` and that of ``b``."""
    top = min(magnitude(a)[1], magnitude(b)[1])
    return (-top if a[0] < 0 else 0.0), (top if a[1] > 0 else 0.0)


def bit_and(a: Interval, b: Interval) -> Interval:
    """The interval of ``x & y``, which is at most every operand that is not negative."""
    tops = [x[1] for x in (a, b) if x[0] >= 0]
    return (0.0, min(tops)) if tops else (bit_xor(a, b)[0], max(a[1], b[1]))


def bit_or(a: Interval, b: Interval) -> Interval:
    """The interval of ``x | y``."""
    lo, hi = bit_xor(a, b)
    return (max(a[0], b[0]) if lo >= 0 else lo), hi


def bit_xor(a: Interval, b: Interval) -> Interval:
    """The interval of ``x ^ y``, which has no more bits than the operands."""
    if not all(map(math.isfinite, (*a, *b))):
        return (0.0, INF) if a[0] >= 0 and b[0] >= 0 else EVERYTHING
    top = 2.0 ** max((int(x) if x >= 0 else ~int(x)).bit_length() for x in (*a, *b))
    return (0.0 if a[0] >= 0 and b[0] >= 0 else -top), top - 1


def bit_not(a: Interval) -> Interval:
    """The interval of ``~x``."""
    return -1 - a[1], -1 - a[0]


def shift_left(a: Interval, n: Interval) -> Interval:
    """The interval of ``x << n`` without the bits that leave the type; 0 where ``n`` is no number of bits."""
    lo, hi = mul(a, (2.0 ** min(max(n[0], 0.0), 64.0), 2.0 ** min(max(n[1], 0.0), 64.0)))
    return (lo, hi) if n[0] >= 0 and n[1] < 32 else (min(lo, 0.0), max(hi, 0.0))


def shift_right(a: Interval, n: Interval) -> Interval:
    """The interval of ``x >> n``."""
    if not (n[0] >= 0 and math.isfinite(n[1])):
        return min(a[0], 0.0), max(a[1], -1.0)
    ends = [x if not math.isfinite(x) else float(int(x) >> int(min(k, 64))) for x in a for k in n]
    return min(ends), max(ends)
