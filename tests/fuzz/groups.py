"""Sums over groups of terms that share a factor, as the compiler may compute them: without ``s[k // 16]`` inside."""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Axis, Const, Expr, Op, Reduce, Var, free_vars, rewrite, substitute, walk
from nautilus.core.expr.products import factors, product_of
from nautilus.core.index.sizes import at_most, extent_expr
from nautilus.frontend.spec import Spec


def with_sums_of_groups(spec: Spec) -> Spec:
    """``spec`` with a sum for each group of terms that share a factor."""
    made = tuple(replace(d, expr=rewrite(d.expr, _grouped)) for d in spec.definitions)
    return replace(spec, definitions=made)


def _grouped(e: Expr) -> Expr | None:
    """``sum[q](s[q] * sum[r](X[q * 16 + r]))`` for ``sum[k](X[k] * s[k // 16])``; None where nothing is shared."""
    if not isinstance(e, Reduce) or e.op != "sum":
        return None
    for axis in e.axes:
        quotients = {n for n in walk(e.body) if _is_quotient(n, axis.name)}
        for part in sorted(quotients, key=str):
            assert isinstance(part, Op) and isinstance(part.args[1], Const)
            q, size = Var(f"{axis.name}_group"), int(part.args[1].value)
            shared = {f: _with(f, part, q) for f in factors(e.body)}
            outside = [f for f, out in shared.items() if q.name in free_vars(out) and axis.name not in free_vars(out)]
            inside = [f for f in factors(e.body) if f not in outside]
            if outside and inside:
                return _nested(e, axis, q, size, [shared[f] for f in outside], inside)
    return None


def _with(e: Expr, part: Expr, q: Expr) -> Expr:
    return rewrite(e, lambda n: q if n == part else None)


def _is_quotient(e: Expr, axis: str) -> bool:
    return isinstance(e, Op) and e.op == "floordiv" and e.args[0] == Var(axis) and isinstance(e.args[1], Const)


def _nested(e: Reduce, axis: Axis, q: Var, size: int, outside: list[Expr], inside: list[Expr]) -> Expr:
    names = {q.name}.union(*map(free_vars, outside))
    k = calc("add", calc("mul", q, size), Var(axis.name))
    groups = Axis(q.name, -(-at_most(axis.extent) // size))
    own = Axis(axis.name, size)
    others = [a for a in e.axes if a is not axis]
    within = calc("lt", k, extent_expr(axis.extent))
    cond = within if e.cond is None else calc("and", within, substitute(e.cond, {axis.name: k}))
    body = substitute(product_of(inside), {axis.name: k})
    terms = Reduce("sum", (own, *(a for a in others if a.name not in names)), cond, body, e.dtype)
    whole = (groups, *(a for a in others if a.name in names))
    return Reduce("sum", whole, None, product_of([*outside, terms]), e.dtype)
