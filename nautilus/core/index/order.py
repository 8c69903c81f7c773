"""A proof that one integer expression is less than another."""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Op, Var, free_vars
from nautilus.core.index.linear import build, constant, divided, linear
from nautilus.core.index.simplify import Ranges, bounds, simplify


def certainly_less(a: Expr, b: Expr, ranges: Ranges, extents: Mapping[str, Expr] | None = None) -> bool:
    """Whether ``a < b`` is proved for all values of the variables in ``ranges``.

    ``extents``: variables that are below an expression, such as those of loops whose sizes are known at launch only.
    For a ``max`` on the left or a ``min`` on the right, both arguments must satisfy the inequality; for a ``min`` on
    the left or a ``max`` on the right, one of them.
    """
    return _less(simplify(a, ranges), simplify(b, ranges), ranges, extents or {})


def _less(a: Expr, b: Expr, ranges: Ranges, extents: Mapping[str, Expr]) -> bool:
    if isinstance(a, Op) and a.op == "max":
        return all(_less(x, b, ranges, extents) for x in a.args)
    if isinstance(b, Op) and b.op == "min":
        return all(_less(a, x, ranges, extents) for x in b.args)
    if isinstance(a, Op) and a.op == "min" and any(_less(x, b, ranges, extents) for x in a.args):
        return True
    if isinstance(b, Op) and b.op == "max" and any(_less(a, x, ranges, extents) for x in b.args):
        return True
    difference = calc("sub", b, a)
    return any(_is_positive(e, ranges) for e in (difference, _at_last(difference, extents)))


def _is_positive(e: Expr, ranges: Ranges) -> bool:
    least = bounds(e, ranges)[0]
    return least is not None and least > 0


def _at_last(e: Expr, extents: Mapping[str, Expr]) -> Expr:
    """``e`` where each variable of ``extents`` that ``e`` falls with has its last value: no greater than ``e``."""
    form = linear(e)
    for name in [a.name for a, c in form.terms.items() if isinstance(a, Var) and c < 0 and a.name in extents]:
        at = Var(name)
        if not any(name in free_vars(a) for a in form.terms if a != at):
            last = divided(extents[name]) + constant(-1)
            form = form.without(at) + last.scale(form.terms[at])
    return build(form, e.dtype)
