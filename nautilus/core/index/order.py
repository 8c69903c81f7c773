"""A proof that one integer expression is less than another."""

from __future__ import annotations

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Op
from nautilus.core.index.simplify import Ranges, bounds, simplify


def certainly_less(a: Expr, b: Expr, ranges: Ranges) -> bool:
    """Whether ``a < b`` is proved for all values of the variables in ``ranges``.

    For a ``max`` on the left or a ``min`` on the right, both arguments must satisfy the inequality; for a ``min`` on
    the left or a ``max`` on the right, one of them.
    """
    return _less(simplify(a, ranges), simplify(b, ranges), ranges)


def _less(a: Expr, b: Expr, ranges: Ranges) -> bool:
    if isinstance(a, Op) and a.op == "max":
        return all(_less(x, b, ranges) for x in a.args)
    if isinstance(b, Op) and b.op == "min":
        return all(_less(a, x, ranges) for x in b.args)
    if isinstance(a, Op) and a.op == "min" and any(_less(x, b, ranges) for x in a.args):
        return True
    if isinstance(b, Op) and b.op == "max" and any(_less(a, x, ranges) for x in b.args):
        return True
    least = bounds(calc("sub", b, a), ranges)[0]
    return least is not None and least > 0
