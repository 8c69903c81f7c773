"""Value ranges of expressions: interval analysis over the reals, for proofs about overflow.

A float expression gets an interval that contains its value whenever the value and the inputs are finite.  Ends are
rounded outwards.  An input has the range of its type.  A temp has the range of its definition.  NaN and inf are not
covered, because narrowing preserves them.

Relations bound what no interval of the parts bounds.  ``x_j`` is an element of a reduction ``r`` if it matches the
definition of ``r`` at some point, and its guard implies the guard of ``r``:

* ``x_j - r <= 0`` where ``r`` is the maximum of ``x_j``; also ``x_j - max(r, y)``, and ``x_j - (r + y)`` where
  ``y >= 0``;
* ``x_j - (y + log(r)) <= 0`` where ``r`` is the sum of ``exp(x_j - y)``;
* ``x_j / r`` is in [0, 1] where ``r`` is the sum of ``x_j >= 0``, also ``x_j / (r + y)`` for ``y >= 0``, and
  ``x / (x + y)`` for ``x, y >= 0``;
* ``|x_j| / sqrt(c * r + d) <= 1 / sqrt(c)`` where ``r`` is the sum of ``x_j ** 2``, ``c > 0`` and ``d >= 0``
  (``x_j ** 2 <= r``), also where the square root is an ``rsqrt`` factor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace

from nautilus.core.expr.build import within
from nautilus.core.expr.conditions import conjunction, negated
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Param, Var, children, substitute
from nautilus.core.functions import FUNCTIONS, Types
from nautilus.core.functions.intervals import (
    EVERYTHING,
    Interval,
    add,
    div,
    joined,
    mul,
    outward,
    power,
    square,
    sub,
    times,
)
from nautilus.core.index.simplify import TRUE, bounds, conjuncts, simplify
from nautilus.core.records import dataclass
from nautilus.core.types import DType, value_limits
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.domains import nonempty
from nautilus.scalar.analysis.ranges.corners import at_corners
from nautilus.scalar.rewriting import axis_assumptions

_INF = math.inf
#: integer functions whose rules hold for elements of tensors, but for what leaves the type
_EXACT = frozenset({"add", "sub", "mul", "neg", "abs", "min", "max"})
_EXACT |= {f.name for f in FUNCTIONS.values() if f.types is Types.INTEGER}


@dataclass(slots=True)
class Ranges:
    """Ranges of expressions at the points of ``axes`` where ``guard`` holds, in a program of ``defs``.

    ``given``: ranges of inputs and params, as the spec promises them.  ``infinite``: inputs may have infinite elements,
    so that a value with a finite range is never infinite.  ``elements``: by definition and depth, the interval of all
    of its elements, because each definition of a chain may read the one before several times.
    """

    defs: Mapping[str, Def]
    axes: tuple[Axis, ...]
    guard: Expr | None = None
    depth: int = 0
    memo: dict[int, tuple[Expr, Interval]] = field(default_factory=dict)
    given: Mapping[str, Interval] = field(default_factory=dict)
    infinite: bool = False
    elements: dict[tuple[str, int], Interval] = field(default_factory=dict)

    def of(self, e: Expr) -> Interval:
        """The interval of ``e``; ``(-inf, inf)`` where nothing is known."""
        found = self.memo.get(id(e))
        if found is None:
            lo, hi = self._of(e)
            found = (e, (lo, hi) if lo <= hi else EVERYTHING)  # inf - inf has no interval
            self.memo[id(e)] = found
        return found[1]

    def _of(self, e: Expr) -> Interval:
        if e.dtype is DType.BOOL:
            return 0.0, 1.0
        if e.dtype.is_int:
            return self._integer(e)
        match e:
            case Const(value=value):
                return (float(value), float(value)) if math.isfinite(value) else EVERYTHING
            case Load():
                return self._load(e)
            case Param(name=name):
                return self.given.get(name, EVERYTHING)
            case Op(op="sub", args=(a, b)):
                found = _meet(outward(sub(self.of(a), self.of(b))), self._against_extreme(a, b))
                return _meet(found, outward(at_corners(e, self.of)))
            case Op(op="add", args=(a, b)):
                return _meet(outward(add(self.of(a), self.of(b))), outward(at_corners(e, self.of)))
            case Op(op="div", args=(a, b)):
                return _meet(outward(div(self.of(a), self.of(b))), _meet(self._share(a, b), self._unit(a, b, True)))
            case Op(op="select", args=(_, a, b)):
                return joined(self.of(a), self.of(b))
            case Op(op="cast" | "narrow", args=(a,)):
                return _rounded(self.of(a), e.dtype)
            case Op(op="mul", args=(a, b)) if a == b:
                return outward(square(self.of(a)))
            case Op(op="mul", args=(a, b)):
                unit = _meet(self._unit(a, b, False), self._unit(b, a, False))
                return _meet(outward(mul(self.of(a), self.of(b))), unit)
            case Op(op="pow", args=(a, Const(value=n))) if float(n).is_integer() and abs(n) <= 64:
                return outward(power(self.of(a), int(n)))
            case Op(op=op, args=args) if (rule := FUNCTIONS[op].interval) is not None:
                return outward(rule(*(self.of(a) for a in args)), FUNCTIONS[op].is_exact)
        return EVERYTHING

    def _integer(self, e: Expr) -> Interval:
        """The interval of an integer, which is index arithmetic or a load; all of the type if it could wrap."""
        if isinstance(e, Load):
            return self._load(e)
        known, assumptions = axis_assumptions(self.axes)
        lo, hi = bounds(e, known, assumptions if self.guard is None else (*assumptions, self.guard))
        found = _wrapped((-_INF if lo is None else float(lo), _INF if hi is None else float(hi)), e.dtype)
        return _meet(found, _wrapped(self._of_elements(e), e.dtype))

    def _of_elements(self, e: Expr) -> Interval:
        """The interval of an integer from those of its parts, which may be elements of tensors."""
        match e:
            case Op(op="select", args=(_, a, b)):
                return joined(self.of(a), self.of(b))
            case Op(op="cast", args=(a,)) if not a.dtype.is_float:
                return self.of(a)
            case Op(op="floordiv", args=(a, Const(value=n))) if n > 0 and math.isfinite(n):
                lo, hi = self.of(a)
                return lo // n, hi // n
            case Op(op="mod", args=(a, Const(value=n))) if n > 0:
                lo, hi = self.of(a)
                return (lo, hi) if lo >= 0 and hi < n else (0.0, n - 1.0)
            case Op(op=op, args=args) if op in _EXACT:
                rule = FUNCTIONS[op].interval
                return EVERYTHING if rule is None else outward(rule(*map(self.of, args)), e.dtype.bits <= 32)
        return EVERYTHING

    def _load(self, e: Load) -> Interval:
        d = self.defs.get(e.buffer)
        if d is None or self.depth > 16 or d.scatter is not None or (d.op is None and d.guard is not None):
            whole = EVERYTHING if self.infinite and e.dtype.is_float else value_limits(e.dtype)
            return _meet(whole, self.given.get(e.buffer, EVERYTHING))
        key = (e.buffer, self.depth)
        if key not in self.elements:
            self.elements[key] = self._element(d)
        lo, hi = self.elements[key]
        whole = EVERYTHING if self.infinite and e.dtype.is_float else value_limits(e.dtype)
        return _meet(_rounded((lo, hi), e.dtype), whole)

    def _element(self, d: Def) -> Interval:
        """The interval of the elements of ``d``, before they are stored."""
        inner = Ranges(
            self.defs, d.axes, d.guard, self.depth + 1,
            given=self.given, infinite=self.infinite, elements=self.elements,
        )  # fmt: skip
        lo, hi = inner.of(d.value)
        if d.op == "sum":
            count = math.prod(a.extent if isinstance(a.extent, int) else _INF for a in d.red)
            lo, hi = outward((times(min(lo, 0.0), count), times(max(hi, 0.0), count)))
        elif d.op == "prod":
            lo, hi = (0.0, 1.0) if lo >= 0 and hi <= 1 else EVERYTHING
        elif d.op in ("max", "min") and nonempty(d) != TRUE:  # an empty domain gives the identity
            lo, hi = (-_INF, hi) if d.op == "max" else (lo, _INF)
        return lo, hi

    # -- relations to reductions ----------------------------------------------------------------------
    def _against_extreme(self, a: Expr, b: Expr) -> Interval:
        """The interval of ``a - b`` if one is the maximum or minimum of a reduction and the other is its element."""
        if self._at_most(a, b):
            return -_INF, 0.0
        if self._at_most(b, a):
            return 0.0, _INF
        return EVERYTHING

    def _at_most(self, a: Expr, b: Expr) -> bool:
        """Whether a relation to a reduction proves ``a <= b``."""
        if self._is_element(a, b, "max") or self._is_element(b, a, "min"):
            return True
        match b:
            case Op(op="max", args=(p, q)) if self._at_most(a, p) or self._at_most(a, q):
                return True
            case Op(op="add", args=(p, q)):
                for x, y in ((p, q), (q, p)):
                    if (self.of(y)[0] >= 0 and self._at_most(a, x)) or self._in_logarithm(a, x, y):
                        return True
        match a:
            case Op(op="min", args=(p, q)):
                return self._at_most(p, b) or self._at_most(q, b)
            case Op(op="select", args=(c, p, Const(value=v))) if v == -_INF:
                return self._where(c)._at_most(p, b)
            case Op(op="select", args=(c, Const(value=v), p)) if v == -_INF:
                return self._where(negated(c))._at_most(p, b)
        return False

    def _where(self, c: Expr) -> Ranges:
        """The ranges at the points where ``c`` holds too."""
        return replace(self, guard=conjunction((self.guard, c)), memo={})

    def _in_logarithm(self, a: Expr, shift: Expr, b: Expr) -> bool:
        """Whether ``b`` is the logarithm of a sum that contains ``exp(a - shift)``."""
        match b:
            case Op(op="log", args=(total,)):
                term = Op("exp", (Op("sub", (a, shift), a.dtype),), a.dtype)
                return self._is_part(term, total)
        return False

    def _is_part(self, a: Expr, b: Expr) -> bool:
        """Whether ``b`` is a sum of ``a >= 0`` and other numbers that are not negative."""
        if a == b:
            return self.of(a)[0] >= 0
        match b:
            case Load():
                return self.of(a)[0] >= 0 and self._is_element(a, b, "sum")
            case Op(op="add", args=(p, q)):
                return any(self.of(y)[0] >= 0 and self._is_part(a, x) for x, y in ((p, q), (q, p)))
        return False

    def _share(self, a: Expr, b: Expr) -> Interval:
        """The interval of ``a / b`` if ``b`` is the sum of ``a`` and other non-negative numbers."""
        return (0.0, 1.0) if self._is_part(a, b) else EVERYTHING

    def _unit(self, a: Expr, b: Expr, divided: bool) -> Interval:
        """The interval of ``a / b`` if ``b`` is a norm that contains ``a``, or of ``a * b`` if it is its inverse."""
        match b:
            case Op(op="sqrt", args=(norm,)) if divided:
                found = self._scaled_sum(norm)
            case Op(op="rsqrt", args=(norm,)) | Op(op="rcp", args=(Op(op="sqrt", args=(norm,)),)) if not divided:
                found = self._scaled_sum(norm)
            case _:
                return EVERYTHING
        if found is None:
            return EVERYTHING
        c, total = found
        for squared in (Op("mul", (a, a), a.dtype), Op("pow", (a, Const(2.0, a.dtype)), a.dtype)):
            if self._is_element(squared, total, "sum"):
                _, top = outward((0.0, 1 / math.sqrt(c)))
                return -top, top
        return EVERYTHING

    def _scaled_sum(self, e: Expr) -> tuple[float, Expr] | None:
        """``(c, r)`` where ``e`` is at least ``c * r`` with a constant ``c > 0`` and a load ``r``."""
        match e:
            case Load():
                return 1.0, e
            case Op(op="add", args=(a, b)):
                for x, rest in ((a, b), (b, a)):
                    found = self._scaled_sum(x) if self.of(rest)[0] >= 0 else None
                    if found is not None:
                        return found
            case Op(op="mul" | "div" as name, args=(a, Const(value=v))) if v > 0:
                found = self._scaled_sum(a)
                return None if found is None else (found[0] * v if name == "mul" else found[0] / v, found[1])
        return None

    def _is_element(self, x: Expr, r: Expr, op: str) -> bool:
        """Whether ``r`` loads a reduction ``op`` and ``x`` is its element at some point of its domain."""
        d = self.defs.get(r.buffer) if isinstance(r, Load) else None
        if d is None or d.op != op or d.at is not None or not isinstance(r, Load):
            return False
        fixed = {a.name: i for a, i in zip(d.par, r.index, strict=True)}
        found: dict[str, Expr] = {}
        names = frozenset(a.name for a in d.red)
        if not _match(d.value, x, names, fixed, found):
            return False
        at = {**fixed, **found}
        known, assumptions = axis_assumptions(self.axes)
        given = assumptions if self.guard is None else (*assumptions, self.guard)
        for a in d.red:
            if a.name not in found or not self._within(found[a.name], a, given):
                return False
        parts = () if d.guard is None else conjuncts(d.guard)
        have = () if self.guard is None else conjuncts(self.guard)
        return all(p in have or simplify(p, known, given) == TRUE for p in (substitute(q, at) for q in parts))

    def _within(self, e: Expr, axis: Axis, given: tuple[Expr, ...]) -> bool:
        """Whether ``0 <= e < extent`` is proved at all points of ``axes`` where ``given`` holds."""
        known, _ = axis_assumptions(self.axes)
        return all(simplify(c, known, given) == TRUE for c in within(e, axis.extent))


def _match(pattern: Expr, e: Expr, names: frozenset[str], fixed: Mapping[str, Expr], found: dict[str, Expr]) -> bool:
    """Whether ``e`` is ``pattern`` with ``fixed`` substituted and the variables ``names`` replaced as in ``found``."""
    if isinstance(pattern, Var):
        if pattern.name in names:
            return found.setdefault(pattern.name, e) == e and e.dtype is pattern.dtype
        return e == fixed.get(pattern.name, pattern)
    if type(pattern) is not type(e) or pattern.dtype is not e.dtype:
        return False
    match pattern, e:
        case (Op(op=p), Op(op=q)) if p != q:
            return False
        case (Load(buffer=p), Load(buffer=q)) if p != q:
            return False
        case (Const() | Param(), _):
            return pattern == e
    a, b = children(pattern), children(e)
    return len(a) == len(b) and all(_match(x, y, names, fixed, found) for x, y in zip(a, b, strict=True))


# -- intervals of stored values --------------------------------------------------------------------


def _rounded(a: Interval, dtype: DType) -> Interval:
    """The interval of the values of ``a`` rounded to ``dtype``."""
    if dtype.is_int:
        return _wrapped(a, dtype)
    if dtype in (DType.F32, DType.F64, DType.BOOL):
        return a
    slack = 2.0**-dtype.mantissa
    return a[0] - abs(a[0]) * slack, a[1] + abs(a[1]) * slack


def _wrapped(a: Interval, dtype: DType) -> Interval:
    """``a``, or all values of the integer type ``dtype`` where ``a`` exceeds them."""
    lo, hi = value_limits(dtype)
    return a if not dtype.is_int or (lo <= a[0] and a[1] <= hi) else (lo, hi)


def _meet(a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), min(a[1], b[1])
