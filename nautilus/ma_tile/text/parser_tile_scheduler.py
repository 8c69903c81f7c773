"""Parsers of the ops of ``ma_tile.ir.tile_scheduler``, one a statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nautilus.ma_tile.ir.ops import MemOp
from nautilus.ma_tile.ir.tile_scheduler import (
    BreakOp,
    QueuePop,
    QueuePush,
    TileFetch,
    TileFirst,
    TileReset,
    TileSchedulerOp,
)
from nautilus.ma_tile.text.parser import Parser


def tile_loop(p: Parser) -> TileSchedulerOp:
    """``tile.loop v, n in count static { ... }``."""
    ts, span = p.ts, p.ts.span()
    ts.expect("tile.loop")
    var = ts.name()
    ts.expect(",")
    iteration = ts.name()
    ts.expect("in")
    count, order = p.expr(), ts.name()
    return TileSchedulerOp(var, iteration, count, order, p.block(), span)


def break_if(p: Parser) -> BreakOp:
    """``break if e``."""
    span = p.ts.span()
    p.ts.expect("break")
    p.ts.expect("if")
    return BreakOp(p.expr(), span)


def tile_first(p: Parser) -> TileFirst:
    """``tile.first v``."""
    span = p.ts.span()
    p.ts.expect("tile.first")
    return TileFirst(p.ts.name(), span)


def tile_fetch(p: Parser) -> TileFetch:
    """``tile.fetch v``."""
    span = p.ts.span()
    p.ts.expect("tile.fetch")
    return TileFetch(p.ts.name(), span)


def tile_reset(p: Parser) -> TileReset:
    """``tile.reset e of count``."""
    span = p.ts.span()
    p.ts.expect("tile.reset")
    tile = p.expr()
    p.ts.expect("of")
    return TileReset(tile, p.expr(), span)


def queue_push(p: Parser) -> QueuePush:
    """``queue.push s[e], value``."""
    span = p.ts.span()
    p.ts.expect("queue.push")
    slot = p.slot()
    p.ts.expect(",")
    return QueuePush(slot, p.expr(), span)


def queue_pop(p: Parser) -> QueuePop:
    """``queue.pop v, s[e]``."""
    span = p.ts.span()
    p.ts.expect("queue.pop")
    var = p.ts.name()
    p.ts.expect(",")
    return QueuePop(var, p.slot(), span)


TILE_SCHEDULER: Mapping[str, Callable[[Parser], MemOp]] = {
    "tile.loop": tile_loop, "break": break_if, "tile.first": tile_first, "tile.fetch": tile_fetch,
    "tile.reset": tile_reset, "queue.push": queue_push, "queue.pop": queue_pop,
}  # fmt: skip
