"""The order of 8-bit elements along a contracted axis that an accumulator has in the registers of an MMA's operand.

A thread holds columns ``2 t + {0, 1}`` of each group of 8 of an accumulator, and ``4 t + {0, 1, 2, 3}`` of each group
of 16 of a left operand of 8 bits (PTX ISA, "Register fragments for wgmma.mma_async.m64nNk32").  A product may contract
its elements in any order that both operands have.  In this one, what the thread holds of the accumulator is what it has
to hold of the operand, without moves between threads: the binary digits of an element's place in its group of 16, from
the lowest one, are ``a b c d`` in the accumulator and ``a d b c`` in the operand.

Element ``e`` stands at position ``position(e)``; position ``p`` holds ``element(p)``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Const, Expr, substitute
from nautilus.core.index.simplify import simplify

GROUP = 16


def position(e: Expr) -> Expr:
    """The position of element ``e``."""
    return _moved(e, ((2, 4, 4), (8, 2, 2)))


def element(p: Expr) -> Expr:
    """The element at position ``p``."""
    return _moved(p, ((4, 4, 2), (2, 2, 8)))


def element_at(p: NDArray[np.int64]) -> NDArray[np.int64]:
    """The elements at positions ``p``."""
    return np.asarray(p // 16 * 16 + p % 2 + p // 4 % 4 * 2 + p // 2 % 2 * 8)


def base_of(e: Expr, axis: str, size: int) -> Expr | None:
    """``b`` where ``e`` is the position of ``b + axis`` and ``b`` is a multiple of 16, for ``axis`` below ``size``."""

    def at(n: int) -> Expr:
        return simplify(substitute(e, {axis: integer(n)}))

    base = at(0)
    if size % GROUP:
        return None
    places = np.argsort(element_at(np.arange(size)))
    steps = (simplify(calc("sub", at(n), base)) for n in range(size))
    same = all(isinstance(x, Const) and x.value == n for x, n in zip(steps, places.tolist(), strict=True))
    return base if same else None


def _moved(e: Expr, digits: tuple[tuple[int, int, int], ...]) -> Expr:
    """``e`` with digits of its place in a group, each (divisor, number of values), times new weights."""
    total: Expr = calc("add", calc("mul", calc("floordiv", e, GROUP), GROUP), calc("mod", e, 2))
    for divisor, values, weight in digits:
        digit = calc("mod", calc("floordiv", e, divisor), values)
        total = calc("add", total, calc("mul", digit, weight))
    return total
