"""``unscale-maxima``: a running maximum of scaled elements becomes the scaled running maximum of the elements.

    for carry(m = -inf)  { n = max(m, v * c); yield n }
    ->  for carry(m' = -inf) { m = m' * c; n' = max(m', v); n = n' * c; yield n' }

with ``c`` a finite positive constant.  The values are equal bit for bit, because rounding and multiplication by ``c``
are monotone: the larger of two rounded products is the rounded product of the larger factor.  -inf times ``c`` is -inf
and a NaN stays.  The pass applies to consecutive loops that carry one maximum if all of them have the same ``c``.

A maximum that is guarded, ``select(m == -inf, 0, m)``, follows, and so does the larger one of two copies.  The larger
one of the maximum and another number ``y``, which is a reference as well, stays in the units of ``y``: ``y / c`` may
overflow, and where ``c`` is no power of two, ``y / c * c`` is not always ``y``.  Where ``c`` is a power of two, such a
maximum stays scaled everywhere: scaling its elements is exact, so ``guard-exponents`` needs no units of theirs, and
all references remain copies of one.

Afterwards an exponent ``(x * c - m) * k`` is ``(x - m') * (c * k)``: the element and its reference have the same
factor (``fold-scale``), which ``guard-exponents`` needs to subtract them without an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from nautilus.core.expr.quotients import is_power_of_two
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileType
from nautilus.core.types import DType
from nautilus.vr_tile.ir import ConstOp, ForOp, MapOp, TileKernel, TileModule, TileOp, Value, walk_ops
from nautilus.vr_tile.passes.lazy_rescale import Family, families, maximum_of
from nautilus.vr_tile.rewriting import Peephole, each_kernel

Constants = Mapping[str, int | float | bool]


@dataclass(frozen=True, slots=True)
class UnscaleMaxima:
    """Carry maxima in the units of their elements."""

    name = "unscale-maxima"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with the common factor of every running maximum outside of it."""
        return each_kernel(module, _kernel)


def _kernel(k: TileKernel) -> TileKernel:
    for n in range(len(families(k))):  # a rewritten loop has a new name
        family = families(k)[n]
        constants = {op.result.name: op.value for op in walk_ops(k.body) if isinstance(op, ConstOp)}
        c = _common_factor(k, family, constants)
        if c is not None:
            work = _Rewrite(Peephole(k), family, c, constants)
            unscaled = work.kernel(k)
            k = k if work.mixed and is_power_of_two(c) else unscaled
    return k


def _loops(k: TileKernel, family: Family) -> Iterator[ForOp]:
    for op in walk_ops(k.body):
        if isinstance(op, ForOp) and op.results and op.results[0].name in family:
            yield op


def _common_factor(k: TileKernel, family: Family, constants: Constants) -> float | None:
    """The factor of every element of the maximum in all loops of ``family``, or None."""
    ends: set[str] = set()
    found: set[float | None] = set()
    for loop in _loops(k, family):
        slot, new = family[loop.results[0].name]
        arg, init = loop.carried[slot]
        if arg.type.dtype is not DType.F32 or not (constants.get(init.name) == -math.inf or init.name in ends):
            return None
        ends.add(loop.results[slot].name)
        defs = {x.result.name: x for x in loop.body if isinstance(x, MapOp)}
        found |= {_scaled(defs, constants, v)[1] for v in maximum_of(defs, new) if v != arg}
    c = found.pop() if len(found) == 1 else None
    return c if c is not None and 0 < c < math.inf and c != 1.0 else None


def _scaled(defs: dict[str, MapOp], constants: Constants, v: Value) -> tuple[Value, float] | tuple[None, None]:
    """``(x, c)`` where ``v`` is ``x * c`` with a constant ``c`` for all elements."""
    op = defs.get(v.name)
    if op is not None and op.op == "mul":
        for x, c in (op.args, op.args[::-1]):
            if c.name in constants and not c.type.axes and x.type == v.type:
                return x, float(constants[c.name])
    return None, None


