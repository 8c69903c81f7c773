"""MA-tile ops of the persistent tile scheduler: the loop over the tiles of a block, and the queue of a dynamic order.

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
  ``queue.pop`` binds the integer of a stage in every thread of a consumer; lane 0 of each warp reads it, so that the
  arrival of that lane releases the stage.  The ``full`` and ``empty`` mbarriers of the queue order both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from nautilus.core.expr.nodes import Expr
from nautilus.core.op_fields import EXPR, NAME, REGION, VARIABLE
from nautilus.core.ops import SPAN, Effect, declare, op
from nautilus.core.source import Span
from nautilus.ma_tile.ir.values import MA, READ_SLOT, WRITE_SLOT, Slot

if TYPE_CHECKING:
    from nautilus.ma_tile.ir.ops import MemOp

#: orders in which the blocks of a persistent grid process tiles
TILE_ORDERS = ("static", "snake", "dynamic")


@op(MA, "tile.loop $var, $iteration in $count $order {$body}")
class TileSchedulerOp:
    """The loop over the tiles of a persistent block; ``order`` is one of :data:`TILE_ORDERS`."""

    var: str = declare(VARIABLE)
    iteration: str = declare(VARIABLE)
    count: Expr = declare(EXPR)
    order: str = declare(NAME)
    body: tuple[MemOp, ...] = declare(REGION)
    span: Span = SPAN


@op(MA, "break if $cond", Effect.LEAVE)
class BreakOp:
    """Leave the enclosing dynamic loop where ``cond`` holds."""

    cond: Expr = declare(EXPR)
    span: Span = SPAN


@op(MA, "tile.first $var", Effect.ADVANCE)
class TileFirst:
    """A variable of the sender that :class:`TileFetch` rewrites; it begins with the number of the block."""

    var: str = declare(VARIABLE)
    span: Span = SPAN


@op(MA, "tile.fetch $var", Effect.ADVANCE, Effect.COUNT)
class TileFetch:
    """Take the next number from the tile counter of the launch."""

    var: str = declare(NAME)
    span: Span = SPAN


@op(MA, "tile.reset $tile of $count", Effect.COUNT)
class TileReset:
    """Clear the tile counter if ``tile`` is the last number that a launch of ``count`` tiles fetches."""

    tile: Expr = declare(EXPR)
    count: Expr = declare(EXPR)
    span: Span = SPAN


@op(MA, "queue.push $slot, $value")
class QueuePush:
    """Store an integer to a stage of the tile-scheduler queue."""

    slot: Slot = declare(WRITE_SLOT)
    value: Expr = declare(EXPR)
    span: Span = SPAN


@op(MA, "queue.pop $var, $slot")
class QueuePop:
    """Bind ``var`` to the integer in a stage of the tile-scheduler queue."""

    var: str = declare(VARIABLE)
    slot: Slot = declare(READ_SLOT)
    span: Span = SPAN


#: the ops of this file
SchedulerOp: TypeAlias = TileSchedulerOp | BreakOp | TileFirst | TileFetch | TileReset | QueuePush | QueuePop
