"""Give a tile axis the name of another one of the same size, throughout a kernel.

Names of axes only say which positions go together inside one op; two axes that no op mentions both may have
one name.  A tile of one may then take the place of a tile of the other in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nautilus.core.expr.nodes import Expr, Var, free_vars, substitute
from nautilus.core.ops import Kind, Rules, declaration, map_fields, map_regions
from nautilus.core.tiles import TileAxis
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.ir.ops import ForOp, MemKernel, MemOp, RolesOp, walk_ops
from nautilus.ma_tile.ir.traverse import bound, expressions, touch, variables
from nautilus.ma_tile.ir.values import Frag, Slot, Smem


def rename_axis(kernel: MemKernel, old: str, new: str) -> MemKernel | None:
    """``kernel`` with axis ``old`` called ``new``; None where the two meet in an op, or a variable has the name."""
    both = {old, new}
    names = {name for name, _ in kernel.decode}
    names |= {v for op in walk_ops(kernel.body) for v in variables(op)}
    if names & both:
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
    yield from bound(op)
    yield from (f for f in declaration(type(op)).operands(op) if isinstance(f, Frag))


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

    def slot(self, s: Slot) -> Slot:
        return replace(s, stage=self.expr(s.stage))

    def operand(self, x: Frag | Slot) -> Frag | Slot:
        return self.frag(x) if isinstance(x, Frag) else self.slot(x)

    def op(self, op: MemOp) -> MemOp:
        """``op``, and what is inside it, renamed."""
        rules: Rules = {Kind.RESULT: self.frag, Kind.OPERAND: self.operand, Kind.SLOT: self.slot, Kind.EXPR: self.expr}
        new: MemOp = map_fields(op, {**rules, Kind.AXIS: self.name})
        return map_regions(new, lambda body: tuple(map(self.op, body)))  # type: ignore[no-any-return]
