"""Blocks that make partial results of one result become a cluster, whose first block combines them (PTX ISA, clusters).

Switch: ``WarpPlan.cluster`` P of a kernel whose results only one other kernel reads.  Kernel A writes
temps that only kernel B reads, and each of B's R blocks reads exactly what P blocks of A write: then those are
the blocks of a cluster, and the temps are in the shared memory of its first block::

    kernel B grid P * R warps (of A) cluster P {
      let rank = block % P                   -- A's grid variables as B's and the rank make them
      cluster.arrive relaxed                 -- this block runs: others may store into it
      A's body
      cluster.wait                           -- all blocks of the cluster run
      st.shared part[rank] block 0, %x       -- was: st.global T[chunk, ...], %x
      cluster.arrive
      if rank == 0 {
        cluster.wait                         -- all parts are there
        B's body: ld.shared all_parts        -- was: ld.global T[chunk axis, ...]
      }
    }

No block waits before the end of A's body: the first wait is for blocks that were launched together.  The other blocks
end while the first one combines.  No partial result goes through global memory, and no second launch waits for the
first.  Parts have bytes of their own after A's: the first block may still use all others when they come.

``analysis.split_k_combine`` states the requirements on the temps and how A's grid variables are found.

The pass raises ScheduleError where the kernels do not fit together in this way.  It runs after ``combine-in-block``
and may take its kernels.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Var
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpPlan
from nautilus.core.text.names import fresh
from nautilus.core.text.words import counted
from nautilus.ma_tile.analysis.grid_variables import BLOCK
from nautilus.ma_tile.analysis.split_k_combine import Pair, SplitKFusion, merged, pair_of, several
from nautilus.ma_tile.ir.ops import (
    ClusterArrive,
    ClusterWait,
    IfOp,
    MemKernel,
    MemModule,
    RolesOp,
    Smem,
    TileSchedulerOp,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import rebuild, warp_plan_of
from nautilus.ma_tile.passes.finalise.allocate_shared import alignment, checked, place_mbars
from nautilus.ma_tile.rewriting.renaming import Names, Renaming
from nautilus.targets.limits import Limits, limits


@dataclass(frozen=True, slots=True)
class CombineInCluster:
    """``cluster`` overrides the schedule's number of blocks."""

    schedule: Schedule | None = None
    cluster: int | None = None
    name = "combine-in-cluster"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with the combines in the clusters of partial results.  Raises ScheduleError."""
        target = limits(module.target)
        for a in module.kernels:
            size = self._size(warp_plan_of(self.schedule, a))
            if size > 1:
                pair = pair_of(module, a, f"a cluster of {size}")
                whole = _clustered(pair, size, target)
                checked(replace(whole, name=a.name), target.smem_block)  # named as the kernel whose plan says so
                module = merged(module, pair, whole)
        return module

    def _size(self, plan: WarpPlan | None) -> int:
        """Clusters of warpgroups share loads (pass ``multicast-loads``)."""
        if self.cluster is not None:
            return self.cluster
        return 1 if plan is None else plan.cluster


def _clustered(pair: Pair, size: int, target: Limits) -> MemKernel:
    """The kernel that both become. Raises ScheduleError where they do not fit."""
    _check(pair, size, target)
    rank = fresh("rank", _taken(pair))
    fusion = SplitKFusion(pair, rank, "rank")
    a, b = fusion.a, fusion.b
    rename, defined = fusion.variables()
    rest, stores = fusion.split(Renaming(variables=rename).ops(a.body))
    pushes = [x for op in stores for x in fusion.store(op, 0)]
    # what B calls a block is a cluster now
    whole = Renaming(variables={BLOCK: calc("floordiv", Var(BLOCK), size)})
    first = (ClusterWait(b.span), *rebuild(whole.ops(b.body), fusion.load))
    decode = [(rank, calc("mod", Var(BLOCK), size)), *((name, whole.expr(e)) for name, e in (*b.decode, *defined))]
    return place_mbars(
        replace(
            b,
            blocks=a.blocks,
            min_blocks=a.min_blocks,
            decode=tuple(decode),
            layouts=fusion.layouts,
            smem=_placed(fusion),
            mbars=a.mbars,
            pipelines=a.pipelines,
            cluster=size,
            body=(
                ClusterArrive(True, a.span), *rest, ClusterWait(a.span), *pushes, ClusterArrive(False, a.span),
                IfOp(_is_first(rank), first, b.span),
            ),
        )
    )  # fmt: skip


def _check(pair: Pair, size: int, target: Limits) -> None:
    """Raise ScheduleError where the kernels cannot share clusters of ``size`` blocks."""
    a, b = pair.a, pair.b
    if not target.warpgroup:
        raise ScheduleError("the target has no clusters", kernel=a.name)
    parts = several(a, b)
    if parts != size:
        raise ScheduleError(f"{parts} blocks compute one result, but a cluster has {size}", kernel=a.name)
    for k in (a, b):
        tiles = any(isinstance(op, TileSchedulerOp) for op in walk_ops(k.body))
        if tiles or k.consumers > 1 or k.cluster > 1:
            raise ScheduleError(f"kernel {k.name} already has a tile scheduler, consumers or a cluster", kernel=a.name)
    if b.mbars or b.pipelines or any(isinstance(op, RolesOp) for op in walk_ops(b.body)):
        raise ScheduleError(f"kernel {b.name} has roles or mbarriers", kernel=a.name)
    if a.warps != b.warps:
        raise ScheduleError(
            f"its blocks have {counted(a.warps, 'warp')}, but those of {b.name} have {b.warps}", kernel=a.name
        )


def _taken(pair: Pair) -> set[str]:
    """Names that no new variable can have."""
    axes = {x for k in (pair.a, pair.b) for layout in k.layouts.values() for x in layout.axes}
    return axes | Names(pair.a).variables | Names(pair.b).variables


def _is_first(rank: str) -> Expr:
    return calc("eq", Var(rank), integer(0))


def _placed(fusion: SplitKFusion) -> tuple[Smem, ...]:
    """A's buffers where they are, the parts after them, and then what B needs."""
    out = list(fusion.a.smem)
    top = max((s.offset + s.bytes for s in out), default=0)
    for p in fusion.parts.values():
        start = -(-top // alignment(p.store)) * alignment(p.store)
        out += [replace(p.store, offset=start), replace(p.view, over=p.store.name, offset=start)]
        top = start + p.store.bytes
    start = -(-top // 1024) * 1024
    return (*out, *(replace(s, offset=start + s.offset) for s in fusion.b.smem))
