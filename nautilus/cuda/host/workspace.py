"""The scratch memory of a launch: one block with every temp, and after them the tile counter."""

from __future__ import annotations

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc
from nautilus.core.index.sizes import Extent, extent_expr, rounded_up, total, volume
from nautilus.core.types import DType
from nautilus.cuda.ops.tile_scheduler import uses_counter
from nautilus.ma_tile.ir import ops as ma

WORKSPACE_ALIGNMENT = 256
ALIGNMENT = 16  # bytes: of the address of every tensor and of the workspace


def buffer_bytes(b: Buffer) -> Extent:
    """Size of a buffer in bytes."""
    return volume((*b.shape, b.dtype.bytes))


def workspace_offsets(module: ma.MemModule) -> tuple[dict[str, Extent], Extent]:
    """Byte offset of every temp in the workspace, and the offset after them, where the tile counter lies."""
    offsets: dict[str, Extent] = {}
    end: Extent = 0
    for b in module.buffers:
        if b.space is Space.TEMP:
            offsets[b.name] = end
            end = total(end, rounded_up(buffer_bytes(b), WORKSPACE_ALIGNMENT))
    return offsets, end


def workspace_bytes(module: ma.MemModule) -> Extent:
    """The size of the workspace. Kernels run one after another and leave the tile counter at 0, so they share one."""
    return total(workspace_offsets(module)[1], WORKSPACE_ALIGNMENT * any(uses_counter(k) for k in module.kernels))


def workspace_sizes(module: ma.MemModule) -> tuple[str, ...]:
    """The runtime sizes, which the size of the workspace may depend on, in the order of the module's params."""
    return tuple(p.name for p in module.params if p.most is not None and p.dtype is DType.I32)


def larger(a: Extent, b: Extent) -> Extent:
    """The larger one of two extents."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return b if a == 0 or a == b else calc("max", extent_expr(a), extent_expr(b))
