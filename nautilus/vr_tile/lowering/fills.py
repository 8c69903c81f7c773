"""Kernels that store the initial values of buffers, which only Scalar IR has (``core.buffers.Buffer.initial``).

Buffers of one shape, whose elements have one size, share a kernel, which stands before the first one that writes any of
them.
"""

from __future__ import annotations

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Expr, Var
from nautilus.core.index.sizes import Extent, at_most, blocks, extent_expr
from nautilus.core.schedule.recomputed import filling
from nautilus.core.text.names import unused
from nautilus.core.tiles import TileAxis, TileType, ceil_pow2
from nautilus.scalar.ir import Program, statements
from nautilus.vr_tile.ir import ConstOp, GridAxis, StoreOp, TileKernel, TileOp, Value

_TILE = 2048  # elements
_ROW = 1024  # elements of a row along the last axis


def fills(p: Program) -> dict[str, tuple[TileKernel, ...]]:
    """The kernels that store initial values, by the kernel that they stand before."""
    filled = {b.name: b for b in p.buffers if b.initial is not None}
    names = {b.name for b in p.buffers} | {s.name for s in p.params} | {k.name for k in p.kernels}
    groups: dict[tuple[tuple[Extent, ...], int], list[Buffer]] = {}
    first: dict[tuple[tuple[Extent, ...], int], str] = {}
    for k in p.kernels:
        for name in dict.fromkeys(s.buffer for _, s in statements(k.body) if s.buffer in filled):
            alike = (filled[name].shape, filled[name].dtype.bytes)
            groups.setdefault(alike, []).append(filled[name])
            first.setdefault(alike, k.name)
    found: dict[str, tuple[TileKernel, ...]] = {}
    for alike, buffers in groups.items():
        made = _fill(unused(filling(buffers[0].name), names, first=2), alike[0], buffers)
        names.add(made.name)
        found[first[alike]] = (*found.get(first[alike], ()), made)
    return found


def _fill(name: str, shape: tuple[Extent, ...], buffers: list[Buffer]) -> TileKernel:
    grid, axes, index, inside, left = list[GridAxis](), list[TileAxis](), list[Expr](), list[Expr](), _TILE
    for n in reversed(range(len(shape))):
        extent, at = shape[n], Var(f"i{n}")
        size = min(left, _ROW, ceil_pow2(at_most(extent)))
        left //= size
        block = Var(f"b{n}")
        grid.insert(0, GridAxis(block.name, extent_expr(blocks(extent, size))))
        here: Expr = block if size == 1 else calc("add", calc("mul", block, size), at)
        index.insert(0, here)
        if size > 1:
            axes.insert(0, TileAxis(at.name, size))
        if not isinstance(extent, int) or extent % size:
            inside.insert(0, calc("lt", here, extent_expr(extent)))
    body: list[TileOp] = []
    for b in buffers:
        assert b.initial is not None
        value = Value(f"{b.name.lower()}_start", TileType(b.dtype, tuple(axes)))
        body += [ConstOp(value, b.initial, b.span), StoreOp(b.name, tuple(index), value, conjunction(inside), b.span)]
    return TileKernel(name, tuple(grid), tuple(axes), tuple(body), buffers[0].span)
