"""One block of the physical interpreter: control flow, synchronisation, and errors that name the op.

:class:`BlockRun` runs one block, or the blocks of one cluster concurrently: their shared memories are
consecutive in one address space.  A Fault inside an operation becomes an :class:`InterpError` with
the operation's text.  Operations on data are in ``interp.data`` and ``interp.dot``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nautilus.core.expr.nodes import Const, Expr
from nautilus.core.numerics import Array
from nautilus.core.ops import Kind, declaration
from nautilus.core.tiles import TileType
from nautilus.core.types import DType
from nautilus.ma_tile.interp.cluster import ClusterBarrier
from nautilus.ma_tile.interp.state.machine import Context, InterpError, Machine
from nautilus.ma_tile.interp.state.outstanding import Outstanding, Undefined, Value
from nautilus.ma_tile.interp.state.shared_memory import Clock, OpFault
from nautilus.ma_tile.interp.state.sync import Actor, Barriers, Deadlock, Mbarriers, Program, Scheduler, Task, Wait
from nautilus.ma_tile.interp.state.values import Fault, Scope, coords, spread, uniform
from nautilus.ma_tile.interp.tile_scheduler import tile_loop
from nautilus.ma_tile.interp.tma import CollectiveLoad, collective_load
from nautilus.ma_tile.interp.wgmma import engine_addresses
from nautilus.ma_tile.ir.async_ops import (
    CONSUMER,
    AdvanceOp,
    ClusterArrive,
    ClusterWait,
    LetOp,
    MbarExpect,
    MbarInit,
    NamedArrive,
    TmaLoad,
)
from nautilus.ma_tile.ir.dependent_launch import GridLaunchDependents, GridWait
from nautilus.ma_tile.ir.layout import FragLayout, Ints
from nautilus.ma_tile.ir.ops import (
    Barrier,
    ForOp,
    Frag,
    IfOp,
    MbarArrive,
    MbarWait,
    MemOp,
    Role,
    RolesOp,
    Slot,
)
from nautilus.ma_tile.ir.tile_scheduler import (
    BreakOp,
    TileSchedulerOp,
)
from nautilus.ma_tile.ir.traverse import buffers_of
from nautilus.ma_tile.ir.values import MA
from nautilus.ma_tile.text import format_op


class BlockRun:
    """Block ``block`` of a launch, and the others of its cluster, scheduled by ``seed``."""

    def __init__(self, machine: Machine, block: int, seed: int) -> None:
        self.machine, self.block = machine, block
        self.shared = machine.shared_memory()
        ranks, team = machine.kernel.together, machine.kernel.team
        self.barriers = Barriers(self.shared, machine.threads, machine.components)
        first_thread = block * machine.threads + 1
        own = range(first_thread, first_thread + team * machine.threads)
        self.meet: Callable[[], None] = lambda: machine.memory.meet(own)
        if team == 1:
            self.barriers.met = self.meet
        explicit = any(isinstance(op, MbarInit) for op in machine.kernel.body)
        first = ranks * machine.components
        self.mbarriers = Mbarriers(self.shared, machine.kernel.mbars, first, ranks, ready=not explicit)
        self.cluster = ClusterBarrier(self.shared, ranks, machine.components, machine.threads, machine.span)
        self.scheduler = Scheduler(seed, self.mbarriers)
        self.collective_loads: dict[tuple[int, int, int], CollectiveLoad] = {}
        self.fetches = 0  # from the tile counter
        self.parts: dict[tuple[int, int], list[Array]] = {}  # (multicast, block) -> tiles

    @np.errstate(all="ignore")
    def run(self) -> None:
        """Run the block to its end, without warnings of numpy. Raises InterpError."""
        kernel = self.machine.kernel
        for rank in range(kernel.together):
            variables = {"block": self.block + rank}
            scope = Scope(variables, self.machine.params, {}, self._no_refs, self.machine.memory.element)
            for name, e in kernel.decode:
                variables[name] = int(scope.eval(e))
            start = np.zeros(len(self.shared.time), np.int32)
            for consumer in range(kernel.consumers):
                actor = self._actor("block", 0, kernel.warps, rank, consumer, kernel.consumers, start, 0)
                self._start(actor, {}, variables, kernel.body)
        try:
            self.scheduler.run()
        except Deadlock as stuck:
            ops = "; ".join(f"{actor.name} at `{format_op(w.op)}`" for actor, w in stuck.waits)
            bars = "".join(f"; {bar}" for bar in self.mbarriers.open())
            raise InterpError(kernel.name, "deadlock", ops, "", f"no role can run{bars}") from None
        except OpFault as f:  # the arrival of an asynchronous copy
            raise self.error(self.machine.ops[f.op], f) from None
        for arrival in self.mbarriers.outstanding:
            if arrival.flight.tma:
                op = self.machine.ops[arrival.flight.op]
                raise self.error(op, Fault("unfinished", "the copy is outstanding when the block ends"))

    def _actor(
        self, name: str, first: int, warps: int, rank: int, consumer: int, consumers: int, vc: Array, component: int
    ) -> Actor:
        """Consumer ``consumer`` of the warps from ``first`` on; ``component`` is that of consumer 0 in its block."""
        if consumers < 1 or warps % consumers:
            raise Fault("layout", f"{warps} warps are not {consumers} equal consumers")
        clock = Clock(rank * self.machine.components + component + consumer, vc.copy())
        label = name + (f"[{consumer}]" if consumers > 1 else "") + (f" of block {rank}" if rank else "")
        own = warps // consumers
        actor = Actor(label, first + consumer * own, own, clock, rank, consumer, consumers, role_component=component)
        actor.pipelines = {v: 0 for c in self.machine.kernel.pipelines for v in (c.stage, c.phase)}
        return actor

    def _start(self, actor: Actor, frags: dict[str, Value], variables: dict[str, int], body: tuple[MemOp, ...]) -> Task:
        first = actor.rank * self.machine.kernel.warps
        return self.scheduler.start(
            actor, self._run_consumer(Context(actor, frags, {**variables, CONSUMER: actor.consumer}, first), body)
        )

    def _run_consumer(self, ctx: Context, body: tuple[MemOp, ...]) -> Program:
        """Run a consumer to its end. Raises InterpError if it has pending asynchronous operations."""
        yield from self.program(ctx, body)
        left = ctx.actor.engines.unfinished()
        if left is not None:
            fault = Fault("unfinished", f"{ctx.actor.name} ends before a wait for this operation")
            raise self.error(self.machine.ops[left], fault)
        if ctx.actor.name.split(" ")[0] == "block":
            try:
                self.cluster.end(ctx.actor)
            except OpFault as f:
                raise self.error(self.machine.ops[f.op], f) from None
            n, rank = self.machine.components, ctx.actor.rank
            own = range(rank * n, (rank + 1) * n)
            bar = None if self.mbarriers.ready else self.mbarriers.in_use(ctx.actor, own)
            if bar is not None:
                what = f"{ctx.actor.name} ends before an arrival at its {bar.name} is known to be complete"
                raise InterpError(self.machine.kernel.name, "cluster", "the end of the block", bar.name, what)

    def error(self, op: MemOp, f: Fault) -> InterpError:
        """The error of ``f`` in ``op``."""
        message = f.message
        if isinstance(f, OpFault):
            message += f" ({f.link} `{format_op(self.machine.ops[f.op])}`)"
        return InterpError(self.machine.kernel.name, f.kind, format_op(op), _buffer_of(op), message)

    # -- control flow -------------------------------------------------------------------------
    def program(self, ctx: Context, body: tuple[MemOp, ...]) -> Program:
        """The steps of ``body``, which yield where an actor may wait. Raises errors that name the op."""
        for op in body:
            try:
                handler = DATA.get(type(op))
                if handler is not None and not (isinstance(op, TmaLoad) and op.mbar is None):
                    handler(self, ctx, op)
                else:
                    yield from self._control(ctx, op)
            except OpFault as f:
                raise self.error(op, f) from None
            except Fault as f:
                raise self.error(op, f) from None

    def _control(self, ctx: Context, op: MemOp) -> Program:
        match op:
            case ForOp():
                yield from self._for(ctx, op)
            case IfOp(cond=cond, body=body):
                if self.integer(ctx, cond, "the condition of an if"):
                    yield from self.program(ctx.inner(), body)
            case RolesOp():
                yield from self._roles(ctx, op)
            case TileSchedulerOp():
                yield from tile_loop(self, ctx, op)
            case TmaLoad():
                yield from collective_load(self, ctx, op)
            case Barrier(number=number, threads=threads):
                which = self.integer(ctx, number, "a barrier's number")
                yield Wait(op, self.barriers.arrive(ctx.actor, which, threads))
                if op.team:
                    yield from self._team(ctx, op)
            case NamedArrive(number=number, threads=threads):
                which = self.integer(ctx, number, "a barrier's number")
                self.barriers.arrive(ctx.actor, which, threads, wait=False)
                yield Wait(op, lambda: True)
            case MbarArrive():
                self._arrive(ctx, op)
                yield Wait(op, lambda: True)
            case MbarInit():
                self.mbarriers.initialise(ctx.actor)
                yield Wait(op, lambda: True)
            case MbarExpect(mbar=name, stage=stage, bytes=count):
                bar = self.mbarriers.at(name, self.integer(ctx, stage, "a stage"), ctx.actor)
                self.mbarriers.expect(ctx.actor, bar, count)
                yield Wait(op, lambda: True)
            case MbarWait(mbar=name, stage=stage, parity=parity):
                bar = self.mbarriers.at(name, self.integer(ctx, stage, "a stage"), ctx.actor)
                p = self.integer(ctx, parity, "a parity")
                if p not in (0, 1):
                    raise Fault("phase", f"parity {p} is neither 0 nor 1")
                yield Wait(op, lambda: self.mbarriers.passed(bar, p))
                self.mbarriers.observe(ctx.actor, bar)
            case ClusterArrive(relaxed=relaxed):
                self.cluster.arrive(ctx.actor, relaxed)
                yield Wait(op, lambda: True)
            case ClusterWait():
                phase = self.cluster.awaited(ctx.actor)
                yield Wait(op, lambda: self.cluster.phase > phase)
                self.cluster.observe(ctx.actor)
            case _:
                raise Fault("unsupported", "the interpreter does not know this operation")

    def _team(self, ctx: Context, op: Barrier) -> Program:
        """The block waits for the others of its team; the last one to arrive shows all what they stored."""
        if self.cluster.arrive(ctx.actor, False):
            self.meet()
        phase = self.cluster.awaited(ctx.actor)
        yield Wait(op, lambda: self.cluster.phase > phase)
        self.cluster.observe(ctx.actor)

    def _arrive(self, ctx: Context, op: MbarArrive) -> None:
        actor, stage = ctx.actor, self.integer(ctx, op.stage, "a stage")
        count = actor.threads if op.each == "thread" or actor.single else actor.warps
        for rank in range(self.machine.kernel.cluster) if op.cluster else (actor.rank,):
            if rank in self.cluster.ended and not self.mbarriers.ready:
                raise Fault("cluster", f"block {rank} may have ended")
            self.mbarriers.arrive(actor, self.mbarriers.at(op.mbar, stage, actor, rank), count)

    def _for(self, ctx: Context, op: ForOp) -> Program:
        lo, hi = self.integer(ctx, op.lo, "a loop bound"), self.integer(ctx, op.hi, "a loop bound")
        values = [self.raw(ctx, init) for _, init in op.carried]
        for i in range(lo, hi):
            inner = ctx.inner(**{op.var: i})
            inner.frags.update({arg.name: v for (arg, _), v in zip(op.carried, values, strict=True)})
            yield from self.program(inner, op.body)
            new = [self.raw(inner, y) for y in op.yields]
            for (arg, _), old, v in zip(op.carried, values, new, strict=True):
                self._carry(ctx, arg, old, v)
            values = new
        ctx.frags.update({r.name: v for r, v in zip(op.results, values, strict=True)})

    def _carry(self, ctx: Context, arg: Frag, old: Value, new: Value) -> None:
        """Move a value to the registers of ``arg``. Raises Fault where a pending MMA uses them."""
        if new is old:
            return
        if isinstance(new, Outstanding) and not new.ready and arg.name not in new.roots:
            raise Fault("outstanding", f"an outstanding result is carried as %{arg.name}, which has other registers")
        self._not_read(ctx, arg)

    def _not_read(self, ctx: Context, frag: Frag) -> None:
        reader = ctx.actor.engines.reader(frag.name)
        if reader is not None:
            what = f"the registers of %{frag.name} are written while an MMA may still read them"
            raise OpFault("overwrite-in-use", what, reader.op, "read by")

    def _roles(self, ctx: Context, op: RolesOp) -> Program:
        if ctx.actor.name.split(" ")[0] != "block":
            raise Fault("unsupported", "roles do not nest")
        used: set[int] = set()
        tasks: list[Task] = []
        for role in op.roles:
            warps = range(role.first_warp, role.last_warp)
            if not used.isdisjoint(warps) or not 0 <= warps.start < warps.stop <= self.machine.kernel.warps:
                raise Fault("layout", f"role {role.name} has no warps of its own")
            used.update(warps)
            tasks += [self._consumer(ctx, role, consumer) for consumer in range(role.consumers)]
        yield Wait(op, lambda: all(t.done for t in tasks), join=True)
        clocks = [t.actor.clock.vc for t in tasks]
        idle = [] if len(used) == self.machine.kernel.warps else [ctx.actor.clock.vc]
        ctx.actor.clock.vc = np.min([*clocks, *idle], axis=0)

    def _consumer(self, ctx: Context, role: Role, consumer: int) -> Task:
        warps, component = role.last_warp - role.first_warp, self.machine.component[id(role)]
        vc, rank = ctx.actor.clock.vc, ctx.actor.rank
        actor = self._actor(role.name, role.first_warp, warps, rank, consumer, role.consumers, vc, component)
        actor.single = role.single
        own = slice(actor.first_warp, actor.first_warp + actor.warps)
        frags: dict[str, Value] = {k: v[own] for k, v in ctx.frags.items() if isinstance(v, np.ndarray)}
        return self._start(actor, frags, ctx.variables, role.body)

    # -- what operations on data need ---------------------------------------------------------
    def _no_refs(self, name: str) -> Array:
        raise Fault("undefined-fragment", f"%{name} is not defined here")

    def raw(self, ctx: Context, frag: Frag) -> Value:
        """The value of ``frag``, which may be outstanding. Raises Fault before its definition."""
        x = ctx.frags.get(frag.name)
        if x is None:
            raise Fault("undefined-fragment", f"%{frag.name} is read before it is defined")
        return x

    def get(self, ctx: Context, frag: Frag) -> Array:
        """The registers of ``frag``. Raises Fault before its definition, and while it is outstanding."""
        x = self.raw(ctx, frag)
        if isinstance(x, Outstanding):
            return x.read(frag.name)
        if isinstance(x, Undefined):
            raise Fault("undefined-fragment", f"%{frag.name} is read before anything is written to it")
        return x

    def put(self, ctx: Context, frag: Frag, value: Array) -> None:
        """Define ``frag``; its layout must have as many warps and registers. Raises Fault."""
        shape = self.shape(ctx, self.machine.layout(frag.layout))
        if value.shape != shape:
            if np.broadcast_shapes(value.shape, shape) != shape:
                raise Fault("layout", f"%{frag.name} has {value.shape[2]} registers, its layout {shape[2]}")
            value = np.broadcast_to(value, shape)
        if self.machine.is_async:
            self._not_read(ctx, frag)
            value = value.view()  # a separate object, so that its id is unique
            ctx.actor.engines.written[id(value)] = value
        ctx.frags[frag.name] = value

    def put_raw(self, ctx: Context, frag: Frag, value: Value) -> None:
        """Define ``frag`` by a value that an MMA writes later, or by no value."""
        self._not_read(ctx, frag)
        ctx.frags[frag.name] = value

    def type_of(self, operand: Frag | Slot) -> DType:
        """Element type of an operand."""
        return operand.type.dtype if isinstance(operand, Frag) else self.machine.smem(operand.buffer).dtype

    def axes_of(self, operand: Frag | Slot) -> tuple[str, ...]:
        """Axes of an operand."""
        if isinstance(operand, Frag):
            return operand.type.names
        buffer = self.machine.smem(operand.buffer)
        return TileType(buffer.dtype, buffer.axes).names

    def variables(self, ctx: Context) -> dict[str, int]:
        """Integer variables in scope, the pipelines of the consumer among them."""
        return {**ctx.variables, **ctx.actor.pipelines} if ctx.actor.pipelines else ctx.variables

    def advance(self, ctx: Context, pipeline: str, by: int) -> None:
        """Move a pipeline of the consumer on. Raises Fault."""
        c = next((c for c in self.machine.kernel.pipelines if c.name == pipeline), None)
        if c is None or by < 0:
            raise Fault("undefined-variable", f"pipeline {pipeline} cannot move by {by}")
        rounds, stage = divmod(ctx.actor.pipelines[c.stage] + by, c.stages)
        phase = (ctx.actor.pipelines[c.phase] + rounds) % 2
        ctx.actor.pipelines.update({c.stage: stage, c.phase: phase})

    def shape(self, ctx: Context, layout: FragLayout) -> tuple[int, int, int]:
        """(warps, 32, registers). Raises Fault where the layout is of another role."""
        if layout.warps != ctx.actor.warps:
            raise Fault("layout", f"a layout of {layout.warps} warps in a role of {ctx.actor.warps}")
        return layout.warps, 32, layout.registers

    def scope(self, ctx: Context, layout: FragLayout | None, axes: tuple[str, ...]) -> Scope:
        """What an expression over the fragment positions of ``layout`` may mention."""
        places: dict[str, Ints] = {} if layout is None else {a: coords(layout, a) for a in axes}

        def refs(name: str) -> Array:
            if name not in self.machine.frags:
                self._no_refs(name)
            frag = self.machine.frags[name]
            x = self.get(ctx, frag)
            return x if layout is None else spread(x, layout, frag.type.names)

        return Scope(self.variables(ctx), self.machine.params, places, refs, self.machine.memory.element)

    def integer(self, ctx: Context, e: Expr, what: str) -> int:
        """``e`` where all threads must agree. Raises Fault."""
        if isinstance(e, Const):
            return int(e.value)
        return uniform(self.scope(ctx, None, ()).eval(e), what)

    def base(self, ctx: Context, slot: Slot) -> int:
        """Byte offset of the stage that ``slot`` names. Raises Fault outside of its stages."""
        buffer = self.machine.smem(slot.buffer)
        stage = self.integer(ctx, slot.stage, "a stage")
        if not 0 <= stage < buffer.stages:
            raise Fault("out-of-bounds", f"stage {stage} is outside the {buffer.stages} of {buffer.name}")
        return self.origin(ctx) + buffer.offset + stage * buffer.stage_bytes

    def origin(self, ctx: Context) -> int:
        """Where the shared memory of the consumer's block begins."""
        return ctx.actor.rank * self.machine.span

    def engine_addresses(self, ctx: Context, slot: Slot) -> Ints:
        """Address of every [row, column] of a stage, as engines compute it. Raises Fault."""
        base, buffer = self.base(ctx, slot), self.machine.smem(slot.buffer)
        if base % 16 or buffer.pad:
            raise Fault("misaligned", f"the stage of {buffer.name} starts at {base} or has padding")
        low = base % 1024  # the pattern repeats
        key = f"engine {slot.buffer} {slot.swizzle} {low}"
        out: Ints = self.machine.cached(buffer, key, lambda: engine_addresses(buffer, slot.swizzle, low))
        return out + (base - low)

    def op_number(self, op: MemOp) -> int:
        """What the history of shared memory calls ``op``."""
        return self.machine.number[id(op)]


