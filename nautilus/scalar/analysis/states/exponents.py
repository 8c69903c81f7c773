"""Factors between 0 and 1 as exponentials: ``a = exp(w)``, so that products of factors are sums of exponents.

The exponent of a factor is found from its form, without a logarithm of a computed number: the logarithm of a number
near 1 would lose the digits that a product keeps.
"""

from __future__ import annotations

import math
from typing import Final

from nautilus.core.expr.build import number
from nautilus.core.expr.nodes import Const, Expr, Op

LEAST: Final = 2.0**-100  # of the magnitude of a product of factors that are not 0, which does not underflow


def exponent(e: Expr) -> Expr | None:
    """``w`` with ``e == exp(w)``, as accurate as ``e``; None where the form of ``e`` does not show one.

    A factor with an exponent is never 0 over the reals.
    """
    match e:
        case Const(value=value) if 0 < value < math.inf:
            return Const(math.log(value), e.dtype)
        case Op(op="exp", args=(x,)):
            return x
        case Op(op="exp2", args=(x,)):
            return Op("mul", (x, Const(math.log(2.0), e.dtype)), e.dtype)
        case Op(op="sigmoid", args=(x,)):
            return _log_sigmoid(x)
        case Op(op="sub", args=(Const(value=1.0), Op(op="sigmoid", args=(x,)))):
            return _log_sigmoid(Op("neg", (x,), x.dtype))
        case Op(op="pow", args=(Const(value=base), x)) if 0 < base < math.inf:
            return Op("mul", (x, Const(math.log(base), e.dtype)), e.dtype)
        case Op(op="mul", args=(a, b)):
            return _both("add", a, b)
        case Op(op="div", args=(a, b)):
            return _both("sub", a, b)
        case Op(op="select", args=(c, a, b)):
            made = _both("select", a, b)
            return None if made is None else Op("select", (c, *made.args), e.dtype)
    return None


def _both(op: str, a: Expr, b: Expr) -> Op | None:
    left, right = exponent(a), exponent(b)
    return None if left is None or right is None else Op(op, (left, right), a.dtype)


def _log_sigmoid(x: Expr) -> Expr:
    """``min(x, 0) - log1p(exp(-abs(x)))``."""
    small = Op("exp", (Op("neg", (Op("abs", (x,), x.dtype),), x.dtype),), x.dtype)
    return Op("sub", (Op("min", (x, number(0, x.dtype)), x.dtype), Op("log1p", (small,), x.dtype)), x.dtype)
