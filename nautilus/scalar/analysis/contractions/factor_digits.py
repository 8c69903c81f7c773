"""Axes of a result of which the factors of a sum, or a factor and the condition, have different digits.

``sum[k, c](W[o, k, c] * X[t + k, o % C // D * D + c])`` has ``o`` in both factors, so that neither has columns of its
own.  With ``o = D * group + member`` only ``W`` has the member, and the sum is a product of matrices for each group.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Axis, Expr, free_vars
from nautilus.core.expr.products import indexed_factors, matrix_products, strip_conversions
from nautilus.core.index.groups import digits, parts_at, shared_group
from nautilus.scalar.analysis.definitions import Def

GROUP = 16  # members of a group that a factor shares, from which on they have tiles of their own


def separating_digit(d: Def, axis: Axis) -> int | None:
    """G where ``axis // G`` and ``axis % G`` are two axes for the sum of products ``d``; None where they are one."""
    extent = axis.extent
    parts = indexed_factors(strip_conversions(d.value)) if d.op == "sum" else []
    if len(parts) < 2 or not isinstance(extent, int):
        return None
    own = [p for p in parts if axis.name in free_vars(p)]
    conditions = [c for c in conjuncts(d.guard) if axis.name in free_vars(c)]
    multiplies = any(matrix_products(parts, [a.name for a in d.par]))
    sizes = {n for e in (*own, *conditions) for digit in digits(e, axis.name) for n in digit}
    for size in sorted(n for n in sizes if 1 < n < extent and extent % n == 0):
        multiplied = not multiplies and any(_multiplies(d, x, y, axis.name, size) for x, y in combinations(own, 2))
        if multiplied or _exclude(own, conditions, axis.name, size):
            return size
    return None


def _multiplies(d: Def, x: Expr, y: Expr, axis: str, size: int) -> bool:
    """Whether ``x`` and ``y`` are the factors of a matrix product if ``axis`` is two axes.

    Small groups whose number only one factor has do not suffice: ``pack`` decides on them.
    """
    if size < GROUP and shared_group(x, y, axis) is not None:
        return False
    names = {a.name for a in d.par} - {axis}
    one, other = ((names & free_vars(e)) | {str(part) for part in parts_at(e, axis, size)} for e in (x, y))
    summed = {a.name for a in d.red} & free_vars(x) & free_vars(y)
    return bool(summed and one - other and other - one)


def _exclude(own: Sequence[Expr], conditions: Sequence[Expr], axis: str, size: int) -> bool:
    """Whether the factors have one part of ``axis``, and the conditions the other one."""
    used, others = (frozenset().union(*(parts_at(e, axis, size) for e in x)) for x in (own, conditions))
    return len(used) == 1 == len(others) and used != others
