"""Launch each kernel while the one in front of it ends (PTX ISA, ``griddepcontrol``; programmatic dependent launch).

Switch: ``MemoryPlan.early`` of the later kernel, for targets of the Hopper class.  A kernel behind another one of the
same spec becomes ``early``: the kernel in front lets it be launched when all its own blocks are behind their loops,
and its blocks wait for that kernel's end, and for what it wrote, before they do anything.  So part of its launch
hides behind the end of the other.  Results are the same: nothing of it runs beside the kernel in front.

A kernel whose tiles are handed out while it runs stays as it is: its counter is cleared between the two launches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from nautilus.core.schedule import Schedule
from nautilus.core.targets import limits
from nautilus.memory.ops import MemKernel, MemModule, TilesOp, walk_ops
from nautilus.memory.passes.walk import plan_of


@dataclass(frozen=True, slots=True)
class EarlyLaunch:
    """``early`` overrides the schedule's switch."""

    schedule: Schedule | None = None
    early: bool | None = None
    name: str = "early-launch"

    def apply(self, module: MemModule) -> MemModule:
        if not limits(module.target).warpgroup:
            return module

        def one(k: MemKernel) -> MemKernel:
            wanted = plan_of(self.schedule, k).early if self.early is None else self.early
            fetched = any(isinstance(op, TilesOp) and op.mailbox is not None for op in walk_ops(k.body))
            return replace(k, early=True) if wanted and not fetched else k

        first, *rest = module.kernels
        kernels = (first, *map(one, rest))
        return module if kernels == module.kernels else replace(module, kernels=kernels)
