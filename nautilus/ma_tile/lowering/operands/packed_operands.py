"""Computed operands that are made of the halves of bytes: which values one ``unpack`` computes.

How a spec takes a byte apart (shifts, masks, divisions, comparisons) does not matter.  The elementwise work between the
byte and a float is evaluated for all 256 bytes at both places, so it is known exactly which function of one half it is,
if it is a function of one half.  The float and what follows it become one op where every step stays exact:

* a number of another tensor is subtracted, if it is a small integer, so that the difference is exact in 16 bits, or if
  the difference is rounded to the 16-bit type of that number right after it;
* one 16-bit factor of another tensor multiplies it, constants that are powers of two besides.  The product of f32 is
  exact (11 and 11 bits), so that rounding it to 16 bits is what a multiplication of 16-bit floats gives.

Everything else about the value is computed in f32 from the unpacked number, as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Var, substitute
from nautilus.core.expr.quotients import is_power_of_two
from nautilus.core.index.simplify import simplify
from nautilus.core.numerics import eval_op, round_to
from nautilus.core.records import dataclass
from nautilus.core.types import DType, value_limits
from nautilus.ma_tile.ir.unpack import FORMS, is_exact, pair_steps
from nautilus.vr_tile import ir as vr
from nautilus.vr_tile.analysis.computed_from import computed_from, sources_of
from nautilus.vr_tile.ir import Value

_LARGEST = {DType.F16: 2048.0, DType.BF16: 256.0}  # all integers up to this number are exact
_HALVES = 2  # elements of a byte
Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Packed:
    """A value that one ``unpack`` computes: ``((n - bias) * factor - zero * zero_factor) * scale``.

    ``n`` are the halves of ``load``, ``dtype`` the type of the op: i8, or one of 16 bits, from which a wider value is
    converted.
    """

    load: vr.LoadOp
    axis: str
    form: str
    bias: float
    factor: float
    dtype: DType
    zero: Value | None = None
    zero_factor: float = 1.0
    scale: Value | None = None


#: the axis along which two neighbours share a byte of the tensor of a load; None: they do not
Shared = Callable[[vr.LoadOp], str | None]


def packed_values(
    operand: Value, defs: Mapping[str, vr.TileOp], users: Mapping[str, list[vr.TileOp]], shared: Shared
) -> tuple[dict[str, Packed], frozenset[str]]:
    """The unpacked values that ``operand`` is computed from, by name, and the names that then have no reader."""
    loads = [s for s in sources_of(operand, defs) if isinstance(s, vr.LoadOp) and shared(s) is not None]
    if len(loads) != 1 or loads[0].result.type.dtype is not DType.U8:
        return {}, frozenset()
    axis = shared(loads[0])
    assert axis is not None
    work = _Matcher(defs, loads[0], axis)
    found = dict(work.topmost(operand, operand.type.dtype))
    inner = {x for name in found for x in _sources(name, defs)}
    kept = set(found) | {p.name for f in found.values() for p in (f.zero, f.scale) if p is not None}
    kept |= {x for name in kept - set(found) for x in _sources(name, defs)}
    dropped = inner - kept
    while True:  # what others read stays
        read = {x for x in dropped if any(r not in dropped and r not in found for r in _readers(x, users))}
        if not read:
            return found, frozenset(dropped)
        dropped -= read


def _readers(name: str, users: Mapping[str, list[vr.TileOp]]) -> Iterator[str]:
    for op in users.get(name, ()):
        results = vr.results(op)
        yield results[0].name if len(results) == 1 else ""


def _sources(name: str, defs: Mapping[str, vr.TileOp]) -> Iterator[str]:
    """The values from which ``name`` is computed by elementwise work."""
    op = defs.get(name)
    return (v.name for v, _ in computed_from(op.args if isinstance(op, vr.MapOp) else (), defs))


class _Matcher:
    """Finds functions of the halves of the bytes that ``load`` reads; neighbours along ``axis`` share a byte."""

    def __init__(self, defs: Mapping[str, vr.TileOp], load: vr.LoadOp, axis: str) -> None:
        self.defs, self.load, self.axis = defs, load, axis
        self.tables: dict[str, Table | None] = {}

    def topmost(self, v: Value, dtype: DType) -> Iterator[tuple[str, Packed]]:
        """The values nearest to ``v`` that one op computes; ``dtype``: the type of the operand."""
        if not self._reads_bytes(v):
            return
        wanted = dtype if dtype.is_half or dtype is DType.I8 else DType.F16
        found = self.match(v, wanted)
        if found is not None:
            yield v.name, found
            return
        op = self.defs.get(v.name)
        for a in op.args if isinstance(op, vr.MapOp) else ():
            yield from self.topmost(a, wanted)

    def match(self, v: Value, dtype: DType) -> Packed | None:
        """``v`` as one op, whose result has ``dtype``."""
        if set(v.type.names) != set(self.load.result.type.names):
            return None
        if v.type.dtype is dtype is DType.I8:
            return self._bytes(v)
        if not v.type.dtype.is_float:
            return None
        op = self.defs.get(v.name)
        if v.type.dtype is dtype and isinstance(op, vr.MapOp) and op.op in ("cast", "narrow"):
            return self._scaled(op.args[0], dtype)
        if v.type.dtype is DType.F32:
            return self._difference(v, dtype, 1.0)
        return None

    def _bytes(self, v: Value) -> Packed | None:
        """``v``, an integer of 8 bits, as a number of a half less a constant."""
        numbers = self.table(v)
        if numbers is None:
            return None
        for form, codes in FORMS.items():
            bias = codes[0] - float(numbers[0])
            if np.array_equal(np.asarray(codes) - bias, numbers) and is_exact(form, bias, 1.0, DType.I8):
                return Packed(self.load, self.axis, form, bias, 1.0, DType.I8)
        return None

    def _scaled(self, v: Value, dtype: DType) -> Packed | None:
        """``v`` as a difference times powers of two and at most one factor of ``dtype``, rounded once."""
        power, scales, rest = 1.0, list[Value](), list[Value]()
        for x in self._factors(v):
            op = self.defs.get(x.name)
            if isinstance(op, vr.ConstOp):
                power *= float(op.value)
            elif self._reads_bytes(x):
                rest.append(x)
            elif isinstance(op, vr.MapOp) and op.op == "cast" and op.args[0].type.dtype is dtype:
                scales.append(op.args[0])
            else:
                return None
        if len(rest) != 1 or len(scales) > 1 or not is_power_of_two(power):
            return None
        found = self._difference(rest[0], dtype, power)
        if found is None and power == 1.0 and not scales:
            return self._rounded(rest[0], dtype)
        return found and replace(found, scale=scales[0] if scales else None)

    def _rounded(self, v: Value, dtype: DType) -> Packed | None:
        """``v``, which is rounded to ``dtype`` right after it, as a number of a half less any number of ``dtype``."""
        op = self.defs.get(v.name)
        if not (isinstance(op, vr.MapOp) and op.op in ("add", "sub")):
            return None
        numbers, other = self.table(op.args[0]), self.defs.get(op.args[1].name)
        held = isinstance(other, vr.MapOp) and other.op == "cast" and other.args[0].type.dtype is dtype
        if numbers is None or not (isinstance(other, vr.MapOp) and held) or self._reads_bytes(op.args[1]):
            return None
        plain = self._number(numbers, dtype, 1.0)
        return plain and replace(plain, zero=other.args[0], zero_factor=1.0 if op.op == "sub" else -1.0)

    def _factors(self, v: Value) -> Iterator[Value]:
        op = self.defs.get(v.name)
        if isinstance(op, vr.MapOp) and op.op == "mul" and v.type.dtype is DType.F32 and self.table(v) is None:
            for a in op.args:
                yield from self._factors(a)
        else:
            yield v

    def _difference(self, v: Value, dtype: DType, power: float) -> Packed | None:
        """``power * v`` where ``v`` is a function of a half, or such a number less a small integer."""
        numbers = self.table(v)
        if numbers is not None:
            return self._number(numbers, dtype, power)
        whole = self._integer(v)
        if whole is None:
            return None
        constant, others = 0.0, list[tuple[int, Value]]()
        for sign, x in self._terms(v):
            found = self.table(x)
            if found is not None and numbers is None and sign > 0:
                numbers = found
            elif isinstance(op := self.defs.get(x.name), vr.ConstOp):
                constant += sign * float(op.value)
            else:
                others.append((sign, x))
        if numbers is None or len(others) != 1 or self._reads_bytes(others[0][1]):
            return None
        ((sign, zero),) = others
        exact = max(map(abs, (*whole, *(self._integer(zero) or ())))) <= _LARGEST[dtype]
        plain = self._number(numbers + constant, dtype, power) if exact else None
        return plain and replace(plain, zero=zero, zero_factor=-sign * power)

    def _terms(self, v: Value, sign: int = 1) -> Iterator[tuple[int, Value]]:
        """The terms of the integer ``v``, through conversions that keep it."""
        op = self.defs.get(v.name)
        if self.table(v) is None and isinstance(op, vr.MapOp) and op.op in ("cast", "add", "sub"):
            yield from self._terms(op.args[0], sign)
            if op.op != "cast":
                yield from self._terms(op.args[1], -sign if op.op == "sub" else sign)
        else:
            yield sign, v

    def _number(self, numbers: Table, dtype: DType, power: float) -> Packed | None:
        """``numbers`` of the codes 0 .. 15 times ``power``."""
        for form, codes in FORMS.items():
            numbers_of = np.asarray(codes)
            step = (numbers[2] - numbers[1]) / (numbers_of[2] - numbers_of[1])
            if not step:
                continue
            bias = numbers_of[1] - numbers[1] / step
            made = (numbers_of - bias) * step
            same = np.array_equal(made, numbers) and np.array_equal(np.signbit(made), np.signbit(numbers))
            if same and pair_steps(form, float(bias), float(step) * power, dtype) is not None:
                return Packed(self.load, self.axis, form, float(bias), float(step) * power, dtype)
        return None

    # -- functions of one half ----------------------------------------------------------------
    def table(self, v: Value) -> Table | None:
        """The value of ``v`` for each code 0 .. 15 of its half; None where it is another function."""
        if v.name not in self.tables:
            self.tables[v.name] = self._table(v)
        return self.tables[v.name]

    def _table(self, v: Value) -> Table | None:
        if not self._reads_bytes(v):
            return None
        whole = self._evaluated(v, {})
        if whole is None:
            return None
        every = np.broadcast_to(whole, (256, _HALVES)).astype(np.float64)
        numbers = every[:16, 0]
        byte = np.arange(256)
        same = np.array_equal(every, np.stack([numbers[byte & 15], numbers[byte >> 4]], axis=-1))
        return numbers if same else None

    def _evaluated(self, v: Value, known: dict[str, Table | None]) -> Table | None:
        """``v`` at [byte, place in it]; None where it depends on anything else."""
        if v.name not in known:
            known[v.name] = self._value(v, known)
        return known[v.name]

    def _value(self, v: Value, known: dict[str, Table | None]) -> Table | None:
        match self.defs.get(v.name):
            case vr.LoadOp() as op if op is self.load:
                return np.arange(256, dtype=np.int64)[:, None]  # type: ignore[return-value]
            case vr.ConstOp(value=value):
                return np.asarray([[value]])
            case vr.IndexOp(expr=e):
                places = [
                    simplify(substitute(e, {self.axis: calc("add", calc("mul", Var("half"), _HALVES), h)}))
                    for h in range(_HALVES)
                ]
                if not all(isinstance(p, Const) for p in places):
                    return None
                return np.asarray([[p.value for p in places if isinstance(p, Const)]])
            case vr.MapOp(op=name, args=args):
                found = [self._evaluated(a, known) for a in args]
                if any(x is None for x in found):
                    return None
                return eval_op(name, [x for x in found if x is not None], v.type.dtype, "typed")
        return None

    def _reads_bytes(self, v: Value) -> bool:
        return any(s is self.load for s in sources_of(v, self.defs))

    def _integer(self, v: Value) -> tuple[float, float] | None:
        """The range of ``v`` where it is an integer in every type on the way; None where it may be none, or any."""
        numbers = self.table(v)
        if numbers is not None:
            whole = np.array_equal(np.rint(numbers), numbers)
            return (float(numbers.min()), float(numbers.max())) if whole else None
        found: tuple[float, float] | None = None
        match self.defs.get(v.name):
            case vr.ConstOp(value=value) if float(value) == round(float(value)):
                found = float(value), float(value)
            case vr.LoadOp() if v.type.dtype in (DType.I8, DType.U8):
                found = value_limits(v.type.dtype)
            case vr.MapOp(op="cast" | "add" | "sub" | "bit_and" as name, args=args):
                ranges = [r for a in args if (r := self._integer(a)) is not None]
                enough = ranges and (name == "bit_and" or len(ranges) == len(args))
                found = _combined(name, ranges) if enough else None
        ends = () if found is None else found
        return found if all(round_to(np.asarray(x), v.type.dtype) == x for x in ends) else None


def _combined(name: str, ranges: list[tuple[float, float]]) -> tuple[float, float] | None:
    """The range of an operation on integers."""
    (low, high), (low2, high2) = ranges[0], ranges[-1]
    match name:
        case "cast":
            return low, high
        case "add":
            return low + low2, high + high2
        case "sub":
            return low - high2, high - low2
    ends = [h for x, h in ranges if x >= 0]  # a bit that one of the operands lacks is 0
    return (0.0, min(ends)) if ends else None
