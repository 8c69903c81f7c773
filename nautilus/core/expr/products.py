"""Products: their factors, and which variables each of two factors has alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from nautilus.core.expr.nodes import Expr, Op, free_vars


def factors(e: Expr) -> list[Expr]:
    """The operands of a product, left to right; ``e`` alone where it is none."""
    if isinstance(e, Op) and e.op == "mul":
        return factors(e.args[0]) + factors(e.args[1])
    return [e]


def bare(e: Expr) -> Expr:
    """``e`` without the conversions around it."""
    while isinstance(e, Op) and e.op in ("cast", "narrow"):
        e = e.args[0]
    return e


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """``rows`` and ``columns``: parallel axes of the first and of the second factor alone; ``shared``: of both."""

    rows: frozenset[str]
    columns: frozenset[str]
    shared: frozenset[str]


def matrix_product(e: Expr, parallel: Collection[str]) -> MatrixProduct | None:
    """The axes of the factors of ``e``; None unless it is a product that has rows and columns in ``parallel``."""
    if not (isinstance(e, Op) and e.op == "mul"):
        return None
    left, right = map(free_vars, e.args)
    rows, columns = (left - right).intersection(parallel), (right - left).intersection(parallel)
    return MatrixProduct(rows, columns, left & right) if rows and columns else None
