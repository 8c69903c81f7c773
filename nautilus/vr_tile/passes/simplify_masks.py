"""``simplify-masks``: removes conjuncts that always hold from masks and conditions.

The intervals of grid variables, loop variables and tile axes prove them.  A mask without conjuncts is removed.  A
condition with one value becomes a constant, and a select on it becomes one of its sides.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.expr.nodes import Const, Expr
from nautilus.core.index.simplify import TRUE
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.vr_tile.analysis.assumptions import Assumptions
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
)
from nautilus.vr_tile.rewriting import each_kernel, rename


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
    scope = _Scope(Assumptions.of_axes(k.axes), {}, {})
    for g in k.grid:
        scope = scope.within(g.var, Const(0, g.extent.dtype), g.extent, loop=False)
    body = _block(k.body, scope)
    return k if body == k.body else replace(k, body=body)


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
