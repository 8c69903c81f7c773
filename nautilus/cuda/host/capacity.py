"""A module with sizes in device memory (``dim N = device <= 4096``) as the host knows it.

Such a size is an input without axes, one i32 at any address, which every kernel reads at its start.  It takes a smaller
number than 0 for 0, and a greater one than the bound for the bound.  Tensors have the shape of the bound, and so have
grids and scratch memory.  A block beyond the grid of the size returns at once, so that one launch, recorded in a CUDA
graph, serves every size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.index.sizes import Extent, as_extent, at_bound, extent_expr
from nautilus.core.index.strides import row_major
from nautilus.core.types import DType
from nautilus.ma_tile.ir.ops import MemModule


def hosted(module: MemModule) -> MemModule:
    """``module`` with the bound for each size in device memory, and with an input for the size after its inputs."""
    on_device = [p for p in module.params if p.device]
    if not on_device:
        return module
    buffers = [_buffer(b) for b in module.buffers]
    last = max((n + 1 for n, b in enumerate(buffers) if b.space is Space.INPUT), default=0)
    buffers[last:last] = [Buffer(p.name, DType.I32, (), Space.INPUT, p.span) for p in on_device]
    kernels = tuple(replace(k, blocks=extent_expr(at_bound(as_extent(k.blocks)))) for k in module.kernels)
    params = tuple(p for p in module.params if not p.device)
    return replace(module, buffers=tuple(buffers), params=params, kernels=kernels)


def _buffer(b: Buffer) -> Buffer:
    shape = tuple(map(at_bound, b.shape))
    view = None if b.view_of is None else tuple(map(at_bound, b.view_of))
    strides: tuple[Extent, ...] | None = None if b.strides is None else tuple(map(at_bound, b.strides))
    return replace(b, shape=shape, view_of=view, strides=None if strides == row_major(shape) else strides)


def device_sizes(module: MemModule) -> Mapping[str, int]:
    """Size in device memory -> its bound."""
    return {p.name: p.most for p in module.params if p.device and p.most is not None}
