"""``guard-exponents``: an exponent ``(x - r) * k + n`` stays accurate where ``r * k`` is large.

``fold-scale`` computes it as ``fma(x, k, -t)`` with ``t = round(r * k - n)``, which is ``(x - r) * k + n + e`` rounded
once; ``|e|`` is at most half a unit in the last place of ``t``.  ``n`` is 0 or the constant of ``raise-exponents``.
``analysis.references`` groups the exponentials under one reference.  A group with ``|r * k| <= 2^10`` by the types of
the inputs is left alone: ``|e|`` is at most 2^-14.  Every other group has one of two forms.

**Rounded reference**, for closed groups whose ``x`` are sums of products rounded to f32::

    near = |r| < L;  c = select(near, k, f);  t = r * c - n             once a row, L = (2^24 - 16) / |k|
    exp2((x - r) * k + n)  ->  exp2(fma(x, c, -t))
    exp2((u - r) * k)      ->  exp2((u * c - n) - t)                    a repair; the product is rounded as in t
    exp2((y * s - r) * k)  ->  exp2(fma(y, c * s, -t))                  an element or a term, s a power of two

``f`` is the power of two in ``(a k / 2, a k]`` with ``a = 127/128``.

* Near rows: ``t`` itself is the reference of elements and repairs, so all sums of a row have the common factor
  ``2^e``, which cancels.  ``|e|`` is at most 1/2: an exponential of at most ``2^15`` over the maximum still fits f16.
  The difference of two references is exact or rounded relative to itself, so no other error depends on ``|t|``.
* Far rows: ``x * c`` and ``r * c`` are exact.  Elements that equal the reference have one exponential: a row that holds
  one number (a masked row) is uniform.  Other elements have the exponent ``d * c / k`` instead of ``d = (x - r) * k``.
  This is the exponent of an ``x`` that is off by less than ``0.51 |d|`` units in the last place of ``r``, because a
  unit changes the exponent by 1 at least.  For ``|d|`` up to 8 this is in the order of the error of a sum of products;
  other exponentials are at most ``2^-3.9`` of the largest either way.
* Far rows round ``n`` to the units of ``t``, which gives at most ``n + 1`` where ``n`` is 1, 3 or 7.  An element above
  a lazy reference is at most ``2^(a bits)`` times as large, so that it fits f16 where ``n + bits <= 15``.
* A reference that moves between near and far has repairs in the units of the new row.  They are 0, or old and new
  reference agree up to the error of ``x``.
* Elements that a power of two scales are beside a reference of scaled elements: ``c * s`` and ``y * s`` are exact.
* A term is a number that the sums hold beside the elements, at most equal to the reference.  Its exponential has the
  ``c`` and ``t`` of the row, so that the common factor and the argument for far rows are those of the elements.
* ``r * c`` does not overflow: ``f`` is at most 1, or the range of ``r`` permits it.  An ``r`` of inf or NaN is far,
  and the element is NaN as in ``x - r``.  An old reference of -inf has the repair 0.
* A guarded reference ``select(u == -inf, 0, u)`` is read as ``max(u, lowest)`` where ``0 < f <= 1``: one instruction
  instead of two.  A row whose ``u`` is -inf has elements and repairs of exp2(-inf) with either reference.

**Difference**, for all other groups: ``(x - r) * k + n``, an operation more for each element.  A reference that has
another factor than ``x``, as the larger one of a number and of a maximum of scores times no power of two, has
``(x * s - r) * k + n``, unless it is an input beside sums of products.  No element is equal to such a reference, so the
rounding of the sums is as large as ``e``.  Numbers that are loaded are exact at any size, and an open group needs the
reference that it stores.  Memory bounds most kernels of such groups.

Both forms are equations over the reals, except for far rows.  Requires: ``x``, ``r`` in f32.
"""

from __future__ import annotations

import math
from dataclasses import field

from nautilus.core.buffers import Space
from nautilus.core.expr.quotients import is_power_of_two
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileType
from nautilus.core.types import DType, value_limits
from nautilus.vr_tile.analysis.references import Element, Group, References, Repair
from nautilus.vr_tile.analysis.value_range import Ranges, value_ranges
from nautilus.vr_tile.ir import MapOp, TileKernel, TileModule, TileOp, Value
from nautilus.vr_tile.passes.dce import Dce
from nautilus.vr_tile.rewriting import Peephole, each_kernel

#: The largest |t| of a group that is left alone.
SMALL = 2.0**10
#: Rows with a smaller |r * k| are near: half a unit in the last place of t is at most 1/2.
NEAR = 2.0**24 - 16.0
#: The constants n that far rows permit.
RAISED = (0.0, 1.0, 3.0, 7.0)
#: The factor of far rows is at most this share of the factor of near rows.
_BELOW = 127 / 128


