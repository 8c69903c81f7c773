"""Divisors of all values of an integer expression."""

from __future__ import annotations

from math import gcd

from nautilus.core.expr.nodes import Const, Expr, Op, Param
from nautilus.core.index.linear import linear


def divisor(e: Expr) -> int:
    """A divisor of every value of ``e`` (0: ``e`` is 0). It need not be the greatest one."""
    x = linear(e)
    return gcd(x.const, *(c * atom_divisor(a) for a, c in x.terms.items()))


def atom_divisor(a: Expr) -> int:
    """A divisor of every value of ``a``, which is no sum."""
    match a:
        case Param(multiple=multiple):
            return multiple
        case Op(op="mul", args=(x, y)):
            return divisor(x) * divisor(y)
        case Op(op="mod", args=(x, y)):
            return gcd(divisor(x), divisor(y))
        case Op(op="min" | "max", args=(x, y)) | Op(op="select", args=(_, x, y)):
            return gcd(divisor(x), divisor(y))
        case Op(op="floordiv", args=(x, Const(value=n))) if n > 0 and divisor(x) % n == 0:
            return divisor(x) // int(n)
        case Op(op="cast", args=(x,)) if x.dtype.is_int and x.dtype.bits <= a.dtype.bits:
            return divisor(x)
    return 1


def divisible_by(e: Expr, n: int) -> bool:
    """``e`` is certainly a multiple of ``n``."""
    return divisor(e) % n == 0
