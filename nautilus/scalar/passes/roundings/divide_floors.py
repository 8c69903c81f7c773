"""``divide-floors``: a floor of an exact fraction of indices is a division of integers.

The positions that a resized image is read at are written with fractions, which no analysis of positions knows::

    cast<i32>(floor(cast<f32>(x) * 0.5 - 0.25))                     ->  (x * 2 - 1) // 4
    cast<f32>(x) * 0.5 - 0.25 - floor(cast<f32>(x) * 0.5 - 0.25)    ->  cast<f32>((x * 2 - 1) % 4) * 0.25

Every number of such an expression is an integer over a power of two.  f32 holds it where the integer is at most 2^24,
which the ranges of the loops say; so no operation rounds, and the division has the same result.  A conversion to an
integer rounds towards zero, which is a floor where the number is not negative, and 0 where it is above -1.  A result
that may be -0 stays as it is.  The variables have at most 2^20 values together, so that the checker can compute both
sides at all of them.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, children, free_vars, loads, walk
from nautilus.core.index.simplify import Ranges, bounds, simplify
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.ir import Loop, Program, Store, Update, expressions, with_expressions
from nautilus.scalar.rewriting import loop_assumptions, map_kernels, map_statements, with_body

LARGEST = 1 << 24  # f32 holds every integer up to it
MOST = 1 << 20  # values of the variables of an expression together
_DIGITS = 16  # of a fraction


@dataclass(frozen=True, slots=True)
class DivideFloors(CertifyingPass[Program]):
    """Replace floors of fractions by divisions of integers."""

    name = "divide-floors"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program without such floors, and a certificate for each; the same object where there are none."""
        certificates: dict[Certificate, None] = {}

        def rule(loops: tuple[Loop, ...], s: Store | Update) -> Store | Update:
            if not any(_is_conversion(n) for e in expressions(s) for n in walk(e)):
                return s
            ranges, _ = loop_assumptions(loops)
            exact = _Exact(ranges)
            made = with_expressions(s, exact.without_floors)
            for old, new in exact.replaced.items():
                certificates[_certificate(s.buffer, old, new, ranges)] = None
            return made if exact.replaced else s

        made = map_kernels(program, lambda k: with_body(k, map_statements(k.body, rule)))
        return (made if certificates else program), tuple(certificates)


def _certificate(subject: str, old: Expr, new: Expr, ranges: Ranges) -> Certificate:
    """``old`` is ``new`` at all values of their variables."""
    names = sorted(free_vars(old))
    given = tuple(c for v in names for c in (calc("ge", Var(v), ranges[v][0]), calc("lt", Var(v), ranges[v][1] + 1)))
    proof = "every number is an integer of at most 2^24 over a power of two"
    return Certificate(DivideFloors.name, subject, old, new, (), given, (), proof, old.span)


def _is_conversion(e: Expr) -> bool:
    """Whether ``e`` is an index as a number of f32."""
    return isinstance(e, Op) and e.op == "cast" and e.dtype is DType.F32 and e.args[0].dtype is DType.I32


@dataclass(frozen=True, slots=True)
class _Fraction:
    """The number ``top / 2^digits``; ``negative_zero``: it may be -0.  ``top`` is in ``lo`` to ``hi``."""

    top: Expr
    digits: int
    lo: int
    hi: int
    negative_zero: bool = False


