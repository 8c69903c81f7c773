"""Chunks of a reduction axis (split-K): construction and recognition of the guard ``s * C <= j < (s + 1) * C``.

The parallel axis ``s`` splits the reduction axis ``j`` into chunks of ``C`` elements.  ``split-k-update`` writes the
guard, and the planner recognises it in any definition.  A block with one ``s`` loops over its chunk only, because
``partition`` converts the guard to loop bounds.

Interleaved chunks share a range.  With ``n`` of them and tiles of ``T`` elements, the guard is
``s // n * C <= j < (s // n + 1) * C`` and ``j // T % n == s % n``, and a block visits every n-th tile of the range.
"""

from __future__ import annotations

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Const, Expr, Op, Var, free_vars, loads
from nautilus.core.index.linear import divided
from nautilus.core.index.sizes import Extent, blocks
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.definitions import Def


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of ``axis`` by the parallel axis ``by``, of ``size`` elements each (0: known only at launch).

    ``tile``: elements that an interleaved chunk takes at a time, 0 where chunks are contiguous; ``interleave``: chunks
    that share a range.
    """

    by: str
    axis: str
    size: int
    tile: int = 0
    interleave: int = 1


def chunk_tiles(extent: Extent, tile: int, count: int) -> Expr:
    """Tiles of ``tile`` elements in each of ``count`` chunks of an axis, rounded up."""
    if isinstance(extent, int):
        return integer(blocks(blocks(extent, tile), count))
    tiles = calc("floordiv", calc("add", extent, tile - 1), tile)
    return calc("floordiv", calc("add", tiles, count - 1), count)


def chunk_guard(by: str, axis: str, extent: Extent, tile: int, count: int, interleave: int = 1) -> Expr:
    """The condition that ``axis`` is in chunk ``by`` of ``count``.

    Chunks are whole tiles; the last ones may be short or empty.

    ``interleave`` neighbouring chunks, which divide ``count``, take tiles of one range in rotation, all equally many.
    """
    picked = calc("eq", calc("mod", calc("floordiv", Var(axis), tile), interleave), calc("mod", Var(by), interleave))
    if interleave == count:
        return picked
    group: Expr = Var(by) if interleave == 1 else calc("floordiv", Var(by), interleave)
    rounds = chunk_tiles(extent, tile * interleave, count // interleave)
    if isinstance(rounds, Const):
        size: Expr = integer(int(rounds.value) * tile * interleave)
        low: Expr = calc("mul", group, size)
    else:
        size = calc("mul", rounds, tile * interleave)
        low = calc("mul", calc("mul", group, rounds), tile * interleave)
    inside = calc("and", calc("le", low, Var(axis)), calc("lt", Var(axis), calc("add", low, size)))
    whole = conjunction((inside, picked) if interleave > 1 else (inside,))
    assert whole is not None
    return whole


def chunks_of(d: Def) -> Chunks | None:
    """The chunks into which the guard of ``d`` splits a reduction axis, if it does."""
    parallel, reduced = {a.name for a in d.par}, {a.name for a in d.red}
    conditions = conjuncts(d.guard)
    for c in conditions:
        match c:
            case Op(op="eq", args=(Op(op="mod", args=(tiles, Const(value=interleave))), mine)):
                by = free_vars(mine)
                match tiles:
                    case Op(op="floordiv", args=(Var(name=axis), Const(value=tile))):
                        elements = int(tile)
                    case Var(name=axis):
                        elements = 1
                    case _:
                        continue
                if axis in reduced and len(by) == 1 and by <= parallel and int(interleave) > 1:
                    return Chunks(next(iter(by)), axis, elements, elements, int(interleave))
    for low in conditions:
        match low:
            case Op(op="le", args=(start, Var(name=axis))) if axis in reduced:
                by = free_vars(start)
            case _:
                continue
        if len(by) != 1 or not by <= parallel or loads(start):
            continue  # segments whose ends are in memory are rows: each has a result of its own
        for high in conditions:
            match high:
                case Op(op="lt", args=(Var(name=name), end)) if name == axis:
                    size = divided(end) - divided(start)
                    if not any(isinstance(a, Var) for a in size.terms):
                        return Chunks(next(iter(by)), axis, 0 if size.terms else size.const)
    return None