def _buffer_of(op: MemOp) -> str:
    """What ``op`` accesses, for messages: shared buffers, else a buffer in global memory or an mbarrier."""
    if shared := ", ".join(buffers_of(op)):
        return shared
    found = declaration(type(op))
    return next((getattr(op, n) for kind in (Kind.MEMORY, Kind.BARRIER) for n in found.names(kind)), "")


def _let(run: BlockRun, ctx: Context, op: LetOp) -> None:
    ctx.variables[op.var] = run.integer(ctx, op.expr, op.var)


def _advance(run: BlockRun, ctx: Context, op: AdvanceOp) -> None:
    run.advance(ctx, op.pipeline, 1 if op.by is None else run.integer(ctx, op.by, "a number of stages"))


def _grid_dependency(run: BlockRun, ctx: Context, op: GridWait | GridLaunchDependents) -> None:
    """Do nothing, because the interpreter starts a launch after the previous one has ended."""


def _table() -> dict[type, Callable[[BlockRun, Context, Any], None]]:
    from nautilus.ma_tile.interp import data, dot, tile_scheduler, tma, unpack, wgmma
    from nautilus.ma_tile.interp.scans import scan

    tables = (data.TABLE, scan.TABLE, dot.TABLE, tma.TABLE, unpack.TABLE, wgmma.TABLE, tile_scheduler.TABLE)
    grid: dict[type, Callable[[BlockRun, Context, Any], None]] = {
        GridWait: _grid_dependency,
        GridLaunchDependents: _grid_dependency,
    }
    return {LetOp: _let, AdvanceOp: _advance, **grid, **{op: run for table in tables for op, run in table.items()}}


DATA = _table()
#: what :meth:`BlockRun._control` runs: ops with bodies, and ops that let other threads go on
_CONTROL = (
    ForOp, IfOp, RolesOp, TileSchedulerOp, BreakOp, Barrier, NamedArrive, MbarInit, MbarArrive, MbarExpect, MbarWait,
    ClusterArrive, ClusterWait,
)  # fmt: skip
MA.complete({**DATA, **dict.fromkeys(_CONTROL)}, "interpreter")
