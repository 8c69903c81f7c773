"""The conditions of a running result beside those of the accumulator that reads it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Expr, Op, Var, free_vars
from nautilus.scalar.analysis.repair.records import Running, parts_of


def sees_more(r: Running, guard: tuple[Expr, ...], reduced: frozenset[str]) -> bool:
    """Whether ``r`` has elements that a condition along the ``reduced`` axes leaves out of the accumulator."""
    return any(free_vars(c) & reduced for c in set(parts_of(guard)) - set(parts_of(r.guard)))


def where_changed(factor: Expr, neutral: Const, running: Sequence[Running]) -> Expr:
    """``factor`` where a reference has changed, and the ``neutral`` one elsewhere.

    An element of inf that is left out makes ``r`` inf: ``exp(old - new)`` is NaN from then on, and the accumulator not.
    """
    pairs = [(Var(f"old{k}", r.load.dtype), Var(f"new{k}", r.load.dtype)) for k, r in enumerate(running)]
    same = reduce(lambda a, b: calc("and", a, b), (calc("eq", old, new) for old, new in pairs))
    return Op("select", (same, neutral, factor), factor.dtype)
