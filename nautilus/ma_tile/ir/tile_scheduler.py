"""MA-tile ops of the persistent tile scheduler: the loop over the tiles of a block, and the queue of a dynamic order.

The grammar (continued from ``ma_tile.ir.async_ops``)::

    op := 'tile.loop' VAR ',' ITERATION 'in' expr 'static' | 'snake' | 'dynamic' '{' op* '}'
        | 'break' 'if' expr                     -- leaves the dynamic loop whose body holds it
        | 'tile.first' VAR                      -- a variable that holds the number of the block
        | 'tile.fetch' VAR                      -- VAR = number of blocks + atomicAdd(tile counter, 1)
        | 'tile.reset' expr 'of' expr           -- clears the counter behind the last fetch of the launch
        | 'queue.push' slot ',' expr
        | 'queue.pop' VAR ',' slot

Meaning.

* ``tile.loop v, n in count``: the consumers of a role run the body once for every tile v in 0..count that the block
  processes, in iterations n = 0, 1, ....  All roles of a block see the same sequence, and every tile is processed by
  exactly one block of the launch (by one cluster: all blocks of a cluster process the same v).
  ``static``: block, block + blocks, ....  ``snake``: the same, but every second round goes backwards, which evens out
  sorted lengths.  ``dynamic``: the loop has no bound of its own.  The body binds v, and one ``break if v >= count``
  stands at its top level.
* The tile counter is one 32-bit integer in global memory.  It is 0 before a launch and 0 again after it.
* ``tile.first`` and ``tile.fetch`` belong to one thread of the block, the sender.  The sender takes the number of its
  block first, and every fetch gives it the next number that no block has, until it is ``count`` or more.
* ``tile.reset v of count``: each block fetches once for each tile that it processes, so that the launch fetches
  ``count`` times; the block that received the number of blocks + count - 1 performed the last fetch, and stores 0.
* ``queue.push`` stores one integer to a stage of a shared buffer (i32, one element a stage) by the sender.
  ``queue.pop`` binds the integer of a stage in every thread of a unit; lane 0 of each warp reads it, so that the
  arrival of that lane releases the stage.  The ``full`` and ``empty`` mbarriers of the queue order both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nautilus.core.expr.nodes import Expr
from nautilus.core.source import NO_SPAN, Span
from nautilus.ma_tile.ir.values import Slot

if TYPE_CHECKING:
    from nautilus.ma_tile.ir.ops import MemOp

_SPAN = field(default=NO_SPAN, compare=False, repr=False)

#: orders in which the blocks of a persistent grid process tiles
TILE_ORDERS = ("static", "snake", "dynamic")


@dataclass(frozen=True, slots=True)
class TileSchedulerOp:
    """The loop over the tiles of a persistent block; ``order`` is one of :data:`TILE_ORDERS`."""

    var: str
    iteration: str
    count: Expr
    order: str
    body: tuple[MemOp, ...]
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class BreakOp:
    """Leave the enclosing dynamic loop where ``cond`` holds."""

    cond: Expr
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class TileFirst:
    """A variable of the sender that :class:`TileFetch` rewrites; it begins with the number of the block."""

    var: str
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class TileFetch:
    """Take the next number from the tile counter of the launch."""

    var: str
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class TileReset:
    """Clear the tile counter if ``tile`` is the last number that a launch of ``count`` tiles fetches."""

    tile: Expr
    count: Expr
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class QueuePush:
    """Store an integer to a stage of the tile-scheduler queue."""

    slot: Slot
    value: Expr
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class QueuePop:
    """Bind ``var`` to the integer in a stage of the tile-scheduler queue."""

    var: str
    slot: Slot
    span: Span = _SPAN
