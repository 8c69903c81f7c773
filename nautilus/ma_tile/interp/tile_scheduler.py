"""The persistent tile scheduler of the physical interpreter: which tiles a block processes, and the queue.

``dynamic``: block b begins with tile b.  An adversary, chosen by the seed of the launch, decides which block receives
each of the other tiles, and in which order the blocks receive the numbers after the last tile.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nautilus.core.types import DType
from nautilus.ma_tile.interp.state.sync import Program
from nautilus.ma_tile.interp.state.values import Fault, encode
from nautilus.ma_tile.ir.ops import walk_ops
from nautilus.ma_tile.ir.tile_scheduler import (
    BreakOp,
    QueuePop,
    QueuePush,
    TileFetch,
    TileFirst,
    TileReset,
    TileSchedulerOp,
)

if TYPE_CHECKING:
    from nautilus.ma_tile.interp.block import BlockRun
    from nautilus.ma_tile.interp.state.machine import Context
    from nautilus.ma_tile.ir.layout import Ints


def split(count: int, blocks: int, seed: int) -> list[list[int]]:
    """Numbers that each block receives under the dynamic order: its tiles, then the one that ends its loop.

    Every number of 0..count + blocks goes to one block, and each block receives its numbers in order.
    """
    out = [[b] for b in range(blocks)]
    rng = random.Random(seed)
    for tile in range(blocks, count):
        chosen = (tile % blocks, blocks - 1, rng.randrange(blocks))[seed % 3]
        out[chosen].append(tile)
    ends = list(range(max(count, blocks), count + blocks))
    rng.shuffle(ends)
    for numbers in out:
        if numbers[-1] < count:
            numbers.append(ends.pop())
    return out


def fixed(order: str, count: int, block: int, blocks: int) -> Iterator[int]:
    """Tiles of ``block`` under the orders that need no communication. Raises Fault."""
    if order not in ("static", "snake"):
        raise Fault("unsupported", f"no order of tiles is called {order}")
    round_ = 0
    while True:
        back = order == "snake" and round_ % 2
        tile = round_ * blocks + (blocks - 1 - block if back else block)
        if tile >= count:
            return
        yield tile
        round_ += 1


def tile_loop(run: BlockRun, ctx: Context, op: TileSchedulerOp) -> Program:
    """Run the body for every tile of the block."""
    kernel = run.machine.kernel
    if op.order == "dynamic":
        yield from _until_break(run, ctx, op)
        return
    count = run.integer(ctx, op.count, "the number of tiles")
    block, blocks = run.block // kernel.cluster, run.machine.blocks // kernel.cluster
    for n, tile in enumerate(fixed(op.order, count, block, blocks)):
        yield from run.program(ctx.inner(**{op.var: tile, op.iteration: n}), op.body)


def _until_break(run: BlockRun, ctx: Context, op: TileSchedulerOp) -> Program:
    """Run the body until its break leaves the loop."""
    if run.machine.kernel.cluster != 1:
        raise Fault("unsupported", "dynamic tiles in clusters")
    at = next((n for n, x in enumerate(op.body) if isinstance(x, BreakOp)), None)
    if at is None:
        raise Fault("unsupported", "a dynamic tile loop without a break")
    leave = op.body[at]
    assert isinstance(leave, BreakOp)
    n = 0
    while True:
        inner = ctx.inner(**{op.iteration: n})
        yield from run.program(inner, op.body[:at])
        if run.integer(inner, leave.cond, "the condition of a break"):
            return
        yield from run.program(inner, op.body[at + 1 :])
        n += 1


def first(run: BlockRun, ctx: Context, op: TileFirst) -> None:
    """The variable lives as long as the actor, as the states of pipelines do."""
    ctx.actor.pipelines[op.var] = run.block


def fetch(run: BlockRun, ctx: Context, op: TileFetch) -> None:
    """The next number that the adversary gives to this block. Raises Fault beyond the end."""
    loops = [x for x in walk_ops(run.machine.kernel.body) if isinstance(x, TileSchedulerOp)]
    if op.var not in ctx.actor.pipelines or not loops:
        raise Fault("undefined-variable", f"no tile.first declares {op.var}")
    count = run.integer(ctx, loops[0].count, "the number of tiles")
    machine = run.machine
    numbers = machine.cached(op, "numbers", lambda: split(count, machine.blocks, machine.seed))[run.block]
    run.fetches += 1
    if run.fetches >= len(numbers):
        raise Fault("unsupported", "a fetch follows the last tile")
    ctx.actor.pipelines[op.var] = numbers[run.fetches]


def reset(run: BlockRun, ctx: Context, op: TileReset) -> None:
    """The block that receives the last number of the launch clears the counter. Raises Fault in another one."""
    tile, count = (run.integer(ctx, e, "a number of tiles") for e in (op.tile, op.count))
    last = run.machine.blocks + count - 1
    if tile != last:
        return
    run.machine.counter_resets += 1
    received = [x for op in run.machine.ops if isinstance(op, TileFirst) for x in [ctx.actor.pipelines.get(op.var)]]
    if received != [last]:
        raise Fault("tile-counter", "the tile counter is cleared before the last fetch of the launch")


def push(run: BlockRun, ctx: Context, op: QueuePush) -> None:
    """One thread stores."""
    bits = encode(np.asarray([run.integer(ctx, op.value, "a tile")], np.int32), DType.I32)
    run.shared.store(ctx.actor.clock, _address(run, ctx, op), bits, ctx.threads[0, 0, :1], run.op_number(op))


def pop(run: BlockRun, ctx: Context, op: QueuePop) -> None:
    """One thread reads for its consumer."""
    thread, number = ctx.threads[0, 0, :1], run.op_number(op)
    found = run.shared.load(ctx.actor.clock, _address(run, ctx, op), 4, thread, number)
    ctx.variables[op.var] = int(found.view(np.int32)[0])


def _address(run: BlockRun, ctx: Context, op: QueuePush | QueuePop) -> Ints:
    return np.asarray([run.base(ctx, op.slot)], np.int64)


#: op class -> what runs it in one thread block; the loop of the tiles runs a break itself
TABLE: Mapping[type, Callable[[BlockRun, Context, Any], None]] = {
    TileFirst: first,
    TileFetch: fetch,
    TileReset: reset,
    QueuePush: push,
    QueuePop: pop,
}
