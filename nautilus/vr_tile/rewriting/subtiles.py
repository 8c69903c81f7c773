"""The work of a kernel on parts of its tiles."""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Var, substitute
from nautilus.core.ops import Kind, Rules, map_fields
from nautilus.core.tiles import TileAxis, TileType
from nautilus.vr_tile.ir import DotOp, ReduceOp, ScanOp, TileKernel, TileOp, Value, walk_ops
from nautilus.vr_tile.rewriting import each_op


def independent(k: TileKernel, axis: str) -> bool:
    """Whether the positions along ``axis`` of the tiles of ``k`` are computed independently of each other."""
    return not any(axis in combined(op) for op in walk_ops(k.body))


def combined(op: TileOp) -> tuple[str, ...]:
    """The axes whose positions ``op`` combines."""
    match op:
        case DotOp(axes=axes) | ReduceOp(axes=axes):
            return axes
        case ScanOp(axis=axis, into=into, states=states):
            return (axis, into) if states is None else (axis, into, states)
    return ()


def subtiles(k: TileKernel, axis: str, size: int, part: Expr) -> TileKernel:
    """``k`` on part ``part`` of its tiles, which has ``size`` elements along the independent ``axis``.

    ``size`` divides the size of the axis.
    """
    at = {axis: calc("add", calc("mul", part, size), Var(axis))}

    def type_(t: TileType) -> TileType:
        return replace(t, axes=tuple(TileAxis(a.name, size) if a.name == axis else a for a in t.axes))

    def value(v: Value) -> Value:
        return replace(v, type=type_(v.type))

    def op(x: TileOp) -> TileOp:
        rules: Rules = {Kind.RESULT: value, Kind.OPERAND: value, Kind.EXPR: lambda e: substitute(e, at)}
        new: TileOp = map_fields(x, rules)
        return new

    axes = tuple(TileAxis(axis, size) if a.name == axis else a for a in k.axes)
    return replace(k, axes=axes, body=tuple(each_op(x, op) for x in k.body))
