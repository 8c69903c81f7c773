"""The normal forms that ``repair`` uses: linear forms and products with exponents, over the reals.

* :class:`Lin`: ``sum(number * scale * atom)``; ``scale`` is None or an expression that depends neither on the
  reduction variable nor on a running value.
* :class:`Prod`: ``prod(atom ** power) * exp(Lin) * exp2(Lin)``: ``exp(a) * exp(b)`` has one exponent.

Both are canonical up to the atoms, so structural equality proves equality.
"""

from __future__ import annotations

from collections.abc import Callable

from nautilus.core.expr.nodes import Const, Expr, Op
from nautilus.core.records import dataclass
from nautilus.core.types import DType

Term = tuple[Expr, Expr | None]


def number(value: float, dtype: DType = DType.F32) -> Const:
    """The float constant ``value`` of type ``dtype``."""
    return Const(float(value), dtype)


def op(name: str, *args: Expr) -> Op:
    """A float operation of the type of its last argument."""
    return Op(name, args, args[-1].dtype)


def multiplied(a: Expr, b: Expr) -> Expr:
    """``a * b`` in the type of both."""
    return op("mul", a, b)


@dataclass(frozen=True, slots=True)
class Lin:
    """A linear form (module docstring). ``terms`` is in order of insertion, so compare by :meth:`key`."""

    terms: tuple[tuple[Term, float], ...] = ()

    def __add__(self, other: Lin) -> Lin:
        total = dict(self.terms)
        for t, n in other.terms:
            total[t] = total.get(t, 0.0) + n
        return Lin(tuple((t, n) for t, n in total.items() if n != 0.0))

    def times(self, n: float) -> Lin:
        """The form times the number ``n``."""
        return Lin(tuple((t, m * n) for t, m in self.terms if m * n != 0.0))

    def scaled(self, by: Expr) -> Lin:
        """Every term multiplied by the invariant ``by``."""
        return Lin(tuple(((a, by if s is None else op("mul", s, by)), n) for (a, s), n in self.terms))

    def key(self) -> frozenset[tuple[Term, float]]:
        """The terms without an order: equal forms have equal keys."""
        return frozenset(self.terms)


@dataclass(frozen=True, slots=True)
class Prod:
    """A product with exponents (module docstring)."""

    powers: tuple[tuple[Expr, int], ...] = ()
    exponents: tuple[tuple[str, Lin], ...] = ()  # 'exp' | 'exp2'

    def __mul__(self, other: Prod) -> Prod:
        powers = dict(self.powers)
        for a, p in other.powers:
            powers[a] = powers.get(a, 0) + p
        exps = dict(self.exponents)
        for base, lin in other.exponents:
            exps[base] = exps.get(base, Lin()) + lin
        return Prod(tuple((a, p) for a, p in powers.items() if p), tuple((b, e) for b, e in exps.items() if e.terms))

    def power(self, n: int) -> Prod:
        """The product to the power ``n``."""
        if n == 0:
            return Prod()
        return Prod(tuple((a, p * n) for a, p in self.powers), tuple((b, e.times(n)) for b, e in self.exponents))

    def key(self) -> tuple[frozenset[tuple[Expr, int]], frozenset[tuple[str, frozenset[tuple[Term, float]]]]]:
        """The factors and exponents without an order: equal products have equal keys."""
        return frozenset(self.powers), frozenset((b, e.key()) for b, e in self.exponents)

    @property
    def positive(self) -> bool:
        """Whether the product is certainly positive for every real value of its atoms."""
        return all(p % 2 == 0 for _, p in self.powers)


def linear_form(e: Expr, invariant: Callable[[Expr], bool]) -> Lin:
    """``e`` (a float expression) as a :class:`Lin`; numbers alone become ``number * 1``."""
    match e:
        case Const(value=v):
            return Lin((((number(1.0, e.dtype), None), float(v)),)) if v else Lin()
        case Op(op="add", args=(a, b)):
            return linear_form(a, invariant) + linear_form(b, invariant)
        case Op(op="sub", args=(a, b)):
            return linear_form(a, invariant) + linear_form(b, invariant).times(-1.0)
        case Op(op="neg", args=(a,)):
            return linear_form(a, invariant).times(-1.0)
        case Op(op="mul", args=(a, b)):
            for x, y in ((a, b), (b, a)):
                if isinstance(y, Const):
                    return linear_form(x, invariant).times(float(y.value))
                if invariant(y) and not invariant(x):
                    return linear_form(x, invariant).scaled(y)
        case Op(op="div", args=(a, Const(value=v))) if v:
            return linear_form(a, invariant).times(1.0 / float(v))
    return Lin((((e, None), 1.0),))


def product_form(e: Expr, invariant: Callable[[Expr], bool]) -> Prod | None:
    """``e`` as a :class:`Prod` without its sign and numeric factors; None for zero."""
    match e:
        case Const(value=v):
            return Prod() if v else None
        case Op(op="mul", args=(a, b)):
            x, y = product_form(a, invariant), product_form(b, invariant)
            return None if x is None or y is None else x * y
        case Op(op="div", args=(a, b)):
            x, y = product_form(a, invariant), product_form(b, invariant)
            return None if x is None or y is None else x * y.power(-1)
        case Op(op="rcp", args=(a,)):
            x = product_form(a, invariant)
            return None if x is None else x.power(-1)
        case Op(op="neg", args=(a,)):
            return product_form(a, invariant)
        case Op(op="exp" | "exp2" as base, args=(a,)):
            return Prod((), ((base, linear_form(a, invariant)),))
    return Prod(((e, 1),))


def emit_difference(lin: Lin, old: Callable[[Expr], Expr], new: Callable[[Expr], Expr]) -> Expr | None:
    """``lin(new) - lin(old)`` term by term; None for zero.  ``-c*r`` prints as ``(old - new) * c``."""
    total: Expr | None = None
    for (atom, scale), n in lin.terms:
        a, b = (new(atom), old(atom)) if n > 0 else (old(atom), new(atom))
        if a == b:
            continue
        term: Expr = op("sub", a, b)
        if abs(n) != 1.0:
            term = op("mul", term, number(abs(n), term.dtype))
        if scale is not None:
            term = op("mul", term, scale)
        total = term if total is None else op("add", total, term)
    return total


def emit_ratio(prod: Prod, old: Callable[[Expr], Expr], new: Callable[[Expr], Expr]) -> Expr | None:
    """``prod(new) / prod(old)``; None for one.

    Several quotients are multiplied: products of the dividends and of the divisors may leave the range of f32, as
    those of two scales near 2^-100 do.
    """
    up: list[Expr] = []
    for base, lin in prod.exponents:
        e = emit_difference(lin, old, new)
        if e is not None:
            up.append(op(base, e))
    quotients: list[tuple[Expr, Expr]] = []
    for atom, p in prod.powers:
        if old(atom) != new(atom):
            quotients += [(new(atom), old(atom)) if p > 0 else (old(atom), new(atom))] * abs(p)
    if len(quotients) == 1:
        ((top, bottom),) = quotients
        total = _product([*up, top])
        return op("div", top if total is None else total, bottom)
    return _product([*up, *(op("div", a, b) for a, b in quotients)])


def _product(factors: list[Expr]) -> Expr | None:
    out: Expr | None = None
    for f in factors:
        out = f if out is None else op("mul", out, f)
    return out
