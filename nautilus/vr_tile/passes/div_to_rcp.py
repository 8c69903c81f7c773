"""``div-to-rcp``: multiplies by the reciprocal of a divisor that has fewer elements than the quotient.

``x / r`` becomes ``x * rcp(r)`` if ``r`` lacks an axis of the result: one reciprocal a row instead of a division an
element.  The pass applies only under ``precision`` fast, because it rounds twice instead of once, and only to f32.

Domain.  Over the reals the rule is exact for every r but 0, and IEEE special values agree: ``0 * rcp(0)`` is NaN like
``0 / 0``, ``x * rcp(0)`` is inf, and ``x * rcp(inf)`` is 0.  The instruction flushes subnormal operands and results to
0, so ``rcp(r)`` is inf for |r| < 2^-126 and 0 for |r| > 2^126, where ``x / r`` may be any number.  Unless the range of
``r`` excludes both, a power of two brings it back::

    s = select(|r| > 2^100, 2^-64, select(|r| < 2^-100, 2^64, 1))       (once a row)
    mul_unless_one(x, s) * rcp(r * s)

The multiplication of ``x`` is skipped by a warp whose rows are ordinary.  Where ``x * s`` leaves the range of f32, so
does ``x / r``.  A divisor that sums exponentials is not scaled: under a maximum it is in [1, n], and without one the
exponentials themselves leave the range of f32 within 2 binades.

``1 / r`` of a whole tile becomes ``rcp(r)``: the result is inf for |r| < 2^-126 and 0 for |r| > 2^126.

Division by a constant becomes multiplication by its inverse, also under strict if the inverse is exact (a power of
two).

A quotient of two numbers without roundings stays exact where a function that jumps depends on it, such as ``round``,
because its last bit may decide (:mod:`nautilus.core.expr.quotients`).  If ``r`` lacks an axis of the result, it is
``div_by(x, r, 1 / r)``: the division of one element a row, and three operations an element, which give the same bits
(Markstein, 1990; all pairs of significands whose quotient is close to a tie were tried).  That takes a normal
reciprocal and a normal remainder: ``r`` is scaled as above where it is not in [2^-40, 2^40], and a quotient may differ
in its last bit below 2^-62, where the remainder is subnormal.  A quotient next to the largest number may be inf.
"""

from __future__ import annotations

import math

from nautilus.core.expr.quotients import EXACT, is_power_of_two, jumps
from nautilus.core.functions.intervals import Interval, magnitude
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileType
from nautilus.core.types import DType
from nautilus.vr_tile.analysis.value_range import Ranges, value_ranges
from nautilus.vr_tile.ir import (
    ConstOp,
    ForOp,
    IndexOp,
    LoadOp,
    MapOp,
    ParamOp,
    ReduceOp,
    TileKernel,
    TileModule,
    TileOp,
    Value,
    walk_ops,
)
from nautilus.vr_tile.rewriting import Peephole, each_kernel

_ORDINARY = 2.0**100  # a divisor up to it, and from its inverse on, has a normal reciprocal
_NORMAL_REMAINDER = 2.0**40  # the same, and so have the remainders of quotients from 2^-62 on


