"""Arithmetic of integer intervals whose ends may be unknown (None), and whether an integer may wrap in its type.

Arithmetic of index variables, sizes and scalars does not wrap as a spec has it: the frontend makes it i64 where it may
leave i32.  An element of a tensor, a value made from one and a scalar are any integer of their type: ``X[i] * 2 // 2``
is not ``X[i]``, and ``i < s - 5`` is not ``i + 5 < s`` computed in i32.  A linear combination equals the expression
modulo 2^bits, so it equals the expression itself exactly where its own interval lies within the type (:func:`fits`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from nautilus.core.expr.nodes import Expr, Load, Op, Param, Reduce, Ref, walk
from nautilus.core.functions import FUNCTIONS
from nautilus.core.index.linear import Interval, Linear, linear
from nautilus.core.types import DType, integer_limits

UNKNOWN: Interval = (None, None)
_EXACT = 1 << 52  # below this number, float64 holds every integer and its neighbours


def fits(x: Linear, dtype: DType, atom: Callable[[Expr], Interval], *, surely: bool = False) -> bool:
    """Whether ``x`` and every partial sum of it is exact in ``dtype``; ``atom`` bounds an atom.

    A scalar or a value that ``atom`` does not bound is any integer of its type.  With ``surely``, so is an index
    variable without bounds.  Without it, such a variable is left out of the sum, because the spec guarantees that it
    fits.  Where the sum also has a scalar or a value without bounds, it counts as -1 to 1.
    """
    if x.single() is not None and not surely:
        return True
    lo = hi = x.const
    wild = any((isinstance(a, Param) or is_value(a)) and None in atom(a) for a in x.terms)
    for a, c in x.terms.items():
        low, high = atom(a)
        if low is None or high is None:
            index = not surely and not isinstance(a, Param) and not is_value(a)
            if index and not wild:
                continue
            least, most = (-1, 1) if index else _limits(a)
            low, high = max(least, least if low is None else low), min(most, most if high is None else high)
        ends = c * low, c * high
        lo, hi = min(lo, lo + min(ends)), max(hi, hi + max(ends))
    least, most = integer_limits(dtype)
    return least <= lo and hi <= most


@lru_cache(maxsize=1 << 14)
def is_value(e: Expr) -> bool:
    """Whether integer ``e`` is made from something else than index variables, sizes, scalars and conditions."""
    return any(
        isinstance(n, Load | Ref | Reduce) or (isinstance(n, Op) and n.op in ("cast", "narrow") and not _widens(n))
        for n in walk(e)
    )


def _widens(e: Op) -> bool:
    source = e.args[0].dtype
    return source is DType.BOOL or (source.is_int and source.bits <= e.dtype.bits)


def without_casts(x: Linear) -> Linear:
    """``x`` without the casts of its atoms to i64 where these are index expressions, which are exact in i32."""
    out = Linear({}, x.const)
    for a, c in x.terms.items():
        exact = isinstance(a, Op) and a.op == "cast" and a.args[0].dtype is DType.I32 and not is_value(a)
        out = out + (linear(a.args[0]) if exact and isinstance(a, Op) else Linear({a: 1})).scale(c)
    return out


def _limits(a: Expr) -> tuple[int, int]:
    """The values of the type of an atom, or of the type that it was converted from."""
    if isinstance(a, Op) and a.op == "cast" and _widens(a):
        return _limits(a.args[0])
    return integer_limits(a.dtype)


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


def bitwise(op: str, args: list[Interval], dtype: DType) -> Interval:
    """Bounds of a bitwise function or a shift; none where it might leave ``dtype``."""
    rule = FUNCTIONS[op].interval
    assert rule is not None
    lo, hi = rule(*((-math.inf if a is None else float(a), math.inf if b is None else float(b)) for a, b in args))
    least, most = integer_limits(dtype)
    if op == "shift_left" and not (least <= lo and hi <= most):
        return UNKNOWN
    return (int(lo) if abs(lo) < _EXACT else None), (int(hi) if abs(hi) < _EXACT else None)


def minus(x: Interval) -> Interval:
    """Bounds of the negative."""
    lo, hi = x
    return (None if hi is None else -hi), (None if lo is None else -lo)


def union(x: Interval, y: Interval) -> Interval:
    """Bounds of either one."""
    (a, b), (c, d) = x, y
    return (None if a is None or c is None else min(a, c)), (None if b is None or d is None else max(b, d))
