"""Blocks that make partial results of one result become consumers of one block, which combines them itself.

Switch: ``WarpPlan.combine_in_block`` of a kernel whose results only one other kernel reads.  Kernel A writes temps that
only kernel B reads, and each of B's R blocks reads exactly what U blocks of A write: then A's blocks are
consumers of B's blocks, and the temps are in shared memory::

    kernel B grid R warps U * (warps of A)
      roles { role partial warps 0..U * (warps of A) consumers U {
        let chunk = 4 * part + consumer   -- A's grid variables as B's and the consumer make them
        A's body: every shared buffer in U slices, barriers of the consumer's threads
        barrier                       -- the slices are no longer needed
        st.shared part[consumer], %x      -- was: st.global T[chunk, ...], %x
      } }
      barrier
      B's body: ld.shared all_parts   -- was: ld.global T[chunk axis, ...]

No partial result goes through global memory, no second launch waits for the first, and the consumers of a block
share no data before the end, so none waits for another before it.

``analysis.split_k_combine`` states the requirements on the temps and how A's grid variables are found.

The pass raises ScheduleError where the kernels do not fit together in this way.  It runs late: both kernels are
synchronised.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import ZERO, calc
from nautilus.core.expr.nodes import Expr, Var
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.text.words import counted
from nautilus.ma_tile.analysis.split_k_combine import Pair, SplitKFusion, merged, pair_of, several
from nautilus.ma_tile.ir.async_ops import CONSUMER, LetOp, MbarExpect, TmaLoad
from nautilus.ma_tile.ir.ops import (
    Barrier,
    MbarWait,
    MemKernel,
    MemModule,
    MemOp,
    ReduceOp,
    Role,
    RolesOp,
    ScanOp,
    Smem,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import map_slots, rebuild, warp_plan_of
from nautilus.ma_tile.passes.finalise.allocate_shared import alignment, checked, place_mbars
from nautilus.ma_tile.rewriting.named_barriers import STORE, of_consumer
from nautilus.ma_tile.rewriting.renaming import Renaming, used_lets
from nautilus.targets.limits import NAMED_BARRIERS, Limits, limits

SMALL = 1024  # bytes that need not share their place


@dataclass(frozen=True, slots=True)
class CombineInBlock:
    """``combine_in_block`` overrides the schedule's switch."""

    schedule: Schedule | None = None
    combine_in_block: bool | None = None
    name = "combine-in-block"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with the combines in the blocks of partial results.  Raises ScheduleError."""
        target = limits(module.target)
        for a in module.kernels:
            plan = warp_plan_of(self.schedule, a)
            wanted = plan is not None and plan.combine_in_block
            if wanted if self.combine_in_block is None else self.combine_in_block:
                module = _joined(module, a, target)
        return module


def _joined(module: MemModule, a: MemKernel, target: Limits) -> MemModule:
    """``module`` with ``a`` in the kernel that reads its results."""
    pair = pair_of(module, a, "join")
    return merged(module, pair, checked(_Joint(pair).kernel(), target.smem_block))


class _Joint:
    """Two kernels on their way into one. Raises ScheduleError where they do not fit."""

    def __init__(self, pair: Pair) -> None:
        a, b = pair.a, pair.b
        self.producer = a.name
        self.consumers = several(a, b)
        for k in (a, b):
            roles = any(isinstance(op, RolesOp) for op in walk_ops(k.body))
            if roles or k.consumers > 1 or k.pipelines or k.cluster > 1 or (k is b and k.mbars):
                raise ScheduleError(f"kernel {k.name} already has roles, consumers or mbarriers", kernel=self.producer)
        if any(isinstance(op, ReduceOp | ScanOp) and op.scratch is not None for op in walk_ops(a.body)):
            raise ScheduleError("its warps exchange values through scratch memory", kernel=self.producer)
        if a.warps > 1 and STORE + self.consumers > NAMED_BARRIERS:  # the lanes of one warp need none
            detail = f"{self.consumers} consumers need more named barriers than a block has"
            raise ScheduleError(detail, kernel=self.producer)
        if b.warps != self.consumers * a.warps:
            detail = (
                f"{self.consumers} consumers of {counted(a.warps, 'warp')}, but {b.name} has {counted(b.warps, 'warp')}"
            )
            raise ScheduleError(detail, kernel=self.producer)
        self.fusion = SplitKFusion(pair, CONSUMER, "consumer")
        self.a, self.b, self.parts = self.fusion.a, self.fusion.b, self.fusion.parts

    def kernel(self) -> MemKernel:
        """The kernel that both become."""
        a, b = self.a, self.b
        body = self._consumer_body()
        role = Role("partial", 0, b.warps, None, body, self.consumers)
        tail = rebuild(b.body, self.fusion.load)
        whole = replace(
            b,
            min_blocks=a.min_blocks,
            layouts=self.fusion.layouts,
            smem=self._placed(),
            mbars=tuple(replace(m, stages=self.consumers * m.stages) for m in a.mbars),
            body=(RolesOp((role,), a.span), Barrier(span=a.span), *tail),
        )
        return place_mbars(whole)

    def _placed(self) -> tuple[Smem, ...]:
        """Everything at its offset: A's slices no longer share bytes, because consumers are not synchronised.

        After the barrier they are dead: a large part lies over one of them, and so does all that B needs, which
        keeps the places that B's barriers are made for.
        """
        out: list[Smem] = []
        top = 0

        def put(s: Smem) -> Smem:
            nonlocal top
            start = -(-top // alignment(s)) * alignment(s)
            top = start + s.bytes
            out.append(replace(s, offset=start))
            return out[-1]

        free = [put(replace(s, stages=self.consumers * s.stages)) for s in sorted(self.a.smem, key=lambda s: -s.bytes)]

        def host(size: int) -> Smem | None:
            found = next((s for s in free if s.bytes >= size), None)
            if found is not None:
                free.remove(found)
            return found

        for p in sorted(self.parts.values(), key=lambda p: -p.store.bytes):
            base = host(p.store.bytes) if p.store.bytes > SMALL else None
            if base is None:
                base = put(p.store)
            else:
                out.append(replace(p.store, over=base.name, offset=base.offset))
            out.append(replace(p.view, over=base.name, offset=base.offset))
        own = max((s.offset + s.bytes for s in self.b.smem), default=0)
        base = host(own) if own > SMALL else None
        start = -(-top // 1024) * 1024 if base is None else base.offset
        return (*out, *(replace(s, offset=start + s.offset) for s in self.b.smem))

    # -- bodies -------------------------------------------------------------------------------
    def _consumer_body(self) -> tuple[MemOp, ...]:
        """A's body as a consumer runs it."""
        a = self.a
        rename, defined = self.fusion.variables()
        lets = tuple(LetOp(name, e, a.span) for name, e in defined)
        rest, stores = self.fusion.split(Renaming(variables=rename).ops(a.body))
        tail = [x for op in stores for x in self.fusion.store(op)]
        return used_lets((*lets, *rebuild(rest, self._sliced), Barrier(span=a.span), *tail))

    def _sliced(self, op: MemOp) -> tuple[MemOp, ...]:
        """``op`` with this consumer's slices of shared memory, and its barriers."""
        stages = {s.name: s.stages for s in self.a.smem} | {m.name: m.stages for m in self.a.mbars}

        def own(name: str, stage: Expr) -> Expr:
            base: Expr = Var(CONSUMER)
            if stages[name] > 1:
                base = calc("mul", base, stages[name])
            return base if stage == ZERO else calc("add", base, stage)

        match op:
            case Barrier():
                return (Barrier(of_consumer(STORE), 32 * self.a.warps, op.span),)
            case MbarExpect(mbar=name, stage=stage) | MbarWait(mbar=name, stage=stage):
                return (replace(op, stage=own(name, stage)),)
            case TmaLoad(mbar=(name, stage)):
                op = replace(op, mbar=(name, own(name, stage)))
        return (map_slots(op, lambda s: replace(s, stage=own(s.buffer, s.stage))),)
