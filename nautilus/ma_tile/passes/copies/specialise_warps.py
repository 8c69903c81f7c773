"""Warp specialisation: one thread of a producer warpgroup issues all TMA loads, the consumers compute.

Switch: ``WarpgroupPlan.warp_specialised``.  Before the pass, the kernel's TMA loads are synchronous and all its
consumers run the same body.  After the pass, the body is one ``roles`` op:

* ``producer``: the slice of the body that the loads need, that is the loads and the control flow around them, in
  program order.  Each site of a pipeline (``analysis.pipelines``) becomes: wait until the stage is empty, announce the
  bytes, issue the loads, advance the pipeline.  A buffer with one part per consumer is loaded for all consumers there.
* ``consumers``: the body without its loads.  The wait for the bytes of an instance stands before its first reader.  The
  release of its stage (one arrival per warp) and the advance of the pipeline stand after its last reader.  If the
  readers are in a nested op that loads nothing of the pipeline, the wait and the release surround that op.

Results may be stored through a stage of a pipeline (``rewriting.stage_aliasing``).

The depth of a pipeline is ``stages`` if a loop fills it, else ``resident_stages``.  The release of a stage never
depends on a load that is later in program order, so a producer that follows program order cannot deadlock.  A pass that
moves a release down must keep it before the site ``depth`` instances later.

A kernel is not changed (its loads are then awaited in place, ``await-copies``) when

* it has no synchronous TMA load, or already has roles;
* the address of a load, or a condition or bound around it, depends on a fragment, because the producer has none;
* threads exchange values through shared memory, because this needs barriers of the whole block; those of one consumer
  may do so in a stage of its own (``stage-stores``).

The pass raises ScheduleError where stages, waits or registers do not fit (PTX ISA, "setmaxnreg").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Ref, free_vars, walk
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpgroupPlan
from nautilus.ma_tile.analysis.pipelines import (
    TmaPipeline,
    at_consumer,
    explicit_consumers,
    find_pipelines,
    has_load,
    is_load,
    readers,
    sites,
    unique_names,
)
from nautilus.ma_tile.ir.async_ops import (
    CONSUMER,
    GROUP_WARPS,
    AdvanceOp,
    LetOp,
    MbarExpect,
    TmaLoad,
    TmaStore,
    TmaWait,
)
from nautilus.ma_tile.ir.ops import (
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    ForOp,
    IfOp,
    MbarArrive,
    MbarWait,
    MemKernel,
    MemModule,
    MemOp,
    ReduceOp,
    Role,
    RolesOp,
    ScanOp,
    SharedLoad,
    SharedStore,
    walk_ops,
)
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp
from nautilus.ma_tile.ir.traverse import Ops, each_planned_kernel, expressions, map_slots, reads, rebuild
from nautilus.ma_tile.ir.values import Slot
from nautilus.ma_tile.passes.finalise.allocate_shared import reallocate
from nautilus.ma_tile.rewriting.renaming import used_lets
from nautilus.ma_tile.rewriting.stage_aliasing import find_stage_alias
from nautilus.targets.limits import Limits, limits

#: ops that only barriers of all threads can order
_BLOCK_WIDE = (AsyncCopy, AsyncCommit, AsyncWait, TileSchedulerOp, RolesOp)


@dataclass(frozen=True, slots=True)
class SpecialiseWarps:
    """``warp_specialised`` overrides the schedule's switch."""

    schedule: Schedule | None = None
    warp_specialised: bool | None = None
    name = "specialise-warps"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with a producer and consumers.  Raises ScheduleError where a kernel has no such form."""
        target = limits(module.target)

        def one(k: MemKernel, plan: WarpgroupPlan) -> MemKernel:
            return specialise(k, plan, target) if plan.warp_specialised and obstacle(k) is None else k

        return each_planned_kernel(module, self, WarpgroupPlan, one)


def specialise(kernel: MemKernel, plan: WarpgroupPlan, target: Limits) -> MemKernel:
    """``kernel`` as a producer and consumers. Raises ScheduleError if they do not fit."""
    kernel = replace(kernel, body=explicit_consumers(kernel.body))
    pipelines = find_pipelines(kernel, plan)
    variables = [name for name, _ in kernel.decode]
    clash = unique_names([*variables, *(s.name for s in kernel.smem), *(m.name for m in kernel.mbars)], pipelines)
    if clash is not None:
        raise ScheduleError(f"the name {clash} is already in use", kernel=kernel.name)
    consumers, low, high = kernel.consumers, plan.producer_registers, plan.consumer_registers
    pingpong = plan.tile_scheduling == "pingpong"
    check_registers(kernel, plan.warpgroups if pingpong else consumers, (low, high), target)
    alias = find_stage_alias(kernel, pipelines, pingpong) if plan.epilogue == "tma-staged" else None
    producer = used_lets((*_slice(kernel.body, pipelines), *(() if alias is None else alias.claim())))
    if any(CONSUMER in free_vars(e) for op in walk_ops(producer) for e in expressions(op)):
        raise ScheduleError("a condition or bound around a load depends on the consumer", kernel=kernel.name)
    body = kernel.body
    for pipeline in pipelines:
        body = _Placer(kernel.name, pipeline).block(body)
    body = body if alias is None else alias.placed(body)
    computing = used_lets(_addressed(body, pipelines))
    roles = RolesOp(
        (
            Role("producer", 0, GROUP_WARPS, low, producer, single=True),
            Role("consumers", GROUP_WARPS, (1 + consumers) * GROUP_WARPS, high, computing, consumers),
        ),
        kernel.span,
    )
    depth = {b: r.stages_of(b) for r in pipelines for b in r.buffers}
    smem = kernel.smem if alias is None else tuple(map(alias.smem, kernel.smem))
    out = replace(
        kernel,
        warps=(1 + consumers) * GROUP_WARPS,
        consumers=1,
        smem=tuple(replace(s, stages=depth.get(s.name, s.stages)) for s in smem),
        mbars=(*kernel.mbars, *(m for r in pipelines for m in r.mbars(consumers * GROUP_WARPS))),
        pipelines=(*kernel.pipelines, *(r.state for r in pipelines)),
        body=(roles,),
    )
    return reallocate(out, target)


def check_registers(kernel: MemKernel, consumers: int, registers: tuple[int, int], target: Limits) -> None:
    """Check that the launch allocates the registers that the roles request (PTX ISA, setmaxnreg).

    Raises ScheduleError.
    """
    threads = (1 + consumers) * GROUP_WARPS * 32
    launch = target.registers_at_launch(threads, kernel.min_blocks)
    low, high = registers
    if low % 8 or high % 8:
        raise ScheduleError(f"registers {low} and {high} of the roles are not multiples of 8", kernel=kernel.name)
    if low + consumers * high > (1 + consumers) * launch:
        most = ((1 + consumers) * launch - low) // consumers // 8 * 8
        detail = f"a producer of {low} leaves {most} per thread for {consumers} consumers, not {high}"
        raise ScheduleError(f"registers of the roles: {detail}", kernel=kernel.name)


def obstacle(kernel: MemKernel) -> str | None:
    """The reason why ``kernel`` is not specialised; None if it is."""
    ops = list(walk_ops(kernel.body))
    if not any(isinstance(op, TmaLoad) and op.mbar is None for op in ops):
        return "it has no synchronous TMA load"
    if kernel.warps != kernel.consumers * GROUP_WARPS:
        return "its consumers are not warpgroups"
    for op in ops:
        wide = isinstance(op, _BLOCK_WIDE) or (isinstance(op, ReduceOp | ScanOp) and op.scratch is not None)
        wide = wide or (isinstance(op, SharedStore) and CONSUMER not in free_vars(op.slot.stage))
        if wide or (isinstance(op, Barrier) and op.threads is None) or isinstance(op, MbarWait | MbarArrive):
            return f"{type(op).__name__} needs all threads of the block"
    names = frozenset(op.slot.buffer for op in ops if isinstance(op, TmaLoad))
    if any(isinstance(n, Ref) for e in _addresses(kernel.body, names) for n in walk(e)):
        return "the address of a load depends on computed values"
    return None


def _addresses(body: Ops, names: frozenset[str]) -> list[Expr]:
    """The expressions that the loads of ``names`` need: addresses, conditions, bounds, and variables in them."""
    found = [
        e
        for op in walk_ops(body)
        if is_load(op, names) or (isinstance(op, ForOp | IfOp) and has_load(op, names))
        for e in expressions(op)
    ]
    lets = {op.var: op.expr for op in walk_ops(body) if isinstance(op, LetOp)}
    seen: set[str] = set()
    for e in found:  # the list grows while it is traversed
        for v in free_vars(e) & lets.keys() - seen:
            seen.add(v)
            found.append(lets[v])
    return found


# -- producer -----------------------------------------------------------------------------------


def _slice(body: Ops, pipelines: tuple[TmaPipeline, ...]) -> Ops:
    """The loads of ``body`` as the producer issues them, with the control flow around them."""
    names = frozenset(b for r in pipelines for b in r.buffers)
    at = {n: (pipeline, loads) for pipeline in pipelines for n, loads in sites(body, pipeline)}
    out: list[MemOp] = []
    for n, op in enumerate(body):
        match op:
            case LetOp():
                out.append(op)
            case TmaLoad() if n in at:
                out += _issue(*at[n])
            case IfOp() if has_load(op, names):
                out.append(replace(op, body=_slice(op.body, pipelines)))
            case ForOp() if has_load(op, names):
                out.append(ForOp((), op.var, op.lo, op.hi, (), _slice(op.body, pipelines), (), span=op.span))
    return tuple(out)


def _issue(pipeline: TmaPipeline, loads: tuple[TmaLoad, ...]) -> list[MemOp]:
    """One instance of ``pipeline``: wait for an empty stage, announce the bytes, load, advance."""
    span = loads[0].span
    free = calc("sub", 1, pipeline.phase)
    out: list[MemOp] = [
        MbarWait(pipeline.empty, pipeline.stage, free, span),
        MbarExpect(pipeline.full, pipeline.stage, pipeline.bytes, span),
    ]
    for load in loads:
        for consumer in range(pipeline.consumers if CONSUMER in free_vars(load.slot.stage) else 1):
            env: Mapping[str, Expr] = {CONSUMER: integer(consumer)}
            index = tuple(at_consumer(e, env) for e in load.index)
            part = at_consumer(load.slot.stage, env)
            slot = replace(load.slot, stage=pipeline.stage_of(load.slot.buffer, part))
            out.append(replace(load, slot=slot, index=index, mbar=(pipeline.full, pipeline.stage)))
    return [*out, AdvanceOp(pipeline.state.name, span=span)]


# -- consumers ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Placer:
    """Places the waits and releases of one pipeline."""

    kernel: str
    pipeline: TmaPipeline

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.pipeline.buffers)

    def block(self, body: Ops) -> Ops:
        """``body`` without the loads of the pipeline. Each instance stands between its wait and its release.

        Raises ScheduleError.
        """
        before: dict[int, MemOp] = {}
        after: dict[int, list[MemOp]] = {}
        inner: dict[int, MemOp] = {}
        start, read, vectors = -1, list[int](), set[str]()
        first = dict(sites(body, self.pipeline))
        for n, op in enumerate(body):
            if n in first:
                self._close(body, start, read, before, after)
                start, read = n, []
            elif is_load(op, self.names):
                continue
            elif isinstance(op, IfOp | ForOp) and has_load(op, self.names):
                self._close(body, start, read, before, after)
                start, read = -1, []
                inner[n] = replace(op, body=self.block(op.body))
            elif readers(op, self.names):
                if start < 0:
                    names = ", ".join(self.pipeline.buffers)
                    detail = f"shared buffer {names} is read at a point where the load that filled it is unknown"
                    raise ScheduleError(detail, kernel=self.kernel)
                read.append(n)
                vectors |= _loaded(op)
            elif start >= 0 and not vectors.isdisjoint(reads(op)):
                read.append(n)
        self._close(body, start, read, before, after)
        out: list[MemOp] = []
        for n, op in enumerate(body):
            out += [before[n]] if n in before else []
            out += [] if is_load(op, self.names) else [inner.get(n, op)]
            out += after.get(n, [])
        return tuple(out)

    def _close(
        self, body: Ops, start: int, read: list[int], before: dict[int, MemOp], after: dict[int, list[MemOp]]
    ) -> None:
        """Ends the instance that began at ``start``. An instance without readers has a wait too."""
        if start < 0:
            return
        pipeline, span = self.pipeline, body[start].span
        last = _stored(body, read[-1]) if read else start
        if last is None:
            raise ScheduleError(f"the store from shared buffer {pipeline.name} is not waited for", kernel=self.kernel)
        before[read[0] if read else start] = MbarWait(pipeline.full, pipeline.stage, pipeline.phase, span)
        after[last] = [
            MbarArrive(pipeline.empty, pipeline.stage, "warp", span=span),
            AdvanceOp(pipeline.state.name, span=span),
        ]


def _loaded(op: MemOp) -> set[str]:
    """The vector that ``op`` loads.  Who uses it counts as a reader, so that registers need not have all of it."""
    vector = isinstance(op, SharedLoad) and len(op.result.type.axes) == 1
    return {op.result.name} if vector and isinstance(op, SharedLoad) else set()


def _stored(body: Ops, last: int) -> int | None:
    """Position where the reader at ``last`` ends. A TMA store ends at the next ``tma.wait`` (None: there is none)."""
    if not isinstance(body[last], TmaStore):
        return last
    return next((n for n in range(last, len(body)) if isinstance(body[n], TmaWait)), None)


def _addressed(body: Ops, pipelines: tuple[TmaPipeline, ...]) -> Ops:
    """Slots addressed by the states of their pipelines."""
    of = {b: r for r in pipelines for b in r.buffers}

    def slot(s: Slot) -> Slot:
        return replace(s, stage=of[s.buffer].stage_of(s.buffer, s.stage)) if s.buffer in of else s

    return rebuild(body, lambda op: (map_slots(op, slot),))
