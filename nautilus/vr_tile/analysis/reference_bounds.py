"""Bounds of exponentials under a reference that lags behind the running maximum (lazy rescaling).

An exponent ``k * (x - r)`` is at most ``k * (m - r)`` where ``m`` is the maximum of the very elements ``x`` (and of
others).  Both sides are brought to linear forms over values and matched: ``fma(s, 0.18, r * -1.44)`` next to
``m = max(_, 0.125 * reduce max s)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from nautilus.core.numerics import LOG2E
from nautilus.core.records import dataclass
from nautilus.core.types import LARGEST
from nautilus.vr_tile.analysis.invariance import Forms
from nautilus.vr_tile.ir import ConstOp, ForOp, MapOp, ReduceOp, TileOp, Value, operands, walk_ops

_ONE = ""  # the name of the constant term


@dataclass(frozen=True, slots=True)
class _Linear:
    """``sum of weight * value``; ``masks`` are the conditions outside of which it is -inf."""

    terms: Mapping[str, float]
    masks: frozenset[str] = frozenset()

    def plus(self, other: _Linear, k: float = 1.0) -> _Linear:
        names = self.terms.keys() | other.terms.keys()
        terms = {n: self.terms.get(n, 0.0) + k * other.terms.get(n, 0.0) for n in names}
        return _Linear({n: w for n, w in terms.items() if w}, self.masks | other.masks)

    def times(self, k: float) -> _Linear:
        return _Linear({n: w * k for n, w in self.terms.items()}, self.masks)


def _close(a: _Linear, b: _Linear) -> bool:
    size = max(map(abs, a.terms.values()), default=0.0)
    return all(abs(w) <= 1e-6 * size for w in a.plus(b, -1.0).terms.values())


def drift_scale(loop: ForOp, slot: int, new: Value, forms: Forms, bits: int) -> float | str:
    """The largest ``k`` of an exponent under the reference of ``loop``, or the reason why there is no bound."""
    work = _Bounds(loop, loop.carried[slot][0], new, forms)
    elements = [work.element(v) for v in work.parts(new) if v != work.old]
    largest = 0.0
    for op in walk_ops(loop.body):
        if isinstance(op, MapOp) and op.op in ("exp", "exp2"):
            found = work.exponent(op, elements)
            if found is None:
                return f"the maximum does not provably bound the exponent of %{op.result.name}"
            largest = max(largest, found[0])
        elif isinstance(op, MapOp) and op.op in ("cast", "narrow") and not work.fits(op, bits, elements):
            return f"%{op.result.name} may overflow by the factor 2^{bits} over its value under the maximum"
    return largest


@dataclass(frozen=True, slots=True)
class _Bounds:
    loop: ForOp
    old: Value
    new: Value
    forms: Forms

    def producer(self, v: Value) -> TileOp | None:
        return self.forms.defs.get(v.name)

    def parts(self, v: Value) -> list[Value]:
        """The values whose maximum ``v`` is."""
        op = self.producer(v)
        if not isinstance(op, MapOp) or op.op != "max" or v == self.old:
            return [v]
        return [x for a in op.args for x in self.parts(a)]

    def linear(self, v: Value) -> _Linear:
        """``v`` as a linear form; what is masked to -inf counts as what it is elsewhere."""
        op = self.producer(v)
        if v in (self.old, self.new) or not isinstance(op, MapOp | ConstOp):
            return _Linear({v.name: 1.0})
        if isinstance(op, ConstOp):
            return _Linear({_ONE: float(op.value)} if op.value else {})
        numbers = [self.forms.number(a) for a in op.args]
        match op.op:
            case "add" | "sub":
                return self.linear(op.args[0]).plus(self.linear(op.args[1]), 1.0 if op.op == "add" else -1.0)
            case "neg":
                return self.linear(op.args[0]).times(-1.0)
            case "mul" if numbers[1] is not None:
                return self.linear(op.args[0]).times(numbers[1])
            case "mul" if numbers[0] is not None:
                return self.linear(op.args[1]).times(numbers[0])
            case "fma" if numbers[1] is not None:
                return self.linear(op.args[0]).times(numbers[1]).plus(self.linear(op.args[2]))
            case "select" if numbers[2] == -math.inf:
                inner = self.linear(op.args[1])
                return _Linear(inner.terms, inner.masks | {op.args[0].name})
            case "select" if numbers[1] is not None and self.forms.is_identity_test(op.args[0], op.args[2]):
                return self.linear(op.args[2])
        return _Linear({v.name: 1.0})

    def element(self, v: Value) -> _Linear:
        """What ``v`` is the maximum of: under a positive factor, the argument of its one ``reduce max``."""
        whole = self.linear(v)
        for name, weight in whole.terms.items():
            op = self.forms.defs.get(name)
            if isinstance(op, ReduceOp) and op.combiner == "max" and weight > 0:
                rest = _Linear({n: w for n, w in whole.terms.items() if n != name}, whole.masks)
                return self.linear(op.arg).times(weight).plus(rest)
        return whole

    def exponent(self, op: MapOp, elements: list[_Linear]) -> tuple[float, float] | None:
        """``(k, c)`` where the exponent (of 2) is at most ``k * (new - r) + c``; k is 0 where it only shrinks."""
        unit = LOG2E if op.op == "exp" else 1.0
        form = self.forms.of(op.args[0])
        old, new = form.weight(self.old.name) * unit, form.weight(self.new.name) * unit
        power = self.linear(op.args[0]).times(unit)
        if old == new == 0.0:
            return 0.0, 0.0
        if old > 0.0:
            return (0.0, 0.0) if _close(power, _Linear({self.old.name: old, self.new.name: -old})) else None
        if new >= 0.0 or old < 0.0:
            return None
        above = power.plus(_Linear({self.new.name: -new}))
        for x in elements:
            more, bound = x.masks - power.masks, x.times(-new)
            c = above.terms.get(_ONE, 0.0) - bound.terms.get(_ONE, 0.0)
            if _close(above, bound.plus(_Linear({_ONE: c}))) and (not more or self._masked(op.result, more)):
                return -new, c
        return None

    def _masked(self, v: Value, masks: frozenset[str]) -> bool:
        """Every reader selects 0 where one of ``masks`` fails."""
        readers = [x for x in walk_ops(self.loop.body) if v in operands(x)]
        selects = [x for x in readers if isinstance(x, MapOp) and x.op == "select"]
        fits = all({x.args[0].name} == masks and self.forms.number(x.args[2]) == 0.0 for x in selects)
        return fits and len(selects) == len(readers)

    def fits(self, op: MapOp, bits: int, elements: list[_Linear]) -> bool:
        """The rounded value, if it depends on the reference, is an exponential that its type can hold."""
        largest = LARGEST.get(op.result.type.dtype, math.inf)
        if self.forms.of(op.args[0]).kind == "fixed" or largest == math.inf:
            return True
        source = self.producer(op.args[0])
        while isinstance(source, MapOp) and source.op == "select" and self.forms.number(source.args[2]) == 0.0:
            source = self.producer(source.args[1])
        if not (isinstance(source, MapOp) and source.op in ("exp", "exp2")):
            return False
        found = self.exponent(source, elements)
        return found is not None and 2.0 ** (bits + found[1]) <= largest
