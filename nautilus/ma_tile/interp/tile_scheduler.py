"""Persistent tiles of the physical interpreter: which tiles a block takes, and how they reach its roles.

``dynamic``: block b begins with tile b; who gets each of the rest is up to the adversary, decided once a
launch from the seed.  The leading role sends every number through the mailbox, the end (a number that is
no tile) too; each other warp gives the stage back.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import numpy as np

from nautilus.core.types import DType
from nautilus.ma_tile.interp.state.sync import Program, Wait
from nautilus.ma_tile.interp.state.values import Fault, encode
from nautilus.ma_tile.ir.async_ops import SchedulerQueue, TileSchedulerOp

if TYPE_CHECKING:
    from nautilus.ma_tile.interp.block import BlockRun
    from nautilus.ma_tile.interp.state.machine import Context


def split(count: int, blocks: int, seed: int) -> list[list[int]]:
    """Tiles of each block under the dynamic order; every tile once, each block's in order."""
    out = [[b] if b < count else [] for b in range(blocks)]
    rng = random.Random(seed)
    for tile in range(blocks, count):
        chosen = (tile % blocks, blocks - 1, rng.randrange(blocks))[seed % 3]
        out[chosen].append(tile)
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


def tiles(run: BlockRun, ctx: Context, op: TileSchedulerOp) -> Program:
    """Run the body for every tile of the block."""
    kernel = run.machine.kernel
    count = run.integer(ctx, op.count, "the number of tiles")
    block, blocks = run.block // kernel.cluster, run.machine.blocks // kernel.cluster
    if op.mailbox is None:
        for n, tile in enumerate(fixed(op.order, count, block, blocks)):
            yield from run.program(ctx.inner(**{op.var: tile, op.seq: n}), op.body)
        return
    if kernel.cluster != 1:
        raise Fault("unsupported", "dynamic tiles in clusters")
    mine = iter([*split(count, blocks, run.machine.seed)[block], count])
    n = 0
    while True:
        tile = yield from _next(run, ctx, op, op.mailbox, next(mine))
        if tile >= count:
            return
        yield from run.program(ctx.inner(**{op.var: tile, op.seq: n}), op.body)
        n += 1


def _next(
    run: BlockRun, ctx: Context, op: TileSchedulerOp, box: SchedulerQueue, tile: int
) -> Generator[Wait, None, int]:
    """The next tile's number: sent by the leader, received by the others."""
    actor = ctx.actor
    cursor = next((c for c in run.machine.kernel.cursors if c.name == box.cursor), None)
    if cursor is None:
        raise Fault("undefined-variable", f"no cursor is called {box.cursor}")
    stage, phase = actor.cursors[cursor.stage], actor.cursors[cursor.phase]
    full, empty = (run.mbarriers.at(name, stage, actor.rank) for name in (box.full, box.empty))
    buffer = run.machine.smem(box.smem)
    address = np.asarray([run.origin(ctx) + buffer.offset + stage * buffer.stage_bytes], np.int64)
    awaited, parity = (empty, 1 - phase) if box.leads else (full, phase)
    yield Wait(op, lambda: run.mbarriers.passed(awaited, parity))
    run.mbarriers.observe(actor, awaited)
    thread = ctx.threads[0, 0, :1]
    if box.leads:
        bits = encode(np.asarray([tile], np.int32), DType.I32)
        run.shared.store(actor.clock, address, bits, thread, run.op_number(op))
        run.mbarriers.arrive(actor, full, 1)
    else:
        tile = int(run.shared.load(actor.clock, address, 4, thread, run.op_number(op)).view(np.int32)[0])
        run.mbarriers.arrive(actor, empty, 1 if actor.single else actor.warps)
    run.advance(ctx, cursor.name, 1)
    return tile
