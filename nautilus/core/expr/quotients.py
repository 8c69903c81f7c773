"""Quotients that stay divisions, because a function reads them that jumps where a quotient of exact numbers may lie.

``round(x / 14)`` of an integer ``x`` is decided by a tie at each odd multiple of 7.  The division rounds once and finds
the tie; ``x * (1 / 14)`` rounds twice and gives another integer.  Where a number above the division line has roundings
of its own, its error is as large as that of the second rounding, and the product is as good.

A comparison with another computed number is none of these functions: where that is the largest quotient of a row, both
sides must be computed alike, and the other one may be in another statement.
"""

from __future__ import annotations

import math
from typing import Final

from nautilus.core.expr.nodes import COMPARISONS, Const, Expr, Load, Op, Param, Ref, Var, children, walk
from nautilus.core.functions import FUNCTIONS
from nautilus.core.types import DType

#: Functions whose results have no rounding, if their arguments have none.
EXACT: Final = frozenset({"cast", "neg", "abs", "min", "max", "select"})


def jumps(op: str, made: DType, read: DType, constant: bool) -> bool:
    """Whether function ``op``, from floats of type ``read`` to ``made``, has different values at neighbours.

    ``constant``: one of its arguments is a constant.
    """
    jump = FUNCTIONS[op].steps is not None or (op in COMPARISONS and constant) or (op == "cast" and not made.is_float)
    return read.is_float and jump


def decided(e: Expr) -> frozenset[Expr]:
    """The quotients of an exact number and a constant under a function of ``e`` that jumps."""
    if not any(isinstance(n, Op) and n.op == "div" and _rounds(n) for n in walk(e)):
        return frozenset()
    found: set[Expr] = set()
    seen: set[int] = set()
    stack = [a for n in walk(e) if isinstance(n, Op) for a in n.args if jumps(n.op, n.dtype, a.dtype, _compares(n))]
    while stack:
        node = stack.pop()
        if id(node) in seen or not isinstance(node, Op):
            continue
        seen.add(id(node))
        if node.op == "div" and _rounds(node) and _is_exact(node.args[0]):
            found.add(node)
        stack.extend(children(node))
    return frozenset(found)


def _compares(e: Op) -> bool:
    return any(isinstance(a, Const) for a in e.args)


def _rounds(e: Op) -> bool:
    """Whether ``e`` is a quotient by a constant of floats that the product with its inverse may differ from."""
    divisor = e.args[1]
    return isinstance(divisor, Const) and e.dtype.is_float and not is_power_of_two(divisor.value)


def is_power_of_two(value: float) -> bool:
    """Whether the inverse of ``value`` is exact."""
    return value != 0 and math.isfinite(value) and abs(math.frexp(value)[0]) == 0.5


def _is_exact(e: Expr) -> bool:
    match e:
        case Load() | Const() | Param() | Var() | Ref():
            return True
        case Op(op=op, args=args, dtype=dtype):
            return not dtype.is_float or (op in EXACT and all(map(_is_exact, args)))
    return False