@dataclass
class _Exact:
    """Expressions of f32 as exact fractions, under the ``ranges`` of variables."""

    ranges: Ranges

    def __post_init__(self) -> None:
        self.replaced: dict[Expr, Expr] = {}
        self._found: dict[Expr, _Fraction | None] = {}

    def without_floors(self, e: Expr) -> Expr:
        """``e`` with its largest parts that have floors of fractions replaced."""
        known = self.replaced.get(e) or self._divided(e)
        if known is not None:
            self.replaced[e] = known
            return known
        kids = children(e)
        made = tuple(self.without_floors(k) for k in kids)
        if all(a is b for a, b in zip(kids, made, strict=True)):
            return e
        if isinstance(e, Load):
            return replace(e, index=made)
        return replace(e, args=made) if isinstance(e, Op) else e

    def _divided(self, e: Expr) -> Expr | None:
        """``e`` by integers; None where that is not possible, or changes nothing."""
        if not isinstance(e, Op) or loads(e) or not self._is_small(e):
            return None
        if e.op == "cast" and e.dtype is DType.I32 and e.args[0].dtype is DType.F32:
            x = self.fraction(e.args[0])
            whole = None if x is None else self._truncated(x)
            return None if whole is None else replace(simplify(whole, self.ranges), span=e.span)
        floors = any(isinstance(n, Op) and n.op in ("floor", "ceil") for n in walk(e))
        x = self.fraction(e) if floors and e.dtype is DType.F32 else None
        if x is None or x.negative_zero:
            return None
        number = Op("cast", (simplify(x.top, self.ranges),), DType.F32, e.span)
        return Op("mul", (number, Const(2.0**-x.digits, DType.F32)), DType.F32, e.span) if x.digits else number

    def _is_small(self, e: Expr) -> bool:
        names = free_vars(e)
        known = [self.ranges.get(v) for v in names]
        return bool(names) and None not in known and prod([r[1] - r[0] + 1 for r in known if r is not None]) <= MOST

    def fraction(self, e: Expr) -> _Fraction | None:
        """``e`` as a fraction that every operation of it computes exactly; None where it is none."""
        if e not in self._found:
            found = self._fraction(e)
            fits = found is not None and max(-found.lo, found.hi) <= LARGEST and found.digits <= _DIGITS
            self._found[e] = found if fits else None
        return self._found[e]

    def _fraction(self, e: Expr) -> _Fraction | None:
        match e:
            case Const(value=value) if e.dtype is DType.F32 and abs(value) <= LARGEST:
                top, bottom = float(value).as_integer_ratio()
                return _Fraction(integer(top), bottom.bit_length() - 1, top, top, str(value).startswith("-0.0"))
            case Op(op="cast", args=(a,)) if _is_conversion(e):
                lo, hi = bounds(a, self.ranges)
                return None if lo is None or hi is None else _Fraction(a, 0, lo, hi)
            case Op(op=op, args=args) if e.dtype is DType.F32 and op in _RULES:
                parts = [self.fraction(a) for a in args]
                if None in parts:
                    return None
                return self._combined(op, [p for p in parts if p is not None])
        return None

    def _combined(self, op: str, parts: list[_Fraction]) -> _Fraction | None:
        """The operation ``op`` of ``parts``."""
        if op == "floor":
            return self._floor(parts[0])
        if op == "ceil":
            return self._negated(self._floor(self._negated(parts[0])), parts[0].lo <= 0)
        if op == "neg":
            return self._negated(parts[0], parts[0].lo <= 0 <= parts[0].hi)
        a, b = parts
        if op == "div":
            return _quotient(a, b)
        if op == "mul":
            corners = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
            negative = min(a.lo, b.lo) < 0 or a.negative_zero or b.negative_zero
            return _Fraction(
                calc("mul", a.top, b.top), a.digits + b.digits, min(corners), max(corners),
                negative and min(corners) <= 0 <= max(corners),
            )  # fmt: skip
        digits = max(a.digits, b.digits)
        if digits > _DIGITS:
            return None
        a, b = _over(a, digits), _over(b, digits)
        top = calc(op, a.top, b.top)
        if op in ("min", "max"):
            pick = min if op == "min" else max
            return _Fraction(top, digits, pick(a.lo, b.lo), pick(a.hi, b.hi), a.negative_zero or b.negative_zero)
        if op == "sub":
            return _Fraction(top, digits, a.lo - b.hi, a.hi - b.lo, a.negative_zero and b.lo <= 0 <= b.hi)
        return _Fraction(top, digits, a.lo + b.lo, a.hi + b.hi, a.negative_zero and b.negative_zero)

    def _truncated(self, x: _Fraction) -> Expr | None:
        """``x`` rounded towards zero; None where it may be -1 or less, and no integer."""
        if x.digits == 0:
            return x.top
        positive = x if x.lo >= 0 else replace(x, top=calc("max", x.top, 0), lo=0, hi=max(x.hi, 0))
        return self._floor(positive).top if x.lo > -(1 << x.digits) else None

    def _floor(self, x: _Fraction) -> _Fraction:
        by = 1 << x.digits
        top = calc("floordiv", x.top, by) if x.digits else x.top
        return _Fraction(top, 0, x.lo // by, x.hi // by, x.negative_zero)

    def _negated(self, x: _Fraction, negative_zero: bool = False) -> _Fraction:
        return _Fraction(calc("sub", integer(0), x.top), x.digits, -x.hi, -x.lo, negative_zero)


_RULES = frozenset({"floor", "ceil", "neg", "add", "sub", "mul", "div", "min", "max"})


def _over(x: _Fraction, digits: int) -> _Fraction:
    """``x`` over a larger power of two."""
    by = 1 << (digits - x.digits)
    return x if by == 1 else replace(x, top=calc("mul", x.top, by), digits=digits, lo=x.lo * by, hi=x.hi * by)


def _quotient(a: _Fraction, b: _Fraction) -> _Fraction | None:
    """``a`` over a constant ``b`` that is a positive power of two."""
    if b.lo != b.hi or b.lo <= 0 or b.lo & (b.lo - 1):
        return None
    digits = a.digits + b.lo.bit_length() - 1 - b.digits
    return replace(a, digits=digits) if digits >= 0 else _over(replace(a, digits=0), -digits)
