"""Make synchronous TMA loads asynchronous in kernels without a producer: issue, then wait.

The pass is for kernels without roles: ``warp_specialised`` is off, or there is nothing to specialise.  Successive
loads become a barrier, after which no thread uses the stages any more, the issue of all loads by the first thread of
consumer 0, and a wait of all threads for the bytes.  One mbarrier serves the whole kernel, because all threads pass
the loads in the same order; its pipeline has the phase.  A tile that each consumer has for itself is loaded once
for every consumer.

Runs after ``synchronize``, for which a synchronous load orders the accesses before it and those after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import ZERO, calc, integer
from nautilus.core.expr.nodes import Expr, Ref, Var, free_vars, substitute, walk
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.pipelines import at_consumer, explicit_consumers
from nautilus.ma_tile.ir.async_ops import CONSUMER, AdvanceOp, MbarExpect, ProxyFence, TmaLoad
from nautilus.ma_tile.ir.ops import Barrier, ForOp, IfOp, MbarWait, MemKernel, MemModule, MemOp, RolesOp, walk_ops
from nautilus.ma_tile.ir.tile_scheduler import TileSchedulerOp
from nautilus.ma_tile.ir.traverse import Ops, each_kernel, touch
from nautilus.ma_tile.ir.values import Mbar, PipelineState, Smem
from nautilus.ma_tile.passes.finalise.allocate_shared import checked, place_mbars
from nautilus.targets.limits import limits


@dataclass(frozen=True, slots=True)
class AwaitCopies:
    """The pass ``await-copies``, which has no options."""

    name = "await-copies"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose TMA loads are issued first and waited for later."""
        limit = limits(module.target).smem_block
        return each_kernel(module, lambda k: checked(new, limit) if (new := await_copies(k)) is not k else k)


def await_copies(kernel: MemKernel) -> MemKernel:
    """``kernel`` with its synchronous TMA loads issued and awaited in place."""
    ops = list(walk_ops(kernel.body))
    sync = any(isinstance(op, TmaLoad) and op.mbar is None for op in ops)
    if not sync or any(isinstance(op, RolesOp) for op in ops):
        return kernel
    taken = {s.name for s in kernel.smem} | {m.name for m in kernel.mbars} | {c.name for c in kernel.pipelines}
    name = next(n for n in ("landed", *(f"landed{i}" for i in range(len(taken) + 1))) if n not in taken)
    written = any(touch(op).writes for op in ops)
    awaited = _Awaited(kernel, {s.name: s for s in kernel.smem}, PipelineState(name, 1), written)
    body = awaited.block(explicit_consumers(kernel.body))
    mbars = (*kernel.mbars, Mbar(name, 1, 1))
    return place_mbars(replace(kernel, body=body, mbars=mbars, pipelines=(*kernel.pipelines, awaited.pipeline)))


@dataclass(frozen=True, slots=True)
class _Awaited:
    kernel: MemKernel
    smem: Mapping[str, Smem]
    pipeline: PipelineState
    written: bool  # threads write shared memory too: loads are issued after these writes are complete

    def block(self, body: Ops) -> Ops:
        """``body`` with each run of loads replaced."""
        out: list[MemOp] = []
        run: list[TmaLoad] = []
        for op in body:
            if isinstance(op, TmaLoad) and op.mbar is None:
                run.append(op)
                continue
            out += self._loads(run)
            run = []
            out.append(replace(op, body=self.block(op.body)) if isinstance(op, IfOp | ForOp | TileSchedulerOp) else op)
        return (*out, *self._loads(run))

    def _loads(self, run: list[TmaLoad]) -> tuple[MemOp, ...]:
        if not run:
            return ()
        span, name = run[0].span, self.pipeline.name
        loads = [x for load in run for x in self._each_consumer(load)]
        total = sum(self.smem[x.slot.buffer].stage_bytes for x in loads)
        issue: Ops = (MbarExpect(name, ZERO, total, span), *loads)
        if self.kernel.consumers > 1:
            issue = (IfOp(calc("eq", Var(CONSUMER), ZERO), issue, span),)
        fence: Ops = (ProxyFence(span),) if self.written else ()
        wait = MbarWait(name, ZERO, Var(self.pipeline.phase), span)
        return (*fence, Barrier(span=span), *issue, wait, AdvanceOp(name, span=span))

    def _each_consumer(self, load: TmaLoad) -> list[TmaLoad]:
        """``load`` as consumer 0 issues it: for every consumer, where each has its own tile."""
        mine = (load.slot.stage, *load.index)
        if not any(CONSUMER in free_vars(e) for e in mine):
            return [replace(load, mbar=(self.pipeline.name, ZERO))]
        if any(isinstance(n, Ref) for e in mine for n in walk(e)):
            detail = f"each consumer computes the address from which it loads {load.slot.buffer}"
            raise ScheduleError(detail, kernel=self.kernel.name)
        return [self._of(load, integer(u)) for u in range(self.kernel.consumers)]

    def _of(self, load: TmaLoad, unit: Expr) -> TmaLoad:
        env = {CONSUMER: unit}
        slot = replace(load.slot, stage=simplify(substitute(load.slot.stage, env)))
        index = tuple(at_consumer(e, env) for e in load.index)
        return replace(load, slot=slot, index=index, mbar=(self.pipeline.name, ZERO))
