"""Why a running result is that of the steps before, and the term of its own."""

from __future__ import annotations

from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import COMBINERS, Axis, Expr, Op, Reduce, Var
from nautilus.scalar.analysis.definitions import Def


def own_term(step: str, d: Def, over: Axis, last: Expr, bound: Expr, *, reverse: bool) -> Certificate:
    """The certificate of pass ``step`` that what ``d`` reduces up to ``last`` is what it does before, and that term.

    ``over``: the axis of the terms.  ``bound``: their condition, which the guard of ``d`` may have.  ``reverse``: the
    last term is the one of the lowest position.
    """
    op = d.op or ""
    others = [c for c in conjuncts(d.guard) if c != bound]

    def under(condition: Expr) -> Expr:
        return Reduce(op, (over,), conjunction([condition, *others]), d.value, d.value.dtype, d.span)

    earlier, own = (calc(x, Var(over.name), last) for x in ("gt" if reverse else "lt", "eq"))
    after = Op(COMBINERS[op].binary, (under(earlier), under(own)), d.value.dtype)
    proof = f"a {op} over a domain is the {op} over the part of it before an element, and that element"
    return Certificate(step, d.name, under(bound), after, (), (), (), proof, d.span)
