"""TMA loads: one instruction per tile replaces the ``cp.async`` copies of all threads into multi-stage pipelines.

Switch: ``WarpPlan.tma_loads``, for kernels whose copies are pipelined (``pipeline-copies``) and synchronised.  Every
site that fills the same stage of all pipelined buffers::

    cp.async k[s], ...                      mbar.expect full[s] BYTES
    cp.async v[s], ...             ->       tma.load k[s], ... mbar full[s]
                                            tma.load v[s], ... mbar full[s]

The wait for the bytes stands before the first reader of stage (t - first) % S of an iteration::

    mbar.wait full[(t - first) % S] parity (t - first) // S % 2

The barrier that kept ``cp.async`` from overwriting bytes that are still read orders the TMA load likewise.  Waits for
groups stay, for the copies that are not pipelined.  One thread issues the load of a whole tile, so the other threads
keep their issue slots, and all stages of the pipeline can be outstanding.

A kernel is not changed if a copy is no box of its buffer with zeros outside (``analysis.tma_boxes``), if a site
does not fill all pipelined buffers at once, or if threads write bytes that a pipelined buffer shares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Const, Expr, Op
from nautilus.core.index.simplify import Ranges, simplify
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.text.names import fresh
from nautilus.ma_tile.analysis.tma_boxes import TmaBox, combined_axes, tma_box
from nautilus.ma_tile.ir.async_ops import MbarExpect, TmaLoad
from nautilus.ma_tile.ir.ops import (
    AsyncCopy,
    ForOp,
    IfOp,
    Mbar,
    MbarWait,
    MemKernel,
    MemModule,
    MemOp,
    RolesOp,
    Slot,
    Smem,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import Ops, deep_touch, each_kernel, touch, warp_plan_of
from nautilus.ma_tile.passes.finalise.allocate_shared import checked, place_mbars
from nautilus.ma_tile.rewriting.renaming import each_block, uniform_ranges
from nautilus.targets.limits import Limits, limits


@dataclass(frozen=True, slots=True)
class TmaLoads:
    """``tma_loads`` overrides the schedule's switch."""

    schedule: Schedule | None = None
    tma_loads: bool | None = None
    name = "tma-loads"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with TMA loads in place of ``cp.async``."""
        target = limits(module.target)
        buffers = {b.name: b for b in module.buffers}

        def one(k: MemKernel) -> MemKernel:
            plan = warp_plan_of(self.schedule, k)
            wanted = (plan is not None and plan.tma_loads) if self.tma_loads is None else self.tma_loads
            return load_by_tma(k, buffers, target) if wanted and target.warpgroup else k

        return each_kernel(module, one)


def load_by_tma(kernel: MemKernel, buffers: dict[str, Buffer], target: Limits) -> MemKernel:
    """``kernel`` with its pipelined buffers filled by TMA loads, if all of them can be."""
    pipelined = _pipelined_buffers(kernel)
    if not pipelined or any(isinstance(op, RolesOp | TmaLoad) for op in walk_ops(kernel.body)):
        return kernel
    if _shared_with_threads(kernel, pipelined) or not _boxes(kernel, pipelined, buffers):
        return kernel
    sites = list(_sites(kernel.body, pipelined))
    if any({c.slot.buffer for c in site} != pipelined or len({c.slot.stage for c in site}) != 1 for site in sites):
        return kernel
    work = _TmaRewriter(kernel, pipelined, _name(kernel))
    body = each_block(kernel.body, work.block)
    if not work.awaited:
        return kernel
    out = replace(kernel, body=body, mbars=(*kernel.mbars, Mbar(work.name, work.stages, 1)))
    return checked(place_mbars(out), target.smem_block)


def _pipelined_buffers(kernel: MemKernel) -> frozenset[str]:
    """Buffers of several stages that copies fill; empty if their depths differ."""
    filled = {op.slot.buffer for op in walk_ops(kernel.body) if isinstance(op, AsyncCopy) and op.mbar is None}
    depth = {s.name: s.stages for s in kernel.smem if s.name in filled and s.stages > 1}
    return frozenset(depth) if len(set(depth.values())) == 1 else frozenset()


def _shared_with_threads(kernel: MemKernel, pipelined: frozenset[str]) -> bool:
    """Whether threads write bytes of a pipelined buffer: the TMA unit would then need a proxy fence."""
    written = {s.buffer for op in walk_ops(kernel.body) for s in touch(op).writes}
    written |= {op.slot.buffer for op in walk_ops(kernel.body) if isinstance(op, AsyncCopy)} - pipelined
    ours = [s for s in kernel.smem if s.name in pipelined]
    others = [s for s in kernel.smem if s.name in written]
    return any(a.overlaps(b) for a in ours for b in others)


def _boxes(kernel: MemKernel, pipelined: frozenset[str], buffers: dict[str, Buffer]) -> bool:
    """Whether the TMA unit can do every pipelined copy, to the layout that the readers expect."""
    smem = {s.name: s for s in kernel.smem}
    ranges: Ranges = {**uniform_ranges(kernel)}
    combined = combined_axes(kernel)
    for op in walk_ops(kernel.body):
        if not isinstance(op, AsyncCopy) or op.slot.buffer not in pipelined:
            continue
        stage = smem[op.slot.buffer]
        plan = tma_box(buffers[op.buffer], stage.axes, op.index, op.mask, ranges, combined=combined)
        fits = isinstance(plan, TmaBox) and plan.axes == stage.axes and plan.swizzle == stage.swizzle
        if not fits or stage.pad or stage.offset % (8 * stage.swizzle) or stage.stage_bytes % (8 * stage.swizzle):
            return False
    return True


def _sites(body: Ops, pipelined: frozenset[str]) -> Iterator[tuple[AsyncCopy, ...]]:
    """Runs of copies into pipelined buffers."""
    for is_copy, run in groupby(body, lambda op: isinstance(op, AsyncCopy) and op.slot.buffer in pipelined):
        ops = tuple(run)
        if is_copy:
            yield tuple(op for op in ops if isinstance(op, AsyncCopy))
            continue
        for op in ops:
            if isinstance(op, IfOp | ForOp):
                yield from _sites(op.body, pipelined)


def _name(kernel: MemKernel) -> str:
    taken = {s.name for s in kernel.smem} | {m.name for m in kernel.mbars} | {c.name for c in kernel.pipelines}
    return fresh("full", taken)


@dataclass(slots=True)
class _TmaRewriter:
    """The rewriting of one kernel; ``awaited``: whether a reader was found."""

    kernel: MemKernel
    pipelined: frozenset[str]
    name: str
    awaited: bool = False

    @property
    def smem(self) -> dict[str, Smem]:
        return {s.name: s for s in self.kernel.smem}

    @property
    def stages(self) -> int:
        return next(s.stages for s in self.kernel.smem if s.name in self.pipelined)

    def block(self, body: Ops) -> Ops:
        """``body`` with its sites replaced, and a wait before the first reader of each stage."""
        out: list[MemOp] = []
        waited: set[Expr] = set()
        run: list[AsyncCopy] = []
        for op in body:
            if isinstance(op, AsyncCopy) and op.slot.buffer in self.pipelined:
                run.append(op)
                continue
            out += self._issue(run)
            run = []
            for slot in self._read(op):
                if slot.stage not in waited:
                    waited.add(slot.stage)
                    out.append(self._wait(slot.stage))
            out.append(op)
        return (*out, *self._issue(run))

    def _read(self, op: MemOp) -> list[Slot]:
        """Stages of pipelined buffers that ``op`` reads; none for a loop or branch, which awaits them inside."""
        if isinstance(op, ForOp | IfOp):
            return []
        return [s for s in deep_touch(op).reads if s.buffer in self.pipelined]

    def _issue(self, run: list[AsyncCopy]) -> list[MemOp]:
        if not run:
            return []
        stage, span = run[0].slot.stage, run[0].span
        total = sum(self.smem[c.slot.buffer].stage_bytes for c in run)
        loads = [TmaLoad(c.slot, c.buffer, c.index, (self.name, stage), 1, True, c.span) for c in run]
        return [MbarExpect(self.name, stage, total, span), *loads]

    def _wait(self, stage: Expr) -> MbarWait:
        """The wait for ``stage`` in its current pass through the pipeline."""
        self.awaited = True
        match stage:
            case Op(op="mod", args=(number, Const(value=count))) if count == self.stages:
                rounds = calc("floordiv", number, self.stages)
                return MbarWait(self.name, stage, simplify(calc("mod", rounds, 2)))
        return MbarWait(self.name, stage, integer(0))
