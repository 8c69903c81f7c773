"""Comparisons of expressions of indices that would need i64, as comparisons in i32.

``max(0, i - w + 1) <= j`` with an integer scalar ``w`` has a sum that may leave i32, but ``i - j < w`` says the same
and has none.  A comparison of integers without overflow is ``x >= 0`` for linear combinations ``x``
(:mod:`nautilus.core.index.alternatives`), and each of these may have its terms on either side.  Where a scalar has a
coefficient, the other side is divided: ``i - j <= 2 * w`` is ``(i - j + 1) // 2 <= w``.  So the bounds of loops can
depend on the scalar, which are i32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Expr, Op, Param, walk
from nautilus.core.index.alternatives import Alternative, at_least_zero, isolated
from nautilus.core.index.linear import Linear, build, constant, divide, divided
from nautilus.core.types import DType

_TERMS = 6  # of a combination whose terms are distributed; the number of ways grows exponentially
_FORMS = 4  # of all alternatives of a comparison

Fits = Callable[[Expr], bool]  # whether no part of an i32 expression leaves i32


def in_i32(op: str, a: Expr, b: Expr, fits: Fits) -> Expr | None:
    """``a op b`` with comparisons in i32; None where there are none.  The arithmetic of both sides does not wrap."""
    d = divided(b) - divided(a)
    match op:
        case "eq" | "ne":
            return next((e for x in (d, d.scale(-1)) for e in _apart(x, op, fits)), None)
        case "lt":
            d = d.shift(-1)
        case "ge":
            d = d.scale(-1)
        case "gt":
            d = d.scale(-1).shift(-1)
    found = at_least_zero(d)
    if not all(x.exact for x in found) or sum(len(x.forms) for x in found) > _FORMS:
        return None
    made = [_conjunction(x, fits) for x in found]
    out: Expr | None = None
    for m in made:
        if m is None:
            return None
        out = m if out is None else calc("or", out, m)
    return out


def _conjunction(x: Alternative, fits: Fits) -> Expr | None:
    out: Expr | None = None
    for form in x.forms:
        made = _form(form, fits)
        if made is None:
            return None
        out = made if out is None else calc("and", out, made)
    return out


def _form(x: Linear, fits: Fits) -> Expr | None:
    """``x >= 0``, with a scalar alone on one side where that is possible."""
    for a, c in x.terms.items():
        if isinstance(a, Op) and a.op == "floordiv" and isinstance(a.args[1], Const) and _has_scalar(a):
            return _form(isolated(replace(a, dtype=DType.I32), c, x.without(a)), fits)
    return next((e for e in (*_alone(x), *_apart(x.scale(-1), "le", fits)) if fits(e)), None)


def _has_scalar(e: Expr) -> bool:
    return any(isinstance(n, Param) and n.most is None for n in walk(e))


def _alone(x: Linear) -> Iterator[Expr]:
    """``x >= 0`` with one scalar on one side and all else on the other one."""
    for p, c in x.terms.items():
        if isinstance(p, Param) and p.most is None and p.dtype is DType.I32:
            limit = divide(x.without(p), abs(c), DType.I32)
            if c > 0:
                yield calc("le", build(limit.scale(-1), DType.I32), p)
            else:
                yield calc("le", p, build(limit, DType.I32))


def _apart(x: Linear, op: str, fits: Fits) -> Iterator[Expr]:
    """``x op 0`` with some of the terms on the right side."""
    if len(x.terms) > _TERMS:
        return
    for n in range(1, len(x.terms)):
        for left in combinations(x.terms.items(), n):
            kept = Linear(dict(left))
            e = calc(op, build(kept, DType.I32), build((x - kept).scale(-1), DType.I32))
            if fits(e):
                yield e
    e = calc(op, build(x - constant(x.const), DType.I32), Const(-x.const, DType.I32))
    if fits(e):
        yield e
