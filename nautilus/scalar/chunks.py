"""Chunks of a reduction's axis: the guard ``s * C <= j < (s + 1) * C``, written and recognised.

``split_k_update`` writes it, the planner recognises it in any definition: the parallel axis ``s`` cuts the
reduced axis ``j`` into pieces of ``C`` elements, so a block that holds one ``s`` walks that piece alone
(``partition`` turns the guard into loop bounds), and what the block needs along ``j`` it needs there only.
"""

from __future__ import annotations

from dataclasses import dataclass

from nautilus.core.expr import Const, Expr, Op, Param, Var, free_vars
from nautilus.core.linear import divided
from nautilus.core.types import DType
from nautilus.scalar.defs import Def
from nautilus.scalar.guards import parts
from nautilus.scalar.linear import integer
from nautilus.scalar.roles import blocks


@dataclass(frozen=True, slots=True)
class Chunks:
    """``axis`` is cut by the parallel axis ``by``; ``size`` elements each, 0 where known at launch only."""

    by: str
    axis: str
    size: int


def _op(name: str, a: Expr, b: Expr) -> Op:
    return Op(name, (a, b), DType.BOOL if name in ("le", "lt") else DType.I32)


def chunk_tiles(extent: int | Param, tile: int, count: int) -> Expr:
    """Tiles of ``tile`` elements in each of ``count`` chunks of an axis, rounded up."""
    if isinstance(extent, int):
        return integer(blocks(blocks(extent, tile), count))
    tiles = _op("floordiv", _op("add", extent, integer(tile - 1)), integer(tile))
    return _op("floordiv", _op("add", tiles, integer(count - 1)), integer(count))


def chunk_guard(by: str, axis: str, extent: int | Param, tile: int, count: int) -> Op:
    """Where ``axis`` lies in chunk ``by`` of ``count``. Chunks are whole tiles; the last ones may be short or empty."""
    tiles = chunk_tiles(extent, tile, count)
    if isinstance(tiles, Const):
        size: Expr = integer(int(tiles.value) * tile)
        low: Expr = _op("mul", Var(by), size)
    else:
        size = _op("mul", tiles, integer(tile))
        low = _op("mul", _op("mul", Var(by), tiles), integer(tile))
    return Op("and", (_op("le", low, Var(axis)), _op("lt", Var(axis), _op("add", low, size))), DType.BOOL)


def chunks_of(d: Def) -> Chunks | None:
    """How a parallel axis of ``d`` cuts an axis that it reduces, if its guard says so."""
    spread, walked = {a.name for a in d.par}, {a.name for a in d.red}
    conditions = parts(d.guard)
    for low in conditions:
        match low:
            case Op(op="le", args=(start, Var(name=axis))) if axis in walked:
                by = free_vars(start)
            case _:
                continue
        if len(by) != 1 or not by <= spread:
            continue
        for high in conditions:
            match high:
                case Op(op="lt", args=(Var(name=name), end)) if name == axis:
                    size = divided(end) - divided(start)
                    if not any(isinstance(a, Var) for a in size.terms):
                        return Chunks(next(iter(by)), axis, 0 if size.terms else size.const)
    return None
