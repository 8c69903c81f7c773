"""Sharing the rows of a tile between the consumers of a block.

Each consumer runs the kernel on its own part of one tile axis: the axis shrinks to that part, and wherever
an expression names it, the position in the whole tile is ``consumer * part + position``.  What does not
vary along the axis every consumer has for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Var, free_vars, substitute
from nautilus.core.index.simplify import Ranges, simplify
from nautilus.core.tiles import TileAxis, TileType
from nautilus.ma_tile.ir.async_ops import CONSUMER
from nautilus.vr_tile import ir as vr
from nautilus.vr_tile.ir import TileKernel, Value


def split_axis(kernel: TileKernel, axis: str, consumers: int) -> TileKernel:
    """What one of ``consumers`` consumers does of ``kernel``; nothing may be combined along ``axis``."""
    part = next(a.size for a in kernel.axes if a.name == axis) // consumers
    axes = tuple(TileAxis(a.name, part) if a.name == axis else a for a in kernel.axes)
    at = calc("add", calc("mul", Var(CONSUMER), part), Var(axis))
    body = _Split({a.name: a for a in axes}, {axis: at}, {axis: (0, part - 1)}).block(kernel.body)
    return replace(kernel, axes=axes, body=body)


class _Split:
    def __init__(self, axes: Mapping[str, TileAxis], env: Mapping[str, Expr], ranges: Ranges) -> None:
        self.axes, self.env, self.ranges = axes, env, ranges

    def block(self, body: tuple[vr.TileOp, ...]) -> tuple[vr.TileOp, ...]:
        return tuple(map(self.op, body))

    def value(self, v: Value) -> Value:
        return Value(v.name, TileType(v.type.dtype, tuple(self.axes[a.name] for a in v.type.axes)))

    def expr(self, e: Expr) -> Expr:
        return e if self.env.keys().isdisjoint(free_vars(e)) else simplify(substitute(e, self.env), self.ranges)

    def mask(self, e: Expr | None) -> Expr | None:
        return None if e is None else self.expr(e)

    def op(self, op: vr.TileOp) -> vr.TileOp:
        v = self.value
        match op:
            case vr.ConstOp() | vr.ParamOp():
                return replace(op, result=v(op.result))
            case vr.IndexOp():
                return replace(op, result=v(op.result), expr=self.expr(op.expr))
            case vr.LoadOp():
                index = tuple(map(self.expr, op.index))
                return replace(op, result=v(op.result), index=index, mask=self.mask(op.mask))
            case vr.StoreOp():
                return replace(op, value=v(op.value), index=tuple(map(self.expr, op.index)), mask=self.mask(op.mask))
            case vr.MapOp():
                return replace(op, result=v(op.result), args=tuple(map(v, op.args)))
            case vr.ReduceOp() | vr.ScanOp():
                return replace(op, result=v(op.result), arg=v(op.arg))
            case vr.DotOp():
                acc = None if op.acc is None else v(op.acc)
                return replace(op, result=v(op.result), a=v(op.a), b=v(op.b), acc=acc)
            case vr.ForOp():
                carried = tuple((v(arg), v(init)) for arg, init in op.carried)
                results, yields = tuple(map(v, op.results)), tuple(map(v, op.yields))
                return replace(op, results=results, carried=carried, body=self.block(op.body), yields=yields)