@dataclass(frozen=True, slots=True)
class GuardExponents:
    """Keep the rounding of large references out of exponents."""

    name = "guard-exponents"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with accurate exponents."""
        module = Dce().apply(module)  # a dead reader would open a group
        own = frozenset(b.name for b in module.buffers if b.space is Space.INPUT)
        return each_kernel(module, lambda k: _kernel(k, own))


def _kernel(k: TileKernel, own: frozenset[str]) -> TileKernel:
    references = References(k)
    groups = [g for g in references.groups() if not _is_apart(g, references, own)]
    if not groups:
        return k
    guard = _Guard()
    ranges = value_ranges(k)
    for group in groups:
        guard.plan(group, references, ranges)
    return Peephole(k).run(guard.rule)


def _is_apart(group: Group, references: References, own: frozenset[str]) -> bool:
    """Whether the elements are scaled sums of products under references that are inputs, the ``own`` numbers."""
    return all(
        e.scale != 1.0 and references.is_rounded_sum(e.x) and references.loaded(e.reference) in own
        for e in group.elements
    )


@dataclass(frozen=True, slots=True)
class _Factors:
    """The factor of near rows and of far rows, the |reference| from which a row is far (None: no row is), and ``n``."""

    near: float
    far: float
    limit: float | None
    raised: float


@dataclass(slots=True)
class _Guard:
    #: exponential -> what it is, and its factors (None: the difference)
    plans: dict[str, tuple[Element | Repair, _Factors | None]] = field(default_factory=dict)
    rows: dict[str, tuple[Value, Value]] = field(default_factory=dict)  # reference -> c, t in the current block

    def plan(self, group: Group, references: References, ranges: Ranges) -> None:
        """Select the form of ``group``."""
        if max(ranges.largest(e.reference) * abs(e.factor) for e in group.elements) <= SMALL:
            return
        rounded = group.closed and all(references.is_rounded_sum(e.x) for e in group.elements)
        factors = _factors(group, ranges) if rounded else None
        repairs = group.repairs if factors is not None else ()
        parts: tuple[Element | Repair, ...] = (*group.elements, *(group.terms if group.closed else ()), *repairs)
        for part in parts:
            self.plans[part.result.name] = part, factors

    def rule(self, p: Peephole, op: TileOp) -> Value | None:
        if not isinstance(op, MapOp) or op.result.name not in self.plans:
            return None
        part, factors = self.plans[op.result.name]
        r = p.env.get(part.reference.name, part.reference)
        if factors is not None:
            c, t = self._row(p, r, factors)
            if isinstance(part, Repair):
                old = p.env.get(part.old.name, part.old)
                return p.map("exp2", [p.map("sub", [_scaled(p, old, c, factors.raised), t])])
            if part.scale != 1.0:
                c = p.map("mul", [c, p.const(part.scale, TileType(DType.F32))])
            return p.map("exp2", [p.map("fma", [p.env.get(part.x.name, part.x), c, p.map("neg", [t])])])
        assert isinstance(part, Element)
        k = p.const(part.factor, TileType(DType.F32))
        return p.map("exp2", [_scaled(p, _difference(p, part, r), k, -part.raised)])

    def _row(self, p: Peephole, r: Value, factors: _Factors) -> tuple[Value, Value]:
        """``c`` and ``t`` of the reference, once in a block."""
        if r.name not in self.rows or not p.is_here(self.rows[r.name][1]):
            scalar = TileType(DType.F32)
            c = p.const(factors.near, scalar)
            key, r = r.name, _finite(p, r, factors)
            if factors.limit is not None:
                near = p.map("lt", [p.map("abs", [r]), p.const(factors.limit, scalar)])
                c = p.select(near, c, p.const(factors.far, scalar))
            self.rows[key] = c, _scaled(p, r, c, factors.raised)
            return self.rows[key]
        return self.rows[r.name]


def _difference(p: Peephole, e: Element, r: Value) -> Value:
    """``x * scale - r``, in which a product that equals the reference leaves 0: it is rounded, or it is exact."""
    x = p.env.get(e.x.name, e.x)
    if e.scale == 1.0:
        return p.map("sub", [x, r])
    scale = p.const(e.scale, TileType(DType.F32))
    if is_power_of_two(e.scale):
        return p.map("fma", [x, scale, p.map("neg", [r])])
    return p.map("sub", [p.map("mul", [x, scale]), r])


def _finite(p: Peephole, r: Value, factors: _Factors) -> Value:
    """``r``, or the maximum of the lowest number and the value that ``r`` guards against -inf."""
    match p.producer(r):
        case MapOp(op="select", args=(test, zero, u)) if p.constant(zero) == 0.0 and 0.0 < factors.far <= 1.0:
            guard = p.producer(test)
            top, bottom = guard.args if isinstance(guard, MapOp) and guard.op == "eq" else (None, None)
            if top == u and bottom is not None and p.constant(bottom) == float("-inf"):
                return p.map("max", [u, p.const(value_limits(DType.F32)[0], TileType(DType.F32))])
    return r


def _scaled(p: Peephole, v: Value, c: Value, n: float) -> Value:
    """``v * c - n``."""
    return p.map("mul", [v, c]) if n == 0.0 else p.map("fma", [v, c, p.const(-n, TileType(DType.F32))])


def _factors(group: Group, ranges: Ranges) -> _Factors | None:
    """The factors of the group's rows.

    None if it has several factors, an n that far rows do not permit, or an ``r * c`` that may overflow.
    """
    if not group.is_uniform:
        return None
    k, raised = group.elements[0].factor, group.elements[0].raised
    largest = max(ranges.largest(e.reference) for e in group.elements)
    far = math.copysign(2.0 ** math.floor(math.log2(abs(k) * _BELOW)), k)
    if raised not in RAISED or (abs(far) > 1.0 and largest * abs(far) > value_limits(DType.F32)[1]):
        return None
    return _Factors(k, far, NEAR / abs(k) if largest * abs(k) >= NEAR else None, raised)
