"""``initialise-mbarriers``: initialises the mbarriers of a kernel at its start, before a barrier of all their users.

The users are the threads of the block.  Where the blocks of a cluster arrive at each other's mbarriers, all threads of
the cluster are, and a second barrier at the end keeps each block until no other block can arrive at its mbarriers.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.mbarriers import shared_in_cluster
from nautilus.ma_tile.ir.ops import Barrier, ClusterArrive, ClusterWait, MbarInit, MemKernel, MemModule, walk_ops
from nautilus.ma_tile.ir.traverse import each_kernel


@dataclass(frozen=True, slots=True)
class InitialiseMbarriers:
    """The pass ``initialise-mbarriers``, which has no options."""

    name = "initialise-mbarriers"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose kernels initialise their mbarriers."""
        return each_kernel(module, initialised)


def initialised(kernel: MemKernel) -> MemKernel:
    """``kernel`` with explicit initialisation, if it has mbarriers."""
    if not kernel.mbars or any(isinstance(op, MbarInit) for op in walk_ops(kernel.body)):
        return kernel
    if not shared_in_cluster(kernel):
        return replace(kernel, body=(MbarInit(), Barrier(), *kernel.body))
    everyone = (ClusterArrive(), ClusterWait())
    return replace(kernel, body=(MbarInit(), *everyone, *kernel.body, *everyone))