@dataclass(frozen=True, slots=True)
class DivToRcp:
    """Replace divisions by multiplications with reciprocals."""

    precision: str = "fast"

    name = "div-to-rcp"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with divisions by broadcast values replaced."""
        return each_kernel(module, self._kernel)

    def _kernel(self, k: TileKernel) -> TileKernel:
        if not any(isinstance(op, MapOp) and op.op == "div" for op in walk_ops(k.body)):
            return k
        ranges = value_ranges(k) if self.precision == "fast" else Ranges()
        read = _read_by_jumps(k)
        return Peephole(k).run(lambda p, op: self._rule(p, op, ranges, read))

    def _rule(self, p: Peephole, op: TileOp, ranges: Ranges, read: frozenset[str]) -> Value | None:
        if not (isinstance(op, MapOp) and op.op == "div" and op.result.type.dtype is DType.F32):
            return None
        x, r = op.args
        c = p.constant(r)
        exact = c is not None and is_power_of_two(c)
        if not exact and op.result.name in read and _is_exact(p, x) and _is_exact(p, r):
            return _by_reciprocal(p, op, ranges)
        if c is not None and (self.precision == "fast" or exact) and _invertible(c):
            return p.map("mul", [x, p.const(1.0 / float(c), r.type)])
        if self.precision != "fast" or c is not None:
            return None
        if p.constant(x) == 1.0 and r.type == op.result.type:
            return p.map("rcp", [r])
        if len(r.type.axes) < len(op.result.type.axes):
            if not (_ordinary(ranges.of(r)) or _sums_exponentials(p, r)):
                x, r = _scaled(p, op, _ORDINARY)
            return p.map("mul", [x, p.map("rcp", [r])])
        return None


def _by_reciprocal(p: Peephole, op: MapOp, ranges: Ranges) -> Value | None:
    """The quotient by ``div_by``; None where each element has its own divisor."""
    x, r = op.args
    if len(r.type.axes) == len(op.result.type.axes):
        return None
    c = p.constant(r)
    least, most = magnitude(ranges.of(r) if c is None else (float(c), float(c)))
    if not (least >= 1 / _NORMAL_REMAINDER and most <= _NORMAL_REMAINDER):
        x, r = _scaled(p, op, _NORMAL_REMAINDER)
    return p.map("div_by", [x, r, p.map("div", [p.const(1.0, r.type), r])])


def _scaled(p: Peephole, op: MapOp, most: float) -> tuple[Value, Value]:
    """Both sides of a quotient times a power of two that is 1 for a divisor in [1 / most, most]."""
    x, r = op.args
    scale = _scale(p, r, most)
    skipped = len(scale.type.axes) < len(x.type.axes) == len(op.result.type.axes)
    return p.map("mul_unless_one" if skipped else "mul", [x, scale]), p.map("mul", [r, scale])


def _read_by_jumps(k: TileKernel) -> frozenset[str]:
    """The values from which elementwise operations lead to a function that jumps."""
    ops = [*walk_ops(k.body)]
    constants = {op.result.name for op in ops if isinstance(op, ConstOp)}
    found: set[str] = set()
    for op in reversed(ops):
        if isinstance(op, MapOp):
            made, fixed = op.result, any(a.name in constants for a in op.args)
            leads = made.name in found
            found |= {a.name for a in op.args if leads or jumps(op.op, made.type.dtype, a.type.dtype, fixed)}
    return frozenset(found)


def _is_exact(p: Peephole, v: Value) -> bool:
    """Whether no rounding lies between what is loaded and ``v``."""
    match p.producer(v):
        case LoadOp() | ConstOp() | ParamOp() | IndexOp():
            return True
        case MapOp(op=name, args=args, result=made):
            return not made.type.dtype.is_float or (name in EXACT and all(_is_exact(p, a) for a in args))
    return False


def _ordinary(r: Interval) -> bool:
    """Whether the reciprocal of every number of ``r`` is a normal number."""
    least, most = magnitude(r)
    return least >= 2.0**-126 and most <= 2.0**126


def _sums_exponentials(p: Peephole, r: Value) -> bool:
    """Whether ``r`` is computed from exponentials by sums and products, also through a loop."""
    todo, seen = [r], set[str]()
    while todo:
        v = todo.pop()
        op = p.producer(v)
        if v.name in seen:
            continue
        seen.add(v.name)
        match op:
            case MapOp(op="exp" | "exp2"):
                return True
            case MapOp(op="add" | "mul" | "fma" | "select", args=args):
                todo += args
            case ReduceOp(combiner="sum", arg=arg):
                todo.append(arg)
            case ForOp(results=results, yields=yields):
                todo += [y for out, y in zip(results, yields, strict=True) if out == v]
    return False


def _scale(p: Peephole, r: Value, most: float) -> Value:
    """The power of two that brings ``r`` into the range of normal reciprocals if it is not in [1 / most, most]."""
    big, small, down, up, one = (p.const(c, TileType(DType.F32)) for c in (most, 1 / most, 2.0**-64, 2.0**64, 1.0))
    size = p.map("abs", [r])
    return p.select(p.map("gt", [size, big]), down, p.select(p.map("lt", [size, small]), up, one))


def _invertible(c: float) -> bool:
    return math.isfinite(c) and 2.0**-125 <= abs(c) <= 2.0**125
