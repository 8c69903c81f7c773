"""Guards as conjunctions."""

from __future__ import annotations

from collections.abc import Iterable

from nautilus.core.calc import calc
from nautilus.core.expr import Const, Expr, Op
from nautilus.core.types import DType

FALSE = Const(False, DType.BOOL)


def parts(guard: Expr | None) -> tuple[Expr, ...]:
    """The conjuncts of ``guard``. ``select(bound, inner, false)``, a bound that must hold before ``inner``
    may be asked, stays one conjunct."""
    match guard:
        case None:
            return ()
        case Const(value=True):
            return ()
        case Op(op="and", args=(a, b)):
            return parts(a) + parts(b)
    return (guard,)


def conjunction(conjuncts: Iterable[Expr]) -> Expr | None:
    """The conjunction of ``conjuncts``; None for none."""
    out: Expr | None = None
    for c in dict.fromkeys(conjuncts):
        out = c if out is None else calc("and", out, c)
    return out
