"""The number of warps in each consumer of a kernel, and whether a kernel is one of single warps.

All consumers of a kernel have the same size.  A consumer of four warps starts at a multiple of four, and the C
variable ``warp`` is the number of the warp in its consumer, ``threadIdx.x / 32 % 4``.  In a consumer of one warp
nothing depends on the number of the warp, and ``warp`` is the number in the block, which ops outside of roles use.
"""

from __future__ import annotations

from nautilus.core.errors import UnsupportedError
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.async_ops import GROUP_WARPS
from nautilus.ma_tile.ir.instruction_tables import WGMMA

#: what the threads of a warp do by themselves
OF_WARPS = (
    ma.ConstOp, ma.IndexOp, ma.ParamOp, ma.MapOp, ma.ReduceOp, ma.ScanOp, ma.ConvertOp, ma.SliceOp, ma.StackOp,
    ma.WindowOp, ma.UndefinedOp, ma.UnpackOp, ma.GlobalLoad, ma.GlobalStore, ma.IfOp, ma.ForOp, ma.LetOp, ma.GridWait,
    ma.GridLaunchDependents,
)  # fmt: skip


def consumer_warps(kernel: ma.MemKernel) -> int:
    """Warps of each consumer; 0 for a kernel without consumers and roles. Raises UnsupportedError."""
    roles = [r for op in ma.walk_ops(kernel.body) if isinstance(op, ma.RolesOp) for r in op.roles]
    sizes = {(r.last_warp - r.first_warp) // r.consumers for r in roles}
    if kernel.consumers > 1:
        sizes.add(kernel.warps // kernel.consumers)
    for size in sizes:
        if sizes != {size} or size not in (1, GROUP_WARPS):
            raise UnsupportedError(f"consumers of {', '.join(map(str, sorted(sizes)))} warps", kernel.name)
    return max(sizes, default=0)


def has_warpgroups(kernel: ma.MemKernel) -> bool:
    """Whether the consumers of the kernel are warpgroups."""
    return consumer_warps(kernel) == GROUP_WARPS


def uses_wgmma(kernel: ma.MemKernel) -> bool:
    """Whether an op of the kernel is a wgmma."""
    return any(isinstance(op, ma.MmaOp) and op.instr in WGMMA for op in ma.walk_ops(kernel.body))


def is_split_k_block(kernel: ma.MemKernel) -> bool:
    """Whether warps compute partial results that their own block combines (pass ``combine-in-block``)."""
    roles = [r for op in kernel.body if isinstance(op, ma.RolesOp) for r in op.roles]
    alike = len(roles) == 1 and roles[0].consumers > 1 and not roles[0].single
    return alike and not isinstance(kernel.body[-1], ma.RolesOp)


def is_packable(k: ma.MemKernel) -> bool:
    """Whether the blocks of ``k`` are single warps without shared memory, barriers, clusters and teams."""
    alone = k.warps == k.consumers == k.cluster == k.spread == k.team == 1
    alone &= not (k.smem or k.mbars or k.pipelines)
    return alone and all(isinstance(op, OF_WARPS) for op in ma.walk_ops(k.body))
