"""Arithmetic of integer intervals whose ends may be unknown (None), and whether an integer may wrap in its type.

Sizes and index variables are bounded by the frontend, so index arithmetic does not wrap.  An element of a tensor is any
integer of its type: ``X[i] * 2 // 2`` is not ``X[i]``.  A linear combination equals the expression modulo 2^bits, so it
equals the expression itself exactly where its own interval lies within the type (:func:`fits`).
"""

from __future__ import annotations

from collections.abc import Callable

from nautilus.core.expr.nodes import Expr, Load, Op, walk
from nautilus.core.index.linear import Interval, Linear
from nautilus.core.types import DType, value_limits

UNKNOWN: Interval = (None, None)


def fits(x: Linear, dtype: DType, atom: Callable[[Expr], Interval]) -> bool:
    """Whether ``x`` is exact in ``dtype``; ``atom`` bounds an atom, which else is any integer of its type."""
    if x.single() is not None or not any(isinstance(n, Load) for a in x.terms for n in walk(a)):
        return True
    lo = hi = float(x.const)
    for a, c in x.terms.items():
        least, most = _limits(a)
        low, high = atom(a)
        ends = c * max(least, least if low is None else low), c * min(most, most if high is None else high)
        lo, hi = lo + min(ends), hi + max(ends)
    least, most = value_limits(dtype)
    return least <= lo and hi <= most


def _limits(a: Expr) -> tuple[float, float]:
    """The values of the type of an atom, or of the type that it was converted from."""
    if isinstance(a, Op) and a.op == "cast" and a.args[0].dtype.bits <= a.dtype.bits:
        return _limits(a.args[0])
    return value_limits(a.dtype)


def product(x: Interval, y: Interval) -> Interval:
    """Bounds of a product."""
    (a, b), (c, d) = x, y
    if a is None or b is None or c is None or d is None:
        if a is not None and c is not None and a >= 0 and c >= 0:
            return a * c, None
        return UNKNOWN
    corners = (a * c, a * d, b * c, b * d)
    return min(corners), max(corners)


def absolute(x: Interval) -> Interval:
    """Bounds of a magnitude."""
    lo, hi = x
    if lo is None or hi is None:
        return 0, None
    return (0 if lo <= 0 <= hi else min(abs(lo), abs(hi))), max(abs(lo), abs(hi))


def extreme(op: str, x: Interval, y: Interval) -> Interval:
    """Bounds of max (or min); one known side bounds it from that side."""
    if op == "min":
        lo, hi = extreme("max", minus(x), minus(y))
        return minus((lo, hi))
    (a, b), (c, d) = x, y
    low = c if a is None else a if c is None else max(a, c)
    return low, (None if b is None or d is None else max(b, d))


def minus(x: Interval) -> Interval:
    """Bounds of the negative."""
    lo, hi = x
    return (None if hi is None else -hi), (None if lo is None else -lo)


def union(x: Interval, y: Interval) -> Interval:
    """Bounds of either one."""
    (a, b), (c, d) = x, y
    return (None if a is None or c is None else min(a, c)), (None if b is None or d is None else max(b, d))