@dataclass(slots=True)
class _Rewrite:
    names: Peephole
    family: Family
    factor: float
    constants: Constants
    ends: dict[str, Value] = field(default_factory=dict)  # result of a loop -> its result in units of the elements
    plain: dict[str, Value] = field(default_factory=dict)  # scaled maximum -> the maximum in units of the elements
    equal: dict[str, tuple[Value, ...]] = field(default_factory=dict)  # comparison -> the two that it compares
    mixed: bool = False  # whether another number is compared with the maximum

    def kernel(self, k: TileKernel) -> TileKernel:
        c = self.names.fresh(TileType(DType.F32))
        body = [x for op in k.body for x in self._op(op, c)]
        return replace(k, body=(ConstOp(c, self.factor), *body))

    def _op(self, op: TileOp, c: Value) -> Iterator[TileOp]:
        if isinstance(op, MapOp) and op.op == "eq":
            self.equal[op.result.name] = op.args
            yield op
        elif isinstance(op, MapOp) and op.op == "select":
            yield from self._guarded(op, c)
        elif isinstance(op, MapOp):
            yield from self._larger(op, c)
        elif not isinstance(op, ForOp):
            yield op
        elif not op.results or op.results[0].name not in self.family:
            yield replace(op, body=tuple(x for inner in op.body for x in self._op(inner, c)))
        else:
            yield from self._loop(op, c)

    def _loop(self, op: ForOp, c: Value) -> Iterator[TileOp]:
        slot, new = self.family[op.results[0].name]
        arg, init = op.carried[slot]
        own, end = (self.names.fresh(arg.type, n.name) for n in (arg, op.results[slot]))
        body: list[TileOp] = [MapOp(arg, "mul", (own, c), op.span)]
        self.plain[arg.name] = last = own
        parts = _inner_maxima({x.result.name: x for x in op.body if isinstance(x, MapOp)}, new)
        for x in op.body:
            if x == _definition(op, new):
                last, ops = self._maximum(op, new, own, x)
                body += [*ops, MapOp(new, "mul", (last, c), x.span)]
                self.plain[new.name] = last
            elif isinstance(x, MapOp) and x.result in parts:
                body.append(x)
            else:
                body += self._op(x, c)
        pair = (own, self.ends.get(init.name, init))
        self.ends[op.results[slot].name] = self.plain[op.results[slot].name] = end
        yield replace(
            op,
            results=_put(op.results, slot, end),
            carried=_put(op.carried, slot, pair),
            body=tuple(body),
            yields=_put(op.yields, slot, last),
        )
        yield MapOp(op.results[slot], "mul", (end, c), op.span)

    def _larger(self, op: MapOp, c: Value) -> Iterator[TileOp]:
        """``op``, or the larger of two copies of the maximum in units of the elements, times the factor."""
        copies = [self.plain[a.name] for a in op.args if a.name in self.plain]
        if op.op != "max" or len(copies) != 2:
            self.mixed |= op.op == "max" and [v.type for v in copies] == [op.result.type]
            yield op
            return
        larger = self.plain[op.result.name] = self.names.fresh(op.result.type)
        yield MapOp(larger, "max", (copies[0], copies[1]), op.span)
        yield MapOp(op.result, "mul", (larger, c), op.span)

    def _guarded(self, op: MapOp, c: Value) -> Iterator[TileOp]:
        """``op``, or the choice of 0 for a maximum of -inf in units of the elements, times the factor."""
        test, zero, maximum = op.args
        left, none = self.equal.get(test.name, (zero, zero))
        known = [self.constants.get(x.name) for x in (zero, none)]
        if maximum.name not in self.plain or left != maximum or known != [0.0, -math.inf]:
            yield op
            return
        plain, found = self.plain[maximum.name], self.names.fresh(test.type)
        yield MapOp(found, "eq", (plain, none), op.span)
        chosen = self.plain[op.result.name] = self.names.fresh(op.result.type)
        yield MapOp(chosen, "select", (found, zero, plain), op.span)
        yield MapOp(op.result, "mul", (chosen, c), op.span)

    def _maximum(self, op: ForOp, new: Value, own: Value, at: TileOp) -> tuple[Value, list[TileOp]]:
        """The maximum of ``own`` and the elements without their factor."""
        defs = {x.result.name: x for x in op.body if isinstance(x, MapOp)}
        last, ops = own, list[TileOp]()
        for v in maximum_of(defs, new):
            x, _ = _scaled(defs, self.constants, v)
            if x is not None:
                result = self.names.fresh(new.type, new.name)
                ops.append(MapOp(result, "max", (last, x), at.span))
                last = result
        return last, ops


def _inner_maxima(defs: dict[str, MapOp], v: Value) -> set[Value]:
    """``v`` and the maxima of which it is the maximum."""
    op = defs.get(v.name)
    return {v}.union(*(_inner_maxima(defs, a) for a in op.args)) if op is not None and op.op == "max" else set()


def _definition(op: ForOp, v: Value) -> MapOp | None:
    return next((x for x in op.body if isinstance(x, MapOp) and x.result == v), None)


def _put(items: tuple, slot: int, new: object) -> tuple:  # type: ignore[type-arg]
    return (*items[:slot], new, *items[slot + 1 :])
