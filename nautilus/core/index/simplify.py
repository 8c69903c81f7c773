"""Integer and bool expressions: canonical simplification, intervals, divisibility.

``ranges`` maps the name of a variable, param or value (``%name``) to its range, **both ends
inclusive**: a loop ``for i in 0..M`` has ``{"i": (0, M - 1)}``.  A name without a range is any
integer.  ``given`` lists bool expressions that hold where the expression is evaluated.

:func:`simplify` gives an expression that has the same value at every point of the ranges where
``given`` holds.  In canonical form, an integer is a linear combination (:mod:`nautilus.core.index.linear`).  A
comparison of integers has its terms on the side where their coefficients are positive, divided by
their common divisor.  Float operations keep their form (:func:`simplify_value` simplifies them); their
integer and bool parts are simplified.  :func:`bounds` is sound, but not always tight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import gcd
from typing import TypeAlias

from nautilus.core.expr.conditions import FALSE, TRUE, conjuncts, disjuncts, joined, negated
from nautilus.core.expr.nodes import (
    COMPARISONS,
    Const,
    Expr,
    Op,
    Param,
    Reduce,
    Ref,
    Var,
    children,
    details,
    sizes,
    with_children,
)
from nautilus.core.expr.simplify import simplify_value
from nautilus.core.functions import FUNCTIONS, Types
from nautilus.core.index import intervals
from nautilus.core.index import linear as lin
from nautilus.core.index.divisors import divisible_by, divisor
from nautilus.core.index.intervals import UNKNOWN, fits, is_value, without_casts
from nautilus.core.index.linear import Interval, Linear, affine, linear, linear_in, mentions
from nautilus.core.index.linear_bounds import Facts, facts_of
from nautilus.core.text.expressions import format_expr
from nautilus.core.types import DType, integer_limits

__all__ = [
    "FALSE",
    "TRUE",
    "affine",
    "bounds",
    "conjuncts",
    "divisible_by",
    "divisor",
    "forget",
    "linear_in",
    "simplify",
    "simplify_value",
]

Ranges: TypeAlias = Mapping[str, tuple[int, int]]


class _Known:
    """A simplifier, its results by expression and details, and the facts about the sizes that it has met.

    Equal expressions may differ in these facts, and those of one name are the same within a compilation.
    """

    __slots__ = ("facts", "results", "simplifier")

    def __init__(self, ranges: Ranges, given: tuple[Expr, ...]) -> None:
        self.simplifier = _Simplifier(ranges, facts_of(given, ranges))
        self.results: dict[tuple[object, ...], Expr] = {}
        self.facts: dict[str, object] = {}

    def agrees(self, e: Expr) -> bool:
        """Whether the sizes in ``e`` are those that this simplifier knows, or unknown to it."""
        return all(self.facts.setdefault(name, facts) == facts for name, facts in sizes(e))


#: simplifiers by ranges and conditions; passes simplify the same repeatedly, and much of the rest in the same way
_KNOWN: dict[tuple[object, ...], _Known] = {}
_REMEMBERED = 1 << 8


def simplify(e: Expr, ranges: Ranges | None = None, given: Iterable[Expr] = ()) -> Expr:
    """The canonical form of ``e`` under ``ranges`` and ``given`` (module docstring)."""
    known = _known(e, ranges or {}, tuple(given))
    if not children(e):
        return known.simplifier.expr(e)
    key = (e, details(e))
    found = known.results.get(key)
    if found is None:
        found = known.results[key] = known.simplifier.expr(e)
    return found


def forget() -> None:
    """Forget all results, so that those of a compilation share the same objects whatever ran before it."""
    _KNOWN.clear()


def bounds(e: Expr, ranges: Ranges | None = None, given: Iterable[Expr] = ()) -> Interval:
    """Least and greatest value of integer ``e``, inclusive; None where unbounded or unknown."""
    if isinstance(e, Const) and e.dtype.is_int:  # as most bounds of loops
        return int(e.value), int(e.value)
    return _known(e, ranges or {}, tuple(given)).simplifier.bounds(e)


def _known(e: Expr, ranges: Ranges, given: tuple[Expr, ...]) -> _Known:
    key = (given, *ranges.items())
    found = _KNOWN.get(key)
    if found is None or not all(map(found.agrees, (e, *given))):
        if len(_KNOWN) >= _REMEMBERED:
            _KNOWN.clear()
        found = _KNOWN[key] = _Known(dict(ranges), given)
        for x in (e, *given):
            found.agrees(x)
    return found


#: simplifiers by their facts, and how deep in these: the same few facts hold under exponentially many nested choices
_All: TypeAlias = "dict[tuple[frozenset[Linear], int], _Simplifier]"


class _Simplifier:
    """Simplifications under the same ranges and facts, and what they have found."""

    def __init__(self, ranges: Ranges, facts: tuple[Linear, ...], depth: int = 0, known: _All | None = None) -> None:
        self.ranges = ranges
        self._all: _All = {} if known is None else known
        self.facts = facts
        self._depth = depth  # of facts used to bound an atom of a fact
        self._done: dict[int, tuple[Expr, Expr]] = {}  # by id; the node is kept alive
        self._linears: dict[int, tuple[Expr, Linear]] = {}  # the linear forms, by identity too
        self._under: dict[tuple[Expr, int], _Simplifier] = {}  # by the further condition and that depth
        self._known: dict[tuple[Expr, int], Interval] = {}  # of atoms, by how deep in facts they are asked for
        self._intervals: dict[tuple[object, ...], Interval] = {}  # of terms without their constant, by that depth too
        self._facts = Facts(facts)
        self._rules: Mapping[str, Callable[[Op], Expr]] = {
            "and": self._and, "or": self._or, "not": self._not, "select": self._select,
        }  # fmt: skip

    def under(self, cond: Expr) -> _Simplifier:
        """A simplifier with the same ranges and facts, under which ``cond`` holds too."""
        found = self._under.get((cond, self._depth))
        if found is None:
            facts = tuple(dict.fromkeys((*self.facts, *facts_of((cond,), self.ranges))))
            key = frozenset(facts), self._depth
            found = self if len(facts) == len(self.facts) else self._all.get(key)
            if found is None:
                found = self._all[key] = _Simplifier(self.ranges, facts, self._depth, self._all)
            self._under[cond, self._depth] = found
        return found

    # -- intervals ----------------------------------------------------------------------------
    def bounds(self, e: Expr) -> Interval:
        x = linear(e)
        return self.interval(x) if self._exact(x, e.dtype) else UNKNOWN

    def interval(self, x: Linear) -> Interval:
        """Bounds of a linear combination, sharpened by every fact and every pair of facts."""
        if not x.terms or self._depth >= 2 or not self.facts:
            return self._plain(x)
        key = (self._depth, *x.terms.items())
        found = self._intervals.get(key)
        if found is None:
            found = self._intervals[key] = self._sharpened(Linear(x.terms))
        lo, hi = found
        return (None if lo is None else lo + x.const), (None if hi is None else hi + x.const)

    def _sharpened(self, x: Linear) -> Interval:
        lo, hi = self._plain(x)
        self._depth += 1
        for s in self._facts.about(x):
            low, _ = self._plain(x - s)  # x == (x - s) + s >= x - s
            _, high = self._plain(x + s)
            lo = low if lo is None else lo if low is None else max(lo, low)
            hi = high if hi is None else hi if high is None else min(hi, high)
        self._depth -= 1
        return lo, hi

    def _plain(self, x: Linear) -> Interval:
        x, low, high = lin.paired_quotients(x, self._exact)
        least, most = x.interval(self._atom)
        return None if least is None else least + low, None if most is None else most + high

    def _atom(self, a: Expr) -> Interval:
        """Bounds of an atom; worked out once, since facts about bounds mention the same ones again and again."""
        found = self._known.get((a, self._depth))
        if found is None:
            found = self._known[a, self._depth] = self._own(a)
        return found

    def _own(self, a: Expr) -> Interval:
        match a:
            case Var(name=name):
                return self.ranges.get(name, UNKNOWN)
            case Param(name=name):
                return self.ranges.get(name, a.range)
            case Ref(name=name):
                return self.ranges.get("%" + name, UNKNOWN)
            case Op(op="floordiv", args=(x, Const(value=n))) if n > 0:
                lo, hi = self.bounds(x)
                return (None if lo is None else lo // int(n)), (None if hi is None else hi // int(n))
            case Op(op="mod", args=(x, Const(value=n))) if n > 0:
                lo, hi = self.bounds(x)
                m = int(n)
                if lo is not None and hi is not None and lo // m == hi // m:
                    return lo % m, hi % m
                return 0, m - 1
            case Op(op="mod", args=(_, y)):
                lo, hi = self.bounds(y)
                return (0, None if hi is None else hi - 1) if lo is not None and lo > 0 else UNKNOWN
            case Op(op="mul", args=(x, y)):
                return intervals.product(self.bounds(x), self.bounds(y))
            case Op(op="abs", args=(x,)):
                low, high = self.bounds(x)
                wraps = is_value(x) and (low is None or low <= integer_limits(a.dtype)[0])  # that of the least integer
                return UNKNOWN if wraps else intervals.absolute((low, high))
            case Op(op="min" | "max" as op, args=(x, y)):
                return intervals.extreme(op, self.bounds(x), self.bounds(y))
            case Op(op="select", args=(c, x, y)):
                return intervals.union(self.under(c).bounds(x), self.under(negated(c)).bounds(y))
            case Op(op=op, args=args) if op in _BITWISE:
                return intervals.bitwise(op, [self.bounds(x) for x in args], a.dtype)
            case Op(op="cast", args=(x,)) if x.dtype.is_int and x.dtype.bits <= a.dtype.bits:
                return self.bounds(x)
            case Op(op="cast", args=(x,)) if x.dtype is DType.BOOL:
                return 0, 1
        return UNKNOWN

    def _fits(self, x: Linear, dtype: DType) -> bool:
        """Whether the integer ``x`` does not wrap in ``dtype``, however it is summed."""
        return fits(x, dtype, self._atom)

    def _exact(self, x: Linear, dtype: DType) -> bool:
        """Whether ``x``, as an expression of the spec or one that equals it, is its value: indices never wrap there."""
        return not any(is_value(a) for a in x.terms) or self._fits(x, dtype)

    # -- expressions --------------------------------------------------------------------------
    def expr(self, e: Expr) -> Expr:
        """The canonical form of ``e``; one object gives one object."""
        found = self._done.get(id(e))
        if found is not None:
            return found[1]
        new = self._expr(e)
        self._done[id(e)] = (e, new)
        return new

    def _expr(self, e: Expr) -> Expr:
        if isinstance(e, Op):
            rule = self._rules.get(e.op)
            if rule is not None:
                return rule(e)
            if e.dtype.is_int:
                return self._integer(e)
            if e.op in COMPARISONS:
                return self._comparison(e)
        if isinstance(e, Reduce):
            return self._reduce(e)
        if isinstance(e, Var | Param | Ref) and e.dtype.is_int:
            lo, hi = self._atom(e)
            return Const(lo, e.dtype) if lo is not None and lo == hi else e
        return with_children(e, tuple(self.expr(c) for c in children(e)))

    def _integer(self, e: Op) -> Expr:
        if e.op in ("cast", "narrow") and not e.args[0].dtype.is_int:
            return with_children(e, (self.expr(e.args[0]),))
        return lin.build(self._linear(e), e.dtype)

    def _linear(self, e: Expr) -> Linear:
        """The canonical linear form of integer ``e``."""
        found = self._linears.get(id(e))
        if found is not None:
            return found[1]
        new = self._own_linear(e)
        self._linears[id(e)] = (e, new)
        return new

    def _own_linear(self, e: Expr) -> Linear:
        match e:
            case Op(op="add", args=(a, b)):
                x = self._linear(a) + self._linear(b)
            case Op(op="sub", args=(a, b)):
                x = self._linear(a) - self._linear(b)
            case Op(op="neg", args=(a,)):
                return self._linear(a).scale(-1)
            case Op(op="mul", args=(a, b)):
                return self._product(self._linear(a), self._linear(b), e.dtype)
            case Op(op="floordiv" | "mod" as op, args=(a, b)):
                x = self._divide(op, self._linear(a), self._linear(b), e.dtype)
            case Op(op="min" | "max" as op, args=(a, b)):
                return self._extreme(op, self._linear(a), self._linear(b), e.dtype)
            case Op(op=op) if op not in self._rules:
                return self._call(e)
            case _:
                return linear(self.expr(e))
        return self._as_constant(lin.recombine(x, e.dtype))

    def _as_constant(self, x: Linear) -> Linear:
        """``x``, as a constant where its interval contains one value only."""
        if not x.terms:
            return x
        lo, hi = self.interval(x)
        return Linear({}, lo) if lo is not None and lo == hi else x

    def _product(self, x: Linear, y: Linear, dtype: DType) -> Linear:
        if not y.terms:
            return x.scale(y.const)
        if not x.terms:
            return y.scale(x.const)
        a, b = lin.build(x, dtype), lin.build(y, dtype)
        if format_expr(b) < format_expr(a):
            a, b = b, a
        return Linear({Op("mul", (a, b), dtype): 1})

    def _divide(self, op: str, x: Linear, y: Linear, dtype: DType) -> Linear:
        if not y.terms and y.const > 0 and self._fits(x, dtype):
            rule = lin.floordiv if op == "floordiv" else lin.mod
            return rule(x, y.const, dtype, self.interval, lambda z: self._fits(z, dtype))
        return Linear({Op(op, (lin.build(x, dtype), lin.build(y, dtype)), dtype): 1})

    def _extreme(self, op: str, x: Linear, y: Linear, dtype: DType) -> Linear:
        lo, hi = self.interval(x - y) if self._fits(x, dtype) and self._fits(y, dtype) else UNKNOWN
        if lo is not None and lo >= 0:
            return x if op == "max" else y
        if hi is not None and hi <= 0:
            return y if op == "max" else x
        a, b = lin.build(x, dtype), lin.build(y, dtype)
        if isinstance(a, Const) or (not isinstance(b, Const) and format_expr(b) < format_expr(a)):
            a, b = b, a
        return self._as_constant(Linear({Op(op, (a, b), dtype): 1}))

    def _call(self, e: Op) -> Linear:
        new = with_children(e, tuple(self.expr(a) for a in e.args))
        assert isinstance(new, Op)
        arg = new.args[0]
        if FUNCTIONS[new.op].is_rounding and arg.dtype.is_int:
            return linear(arg)
        if new.op == "cast" and arg.dtype is new.dtype:
            return linear(arg)
        if new.op == "abs":
            lo, hi = self.bounds(arg)
            if lo is not None and lo >= 0:
                return linear(arg)
            if hi is not None and hi <= 0:
                return linear(arg).scale(-1)
        if new.op == "cast" and isinstance(arg, Const) and arg.dtype.is_int and arg.dtype.bits <= new.dtype.bits:
            return linear(arg)
        return self._as_constant(Linear({new: 1}))

    def _comparison(self, e: Op) -> Expr:
        a, b = e.args
        if not a.dtype.is_int:
            x, y = self.expr(a), self.expr(b)
            if isinstance(x, Const) and isinstance(y, Const):
                return Const(_HOLDS[e.op](x.value, y.value), DType.BOOL)
            return with_children(e, (x, y))
        left, right = self._linear(a), self._linear(b)
        plain = with_children(e, (lin.build(left, a.dtype), lin.build(right, a.dtype)))
        if not (self._exact(left, a.dtype) and self._exact(right, a.dtype)):
            return plain
        d = without_casts(lin.recombine(right - left, a.dtype))
        match e.op:
            case "le":
                return self._at_least_zero(d, a.dtype) or plain
            case "lt":
                return self._at_least_zero(d.shift(-1), a.dtype) or plain
            case "ge":
                return self._at_least_zero(d.scale(-1), a.dtype) or plain
            case "gt":
                return self._at_least_zero(d.scale(-1).shift(-1), a.dtype) or plain
        return self._is_zero(d, a.dtype, e.op == "eq") or plain

    def _type_of(self, d: Linear, dtype: DType) -> DType | None:
        """The type in which both sides of ``d >= 0`` are exact: i32 where that is certain, though the spec has i64."""
        sides = lin.sides(d)
        narrow = dtype is DType.I64 and all(a.dtype is DType.I32 for a in d.terms)
        if narrow and all(fits(x, DType.I32, self._atom, surely=True) for x in sides):
            return DType.I32
        return dtype if all(self._fits(x, dtype) for x in sides) else None

    def _at_least_zero(self, d: Linear, of: DType) -> Expr | None:
        """``d >= 0`` in canonical form; None where no side of it is certainly exact."""
        lo, hi = self.interval(d)
        if lo is not None and lo >= 0:
            return TRUE
        if hi is not None and hi < 0:
            return FALSE
        g = gcd(*d.terms.values())
        d = Linear({a: c // g for a, c in d.terms.items()}, d.const // g)
        dtype = self._type_of(d.shift(1 if d.const < 0 else 0), of)
        if dtype is None:
            return None
        left = Linear({a: -c for a, c in d.terms.items() if c < 0})
        right = Linear({a: c for a, c in d.terms.items() if c > 0})
        c = d.const  # left <= right + c
        _, most = integer_limits(dtype)  # no atom is compared with a constant beyond its type
        if left.single() is not None and not right.terms and c >= most:
            return TRUE
        if right.single() is not None and not left.terms and -c > most:
            return FALSE
        if not right.terms:
            return _compare("lt", left, Linear({}, c + 1), dtype)
        if not left.terms:
            return _compare("ge", right, Linear({}, -c), dtype)
        if c == -1:
            return _compare("lt", left, right, dtype)
        return _compare("le", left.shift(max(-c, 0)), right.shift(max(c, 0)), dtype)

    def _is_zero(self, d: Linear, of: DType, positive: bool) -> Expr | None:
        lo, hi = self.interval(d)
        if lo == 0 == hi:
            return TRUE if positive else FALSE
        never = (lo is not None and lo > 0) or (hi is not None and hi < 0)
        g = gcd(*d.terms.values()) if d.terms else 1
        if never or d.const % g:
            return FALSE if positive else TRUE
        d = Linear({a: c // g for a, c in d.terms.items()}, d.const // g)
        if min(d.terms.items(), key=lambda t: (-abs(t[1]), format_expr(t[0])))[1] < 0:
            d = d.scale(-1)
        dtype = self._type_of(d, of)
        if dtype is None:
            return None
        left = Linear({a: c for a, c in d.terms.items() if c > 0}, max(d.const, 0) if len(d.terms) > 1 else 0)
        right = left - d
        return _compare("eq" if positive else "ne", left, right, dtype)

    # -- logic --------------------------------------------------------------------------------
    def _and(self, e: Op) -> Expr:
        kept: list[Expr] = []
        here = self
        for part in conjuncts(e):
            for new in conjuncts(here.expr(part)):
                if new == FALSE:
                    return FALSE
                if new not in kept:
                    kept.append(new)
                    here = here.under(new)
        return joined("and", kept, TRUE)

    def _or(self, e: Op) -> Expr:
        kept: list[Expr] = []
        here = self
        for part in disjuncts(e):
            new = here.expr(part)
            if new == TRUE:
                return TRUE
            if new != FALSE and new not in kept:
                kept.append(new)
                here = here.under(negated(new))
        return joined("or", kept, FALSE)

    def _not(self, e: Op) -> Expr:
        new = self.expr(e.args[0])
        if isinstance(new, Op) and new.op in ("and", "or"):
            parts = tuple(Op("not", (a,), DType.BOOL) for a in new.args)
            return self.expr(Op("or" if new.op == "and" else "and", parts, DType.BOOL))
        if isinstance(new, Op) and new.op in COMPARISONS and new.args[0].dtype.is_int:
            return self.expr(negated(new))
        return negated(new)

    def _select(self, e: Op) -> Expr:
        cond = self.expr(e.args[0])
        if cond == TRUE:
            return self.expr(e.args[1])
        if cond == FALSE:
            return self.expr(e.args[2])
        a, b = self.under(cond).expr(e.args[1]), self.under(negated(cond)).expr(e.args[2])
        return a if a == b else with_children(e, (cond, a, b))

    def _reduce(self, e: Reduce) -> Expr:
        own = {a.name: (0, a.extent - 1) for a in e.axes if isinstance(a.extent, int) and a.extent > 0}
        names = {a.name for a in e.axes}
        ranges = {k: v for k, v in self.ranges.items() if k not in names} | own
        facts = tuple(f for f in self.facts if not any(mentions(a, n) for a in f.terms for n in names))
        inner = _Simplifier(ranges, facts)
        if e.cond is None:
            return with_children(e, (inner.expr(e.body),))
        cond = inner.expr(e.cond)
        return with_children(e, (cond, inner.under(cond).expr(e.body)))


_BITWISE = frozenset(f.name for f in FUNCTIONS.values() if f.types is Types.INTEGER)
_HOLDS = {f.name: f.python for f in FUNCTIONS.values() if f.types is Types.COMPARISON and f.python is not None}


def _compare(op: str, a: Linear, b: Linear, dtype: DType) -> Expr:
    return Op(op, (lin.build(a, dtype), lin.build(b, dtype)), DType.BOOL)
