"""How large the consumers of a kernel are.

All are equally large: four warps (then each starts at a multiple of four, and ``warp`` is the warp's number in its
consumer everywhere, ``threadIdx.x / 32 % 4``) or one warp (then nothing in a consumer depends on the warp's number, and
``warp`` is the number in the block, for what stands outside of roles).
"""

from __future__ import annotations

from nautilus.core.errors import UnsupportedError
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.async_ops import GROUP_WARPS


def unit_warps(kernel: ma.MemKernel) -> int:
    """Warps of each consumer of a kernel that has consumers or roles; 0: it has none. Raises UnsupportedError."""
    roles = [r for op in ma.walk_ops(kernel.body) if isinstance(op, ma.RolesOp) for r in op.roles]
    sizes = {(r.last_warp - r.first_warp) // r.consumers for r in roles}
    if kernel.consumers > 1:
        sizes.add(kernel.warps // kernel.consumers)
    for size in sizes:
        if sizes != {size} or size not in (1, GROUP_WARPS):
            raise UnsupportedError(f"consumers of {', '.join(map(str, sorted(sizes)))} warps", kernel.name)
    return max(sizes, default=0)


def is_grouped(kernel: ma.MemKernel) -> bool:
    """Whether the kernel's layouts are those of units of four warps."""
    return unit_warps(kernel) == GROUP_WARPS
