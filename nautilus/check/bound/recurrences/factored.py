"""Steps of linear recurrences as kernels have them: each earlier state once, with a factor.

``h[t - 1] + a * (x[t] - h[t - 1])`` is computed as ``(1 - a) * h[t - 1] + a * x[t]`` where steps are combined
(:mod:`nautilus.scalar.analysis.states.linear_states`).  Its factor is rounded, alike in all steps, while the difference
has a rounding of its own in each.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from nautilus.core.expr.build import number
from nautilus.core.expr.nodes import Const, Expr, Load, Op, loads
from nautilus.frontend.semantics.recurrence import distance
from nautilus.frontend.spec import Definition


def with_factors(members: Sequence[Definition]) -> list[Definition]:
    """``members`` of a recurrence with such steps; the same where one is not linear."""
    names = {d.name: d.recurrence.axis for d in members if d.recurrence is not None}
    made = list[Definition]()
    for d in members:
        assert d.recurrence is not None
        step = d.axes[d.recurrence.axis].name
        earlier = {ld for ld in loads(d.expr) if ld.buffer in names and distance(ld.index[names[ld.buffer]], step) != 0}
        found = _factored(d.expr, earlier, names) if earlier else d.expr
        if found is None:
            return list(members)
        made.append(replace(d, expr=found))
    return made


def _factored(e: Expr, earlier: Collection[Load], names: Collection[str]) -> Expr | None:
    """``e`` as the sum of a rest and of the ``earlier`` states with their factors; None where it is no such sum."""
    from nautilus.scalar.analysis.states.coupled_states import folded
    from nautilus.scalar.analysis.states.extreme_states import left_out
    from nautilus.scalar.analysis.states.linear_states import linear_part, other_part, without_zeros

    mine = [ld for ld in earlier if ld in loads(e)]
    if not mine:
        return e
    if isinstance(e, Op) and e.op == "select" and not any(ld in loads(e.args[0]) for ld in mine):
        a, b = (_factored(x, earlier, names) for x in e.args[1:])
        return None if a is None or b is None else replace(e, args=(e.args[0], a, b))
    if not e.dtype.is_float:
        return None
    rest: Expr | None = e
    terms = list[Expr]()
    for ld in sorted(mine, key=repr):
        factor = linear_part(e, ld, number(1, e.dtype))
        if factor is None or ld.dtype is not e.dtype or left_out(e, ld) is not None:
            return None
        if any(x.buffer in names for x in loads(factor)):
            return None
        known = folded(factor)
        factor = factor if known is None else Const(known, e.dtype)
        terms.append(ld if known == 1.0 else Op("mul", (factor, ld), e.dtype))
        rest = None if rest is None else other_part(rest, ld)
    total = terms[0] if rest is None else without_zeros(rest)
    for t in terms[1:] if rest is None else terms:
        total = Op("add", (t, total), e.dtype)
    return total
