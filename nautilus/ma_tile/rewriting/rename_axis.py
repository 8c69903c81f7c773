"""Give a tile axis the name of another one of the same size, throughout a kernel.

Names of axes only say which positions go together inside one op; two axes that no op mentions both may have
one name.  A tile of one may then take the place of a tile of the other in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Reduce, Ref, Var, free_vars, substitute
from nautilus.core.tiles import TileAxis
from nautilus.ma_tile.ir.async_ops import LetOp
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.ir.ops import ForOp, MemKernel, MemOp, RolesOp, walk_ops
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp
from nautilus.ma_tile.ir.traverse import expressions, touch
from nautilus.ma_tile.ir.values import Frag, Slot, Smem

#: fields of ops that hold names of axes
_AXES = frozenset({"axis", "axes", "over", "into"})
_EXPR = (Const, Var, Param, Load, Op, Reduce, Ref)


def rename_axis(kernel: MemKernel, old: str, new: str) -> MemKernel | None:
    """``kernel`` with axis ``old`` called ``new``; None where the two meet in an op, or a variable has the name."""
    both = {old, new}
    variables = {name for name, _ in kernel.decode}
    for op in walk_ops(kernel.body):
        match op:
            case ForOp(var=var) | LetOp(var=var):
                variables.add(var)
            case TileSchedulerOp(var=var, iteration=iteration):
                variables |= {var, iteration}
    if variables & both:
        return None
    smem = {s.name: s for s in kernel.smem}
    for op in walk_ops(kernel.body):
        if isinstance(op, RolesOp):
            continue
        groups = [{a.name for a in f.type.axes} for f in _frags(op)] + [
            {a.name for a in smem[s.buffer].axes} for s in touch(op).all
        ]
        mentioned = set().union(*(free_vars(e) for e in expressions(op)))
        apart = isinstance(op, ForOp)  # carried values have nothing to do with each other
        if any(both <= g for g in groups) or (not apart and both <= mentioned.union(*groups)):
            return None
    rename = _Rename(old, new)
    layouts = {name: rename.layout(x) for name, x in kernel.layouts.items()}
    buffers: tuple[Smem, ...] = tuple(replace(s, axes=tuple(map(rename.axis, s.axes))) for s in kernel.smem)
    return replace(kernel, layouts=layouts, smem=buffers, body=tuple(map(rename.op, kernel.body)))


def _frags(op: MemOp) -> Iterator[Frag]:
    """The fragments that ``op`` mentions itself (not those of ops inside it)."""
    for f in fields(op):
        if f.name != "body":
            yield from _listed(getattr(op, f.name))


def _listed(x: Any) -> Iterator[Frag]:
    if isinstance(x, Frag):
        yield x
    elif isinstance(x, tuple):
        for y in x:
            yield from _listed(y)


class _Rename:
    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def name(self, name: str) -> str:
        return self.new if name == self.old else name

    def axis(self, a: TileAxis) -> TileAxis:
        return TileAxis(self.name(a.name), a.size)

    def frag(self, f: Frag) -> Frag:
        return replace(f, type=replace(f.type, axes=tuple(map(self.axis, f.type.axes))))

    def layout(self, x: FragLayout) -> FragLayout:
        def modes(part: tuple[Mode, ...]) -> tuple[Mode, ...]:
            return tuple(m if m.axis != self.old else replace(m, axis=self.new) for m in part)

        return FragLayout(modes(x.reg), modes(x.lane), modes(x.warp))

    def expr(self, e: Expr) -> Expr:
        return substitute(e, {self.old: Var(self.new)}) if self.old in free_vars(e) else e

    def op(self, op: MemOp) -> MemOp:
        """``op``, and what is inside it, renamed."""
        changed = {f.name: self._part(f.name, getattr(op, f.name)) for f in fields(op)}
        return replace(op, **changed)

    def _part(self, name: str, x: Any) -> Any:
        if name in _AXES and isinstance(x, str):
            return self.name(x)
        match x:
            case Frag():
                return self.frag(x)
            case Slot():
                return replace(x, stage=self.expr(x.stage))
            case tuple():
                return tuple(self._part(name, y) for y in x)
        if isinstance(x, _EXPR):
            return self.expr(x)
        if name == "body":
            return self.op(x)
        return replace(x, body=tuple(map(self.op, x.body))) if name == "roles" else x
