"""What is known of results in f32 whose operands may be infinite or NaN.

The rules are exact for IEEE 754 in round to nearest: a :class:`Fact` includes infinite elements, which the intervals of
:mod:`nautilus.core.functions.intervals` leave out.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from nautilus.core.functions import arithmetic
from nautilus.core.records import dataclass

INF = math.inf
_LARGEST = (2.0 - 2.0**-23) * 2.0**127
_NORMAL = 2.0**-126
_OVERFLOWS = 2.0**128 - 2.0**103 - 2.0**80  # numbers from here on may round to an infinity; ends are in float64


@dataclass(frozen=True, slots=True)
class Fact:
    """The elements that are not NaN lie from ``low`` to ``high``; ``nan``: an element may be NaN.

    ``value``: every element is this number, but where the same element of the value called ``unless`` is NaN, which is
    where it is NaN.  Without ``unless`` no element is NaN.  A zero may have either sign unless ``value`` says it.
    """

    low: float = -INF
    high: float = INF
    nan: bool = True
    value: float | None = None
    unless: str | None = None

    @property
    def is_infinite(self) -> bool:
        """Whether every element that is not NaN is the same infinity."""
        return self.low == self.high and math.isinf(self.low)


ANYTHING = Fact()
Named = tuple[str, Fact]  # a value by its name, and what is known of it
Ends = tuple[float, float]


def nearest_f32(value: float) -> float:
    """The nearest number of f32, infinite beyond its range."""
    try:
        stored: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(INF, value)
    return stored


def constant(value: float) -> Fact:
    """The fact of a constant of f32."""
    if math.isnan(value):
        return ANYTHING
    stored = nearest_f32(value)
    return Fact(stored, stored, False, stored)


def joined(a: Fact, b: Fact) -> Fact:
    """The fact of elements of which one or the other fact holds."""
    return a if a == b else Fact(min(a.low, b.low), max(a.high, b.high), a.nan or b.nan)


def either(a: Fact, b: Fact) -> Fact:
    """The fact of a function of the same values in two cases of these values."""
    found, names = joined(a, b), {f.unless for f in (a, b) if f.nan}
    if a.value is None or repr(a.value) != repr(b.value) or len(names) > 1:  # zeros have signs
        return found
    return replace(found, value=a.value, unless=names.pop() if names else None)


def _rounded(x: float, up: bool) -> float:
    """An end that holds after rounding to f32 too, which turns no number below the largest one into an infinity."""
    if abs(x) >= _OVERFLOWS:
        return math.copysign(INF, x)
    if abs(x) < _NORMAL:
        return (max(0.0, math.copysign(_NORMAL, x)) if up else min(0.0, math.copysign(_NORMAL, x))) if x else x
    moved = x + abs(x) * 2.0**-23 * (1 if up else -1)
    return max(-_LARGEST, min(_LARGEST, moved))


def _between(ends: Ends, nan: bool) -> Fact:
    return Fact(_rounded(ends[0], False), _rounded(ends[1], True), nan)


def _single(value: float, nan: bool, sources: Iterable[str]) -> Fact:
    """The fact that each element is ``value`` or NaN; ``sources``: names of what says where it is NaN, '' for none."""
    names = set(sources)
    if not nan:
        return Fact(value, value, False, value)
    if len(names) == 1 and "" not in names:
        return Fact(value, value, True, value, names.pop())
    return Fact(value, value, True)


def _sources(*values: Named) -> list[str]:
    """For each value that may be NaN, the name of the one that says where."""
    return [f.unless or name for name, f in values if f.nan]


def add(a: Named, b: Named) -> Fact:
    """The fact of ``a + b``."""
    x, y = a[1], b[1]
    nan = x.nan or y.nan
    for one, other in ((x, y), (y, x)):
        if one.is_infinite:
            clashes = other.low <= -one.low <= other.high
            return Fact(one.low, one.low, True) if clashes else _single(one.low, nan, _sources(a, b))
    if (x.high == INF and y.low == -INF) or (x.low == -INF and y.high == INF):
        return ANYTHING
    return _between((x.low + y.low, x.high + y.high), nan)


def _infinite_product(a: Named, b: Named) -> Fact | None:
    """The fact of ``a * b`` where one is infinite and the sign of the other one is known."""
    for one, other in ((a[1], b[1]), (b[1], a[1])):
        if one.is_infinite and (other.low > 0 or other.high < 0):
            return _single(math.copysign(1.0, other.low) * one.low, one.nan or other.nan, _sources(a, b))
    return None


def _products(x: Fact, y: Fact) -> Ends | None:
    """The ends of all products before they are rounded; None where 0 may meet an infinity."""
    for one, other in ((x, y), (y, x)):
        if one.low <= 0 <= one.high and (math.isinf(other.low) or math.isinf(other.high)):
            return None
    corners = [p * q for p in (x.low, x.high) for q in (y.low, y.high)]
    return min(corners), max(corners)


def mul(a: Named, b: Named) -> Fact:
    """The fact of ``a * b``."""
    x, y = a[1], b[1]
    nan = x.nan or y.nan
    infinite = _infinite_product(a, b)
    if infinite is not None:
        return infinite
    ends = _products(x, y)
    if ends is None:
        return ANYTHING
    if x.value is not None and y.value is not None and 0 in (x.value, y.value):
        return _single(x.value * y.value, nan, _sources(a, b))
    return _between(ends, nan)


def fma(a: Named, b: Named, c: Named) -> Fact:
    """The fact of ``a * b + c``, which is rounded once."""
    x, y, z = a[1], b[1], c[1]
    infinite = _infinite_product(a, b)
    if infinite is not None:
        return add(("", infinite), c)
    ends = _products(x, y)
    if ends is None or (ends[1] == INF and z.low == -INF) or (ends[0] == -INF and z.high == INF):
        return ANYTHING
    return _between((ends[0] + z.low, ends[1] + z.high), x.nan or y.nan or z.nan)


def neg(a: Named) -> Fact:
    """The fact of ``-a``."""
    f = a[1]
    value = None if f.value is None else -f.value
    return Fact(-f.high, -f.low, f.nan, value, f.unless)


def sub(a: Named, b: Named) -> Fact:
    """The fact of ``a - b``."""
    return add(a, (b[0], neg(b)))


def absolute(a: Named) -> Fact:
    """The fact of ``abs(a)``."""
    f = a[1]
    ends = sorted((abs(f.low), abs(f.high)))
    value = None if f.value is None else abs(f.value)
    return Fact(0.0 if f.low <= 0 <= f.high else ends[0], ends[1], f.nan, value, f.unless)


def greatest(a: Named, b: Named) -> Fact:
    """The fact of ``max(a, b)``, which is NaN where one is."""
    x, y = a[1], b[1]
    return Fact(max(x.low, y.low), max(x.high, y.high), x.nan or y.nan)


def least(a: Named, b: Named) -> Fact:
    """The fact of ``min(a, b)``, which is NaN where one is."""
    x, y = a[1], b[1]
    return Fact(min(x.low, y.low), min(x.high, y.high), x.nan or y.nan)


def exp2(a: Named) -> Fact:
    """The fact of ``2^a``, also where results below the normal numbers are 0."""
    f = a[1]
    return _single(0.0 if f.low < 0 else INF, f.nan, _sources(a)) if f.is_infinite else Fact(0.0, INF, f.nan)


def binade(a: Named) -> Fact:
    """The fact of ``binade(a)``, which is a number also where ``a`` is NaN."""
    f = a[1]
    if f.value is not None and not f.nan:
        return constant(arithmetic.binade(f.value))
    return Fact(arithmetic.binade(f.low), arithmetic.binade(math.inf if f.nan else f.high), False)


#: functions of f32 with a rule; of all others nothing is known
RULES: Mapping[str, Callable[..., Fact]] = {
    "add": add, "sub": sub, "mul": mul, "fma": fma, "neg": neg, "abs": absolute, "max": greatest, "min": least,
    "exp2": exp2, "exp2_approx": exp2, "binade": binade,
}  # fmt: skip


def compared(op: str, a: Fact, b: Fact) -> bool | None:
    """The result of a comparison for every element, NaN included; None where it is not known."""
    if op in ("gt", "ge"):
        return compared({"gt": "lt", "ge": "le"}[op], b, a)
    apart = a.low > b.high or a.high < b.low
    if op in ("eq", "ne"):
        return (op == "ne") if apart else None
    if a.low > b.high or (op == "lt" and a.low >= b.high):
        return False
    holds = a.high <= b.low if op == "le" else a.high < b.low
    return True if holds and not (a.nan or b.nan) else None


def below(fact: Fact, limit: float) -> Fact:
    """The fact of a value with ``fact`` where it is at most ``limit``."""
    return Fact(fact.low, min(fact.high, limit), False)


def within(fact: Fact, limit: float) -> Fact:
    """The fact of a value with ``fact`` where its absolute value is at most ``limit``."""
    return Fact(max(fact.low, -limit), min(fact.high, limit), False)


def unequal(fact: Fact, value: float) -> Fact:
    """The fact of a value with ``fact`` where it is not ``value``."""
    low = -_LARGEST if value == fact.low == -INF else fact.low
    high = _LARGEST if value == fact.high == INF else fact.high
    return Fact(low, high, fact.nan)
