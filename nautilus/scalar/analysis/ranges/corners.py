"""The interval of a polynomial that is of degree 1 in each of its variables, such as ``a + (1 - a) * b``.

Interval arithmetic takes the two ``a`` for different numbers and gives [0, 2] where both numbers are in [0, 1].  A
polynomial that is linear in each variable has its extremes at corners of the box of their ranges, so its values there
give the exact interval: [0, 1].
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import product

from nautilus.core.expr.nodes import Const, Expr, Op
from nautilus.core.functions.intervals import EVERYTHING, Interval

_MOST = 4  # variables
_ARITHMETIC = frozenset({"add", "sub", "mul", "neg"})


def at_corners(e: Expr, of: Callable[[Expr], Interval]) -> Interval:
    """The interval of ``e`` from its values at the corners; everything where ``e`` is no such polynomial.

    ``of`` gives the intervals of the variables, which are the largest parts that are not sums, differences or products.
    Where each variable stands in ``e`` once, interval arithmetic is as exact.
    """
    count = Counter(_variables(e))
    if not 1 <= len(count) <= _MOST or max(count.values()) < 2 or not _is_linear(e):
        return EVERYTHING
    ranges = [of(x) for x in count]
    if not all(math.isfinite(end) for r in ranges for end in r):
        return EVERYTHING
    corners = product(*((Fraction(lo), Fraction(hi)) for lo, hi in ranges))
    values = [_value(e, dict(zip(count, at, strict=True))) for at in corners]
    try:
        return float(min(values)), float(max(values))
    except OverflowError:
        return EVERYTHING


def _parts(e: Expr) -> tuple[Expr, ...]:
    """The operands of ``e`` where it is arithmetic on floats; none otherwise."""
    return e.args if isinstance(e, Op) and e.op in _ARITHMETIC and e.dtype.is_float else ()


def _variables(e: Expr) -> Iterator[Expr]:
    if parts := _parts(e):
        for x in parts:
            yield from _variables(x)
    elif not isinstance(e, Const):
        yield e


def _is_linear(e: Expr) -> bool:
    """Whether no product of ``e`` has one variable in both factors, and all its constants are finite."""
    if isinstance(e, Const):
        return math.isfinite(e.value)
    if isinstance(e, Op) and e.op == "mul" and _parts(e):
        left, right = (set(_variables(x)) for x in e.args)
        if left & right:
            return False
    return all(map(_is_linear, _parts(e)))


def _value(e: Expr, at: Mapping[Expr, Fraction]) -> Fraction:
    match e:
        case Op(op="add", args=(a, b)) if _parts(e):
            return _value(a, at) + _value(b, at)
        case Op(op="sub", args=(a, b)) if _parts(e):
            return _value(a, at) - _value(b, at)
        case Op(op="mul", args=(a, b)) if _parts(e):
            return _value(a, at) * _value(b, at)
        case Op(op="neg", args=(a,)) if _parts(e):
            return -_value(a, at)
        case Const(value=value):
            return Fraction(value)
    return at[e]
