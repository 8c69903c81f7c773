"""Interval arithmetic on integers against all values, where some ends are unknown too.

An unknown end is tried as a far one: a result must hold all values then, and an end that the far values do not reach
must be known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product as pairs

import pytest

from nautilus.core.expr.nodes import Const, Expr, Op, Var
from nautilus.core.index.intervals import absolute, extreme, product
from nautilus.core.index.linear import linear
from nautilus.core.index.linear_bounds import bounds
from nautilus.core.types import DType

_FAR = 40
Interval = tuple[int | None, int | None]
ENDS: tuple[Interval, ...] = ((None, None), (None, 3), (-2, None), (0, None), (-3, 2), (1, 4), (-5, -1), (2, 2))


def values(x: Interval) -> range:
    lo, hi = x
    return range(-_FAR if lo is None else lo, (_FAR if hi is None else hi) + 1)


def holds(found: Interval, all_values: Iterator[int], exact: bool) -> None:
    seen = list(all_values)
    lo, hi = found
    assert lo is None or lo <= min(seen)
    assert hi is None or hi >= max(seen)
    if exact:
        assert lo == min(seen) or (lo is None and min(seen) <= 3 - _FAR)
        assert hi == max(seen) or (hi is None and max(seen) >= _FAR - 3)


@pytest.mark.parametrize(("x", "y"), list(pairs(ENDS, ENDS)))
def test_two_intervals(x: Interval, y: Interval) -> None:
    both = list(pairs(values(x), values(y)))
    whole = None not in (*x, *y)
    holds(product(x, y), (a * b for a, b in both), whole)
    holds(extreme("max", x, y), (max(p) for p in both), True)
    holds(extreme("min", x, y), (min(p) for p in both), True)


@pytest.mark.parametrize("x", ENDS)
def test_magnitudes(x: Interval) -> None:
    holds(absolute(x), map(abs, values(x)), None not in x)


_A, _B, _C = Var("a"), Var("b"), Var("c", DType.BOOL)


def op(name: str, *args: Expr) -> Op:
    return Op(name, args, DType.I32)


FORMS: dict[str, tuple[Expr, Callable[[int, int], tuple[int, ...]]]] = {
    "min": (op("min", _A, _B), lambda a, b: (min(a, b),)),
    "max": (op("max", _A, _B), lambda a, b: (max(a, b),)),
    "select": (op("select", _C, _A, _B), lambda a, b: (a, b)),
    "sum": (op("add", op("mul", _A, Const(2, DType.I32)), _B), lambda a, b: (2 * a + b,)),
    "quotient": (op("floordiv", _A, Const(3, DType.I32)), lambda a, _: (a // 3,)),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("x", "y"), list(pairs(ENDS, ENDS)))
def test_linear_forms(name: str, x: Interval, y: Interval) -> None:
    e, f = FORMS[name]
    found = bounds(linear(e), {"a": x, "b": y})
    seen = (v for a, b in pairs(values(x), values(y)) for v in f(a, b))
    holds(found, seen, name not in ("sum", "quotient") or None not in (*x, *y))
