"""Runs one block in predicted time: the control flow and the barriers of the physical interpreter, without data.

Loops, conditions, pipelines, mbarriers and named barriers are those of :class:`BlockRun`.  An operation on data only
takes time (:mod:`nautilus.report.timeline.units`).  The scheduler resumes the actor with the least time, and a copy
arrives when the copy unit and the latency say so, so events are in the order of time.

Conditions that depend on data are taken as false, and lengths that are read from tensors as long as they may be, as in
the cost model.  Runtime sizes have their nominal values.  The block is alone on its multiprocessor, with its share of
the memory's rate: a timeline shows what overlaps and what waits, and it is a prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from heapq import heappop, heappush
from itertools import count

import numpy as np

from nautilus.core.expr.nodes import Expr, Param
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.core.source import NO_SPAN, Span
from nautilus.cost.estimates import estimated, loop_end, segment_rows, starts_of, window_ends
from nautilus.cost.model import KernelEstimate
from nautilus.ma_tile.interp.block import DATA, BlockRun
from nautilus.ma_tile.interp.state.global_memory import GlobalMemory
from nautilus.ma_tile.interp.state.machine import Context, InterpError, Machine
from nautilus.ma_tile.interp.state.sync import Actor, Phase, Program, Task, Wait
from nautilus.ma_tile.ir import async_ops as ao
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir import tile_scheduler as ts
from nautilus.ma_tile.ir.dependent_launch import GridLaunchDependents, GridWait
from nautilus.ma_tile.ir.traverse import defined, reads
from nautilus.ma_tile.text import format_op
from nautilus.report.timeline.each_op import work_of_ops
from nautilus.report.timeline.slices import Slice, Timeline
from nautilus.report.timeline.units import Durations, Units, durations
from nautilus.targets.rates import Machine as Rates
from nautilus.targets.rates import machine as rates_of

_MATRIX, _COPIES = "matrix units", "copies"
_ISSUE = 16.0  # cycles in which a thread issues an asynchronous operation
_NAME = 90  # characters of an op that are shown
#: ops that compute integers or move pipelines, which take no time here
_INTEGER = (
    ao.AdvanceOp, ts.TileFirst, ts.TileFetch, ts.TileReset, ts.QueuePush, ts.QueuePop, GridWait, GridLaunchDependents,
)  # fmt: skip
_STRUCTURED = (
    ma.ForOp, ma.IfOp, ma.RolesOp, ts.TileSchedulerOp, ts.BreakOp, ma.Barrier, ao.NamedArrive, ao.MbarInit,
    ma.MbarArrive, ao.MbarExpect, ma.MbarWait, ao.ClusterArrive, ao.ClusterWait,
)  # fmt: skip


class NoMemory(GlobalMemory):
    """Global memory without arrays: every element is 0."""

    def __init__(self) -> None:
        """Nothing is allocated."""

    def meet(self, threads: range) -> None:
        """Nothing has been accessed."""

    def element(self, name: str, index: tuple[Array, ...]) -> Array:
        """Zeros in the shape of ``index``."""
        return np.zeros(np.broadcast_shapes(*(np.shape(i) for i in index)), np.int64)


@dataclass
class _Progress:
    """The time of one actor, and the ends of its asynchronous operations."""

    now: float = 0.0
    mmas: list[float] = field(default_factory=list)
    mma_groups: list[float] = field(default_factory=list)
    copies: list[float] = field(default_factory=list)
    copy_groups: list[float] = field(default_factory=list)
    stores: list[float] = field(default_factory=list)
    store_groups: list[float] = field(default_factory=list)
    ready: dict[str, float] = field(default_factory=dict)  # fragments that a load delivers later


class _InTime:
    """Resumes the actor with the least time; an event at which a waiting one may go on gives it that time."""

    def __init__(self, run: TimedRun) -> None:
        self.run_, self.tasks = run, list[Task]()
        self.blocked: dict[int, float] = {}

    def start(self, actor: Actor, program: Program) -> Task:
        task = Task(actor, program)
        self.run_.progress.setdefault(id(actor), _Progress(self.run_.time))
        self.run_.actors.append(actor)  # keeps identities
        self.tasks.append(task)
        return task

    def run(self) -> None:
        run = self.run_
        while self.tasks and len(run.slices) < run.most:
            ready = [t for t in self.tasks if self._may_go_on(t)]
            first = min(ready, key=lambda t: run.at(t.actor).now, default=None)
            if first is None or (run.arrivals and run.arrivals[0][0] <= run.at(first.actor).now):
                if not run.arrivals:
                    raise InterpError(run.machine.kernel.name, "deadlock", "", "", "no actor can go on")
                run.arrive()
                continue
            try:
                first.wait = next(first.program)
            except StopIteration:
                first.done = True
                self.tasks.remove(first)
            run.time = max(run.time, run.at(first.actor).now)

    def _may_go_on(self, task: Task) -> bool:
        """Whether a task may go on; one that waited until now takes the time of the last event."""
        if task.wait is None:
            return True
        key, here = id(task), self.run_.at(task.actor)
        if not task.wait.ready():
            self.blocked.setdefault(key, here.now)
            return False
        since = self.blocked.pop(key, None)
        if since is not None and self.run_.event > since:
            if not task.wait.join:
                self.run_.record(task.actor, since, self.run_.event, "wait", task.wait.op)
            here.now = self.run_.event
        return True


class TimedRun(BlockRun):
    """Block ``block`` in predicted time; ``event``: the time of the last thing that may wake an actor."""

    def __init__(self, machine: Machine, block: int, rates: Rates, memory_share: float, most: int) -> None:
        super().__init__(machine, block, 0)
        self.rates, self.share, self.most = rates, memory_share, most
        self.work = work_of_ops(machine.module, machine.kernel)
        self.starts = starts_of(machine.kernel)
        self.segments = segment_rows(machine.kernel, {b.name: b for b in machine.module.buffers})
        self.windows = window_ends(machine.kernel, self.starts)
        self.units = [Units() for _ in range(machine.kernel.together)]
        self.progress: dict[int, _Progress] = {}
        self.actors: list[Actor] = []
        self.slices: list[Slice] = []
        self.arrivals: list[tuple[float, int, Phase, int, int]] = []
        self.time = self.event = 0.0
        self.order = count()
        self.costs: dict[int, Durations] = {}
        self.names: dict[int, str] = {}
        self.scheduler = _InTime(self)  # type: ignore[assignment]

    def at(self, actor: Actor) -> _Progress:
        """The progress of ``actor``."""
        return self.progress[id(actor)]

    # -- slices -------------------------------------------------------------------------------
    def record(self, actor: Actor, start: float, end: float, kind: str, op: ma.MemOp, track: str = "") -> None:
        """Add a slice, or go on with the last one where it is alike and of the same statement."""
        if end <= start:
            return
        own = track + (f" of block {actor.rank}" if actor.rank else "") if track else actor.name
        if (name := self.names.get(id(op))) is None:
            name = self.names[id(op)] = _short(op)
        span: Span = getattr(op, "span", NO_SPAN)
        if kind == "elementwise" and self.slices:
            last = self.slices[-1]
            if (last.track, last.kind, last.span) == (own, kind, span) and start - last.end < 1.0:
                self.slices[-1] = Slice(own, last.start, end, kind, last.name, span)
                return
        self.slices.append(Slice(own, start, end, kind, name, span))

    # -- what the interpreter calls -----------------------------------------------------------
    def integer(self, ctx: Context, e: Expr, what: str) -> int:
        """The estimated integer ``e``."""
        return int(np.asarray(estimated(e, self.variables(ctx))).flat[0])

    def program(self, ctx: Context, body: tuple[ma.MemOp, ...]) -> Program:
        """The steps of ``body`` in predicted time, which yield where an actor waits."""
        here = self.at(ctx.actor)
        for op in body:
            match op:
                case ao.LetOp(var=var, expr=e):
                    at = self.variables(ctx)
                    found = loop_end(e, at, self.segments, self.windows, starts=var in self.starts)
                    ctx.variables[var] = int(np.asarray(found).flat[0])
                case _ if isinstance(op, _INTEGER):
                    DATA[type(op)](self, ctx, op)
                case _ if isinstance(op, _STRUCTURED):
                    if isinstance(op, ma.MbarArrive | ma.Barrier | ao.NamedArrive | ao.MbarExpect | ao.ClusterArrive):
                        yield Wait(op, lambda: True)  # those with less time arrive before
                        self.event = max(self.event, here.now)
                    yield from self._control(ctx, op)
                    if isinstance(op, ma.Barrier):
                        here.now += self.rates.barrier
                case _:
                    yield Wait(op, lambda: True)
                    self.perform(ctx, op, here)

    def _for(self, ctx: Context, op: ma.ForOp) -> Program:
        for i in range(self.integer(ctx, op.lo, "a loop bound"), self.integer(ctx, op.hi, "a loop bound")):
            yield from self.program(ctx.inner(**{op.var: i}), op.body)

    def arrive(self) -> None:
        """The next copy arrives at its mbarrier."""
        time, _, bar, threads, size = heappop(self.arrivals)
        self.time = self.event = max(self.event, time)
        self.mbarriers.complete_copy(bar, threads, size)

    # -- operations on data ---------------------------------------------------------------------
    def perform(self, ctx: Context, op: ma.MemOp, here: _Progress) -> None:
        """Let the time of ``op`` pass."""
        actor, units = ctx.actor, self.units[ctx.actor.rank]
        if (cost := self.costs.get(id(op))) is None:
            cost = self.costs[id(op)] = durations(self.work.get(id(op)), self.rates, self.share)
        self._until(actor, here, max((here.ready.get(n, 0.0) for n in reads(op)), default=0.0), op)
        match op:
            case ma.MmaOp() if cost.mma:
                start, end = units.mma.serve(here.now, cost.mma)
                self.record(actor, start, end, "mma", op, _MATRIX)
                if op.is_async:
                    here.mmas.append(end)
                    here.now += _ISSUE
                else:
                    self.record(actor, here.now, max(end, here.now + cost.issue), "mma", op)
                    here.now = max(end, here.now + cost.issue)
            case ao.WgCommit():
                here.mma_groups.append(max(here.mmas, default=0.0))
                here.mmas = []
            case ao.WgWait(pending=n):
                drained = self._groups(actor, here, here.mma_groups, n, op)
                here.now += self.rates.mma_drain if n == 0 and drained else 0.0
            case ao.TmaLoad() | ma.AsyncCopy():
                self._load(ctx, op, here, cost)
            case ma.AsyncCommit():
                here.copy_groups.append(max(here.copies, default=0.0))
                here.copies = []
            case ma.AsyncWait(pending=n):
                self._groups(actor, here, here.copy_groups, n, op)
            case ao.TmaStore(slot=slot):
                size = self.machine.smem(slot.buffer).stage_bytes
                start, end = units.copy.serve(here.now, size / self.rates.tma)
                self.record(actor, start, end, "copy", op, _COPIES)
                here.stores.append(end)
                here.now += _ISSUE
            case ao.TmaCommit():
                here.store_groups.append(max(here.stores, default=0.0))
                here.stores = []
            case ao.TmaWait(pending=n):
                self._groups(actor, here, here.store_groups, n, op)
            case ma.GlobalLoad():
                self._issue(actor, here, cost, op)
                start, end = units.copy.serve(here.now, cost.copy)
                self.record(actor, start, end + self.rates.load_latency, "copy", op, _COPIES)
                here.ready |= {f.name: end + self.rates.load_latency for f in defined(op)}
            case _:
                self._issue(actor, here, cost, op)
                here.now += cost.after

    def _issue(self, actor: Actor, here: _Progress, cost: Durations, op: ma.MemOp) -> None:
        start, end = self.units[actor.rank].issue.serve(here.now, cost.issue)
        self.record(actor, start, end, "elementwise", op)
        here.now = end if cost.issue else here.now

    def _load(self, ctx: Context, op: ao.TmaLoad | ma.AsyncCopy, here: _Progress, cost: Durations) -> None:
        """An asynchronous copy to shared memory, which its mbarrier or its group shows."""
        actor, parts = ctx.actor, getattr(op, "multicast", 1)
        if isinstance(op, ma.AsyncCopy):
            self._issue(actor, here, cost, op)
        start, end = self.units[actor.rank].copy.serve(here.now, cost.copy / parts)
        done = end + self.rates.load_latency
        self.record(actor, start, done, "copy", op, _COPIES)
        if op.mbar is None:
            here.copies.append(done)
            if isinstance(op, ao.TmaLoad):
                self._until(actor, here, done, op)
            return
        here.now += _ISSUE if isinstance(op, ao.TmaLoad) else 0.0
        stage = self.integer(ctx, op.mbar[1], "a stage")
        size = self.machine.smem(op.slot.buffer).stage_bytes if isinstance(op, ao.TmaLoad) else 0
        threads = 0 if isinstance(op, ao.TmaLoad) else actor.threads
        for rank in range(self.machine.kernel.cluster) if parts > 1 else (actor.rank,):
            bar = self.mbarriers.at(op.mbar[0], stage, actor, rank)
            heappush(self.arrivals, (done, next(self.order), bar, threads, size // parts))

    def _groups(self, actor: Actor, here: _Progress, groups: list[float], pending: int, op: ma.MemOp) -> bool:
        """Wait until at most ``pending`` groups are outstanding. Returns whether there was one to wait for."""
        done = groups[: max(0, len(groups) - pending)]
        del groups[: len(done)]
        self._until(actor, here, max(done, default=0.0), op)
        return bool(done)

    def _until(self, actor: Actor, here: _Progress, time: float, op: ma.MemOp) -> None:
        self.record(actor, here.now, time, "wait", op)
        here.now = max(here.now, time)


def _short(op: ma.MemOp) -> str:
    text = " ".join(format_op(op).split("\n")[0].split())
    return text if len(text) <= _NAME else text[: _NAME - 3] + "..."


def timeline(module: ma.MemModule, kernel: ma.MemKernel, found: KernelEstimate, arch: str, most: int) -> Timeline:
    """The timeline of a block of ``kernel``: the first one of a persistent kernel, else one in the middle of the grid.

    ``most``: the number of slices after which it is cut.  Raises InterpError for a kernel that the interpreter cannot
    run.
    """
    rates = rates_of(arch)
    params = {p.name: estimated(Param(p.name, p.dtype, most=p.most), {}) for p in module.params}
    machine = Machine(module, kernel, NoMemory(), params)
    persistent = any(isinstance(op, ts.TileSchedulerOp) for op in machine.ops)
    block = 0 if persistent else machine.blocks // 2 // kernel.together * kernel.together
    memory = rates.dram / rates.multiprocessors / found.clock  # bytes a cycle
    share = found.dram_bytes / max(found.l2_bytes, 1.0) / memory
    run = TimedRun(machine, block, rates, share, most)
    run.run()
    slices = sorted(run.slices, key=lambda s: (s.start, s.track))
    return Timeline(
        kernel.name, block, tuple(_tracks(run.actors, slices)), tuple(slices), found.clock, len(run.slices) < most
    )


def _tracks(actors: Sequence[Actor], slices: Sequence[Slice]) -> list[str]:
    """Actors in the order of their starts, then the shared units; those without slices are left out."""
    used = {s.track for s in slices}
    names = dict.fromkeys(a.name for a in actors)
    return [*(n for n in names if n in used), *sorted(used - names.keys())]
