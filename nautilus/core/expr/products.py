"""Products as lists of their factors."""

from __future__ import annotations

from nautilus.core.expr.nodes import Expr, Op


def factors(e: Expr) -> list[Expr]:
    """The operands of a product, left to right; ``e`` alone where it is none."""
    if isinstance(e, Op) and e.op == "mul":
        return factors(e.args[0]) + factors(e.args[1])
    return [e]
