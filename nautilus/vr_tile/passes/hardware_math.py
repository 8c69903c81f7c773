"""``hardware-math``: computes ``tanh``, ``erf`` and ``sigmoid`` on the special function unit, if the contract permits.

Under ``precision`` fast, for f32 values::

    sigmoid x  ->  rcp(1 + exp2(x * -log2 e))           a few units of f32 for every x
    tanh x     ->  tanh_approx x                        relative error 2^-11 (PTX ISA, tanh.approx.f32)
    erf x      ->  tanh_approx(x * (a + b * x * x))     relative error 2^-10: 3.6e-4 of the form, 4.9e-4 of tanh.approx

``core.functions`` states the errors, and ``check.bound`` applies the same rule as this pass. The last two
errors are about that of a rounding to f16, so these forms apply only if every store that the value reaches rounds to an
output of 16 bits or fewer.  A value on which an index, a mask or a bound depends stays accurate.
``a`` and ``b`` minimise the largest relative error of the form over all x (both are positive, so the argument grows
with x).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.nodes import refs
from nautilus.core.functions import FUNCTIONS
from nautilus.core.numerics import LOG2E
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileType
from nautilus.core.types import DType
from nautilus.vr_tile.ir import (
    ForOp,
    LoadOp,
    MapOp,
    StoreOp,
    TileKernel,
    TileModule,
    TileOp,
    Value,
    expressions,
    operands,
    results,
    walk_ops,
)
from nautilus.vr_tile.rewriting import Peephole

ERF_FORM = (1.1287762290751422, 0.10070965186057083)


@dataclass(frozen=True, slots=True)
class HardwareMath:
    """Use approximate instructions; no change under ``precision`` strict."""

    precision: str = "fast"

    name = "hardware-math"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with f32 transcendentals in forms that the hardware computes."""
        if self.precision != "fast":
            return module
        if not any(_wanted(k) for k in module.kernels):
            return module
        exact = accurate_buffers(module)
        kernels = tuple(_kernel(k, exact) for k in module.kernels)
        return module if kernels == module.kernels else replace(module, kernels=kernels)


def _wanted(k: TileKernel) -> bool:
    return any(isinstance(op, MapOp) and op.op in _FORMS for op in walk_ops(k.body))


def _kernel(k: TileKernel, buffers: frozenset[str]) -> TileKernel:
    if not _wanted(k):
        return k
    exact = accurate(k, buffers)
    return Peephole(k).run(lambda p, op: _rule(p, op, exact))


def _rule(p: Peephole, op: TileOp, exact: frozenset[str]) -> Value | None:
    if not (isinstance(op, MapOp) and op.op in _FORMS and op.result.type.dtype is DType.F32):
        return None
    if op.op in _NARROW and op.result.name in exact:
        return None
    return _FORMS[op.op](p, op.args[0])


def _one(p: Peephole, value: float) -> Value:
    return p.const(value, TileType(DType.F32))


def _sigmoid(p: Peephole, x: Value) -> Value:
    power = p.map("exp2", [p.map("mul", [x, _one(p, -LOG2E)])])
    return p.map("rcp", [p.map("add", [power, _one(p, 1.0)])])


def _tanh(p: Peephole, x: Value) -> Value:
    return p.map("tanh_approx", [x])


def _erf(p: Peephole, x: Value) -> Value:
    a, b = (_one(p, c) for c in ERF_FORM)
    return p.map("tanh_approx", [p.map("mul", [x, p.map("fma", [p.map("mul", [x, x]), b, a])])])


_FORMS: Mapping[str, Callable[[Peephole, Value], Value]] = {"sigmoid": _sigmoid, "tanh": _tanh, "erf": _erf}
_NARROW = frozenset(f.name for f in FUNCTIONS.values() if any(a.narrow for a in f.approximations))
assert _FORMS.keys() > _NARROW


def accurate_buffers(module: TileModule) -> frozenset[str]:
    """The buffers whose elements must stay accurate.

    These are outputs of types other than floats of at most 16 bits, and temporaries from which a kernel computes
    a value that must stay accurate.
    """
    exact = frozenset(b.name for b in module.buffers if b.space is Space.OUTPUT and not _narrow(b))
    temporary = {b.name for b in module.buffers if b.space is Space.TEMP}
    while True:
        read = {
            op.buffer
            for k in module.kernels
            for needed in [accurate(k, exact)]
            for op in walk_ops(k.body)
            if isinstance(op, LoadOp) and op.result.name in needed
        }
        if read & temporary <= exact:
            return exact
        exact |= read & temporary


def _narrow(b: Buffer) -> bool:
    return b.dtype.is_float and b.dtype.bits <= 16


def accurate(k: TileKernel, buffers: frozenset[str]) -> frozenset[str]:
    """The values that reach one of ``buffers``, or on which an index, a mask or a bound depends."""
    needed: set[str] = set()
    size = -1
    ops = list(walk_ops(k.body))
    while len(needed) != size:
        size = len(needed)
        for op in reversed(ops):
            for e in expressions(op):
                needed |= refs(e)
            if isinstance(op, StoreOp):
                if op.buffer in buffers:
                    needed.add(op.value.name)
            elif isinstance(op, ForOp):
                needed |= _through(op, needed)
            elif any(r.name in needed for r in results(op)):
                needed |= {v.name for v in operands(op)}
    return frozenset(needed)


def _through(op: ForOp, needed: set[str]) -> set[str]:
    """The argument, initial value and yield of every carried value whose result or argument is in ``needed``."""
    out: set[str] = set()
    for result, (arg, init), y in zip(op.results, op.carried, op.yields, strict=True):
        if result.name in needed or arg.name in needed:
            out |= {arg.name, init.name, y.name}
    return out
