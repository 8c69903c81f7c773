"""Whether every factor that a program rounds to f16 or f8e4m3 is finite there, by intervals of its own (``intervals``).

The claim is about finite inputs: where all inputs are finite, zeros included, every finite factor stays finite.  inf
and NaN stay what they are, because a rounding keeps them.

An element of an input has the range of its type, a computed tensor that of its definition.  Four relations bound
what the intervals of the parts do not, where ``m`` is a reduction of which ``x`` is an element:

* ``x - m <= 0`` for a maximum, and for the larger of it and another number;
* ``0 <= x / m <= 1`` for a sum of numbers that are not negative, also with more such numbers added to it;
* ``x - (y + log(m)) <= 0`` for a sum of ``exp(x - y)``, up to the errors of the logarithm and of the sum;
* ``|x| * (c / binade(m)) <= 2 c`` where x is finite, for a maximum of the finite magnitudes, since ``m < 2 binade(m)``.

``x`` is an element where it is the value of the reduction at some of its points: each condition of the reduction must
be one of the conditions around ``x``, or follow from them and from the ranges of the loops, which isl decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from nautilus.check.validate.ranges import intervals
from nautilus.check.validate.ranges.intervals import EVERYTHING, FUNCTIONS, Interval
from nautilus.check.validate.sets.index_sets import conjuncts, implied
from nautilus.check.validate.verdict import Verdict
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, children, rewrite, walk
from nautilus.core.records import dataclass
from nautilus.core.types import DType, value_limits
from nautilus.scalar.ir import Loop, Program, Store, Update, statements

#: the largest numbers that the types round to a finite one, or less: 65520 in f16 is inf, and 464 in f8e4m3 is NaN
_LARGEST: Mapping[DType, float] = {DType.F16: 65519.0, DType.F8E4M3: 463.0}
_DEPTH = 12
_EXACT = 2.0**52  # integers of a smaller magnitude are exact in float64
_SLACK = 2.0**-10  # the errors of a logarithm of at most 2^7 and of an exponent, by which a difference may exceed 0
_IDENTITY = {"sum": 0.0, "max": -math.inf, "min": math.inf}
_MOST = 1 << 31  # terms of a sum of unknown length


@dataclass(frozen=True)
class _Place:
    """A statement with its loops."""

    loops: tuple[Loop, ...]
    statement: Store | Update

    @property
    def conditions(self) -> list[Expr]:
        return conjuncts(self.statement.guard)

    def reduced(self) -> list[str]:
        """The loop variables over which the statement reduces."""
        kept = {n.name for i in self.statement.index for n in walk(i) if isinstance(n, Var)}
        return [loop.var for loop in self.loops if loop.var not in kept]


def validate(program: Program) -> Verdict:
    """Whether every factor that ``program`` rounds to f16 or f8e4m3 is finite there; ``points`` counts them."""
    definitions: dict[str, list[_Place]] = {}
    for k in program.kernels:
        for loops, s in statements(k.body):
            definitions.setdefault(s.buffer, []).append(_Place(loops, s))
    proved: list[str] = []
    for places in definitions.values():
        for place in places:
            for x, largest in _narrowed(place.statement.value):
                lo, hi = _Ranges(definitions, place).of(x)
                said = f"{place.statement.buffer}: a factor is in [{lo:.6g}, {hi:.6g}]"
                if not (lo >= -largest and hi <= largest):
                    return Verdict("not decided", len(proved), said)
                proved.append(said)
    return Verdict("proved", len(proved), "; ".join(proved)) if proved else Verdict("proved", 0, "no factor is f16")


def _narrowed(e: Expr) -> Iterator[tuple[Expr, float]]:
    for n in walk(e):
        match n:
            case Op(op="narrow", args=(a,)) if n.dtype in _LARGEST and a.dtype.is_float:
                yield a, _LARGEST[n.dtype]


@dataclass
class _Ranges:
    """The ranges of expressions in one statement."""

    definitions: Mapping[str, list[_Place]]
    place: _Place
    depth: int = 0

    def of(self, e: Expr) -> Interval:
        """The interval of every finite value of ``e``."""
        if e.dtype is DType.BOOL:
            return 0.0, 1.0
        if e.dtype.is_int:
            return self.integer(e)
        match e:
            case Const(value=value):
                return (float(value), float(value)) if math.isfinite(value) else EVERYTHING
            case Load():
                return self.load(e)
            case Op(op="cast" | "narrow", args=(a,)):
                slack = 2.0**-e.dtype.mantissa
                return intervals.outward(*self.of(a), slack)
            case Op(op="select", args=(_, a, b)):
                return intervals.joined(self.of(a), self.of(b))
            case Op(op="add", args=(a, b)):
                return intervals.add(self.of(a), self.of(b))
            case Op(op="sub", args=(a, b)):
                found = intervals.add(self.of(a), intervals.negative(self.of(b)))
                top = 0.0 if self.is_below_maximum(a, b) else _SLACK if self.is_in_logarithm(a, b) else math.inf
                return intervals.met(found, (-math.inf, top))
            case Op(op="mul", args=(a, b)):
                found = intervals.square(self.of(a)) if a == b else intervals.multiply(self.of(a), self.of(b))
                return intervals.met(intervals.met(found, self.scaled(a, b)), self.scaled(b, a))
            case Op(op="div", args=(a, b)):
                share = self.of(a)[0] >= 0.0 and self.is_share(a, b)
                found = intervals.divide(self.of(a), self.of(b))
                return intervals.met(found, intervals.outward(0.0, 1.0)) if share else found
            case Op(op="min" | "max" as name, args=(a, b)):
                (p, q), (r, s), pick = self.of(a), self.of(b), min if name == "min" else max
                return pick(p, r), pick(q, s)
            case Op(op=name, args=(a,)) if name in FUNCTIONS:
                return FUNCTIONS[name](self.of(a))
        return EVERYTHING

    def integer(self, e: Expr) -> Interval:
        """The interval of an integer; all values of its type where it may wrap."""
        lo, hi = self.whole_number(e)
        least, largest = value_limits(e.dtype)
        return (lo, hi) if least <= lo and hi <= largest and abs(lo) + abs(hi) < _EXACT else (least, largest)

    def whole_number(self, e: Expr) -> Interval:
        match e:
            case Const(value=value):
                return float(value), float(value)
            case Var(name=name):
                loop = next((x for x in self.place.loops if x.var == name), None)
                if loop is not None and isinstance(loop.lo, Const) and isinstance(loop.hi, Const):
                    return float(loop.lo.value), float(loop.hi.value) - 1
            case Op(op="select", args=(_, a, b)):
                return intervals.joined(self.integer(a), self.integer(b))
            case Op(op="cast", args=(a,)) if a.dtype.is_int:
                return self.integer(a)
            case Op(op="mod", args=(a, Const(value=n))) if n > 0:
                return 0.0, n - 1.0
            case Op(op="floordiv", args=(a, Const(value=n))) if n > 0:
                (lo, hi), by = self.integer(a), float(n)
                return math.floor(lo / by), math.floor(hi / by)
            case Op(op="shift_right", args=(a, Const(value=n))) if 0 <= n < 64:
                lo, hi = self.integer(a)
                return math.floor(lo / 2.0**n), math.floor(hi / 2.0**n)
            case Op(op="bit_and", args=(a, b)):
                tops = [hi for lo, hi in (self.integer(a), self.integer(b)) if lo >= 0]
                return (0.0, min(tops)) if tops else value_limits(e.dtype)
            case Op(op="bit_or" | "bit_xor", args=(a, b)):
                (p, q), (r, s) = self.integer(a), self.integer(b)
                return (0.0, 2.0 ** int(max(q, s)).bit_length() - 1) if min(p, r) >= 0 else value_limits(e.dtype)
            case Op(op="add" | "sub" as name, args=(a, b)):
                (p, q), (r, s) = self.integer(a), self.integer(b)
                return (p + r, q + s) if name == "add" else (p - s, q - r)
            case Op(op="mul", args=(a, b)):
                corners = [x * y for x in self.integer(a) for y in self.integer(b)]
                return min(corners), max(corners)
        return value_limits(e.dtype)

    def load(self, e: Load) -> Interval:
        whole = value_limits(e.dtype)
        if e.buffer not in self.definitions:
            return whole
        place = _definition(self.definitions[e.buffer])
        if place is None or self.depth >= _DEPTH:
            return EVERYTHING
        s = place.statement
        lo, hi = _Ranges(self.definitions, place, self.depth + 1).of(s.value)
        if isinstance(s, Update):
            if s.op == "sum":
                lo, hi = intervals.repeated((lo, hi), _count(place))
            elif s.op not in ("max", "min"):
                return EVERYTHING
        if s.guard is not None and isinstance(s, Store):
            return EVERYTHING
        # an empty maximum is -inf, which is no finite value
        return intervals.met(intervals.outward(lo, hi, 2.0**-e.dtype.mantissa), whole)

    def scaled(self, x: Expr, factor: Expr) -> Interval:
        """The interval of ``x`` times ``c / binade(m)``, by the last relation."""
        match factor:
            case Op(op="div", args=(Const(value=c), Op(op="binade", args=(m,)))) if c > 0:
                size = Op("abs", (x,), x.dtype)
                finite = Op("lt", (size, Const(math.inf, x.dtype)), DType.BOOL)
                if self.is_element(Op("select", (finite, size, Const(0.0, x.dtype)), x.dtype), m, "max"):
                    return intervals.outward(-2.0 * c, 2.0 * c)
        return EVERYTHING

    def is_below_maximum(self, x: Expr, m: Expr) -> bool:
        """Whether ``m`` is a maximum of which ``x`` is an element, or the larger of one and another number."""
        if isinstance(m, Op) and m.op == "max":
            return any(self.is_below_maximum(x, part) for part in m.args)
        return self.is_element(x, m, "max")

    def is_share(self, x: Expr, m: Expr) -> bool:
        """Whether ``m`` is a sum of which ``x`` is an element, or the sum of one and other non-negative numbers."""
        match m:
            case Op(op="add", args=(a, b)):
                return any(self.of(other)[0] >= 0.0 and self.is_share(x, part) for part, other in ((a, b), (b, a)))
        return self.is_element(x, m, "sum")

    def is_in_logarithm(self, x: Expr, m: Expr) -> bool:
        """Whether ``m`` is ``y + log(s)`` with a sum ``s`` of which ``exp(x - y)`` is an element."""
        match m:
            case Op(op="add", args=(a, b)):
                for y, part in ((a, b), (b, a)):
                    if isinstance(part, Op) and part.op == "log":
                        term = Op("exp", (Op("sub", (x, y), x.dtype),), x.dtype)
                        if self.is_share(term, part.args[0]):
                            return True
        return False

    def is_element(self, x: Expr, m: Expr, op: str) -> bool:
        """Whether ``m`` loads a reduction ``op`` and ``x`` is its value at one of its points."""
        made = _definition(self.definitions.get(m.buffer, [])) if isinstance(m, Load) else None
        s = None if made is None else made.statement
        if made is None or not isinstance(s, Update) or not isinstance(m, Load) or s.op != op:
            return False
        at: dict[str, Expr] = {}
        for i, j in zip(s.index, m.index, strict=True):
            if not isinstance(i, Var) or at.setdefault(i.name, j) != j:
                return False
        if not _matches(s.value, x, set(made.reduced()), at) or not set(made.reduced()) <= at.keys():
            return False
        needed = [rewrite(c, lambda n: at.get(n.name) if isinstance(n, Var) else None) for c in made.conditions]
        for loop in made.loops:
            if loop.var in made.reduced():
                here = at[loop.var]
                needed += [Op("le", (loop.lo, here), DType.BOOL), Op("lt", (here, loop.hi), DType.BOOL)]
        return all(c in self.place.conditions or implied(self.place.loops, self.place.conditions, c) for c in needed)


def _definition(places: Sequence[_Place]) -> _Place | None:
    """The one statement that gives a buffer its value, where a reduction may be preceded by its identity."""
    match places:
        case [place]:
            return place
        case [_Place(statement=Store(value=Const(value=first), guard=None)), _Place(statement=Update(op=op)) as place]:
            return place if _IDENTITY.get(op) == first else None
    return None


def _count(place: _Place) -> float:
    count = 1.0
    for loop in place.loops:
        if loop.var in place.reduced():
            known = isinstance(loop.lo, Const) and isinstance(loop.hi, Const)
            count *= float(loop.hi.value) - float(loop.lo.value) if known else _MOST  # type: ignore[union-attr]
    return max(count, 0.0)


def _matches(pattern: Expr, e: Expr, free: set[str], at: dict[str, Expr]) -> bool:
    """Whether ``e`` is ``pattern`` with the variables replaced as ``at`` says, which grows by those ``free``."""
    if isinstance(pattern, Var):
        if pattern.name in free:
            return at.setdefault(pattern.name, e) == e
        return at.get(pattern.name, pattern) == e
    a, b = children(pattern), children(e)
    if type(pattern) is not type(e) or len(a) != len(b) or pattern.dtype is not e.dtype:
        return False
    if (isinstance(pattern, Op) and isinstance(e, Op) and pattern.op != e.op) or (not a and pattern != e):
        return False
    if isinstance(pattern, Load) and isinstance(e, Load) and pattern.buffer != e.buffer:
        return False
    return all(_matches(x, y, free, at) for x, y in zip(a, b, strict=True))
