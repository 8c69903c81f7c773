"""Launch each kernel while the one in front of it ends (PTX ISA, ``griddepcontrol``; programmatic dependent launch).

Switch: ``dependent_launch`` of the later kernel, for targets of the Hopper class.  A kernel behind another one of the
same spec becomes ``early``: the kernel in front lets it be launched as soon as all its own blocks run, and its
blocks wait for that kernel's end, and for what it wrote, before they do anything.  So its launch hides behind the
other's work.  Results are the same: nothing of it runs beside the kernel in front.

Only where both together have no more blocks than there are multiprocessors.  Measured on an H200 behind kernels of 64
to 128 blocks: 3 to 12% faster then; else its blocks crowd on the few that are idle when they come, which cost 12%
(32 behind 128), or gained nothing.  Launching behind the loops instead of at the start: no gain anywhere.

A kernel whose tiles are handed out while it runs stays as it is: its counter is cleared between the two launches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from nautilus.core.expr.nodes import Const
from nautilus.core.schedule import Schedule, WarpPlan
from nautilus.ma_tile.ir.ops import MemKernel, MemModule, TileFetch, walk_ops
from nautilus.ma_tile.ir.traverse import plan_of
from nautilus.targets.limits import limits


@dataclass(frozen=True, slots=True)
class DependentLaunch:
    """``dependent_launch`` overrides the schedule's switch."""

    schedule: Schedule | None = None
    dependent_launch: bool | None = None
    name = "dependent-launch"

    def apply(self, module: MemModule) -> MemModule:
        if not limits(module.target).warpgroup:
            return module

        many = limits(module.target).multiprocessors

        def one(front: MemKernel, k: MemKernel) -> MemKernel:
            both = [x.blocks.value for x in (front, k) if isinstance(x.blocks, Const)]
            if len(both) < 2 or sum(map(int, both)) > many:
                return k
            plan = plan_of(self.schedule, k) or WarpPlan()
            wanted = plan.dependent_launch if self.dependent_launch is None else self.dependent_launch
            fetched = any(isinstance(op, TileFetch) for op in walk_ops(k.body))
            return replace(k, pdl=True) if wanted and not fetched else k

        kernels = (*module.kernels[:1], *(one(a, b) for a, b in pairwise(module.kernels)))
        return module if kernels == module.kernels else replace(module, kernels=kernels)
