"""Launch a kernel before the previous one ends (programmatic dependent launch; PTX ISA, ``griddepcontrol``).

Switch: ``dependent_launch`` of the later kernel, for targets of the Hopper class.  The pass places
``grid.launch_dependents`` at the start of the earlier kernel and ``grid.wait`` at the start of the later kernel.  The
later kernel may be launched once all blocks of the earlier one run, and its blocks wait until the earlier kernel has
ended.  The launch latency of the later kernel is hidden, and the results are the same, because its work does not
overlap with the earlier kernel.

The pass applies if both grids together have at most one block for each multiprocessor.  Measured on an H200
after kernels of 64 to 128 blocks: 3 to 12% faster then.  With more blocks, those of the later kernel run on the
few idle multiprocessors, which cost 12% (32 blocks after 128) or gained nothing.  A launch after the loops instead of
at the start gained nothing anywhere.

It also applies if one of both kernels is a single block, as the one that combines the partial results of a total is,
or the one that a total is read from.  A block that waits alone takes no place that others need, and where it
is waited for, the later blocks are spread over all multiprocessors but its own.

A kernel that computes tiles of the previous one again (``recompute-masked``) is launched early whatever the grids are,
because it has no work but to read flags: its launch is most of its cost.

A kernel that fetches tiles from the tile counter is not changed, because the counter is cleared between the launches,
nor one with teams, whose blocks start together.
A kernel whose first numbers are read from results of earlier kernels is not changed either, because they are read
before the wait.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.expr.nodes import Const, loads
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpPlan, recomputed
from nautilus.ma_tile.ir.dependent_launch import GridLaunchDependents, GridWait
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
        """``module`` whose launches overlap where the target permits it."""
        target = limits(module.target)
        if not target.warpgroup or any(p.device for p in module.params):
            return module  # blocks beyond a size in device memory end before they wait
        kernels = list(module.kernels)
        for n in range(1, len(kernels)):
            front, k = kernels[n - 1], kernels[n]
            again = recomputed(k.name, self.schedule) == front.name
            fits = again or _fit_together(front, k, target.multiprocessors)
            if self._wanted(k) and fits and not _reads_results(module, k):
                kernels[n - 1] = _after_wait(front, GridLaunchDependents(front.span))
                kernels[n] = replace(k, body=(GridWait(k.span), *k.body))
        return replace(module, kernels=tuple(kernels)) if tuple(kernels) != module.kernels else module

    def _wanted(self, k: MemKernel) -> bool:
        plan = plan_of(self.schedule, k) or WarpPlan()
        wanted = plan.dependent_launch if self.dependent_launch is None else self.dependent_launch
        return wanted and k.team == 1 and not any(isinstance(op, TileFetch) for op in walk_ops(k.body))


def _reads_results(module: MemModule, k: MemKernel) -> bool:
    """Whether the numbers at the head of ``k`` are made from elements that an earlier kernel stores."""
    return any(module.buffer(ld.buffer).space is not Space.INPUT for _, e in k.decode for ld in loads(e))


def _fit_together(a: MemKernel, b: MemKernel, multiprocessors: int) -> bool:
    """Whether each block of both launches has a multiprocessor of its own, or one of the launches is a block."""
    blocks = [int(found.value) for k in (a, b) if isinstance(found := k.launched, Const)]
    return 1 in blocks or (len(blocks) == 2 and sum(blocks) <= multiprocessors)


def _after_wait(k: MemKernel, op: GridLaunchDependents) -> MemKernel:
    """``k`` with ``op`` at its start, but after its own wait: otherwise the next launch could pass an earlier one."""
    at = 1 if k.body and isinstance(k.body[0], GridWait) else 0
    return replace(k, body=(*k.body[:at], op, *k.body[at:]))
