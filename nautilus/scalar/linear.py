"""Integer expressions as linear forms over atoms, with exact interval bounds.

``linear(e)`` writes ``e`` as ``const + sum(coef * atom)``; an atom is any sub-expression that is not
a sum or a product by a constant.  Floor division by a constant divides term by term where the
coefficients allow it.  ``emit`` prints the form back, simplified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nautilus.core.expr import Const, Expr, Op, Var
from nautilus.core.types import DType

Ranges = Mapping[str, tuple[int | None, int | None]]  # variable -> inclusive bounds, where known


@dataclass(frozen=True, slots=True)
class Linear:
    """``const + sum(coef * atom)``; no coefficient is zero."""

    const: int
    terms: tuple[tuple[Expr, int], ...] = ()

    def __add__(self, other: Linear) -> Linear:
        total = dict(self.terms)
        for atom, c in other.terms:
            total[atom] = total.get(atom, 0) + c
        return Linear(self.const + other.const, tuple((a, c) for a, c in total.items() if c))

    def scale(self, k: int) -> Linear:
        return Linear(self.const * k, tuple((a, c * k) for a, c in self.terms if k))

    def __sub__(self, other: Linear) -> Linear:
        return self + other.scale(-1)

    def coef(self, atom: Expr) -> int:
        return dict(self.terms).get(atom, 0)

    def without(self, atom: Expr) -> Linear:
        return Linear(self.const, tuple((a, c) for a, c in self.terms if a != atom))


def integer(value: int, dtype: DType = DType.I32) -> Const:
    return Const(value, dtype)


def linear(e: Expr) -> Linear:
    """The linear form of integer expression ``e``; what is not linear becomes an atom."""
    match e:
        case Const(value=value):
            return Linear(int(value))
        case Op(op="add", args=(a, b)):
            return linear(a) + linear(b)
        case Op(op="sub", args=(a, b)):
            return linear(a) - linear(b)
        case Op(op="neg", args=(a,)):
            return linear(a).scale(-1)
        case Op(op="cast", args=(a,), dtype=d) if d.is_int and _int(a) and d.bits >= 32:
            return linear(a)
        case Op(op="mul", args=(a, b)):
            x, y = linear(a), linear(b)
            if not x.terms:
                return y.scale(x.const)
            if not y.terms:
                return x.scale(y.const)
        case Op(op="floordiv", args=(a, b)):
            y = linear(b)
            if not y.terms and y.const > 0:
                return floordiv(linear(a), y.const)
    return Linear(0, ((e, 1),))


def _int(e: Expr) -> bool:
    return isinstance(e, Const | Var | Op) and e.dtype.is_int


def floordiv(x: Linear, k: int) -> Linear:
    """``x // k`` for positive ``k``: the divisible terms leave the division."""
    if k == 1:
        return x
    out = tuple((a, c // k) for a, c in x.terms if c % k == 0)
    rest = Linear(x.const % k, tuple((a, c) for a, c in x.terms if c % k))
    whole = Linear(x.const // k, out)
    if not rest.terms:
        return whole
    inner = Op("floordiv", (emit(rest), integer(k)), DType.I32)
    return whole + Linear(0, ((inner, 1),))


def emit(x: Linear) -> Expr:
    """``x`` as an expression: positive terms first, then subtractions, then the constant."""
    out: Expr | None = None
    for atom, c in sorted(x.terms, key=lambda t: t[1] < 0):
        size = abs(c)
        term = atom if size == 1 else Op("mul", (atom, integer(size)), DType.I32)
        if out is None:
            out = term if c > 0 else Op("mul", (atom, integer(c)), DType.I32)
        else:
            out = Op("add" if c > 0 else "sub", (out, term), DType.I32)
    if out is None:
        return integer(x.const)
    if x.const == 0:
        return out
    return Op("add" if x.const > 0 else "sub", (out, integer(abs(x.const))), DType.I32)


def bounds(x: Linear, ranges: Ranges) -> tuple[int | None, int | None]:
    """Inclusive bounds of ``x``; None where unknown."""
    lo: int | None = x.const
    hi: int | None = x.const
    for atom, c in x.terms:
        a, b = _atom_bounds(atom, ranges)
        if c < 0:
            a, b = b, a
        lo = None if lo is None or a is None else lo + c * a
        hi = None if hi is None or b is None else hi + c * b
    return lo, hi


def _atom_bounds(atom: Expr, ranges: Ranges) -> tuple[int | None, int | None]:
    match atom:
        case Var(name=name):
            return ranges.get(name, (None, None))
        case Op(op="floordiv", args=(a, Const(value=k))) if int(k) > 0:
            lo, hi = bounds(linear(a), ranges)
            return (None if lo is None else lo // int(k)), (None if hi is None else hi // int(k))
        case Op(op="mod", args=(_, Const(value=k))) if int(k) > 0:
            return 0, int(k) - 1
        case Op(op="min" | "max" as op, args=(a, b)):
            (la, ha), (lb, hb) = bounds(linear(a), ranges), bounds(linear(b), ranges)
            return _pick(op, la, lb, lower=True), _pick(op, ha, hb, lower=False)
    return None, None


def _pick(op: str, a: int | None, b: int | None, *, lower: bool) -> int | None:
    if a is None or b is None:
        # One known side still bounds min from above and max from below.
        known = a if b is None else b
        return known if (op == "max") is lower else None
    return min(a, b) if op == "min" else max(a, b)
