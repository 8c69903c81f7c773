"""Named barriers (PTX ISA, ``bar``; 0 is the block's own): one number per consumer and purpose; ordered barriers.

The ordered section of a consumer begins at a barrier of this consumer and the previous one, and ends with an arrival at
the barrier of the next consumer.  The last consumer makes the first arrival, so that consumer 0 runs first.  The last
arrival is left at the barrier when the block ends; no thread waits for it.

The blocks of a team count their arrivals in a temp, which one more kernel clears before the launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Const, Expr, Op, Var
from nautilus.core.schedule.recomputed import filling
from nautilus.core.text.names import unused
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.ma_tile.ir.async_ops import CONSUMER, GROUP_THREADS, NamedArrive, WgCommit, WgFence
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.ir.ops import Barrier, ConstOp, Frag, GlobalStore, IfOp, MemKernel, MemModule, MemOp
from nautilus.targets.limits import WARP

#: largest number of consumers of a block
MOST_CONSUMERS = 3
#: first barrier of those that synchronise the threads of one consumer
STORE = 1
#: first barrier of those that order the consumers
ORDER = STORE + MOST_CONSUMERS
#: barrier of the threads of all consumers
ALL = ORDER + MOST_CONSUMERS
#: threads of the arriving and of the waiting consumer
_BOTH = 2 * GROUP_THREADS
#: integers that a team has for its arrivals, so that teams use lines of their own
TEAM_WORDS = 32


def of_consumer(first: int) -> Expr:
    """The barrier of this consumer, of those from ``first`` on."""
    return calc("add", first, Var(CONSUMER))


def of_next(first: int, consumers: int) -> Expr:
    """The barrier of the consumer after this one."""
    after = calc("add", Var(CONSUMER), 1)
    return calc("add", first, calc("mod", after, consumers))


def consumer_barrier() -> Barrier:
    """The barrier of all threads of this consumer."""
    return Barrier(of_consumer(STORE), GROUP_THREADS)


def consumers_barrier(consumers: int) -> Barrier:
    """The barrier of all threads of all ``consumers``."""
    return Barrier(integer(ALL), consumers * GROUP_THREADS)


def ordered(body: tuple[MemOp, ...], at: Sequence[int], consumers: int) -> tuple[MemOp, ...]:
    """``body`` with positions ``at`` in one ordered section, which includes a fence before and a commit after them."""
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
    """The first arrival: the last consumer lets consumer 0 run first."""
    return IfOp(_consumer_is(consumers - 1), (NamedArrive(integer(ORDER), _BOTH),))


def _consumer_is(n: int) -> Op:
    return calc("eq", Var(CONSUMER), n)


# -- teams ----------------------------------------------------------------------------------------


def with_arrivals(module: MemModule) -> MemModule:
    """``module`` with a temp for each kernel that has teams, and a kernel before it that clears the temp."""
    buffers, kernels = list(module.buffers), list[MemKernel]()
    taken = {b.name for b in module.buffers} | {p.name for p in module.params} | {k.name for k in module.kernels}
    for k in module.kernels:
        if k.team > 1:
            assert isinstance(k.blocks, Const), "the blocks of teams run at the same time"
            name = unused(f"{k.name}_arrivals", taken)
            clearing = unused(filling(name), {*taken, name}, first=2)
            taken |= {name, clearing}
            teams = int(k.blocks.value) // k.team
            buffers.append(Buffer(name, DType.I32, (teams, TEAM_WORDS), Space.TEMP, k.span))
            kernels.append(_clear(clearing, name, teams, k))
            k = replace(k, arrivals=name)
        kernels.append(k)
    if len(kernels) == len(module.kernels):
        return module
    return replace(module, buffers=tuple(buffers), kernels=tuple(kernels))


def _clear(name: str, buffer: str, teams: int, k: MemKernel) -> MemKernel:
    """The kernel with a warp for each of the ``teams``, whose words it clears."""
    axis = TileAxis("word", TEAM_WORDS)
    layout = FragLayout((), (Mode(WARP, axis.name, 1),), ())
    zero = Frag("zero", TileType(DType.I32, (axis,)), "words")
    store = GlobalStore(buffer, (Var("team"), Var(axis.name)), zero, None, 1, k.span)
    decode, body = (("team", Var("block")),), (ConstOp(zero, 0, k.span), store)
    return MemKernel(name, integer(teams), 1, 1, decode, {"words": layout}, (), (), body, k.span)
