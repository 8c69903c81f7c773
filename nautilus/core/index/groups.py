"""Axes that an expression has in groups: ``h // 4`` is the same for four neighbours of ``h``.

A factor of a product that has a parallel axis only in groups is shared by the points of a group, so that they are rows
of a tile of the product, as those of an axis that the factor does not have at all.  Whether a spec writes heads that
share keys with a row axis of their own or without one then makes no difference.
"""

from __future__ import annotations

from nautilus.core.expr.nodes import Const, Expr, Op, Var, children


def quotients(e: Expr, axis: str) -> frozenset[int]:
    """Every ``G`` with which ``e`` has ``axis // G``; 0 for ``axis`` otherwise."""
    match e:
        case Var(name=name):
            return frozenset({0}) if name == axis else frozenset()
        case Op(op="floordiv", args=(Var(name=name), Const(value=n))) if name == axis and n > 1:
            return frozenset({int(n)})
    return frozenset().union(*(quotients(c, axis) for c in children(e)))


def shared_group(a: Expr, b: Expr, axis: str) -> int | None:
    """``G`` where one of ``a`` and ``b`` has ``axis`` only as ``axis // G`` and the other one has it otherwise."""
    found = [quotients(e, axis) for e in (a, b)]
    sizes = [next(iter(q)) for q in found if len(q) == 1 and 0 not in q]
    return sizes[0] if len(sizes) == 1 and any(0 in q for q in found) else None
