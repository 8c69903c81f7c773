"""Named barriers (PTX ISA, ``bar``; 0 is the block's own): their numbers, one a consumer for each purpose, and turns.

A turn of a consumer begins at a barrier of this consumer and the one before it, and ends with an arrival at the barrier
of the next consumer.  The last consumer gives consumer 0 its first turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Op, Var
from nautilus.ma_tile.ir.async_ops import CONSUMER, GROUP_THREADS, NamedArrive, WgCommit, WgFence
from nautilus.ma_tile.ir.ops import Barrier, IfOp, MemOp

#: most consumer consumers of a block
MOST_CONSUMERS = 3
#: the threads of one consumer meet
STORE = 1
#: one consumer hands its turn to the next
ORDER = STORE + MOST_CONSUMERS
#: threads of those who give and those who take a turn
_BOTH = 2 * GROUP_THREADS


def of_consumer(first: int) -> Expr:
    """The barrier of this consumer, of those from ``first`` on."""
    return calc("add", first, Var(CONSUMER))


def of_next(first: int, consumers: int) -> Expr:
    """The barrier of the consumer after this one."""
    after = calc("add", Var(CONSUMER), 1)
    return calc("add", first, calc("mod", after, consumers))


def consumer_barrier() -> Barrier:
    """All threads of this consumer meet."""
    return Barrier(of_consumer(STORE), GROUP_THREADS)


def ordered(body: tuple[MemOp, ...], at: Sequence[int], consumers: int) -> tuple[MemOp, ...]:
    """``body`` with a turn from the first to the last position of ``at``, a fence before and a commit behind it too."""
    if not at:
        return body
    first, last = at[0], at[-1] + 1
    if first and isinstance(body[first - 1], WgFence):
        first -= 1
    if last < len(body) and isinstance(body[last], WgCommit):
        last += 1
    begin, end = Barrier(of_consumer(ORDER), _BOTH), NamedArrive(of_next(ORDER, consumers), _BOTH)
    return (*body[:first], begin, *body[first:last], end, *body[last:])


def first_arrival(consumers: int) -> IfOp:
    """The last consumer gives consumer 0 its first turn."""
    return IfOp(_consumer_is(consumers - 1), (NamedArrive(integer(ORDER), _BOTH),))


def last_wait() -> IfOp:
    """Unit 0 takes the turn that the last consumer gave last."""
    return IfOp(_consumer_is(0), (Barrier(integer(ORDER), _BOTH),))


def _consumer_is(n: int) -> Op:
    return calc("eq", Var(CONSUMER), n)
