"""A masked dot as a loop of rank-one updates, which computes no product under a false mask.

For each position of the contracted axis, one product of a column of ``a`` and a row of ``b`` is added where the mask
holds::

    acc = for at in 0..K carry(acc) { acc = select mask[at], acc + a[at] * b[at], acc }

The slice of a loaded operand is loaded, and the slice of a computed one is taken by a reduction of its tile in which
all other positions are masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Var, refs, substitute
from nautilus.core.ops import Kind, map_fields
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileType
from nautilus.core.types import DType
from nautilus.vr_tile.ir import DotOp, ForOp, IndexOp, LoadOp, MapOp, TileOp, Value, expressions
from nautilus.vr_tile.lowering.emitter import Emitter

#: functions of slices that cost less than to take the slice of their result
_AGAIN = frozenset({"cast", "narrow", "and", "or", "not"})


def rank_one(e: Emitter, op: DotOp, defs: Mapping[str, TileOp], var: str) -> Value:
    """The result of ``op``, whose mask is not None, emitted as a loop over ``var``.

    A factor that was narrowed for matrix units has its value before that, because inf times a factor that is too small
    for the narrow type is not NaN.

    ``defs``: the ops that define the values of the kernel.  More contracted axes than the first one are loops around.
    """
    assert op.mask is not None
    t = op.result.type
    start = op.acc if op.acc is not None else e.const(0.0 if t.dtype.is_float else 0, t)
    sides = (_before_narrowing(op.a, defs), _before_narrowing(op.b, defs), op.mask)
    return _loop(_Slices(e, dict(defs)), op, sides, op.axes, start, var)


def _before_narrowing(v: Value, defs: Mapping[str, TileOp]) -> Value:
    op = defs.get(v.name)
    return op.args[0] if isinstance(op, MapOp) and op.op == "narrow" and op.args[0].type.dtype.is_float else v


def _loop(
    s: _Slices, op: DotOp, sides: tuple[Value, Value, Value], axes: tuple[str, ...], start: Value, var: str
) -> Value:
    """The sum ``start`` plus the masked products of ``sides``, over ``axes``."""
    e, t = s.e, op.result.type
    arg, result = e.fresh(t, start.name), e.fresh(t, op.result.name)
    outer, e.out = e.out, []
    a, b, present = (s.at(v, axes[0], Var(var)) for v in sides)
    if axes[1:]:
        new = _loop(s, op, (a, b, present), axes[1:], arg, f"{var}_")
    else:
        wide = [v if v.type.dtype is t.dtype else e.map("cast", (v,), t.dtype) for v in (a, b)]
        new = e.select(present, e.map("add", (arg, e.map("mul", wide))), arg)
    body, e.out = tuple(e.out), outer
    size = integer(e.axes[axes[0]].size)
    e.emit(ForOp((result,), var, integer(0), size, ((arg, start),), body, (new,), None, op.span))
    return result


@dataclass(frozen=True, slots=True)
class _Slices:
    """Values at one position of an axis."""

    e: Emitter
    defs: dict[str, TileOp]

    def at(self, v: Value, axis: str, at: Var) -> Value:
        """``v`` at position ``at`` of ``axis``, which may be one of its axes."""
        if axis not in v.type.names:
            return v
        op = self.defs.get(v.name)
        if isinstance(op, LoadOp | IndexOp | MapOp) and (sliced := self.recomputed(op, axis, at)) is not None:
            self.defs[sliced.result.name] = sliced
            self.e.emit(sliced)
            return sliced.result
        return self.taken(v, axis, at)

    def recomputed(self, op: LoadOp | IndexOp | MapOp, axis: str, at: Var) -> LoadOp | IndexOp | MapOp | None:
        """``op`` at that position; None where it is not to be computed again."""
        if isinstance(op, MapOp):
            if op.op not in _AGAIN:
                return None
            args = tuple(self.at(a, axis, at) for a in op.args)
            names = {n for a in args for n in a.type.names}
            return replace(op, result=self.fresh(op.result, names), args=args)
        if any(axis in self.e.types[r].names for x in expressions(op) for r in refs(x)):
            return None
        names = set(op.result.type.names) - {axis}
        new: LoadOp | IndexOp = map_fields(op, {Kind.EXPR: lambda x: substitute(x, {axis: at})})
        return replace(new, result=self.fresh(op.result, names))

    def fresh(self, v: Value, names: set[str]) -> Value:
        return self.e.fresh(self.e.type(v.type.dtype, names), f"{v.name}_at")

    def taken(self, v: Value, axis: str, at: Var) -> Value:
        """The slice of a tile in registers: a reduction in which all other positions are masked."""
        e = self.e
        hot = e.fresh(e.type(DType.BOOL, [axis]))
        e.emit(IndexOp(hot, calc("eq", Var(axis), at), e.span))
        if v.type.dtype is DType.BOOL:
            return e.reduce("any", e.map("and", (hot, v)), [axis])
        dtype = v.type.dtype.compute
        wide = v if v.type.dtype is dtype else e.map("cast", (v,), dtype)
        zero = e.const(0.0 if dtype.is_float else 0, TileType(dtype))
        return e.reduce("sum", e.select(hot, wide, zero), [axis])
