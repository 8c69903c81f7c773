"""A module at given sizes: a number stands for each runtime size, as the cost model evaluates it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from nautilus.core.expr.nodes import Const, Expr, Param, rewrite, walk
from nautilus.core.index.simplify import simplify
from nautilus.core.index.sizes import Extent, as_extent
from nautilus.core.ops import Kind, Rules, map_fields, map_regions, regions
from nautilus.core.records.memo import by_identity
from nautilus.ma_tile.ir.ops import Frag, MemKernel, MemModule, MemOp, Slot, walk_ops
from nautilus.ma_tile.ir.traverse import expressions


@lru_cache(maxsize=1 << 14)
def _params(e: Expr) -> frozenset[str]:
    """The names of the params in ``e``; the same expressions are evaluated at many sizes."""
    return frozenset(n.name for n in walk(e) if isinstance(n, Param))


@by_identity(64)
def _sized(kernel: MemKernel) -> frozenset[int]:
    """The identities of the ops of ``kernel`` that have params in expressions, or ops inside that do."""
    found = set[int]()

    def visit(body: tuple[MemOp, ...]) -> bool:
        for op in body:
            inside = [visit(x) for x in regions(op)]
            if any(inside) or any(map(_params, expressions(op))):
                found.add(id(op))
        return not found.isdisjoint(map(id, body))

    visit(kernel.body)
    return frozenset(found)


@by_identity(256)
def sizes_of(module: MemModule) -> frozenset[str]:
    """The names of the params that :func:`at_sizes` puts numbers for."""
    found = set[str]()
    for b in module.buffers:
        extents = (*b.shape, *(b.view_of or ()), *(b.strides or ()))
        found.update(*(_params(e) for e in extents if not isinstance(e, int)))
    for k in module.kernels:
        found.update(_params(k.blocks), *(_params(e) for _, e in k.decode))
        found.update(*(_params(e) for op in walk_ops(k.body) for e in expressions(op)))
    return frozenset(found)


def at_sizes(module: MemModule, sizes: Mapping[str, int]) -> MemModule:
    """``module`` with the numbers ``sizes`` in extents, grids, loops, addresses and masks.

    The params stay arguments, because ops may read their values.
    """

    def number(e: Expr) -> Expr | None:
        return Const(sizes[e.name], e.dtype) if isinstance(e, Param) and e.name in sizes else None

    known: dict[Expr, Expr] = {}  # the expressions of an op stand in many others

    def expr(e: Expr) -> Expr:
        if e not in known:
            known[e] = e if _params(e).isdisjoint(sizes) else simplify(rewrite(e, number))
        return known[e]

    def extent(e: Extent) -> Extent:
        return e if isinstance(e, int) else as_extent(expr(e))

    def slot(s: Frag | Slot) -> Frag | Slot:
        return replace(s, stage=expr(s.stage)) if isinstance(s, Slot) else s

    rules: Rules = {Kind.EXPR: expr, Kind.SLOT: slot, Kind.OPERAND: slot}

    def ops(body: tuple[MemOp, ...], sized: frozenset[int]) -> tuple[MemOp, ...]:
        if sized.isdisjoint(map(id, body)):
            return body
        return tuple(
            map_regions(map_fields(op, rules), lambda inner: ops(inner, sized)) if id(op) in sized else op
            for op in body
        )

    def kernel(k: MemKernel) -> MemKernel:
        decode = tuple((name, expr(e)) for name, e in k.decode)
        return replace(k, blocks=expr(k.blocks), decode=decode, body=ops(k.body, _sized(k)))

    buffers = tuple(
        replace(
            b,
            shape=tuple(map(extent, b.shape)),
            view_of=None if b.view_of is None else tuple(map(extent, b.view_of)),
            strides=None if b.strides is None else tuple(map(extent, b.strides)),
        )
        for b in module.buffers
    )
    return replace(module, buffers=buffers, kernels=tuple(map(kernel, module.kernels)))
