"""TMA copies of the physical interpreter: boxes between global memory and stages of shared memory.

A load with an mbarrier is one copy for each slab; slabs arrive independently, and each counts its bytes.
Bytes outside the buffer arrive as zeros and count too.  A store reads its stage from issue until the
``tma.wait`` that covers its group.  PTX ISA, "Data Movement: tensors".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from nautilus.core.expr.nodes import free_vars
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.tma_boxes import multicast_part
from nautilus.ma_tile.interp.state.shared_memory import Flight
from nautilus.ma_tile.interp.state.sync import Actor, Arrival, Program, Wait
from nautilus.ma_tile.interp.state.values import Fault, Scope, decode, encode, uniform
from nautilus.ma_tile.ir.async_ops import TmaCommit, TmaLoad, TmaStore, TmaWait
from nautilus.ma_tile.ir.layout import Ints, tile_shape

if TYPE_CHECKING:
    from nautilus.ma_tile.interp.block import BlockRun
    from nautilus.ma_tile.interp.state.machine import Context


@dataclass(slots=True)
class CollectiveLoad:
    """A synchronous load: the consumers of a role that have reached it, and the copy of each."""

    actors: list[Actor] = field(default_factory=list)
    flights: list[Flight] = field(default_factory=list)
    done: bool = False


def _box(run: BlockRun, ctx: Context, op: TmaLoad | TmaStore) -> tuple[Ints, Array, Array]:
    """For every [row, column] of the stage: element number in the buffer, whether it is inside, and inside of its map.

    Raises Fault.
    """
    buffer, memory = run.machine.smem(op.slot.buffer), run.machine.memory
    shape = memory.shapes.get(op.buffer)
    if shape is None:
        raise Fault("undefined-buffer", f"no buffer is called {op.buffer}")
    dtype = memory.dtypes[op.buffer]
    if len(op.index) != len(shape) or dtype is not buffer.dtype:
        raise Fault("layout", f"{op.buffer} of {dtype} with {len(shape)} axes is not what {buffer.name} holds")
    strides = memory.strides[op.buffer]
    if any(n * dtype.bytes % 16 for n in strides[:-1]):
        raise Fault("misaligned", f"rows of {op.buffer} are no multiples of 16 bytes apart")
    rows, cols = tile_shape(buffer.axes)
    number = np.arange(rows * cols, dtype=np.int64).reshape(rows, cols)
    places: dict[str, Ints] = {}
    for a in reversed(buffer.axes):
        places[a.name], number = number % a.size, number // a.size
    tiled = frozenset(places)
    scope = Scope(run.variables(ctx), run.machine.params, places, lambda name: run.get(ctx, run.machine.frags[name]))
    inside: Array = np.ones((rows, cols), np.bool_)
    mapped = inside
    bounds = memory.bounds[op.buffer]
    linear: Array = np.zeros((rows, cols), np.int64)
    for n, (e, size, bound, stride) in enumerate(zip(op.index, shape, bounds, strides, strict=True)):
        at = scope.eval(e)
        if n == len(shape) - 1 and np.any(np.min(at) * dtype.bytes % 16):
            raise Fault("misaligned", f"a copy starts at element {np.min(at)} of a row of {op.buffer}")
        if tiled.isdisjoint(free_vars(e)):
            uniform(at, "an index of a TMA copy")
        inside, mapped = inside & (at >= 0) & (at < size), mapped & (at >= 0) & (at < bound)
        linear = linear + at * stride
    return np.where(inside, linear, 0), inside, mapped


def _issuer(run: BlockRun, ctx: Context) -> tuple[Array, Array]:
    """The thread that issues, in the block and (from 1) in the launch."""
    thread = ctx.threads[0, 0, 0]
    return np.asarray(thread, np.int32), np.asarray(int(thread) + run.block * run.machine.threads + 1, np.int64)


def _flight(run: BlockRun, ctx: Context, op: TmaLoad) -> Flight:
    """The whole stage as one copy. Raises Fault."""
    place, inside, mapped = _box(run, ctx, op)
    thread, global_thread = _issuer(run, ctx)
    value = run.machine.memory.load(op.buffer, place, inside, global_thread)
    value = np.where(mapped & ~inside, run.machine.memory.unknown(op.buffer), value)
    bits = encode(value, run.machine.smem(op.slot.buffer).dtype)
    return Flight(run.engine_addresses(ctx, op.slot), bits, thread, run.op_number(op), tma=True)


def _slabs(op: TmaLoad, flight: Flight) -> list[Flight]:
    """One copy for each instruction."""
    columns = flight.bits.shape[1]
    width = op.slot.swizzle // flight.bits.dtype.itemsize if op.slot.swizzle else columns
    parts = [slice(at, at + width) for at in range(0, columns, max(width, 1))]
    return [Flight(flight.address[:, p], flight.bits[:, p], flight.thread, flight.op, tma=True) for p in parts]


def _part(run: BlockRun, rank: int, op: TmaLoad, slabs: list[Flight]) -> list[Flight]:
    """The part of the slabs that block ``rank`` copies for the cluster. Raises Fault."""
    cluster, found = run.machine.kernel.cluster, multicast_part(run.machine.smem(op.slot.buffer), op.multicast)
    if op.multicast != cluster or found is None:
        raise Fault("unsupported", f"{len(slabs)} slabs for {op.multicast} of {cluster} blocks")
    count, rows = found
    if count < len(slabs):
        return slabs[rank * count :][:count]
    here = slice(rank * rows, (rank + 1) * rows)
    return [Flight(f.address[here], f.bits[here], f.thread, f.op, tma=True) for f in slabs]


def _same_tile(run: BlockRun, rank: int, op: TmaLoad, whole: Flight) -> None:
    """Check that all blocks of the cluster copy parts of the same tile. Raises Fault."""
    mine = run.parts.setdefault((id(op), rank), [])
    for other in range(run.machine.kernel.cluster):
        theirs = run.parts.get((id(op), other), [])
        if other != rank and len(theirs) > len(mine) and not np.array_equal(theirs[len(mine)], whole.bits):
            raise Fault("multicast", f"block {rank} copies its part of another tile than block {other}")
    mine.append(whole.bits)


def load(run: BlockRun, ctx: Context, op: TmaLoad) -> None:
    """Issue an asynchronous load."""
    assert op.mbar is not None
    actor, stage = ctx.actor, run.integer(ctx, op.mbar[1], "a stage")
    whole = _flight(run, ctx, op)
    slabs = _slabs(op, whole)
    if op.multicast > 1:
        _same_tile(run, actor.rank, op, whole)
    ranks = range(run.machine.kernel.cluster) if op.multicast != 1 else (actor.rank,)
    for slab in slabs if op.multicast == 1 else _part(run, actor.rank, op, slabs):
        for rank in ranks:
            moved = slab.address + (rank - actor.rank) * run.machine.span
            flight = Flight(moved, slab.bits, slab.thread, slab.op, tma=True)
            run.shared.issue(actor.clock, flight)
            bar = run.mbarriers.at(op.mbar[0], stage, actor, rank)
            run.mbarriers.outstanding.append(Arrival(bar, flight, bytes=slab.bits.nbytes))


def collective_load(run: BlockRun, ctx: Context, op: TmaLoad) -> Program:
    """A synchronous load: the consumers of the role wait for each other, copy each distinct tile once, and continue."""
    actor = ctx.actor
    here = run.collective_loads.setdefault((id(op), actor.role_component, actor.rank), CollectiveLoad())
    here.actors.append(actor)
    here.flights.append(_flight(run, ctx, op))
    if len(here.actors) == actor.consumers:
        del run.collective_loads[id(op), actor.role_component, actor.rank]
        run.barriers.complete(here.actors)
        for n, f in enumerate(here.flights):
            if any(np.array_equal(f.address, g.address) and np.array_equal(f.bits, g.bits) for g in here.flights[:n]):
                continue
            run.shared.issue(actor.clock, f)
            run.shared.land(f, actor.clock.component, engine=True)
        run.barriers.complete(here.actors)
        here.done = True
    yield Wait(op, lambda: here.done)


def store(run: BlockRun, ctx: Context, op: TmaStore) -> None:
    """Issue a store; it reads its stage until a wait."""
    buffer = run.machine.smem(op.slot.buffer)
    place, inside, _ = _box(run, ctx, op)
    thread, global_thread = _issuer(run, ctx)
    address = run.engine_addresses(ctx, op.slot)
    bits, pending_read = run.shared.fetch(ctx.actor.clock, address, buffer.dtype.bytes, thread, run.op_number(op))
    ctx.actor.engines.stores.append(pending_read)
    run.machine.memory.store(op.buffer, place, decode(bits, buffer.dtype), inside, global_thread)


def commit(run: BlockRun, ctx: Context, op: TmaCommit) -> None:
    """Close a group of the stores since the last commit."""
    engines = ctx.actor.engines
    engines.store_groups.append(engines.stores)
    engines.stores = []


def wait(run: BlockRun, ctx: Context, op: TmaWait) -> None:
    """Wait until all but the youngest groups have read their stages."""
    groups = ctx.actor.engines.store_groups
    while len(groups) > op.pending:
        for pending_read in groups.pop(0):
            run.shared.release(ctx.actor.clock, pending_read)


#: op class -> what runs it in one thread block
TABLE: Mapping[type, Callable[[BlockRun, Context, Any], None]] = {
    TmaLoad: load,
    TmaStore: store,
    TmaCommit: commit,
    TmaWait: wait,
}
