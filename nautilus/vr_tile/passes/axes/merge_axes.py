"""``merge-axes``: several tile axes that one operand of a dot has for itself become one.

Matrix instructions have one axis of rows and one of columns.  A tile of a product over positions of an image has more::

    dot %x, %f over c : f32[y: 8, x: 16, k: 128]       ->      dot %x, %f over c : f32[y_x: 128, k: 128]

The position along ``y`` is ``y_x // 16``, the position along ``x`` is ``y_x % 16``.  A value that varies along some of
the axes varies along the merged one.

Axes stay apart where an op reduces or contracts some of them, where a dot has some of them only or in both operands,
and where a stored value has some of them only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Var, free_vars, substitute
from nautilus.core.index.simplify import simplify
from nautilus.core.ops import Kind, map_fields
from nautilus.core.records import dataclass
from nautilus.core.text.names import fresh
from nautilus.core.tiles import TileAxis, TileType
from nautilus.vr_tile.ir import DotOp, ForOp, ReduceOp, StoreOp, TileKernel, TileModule, TileOp, Value, walk_ops
from nautilus.vr_tile.rewriting import each_kernel, each_op

Group = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MergeAxes:
    """Merge the axes of rows, and those of columns, of every dot."""

    name = "merge-axes"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with at most one axis of its own for each operand of a dot, where that is possible."""
        return each_kernel(module, _kernel)


def _kernel(k: TileKernel) -> TileKernel:
    for group in mergeable(k):
        k = merge(k, group)
    return k


def mergeable(k: TileKernel) -> tuple[Group, ...]:
    """The groups of axes of ``k`` that become one each, in canonical order."""
    order = [a.name for a in k.axes]
    found = {g for op in walk_ops(k.body) if isinstance(op, DotOp) for g in _own(op, order) if len(g) > 1}
    apart = [g for g in found if not any(set(g) & set(h) for h in found if h != g)]
    kept = (g for g in apart if all(_keeps(op, set(g)) for op in walk_ops(k.body)))
    return tuple(sorted(kept, key=lambda g: order.index(g[0])))


def _own(op: DotOp, order: list[str]) -> Iterator[Group]:
    """The axes that each operand has for itself."""
    a, b = ({*v.type.names} - {*op.axes} for v in (op.a, op.b))
    for mine, other in ((a, b), (b, a)):
        yield tuple(n for n in order if n in mine - other)


def _keeps(op: TileOp, group: set[str]) -> bool:
    """Whether ``op`` is the same computation with the axes of ``group`` merged."""
    match op:
        case DotOp():
            parts = [group & set(v.type.names) for v in (op.a, op.b)]
            return not group & set(op.axes) and parts in ([set(), set()], [group, set()], [set(), group])
        case ReduceOp():
            return not group & set(op.axes)
        case StoreOp(value=v):
            return group & set(v.type.names) in (set(), group)
    return True


def merge(k: TileKernel, group: Group) -> TileKernel:
    """``k`` with the axes of ``group`` merged, the first of them outermost."""
    sizes = {a.name: a.size for a in k.axes}
    loops = {op.var for op in walk_ops(k.body) if isinstance(op, ForOp)}
    name = fresh("_".join(group), {*sizes, *loops, *(g.var for g in k.grid)})
    merged = TileAxis(name, prod(sizes[n] for n in group))
    env = dict(_positions(name, [(n, sizes[n]) for n in group]))
    ranges = {name: (0, merged.size - 1)}

    order = list(dict.fromkeys(merged if a.name in group else a for a in k.axes))

    def axes(old: tuple[TileAxis, ...]) -> tuple[TileAxis, ...]:
        return tuple(sorted({merged if a.name in group else a for a in old}, key=order.index))

    def value(v: Value) -> Value:
        return replace(v, type=TileType(v.type.dtype, axes(v.type.axes)))

    def expr(e: Expr) -> Expr:
        return simplify(substitute(e, env), ranges) if free_vars(e) & env.keys() else e

    def op(x: TileOp) -> TileOp:
        new: TileOp = map_fields(x, {Kind.RESULT: value, Kind.OPERAND: value, Kind.EXPR: expr})
        return new

    return replace(k, axes=axes(k.axes), body=tuple(each_op(x, op) for x in k.body))


def _positions(name: str, axes: list[tuple[str, int]]) -> Iterator[tuple[str, Expr]]:
    """The position along each of ``axes`` (name and size, the first outermost) at a position of axis ``name``."""
    for n, (axis, size) in enumerate(axes):
        stride = prod(s for _, s in axes[n + 1 :])
        e: Expr = calc("floordiv", Var(name), stride) if stride > 1 else Var(name)
        yield axis, calc("mod", e, size) if n else e
