"""``simplify-masks``: removes conjuncts that always hold from masks and conditions.

The intervals of grid variables, loop variables and tile axes prove them, and those of values that are computed from
these alone, such as ``i32(floor(clamp(x / 2, 0, N - 1)))``: no input, which may be NaN, is among their operands, and no
operation that a later pass replaces by an approximation.  A mask without conjuncts is removed.  A condition with one
value becomes a constant, and a select on it becomes one of its sides.
"""

from __future__ import annotations

import math
from dataclasses import replace

from nautilus.core.expr.nodes import Const, Expr, Load, Param, Ref, walk
from nautilus.core.index.simplify import TRUE
from nautilus.core.records import dataclass
from nautilus.core.types import DType, value_limits
from nautilus.vr_tile.analysis.assumptions import Assumptions
from nautilus.vr_tile.analysis.value_range import value_ranges
from nautilus.vr_tile.ir import (
    ConstOp,
    DotOp,
    ForOp,
    IndexOp,
    LoadOp,
    MapOp,
    StoreOp,
    TileKernel,
    TileModule,
    TileOp,
    Value,
    walk_ops,
)
from nautilus.vr_tile.rewriting import each_kernel, rename

#: functions that no pass replaces by others of which the intervals do not hold
_ROUNDED_ONCE = frozenset({"add", "sub", "mul", "neg", "abs", "min", "max", "floor", "ceil", "round", "cast"})


@dataclass(frozen=True, slots=True)
class SimplifyMasks:
    """Remove conditions that the ranges of variables prove."""

    name = "simplify-masks"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with every index, mask and condition in simplest form."""
        return each_kernel(module, _kernel)


@dataclass(frozen=True, slots=True)
class _Scope:
    """Assumptions about variables, the values that replace others, and conditions with a constant value."""

    assumptions: Assumptions
    env: dict[str, Value]
    constants: dict[str, bool]

    def simple(self, e: Expr) -> Expr:
        return self.assumptions.simple(e)

    def within(self, var: str, lo: Expr, hi: Expr, loop: bool) -> _Scope:
        """The scope where ``lo <= var < hi``."""
        return replace(self, assumptions=self.assumptions.within(var, lo, hi, loop))


def _kernel(k: TileKernel) -> TileKernel:
    made = _positions(k)
    known = Assumptions.of_axes(k.axes)
    scope = _Scope(Assumptions({**known.ranges, **made}, {**known.loose, **made}), {}, {})
    for g in k.grid:
        scope = scope.within(g.var, Const(0, g.extent.dtype), g.extent, loop=False)
    body = _block(k.body, scope)
    return k if body == k.body else replace(k, body=body)


def _positions(k: TileKernel) -> dict[str, tuple[int, int]]:
    """The intervals of integers that are computed from variables alone, by their names as atoms of expressions."""
    ops = [op for op in walk_ops(k.body) if isinstance(op, IndexOp | ConstOp | MapOp)]
    if not any(isinstance(op, MapOp) and op.result.type.dtype.is_int for op in ops):
        return {}
    ranges = value_ranges(k)
    known: set[str] = set()
    out: dict[str, tuple[int, int]] = {}
    for op in ops:
        if not _is_position(op, known):
            continue
        low, high = ranges.of(op.result)
        limits = value_limits(op.result.type.dtype)
        if limits[0] <= low <= high <= limits[1]:
            known.add(op.result.name)
            if op.result.type.dtype.is_int:
                out["%" + op.result.name] = (math.ceil(low), math.floor(high))
    return out


def _is_position(op: IndexOp | ConstOp | MapOp, known: set[str]) -> bool:
    match op:
        case IndexOp(expr=e):
            return e.dtype.is_int and not any(isinstance(n, Load | Param | Ref) for n in walk(e))
        case ConstOp():
            return True
        case MapOp(op=name, args=args):
            return name in _ROUNDED_ONCE and all(a.name in known for a in args)


def _block(body: tuple[TileOp, ...], scope: _Scope) -> tuple[TileOp, ...]:
    out: list[TileOp] = []
    for old in body:
        op = _op(rename(old, scope.env), scope)
        if op is not None:
            out.append(op)
    return tuple(out)


def _op(op: TileOp, scope: _Scope) -> TileOp | None:
    match op:
        case LoadOp() | StoreOp():
            mask = None if op.mask is None else scope.simple(op.mask)
            index = tuple(scope.simple(e) for e in op.index)
            return replace(op, index=index, mask=None if mask == TRUE else mask)
        case IndexOp():
            e = scope.simple(op.expr)
            if isinstance(e, Const) and e.dtype is DType.BOOL:
                scope.constants[op.result.name] = bool(e.value)
            return ConstOp(op.result, e.value, op.span) if isinstance(e, Const) else replace(op, expr=e)
        case ConstOp(result=result, value=bool() as value):
            scope.constants[result.name] = value
            return op
        case MapOp(op="select", result=result, args=(cond, a, b)) if cond.name in scope.constants:
            side = a if scope.constants[cond.name] else b
            if side.type != result.type:
                return op
            scope.env[result.name] = side
            return None
        case DotOp(mask=Value(name=present)) if scope.constants.get(present, False):
            return replace(op, mask=None)
        case ForOp():
            lo, hi = scope.simple(op.lo), scope.simple(op.hi)
            inner = _block(op.body, scope.within(op.var, op.lo, op.hi, loop=True))
            yields = tuple(scope.env.get(y.name, y) for y in op.yields)
            return replace(op, lo=lo, hi=hi, body=inner, yields=yields)
        case _:
            return op
