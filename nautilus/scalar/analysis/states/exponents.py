"""Factors between 0 and 1 as exponentials: ``a = exp(w)``, so that products of factors are sums of exponents.

The exponent of a factor is found from its form (:func:`exponent`).  The factor is then not 0 over the reals.  Other
factors have a logarithm (:func:`logarithm`), which is -inf where the factor is 0.
"""

from __future__ import annotations

import math
from typing import Final

from nautilus.core.expr.build import number
from nautilus.core.expr.nodes import Const, Expr, Op
from nautilus.core.types import DType

LEAST: Final = 2.0**-100  # least magnitude of a product of factors that are not 0: it does not underflow


def exponent(e: Expr) -> Expr | None:
    """``w`` with ``e == exp(w)``, as accurate as ``e``; None where the form of ``e`` does not show one."""
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


def logarithm(e: Expr) -> Expr:
    """``log(e)`` of a factor between 0 and 1.

    Near 1 it is that of ``1 + (e - 1)``, whose difference is exact: a logarithm may have an absolute error there.
    """
    one = number(1, e.dtype)
    near = Op("log1p", (Op("sub", (e, one), e.dtype),), e.dtype)
    half = Op("lt", (Const(0.5, e.dtype), e), DType.BOOL)
    return Op("select", (half, near, Op("log", (e,), e.dtype)), e.dtype)


def _both(op: str, a: Expr, b: Expr) -> Op | None:
    left, right = exponent(a), exponent(b)
    return None if left is None or right is None else Op(op, (left, right), a.dtype)


def _log_sigmoid(x: Expr) -> Expr:
    """``min(x, 0) - log1p(exp(-abs(x)))``."""
    small = Op("exp", (Op("neg", (Op("abs", (x,), x.dtype),), x.dtype),), x.dtype)
    return Op("sub", (Op("min", (x, number(0, x.dtype)), x.dtype), Op("log1p", (small,), x.dtype)), x.dtype)
