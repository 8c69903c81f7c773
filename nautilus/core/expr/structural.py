"""Which operands make an operation a structural value.

A structural value is a 0, an inf or a -inf that a false condition gives: it is absent from a reduction of which it is
the identity.  :mod:`nautilus.frontend.structural` states what it means.  The evaluation of a Spec and the
conditions of Scalar IR (:mod:`nautilus.scalar.analysis.masking`) follow the same table, which stands here.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite
from typing import Final

from nautilus.core.expr.nodes import Const, Expr, Op

LOGARITHMS: Final = {"exp": "log", "exp2": "log2", "exp10": "log10"}  # of each exponential, to its base


def sources(e: Op, what: float) -> Iterator[tuple[Expr, float]]:
    """Each operand of ``e`` with the structural value that makes ``e`` structurally ``what`` (0, inf or -inf).

    Conditional expressions, conversions and elements of tensors are not among the operations.
    """
    if what == 0:
        match e:
            case Op(op="mul", args=args):
                yield from ((x, 0.0) for x in args)
            case Op(op="div" | "neg", args=(x, *_)):
                yield x, 0.0
            case Op(op=op, args=(x,)) if op in LOGARITHMS:
                yield x, -inf
        return
    match e:
        case Op(op="add", args=args):
            yield from ((x, what) for x in args)
        case Op(op="sub", args=(a, b)):
            yield from ((a, what), (b, -what))
        case Op(op="neg", args=(x,)):
            yield x, -what
        case Op(op="mul", args=(a, b)):
            yield from ((x, sign(other) * what) for x, other in ((a, b), (b, a)) if sign(other))
        case Op(op="div", args=(a, b)) if sign(b):
            yield a, sign(b) * what
        case Op(op=op, args=(x,)) if op in LOGARITHMS.values() and what == -inf:
            yield x, 0.0


def sign(e: Expr) -> int:
    """1 or -1 where ``e`` is a finite number of that sign by its form: a literal, or operations on some; else 0."""
    match e:
        case Const(value=v):
            return 0 if isinstance(v, bool) or not isfinite(v) else (v > 0) - (v < 0)
        case Op(op="neg", args=(x,)):
            return -sign(x)
        case Op(op="mul" | "div", args=(a, b)):
            return sign(a) * sign(b)
        case Op(op="add", args=(a, b)):
            return sign(a) if sign(a) == sign(b) else 0
        case Op(op="sqrt" | "rsqrt", args=(x,)):
            return max(sign(x), 0)
        case Op(op="cast", args=(x,)):
            return sign(x)
    return 0
