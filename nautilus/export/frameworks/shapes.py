"""Where the caller's tensors show the sizes and strides that are known at launch."""

from __future__ import annotations

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.nodes import Param
from nautilus.core.index.strides import is_stride_param
from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.ops import MemModule


@dataclass(frozen=True, slots=True)
class Shown:
    """Axis ``axis`` of ``tensor`` has a number as its size, or as its stride."""

    tensor: Buffer
    axis: int
    is_stride: bool


def shown_by(module: MemModule) -> dict[str, Shown]:
    """The first place of each size and stride, by the name of its scalar."""
    shown: dict[str, Shown] = {}
    for b in module.buffers:
        if b.space is Space.TEMP:
            continue
        for n, (extent, step) in enumerate(zip(b.array_shape, b.array_strides or b.array_shape, strict=True)):
            if isinstance(extent, Param):
                shown.setdefault(extent.name, Shown(b, n, False))
            if b.array_strides is not None and is_stride_param(step):
                shown.setdefault(step.name, Shown(b, n, True))
    return shown
