"""Strides of tensors: elements between neighbours along each axis, outermost first.

A stride is a number, or an expression of sizes and of stride params.  A *stride param* is a Param of type i64 that the
launcher takes, because the caller decides where the rows of a tensor lie.  Its divisor is the alignment that the
kernels rely on.  Without strides a tensor is row-major: its elements lie side by side in the order of its shape.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from nautilus.core.expr.nodes import Param
from nautilus.core.index.sizes import Extent, extent_value, volume
from nautilus.core.types import DType

if TYPE_CHECKING:
    from nautilus.core.numerics import Array

MOST_STRIDE = 1 << 40  # elements, as many as a tensor may have


def is_stride_param(stride: Extent) -> TypeGuard[Param]:
    """Whether the caller gives ``stride`` at launch.  A stride of axes without gaps may be a size, which is an i32."""
    return isinstance(stride, Param) and stride.dtype is DType.I64


def row_major(shape: Sequence[Extent]) -> tuple[Extent, ...]:
    """The strides of a tensor of ``shape`` without gaps."""
    return tuple(volume(shape[n + 1 :]) for n in range(len(shape)))


def pad(shape: Sequence[Extent], strides: Sequence[Extent], numbers: MutableMapping[str, Any]) -> tuple[int, ...]:
    """The values of ``strides``; a stride param without a number gets one that leaves a gap, and ``numbers`` has it."""

    def size(p: Param) -> int:
        return int(numbers[p.name])

    found: list[int] = []
    end = 1  # elements from the first one to the end of the axes after
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if is_stride_param(stride) and stride.name not in numbers:
            numbers[stride.name] = (-(-end // stride.multiple) + 1) * stride.multiple
        found.insert(0, extent_value(stride, size))
        end = max(end, extent_value(extent, size) * found[0])
    return tuple(found)


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first one of a tensor to the end of its last one; 0 for an empty one."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def spread(array: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """The memory of a tensor as a flat array; every byte of a gap is 0xFF, which is NaN in every float type."""
    import numpy as np

    out = np.full(span(shape, strides) * array.dtype.itemsize, 0xFF, np.uint8).view(array.dtype)
    places(out, shape, strides)[...] = array.reshape(shape)
    return out


def places(memory: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """The elements of a tensor in its memory, as a view."""
    import numpy as np

    steps = tuple(s * memory.dtype.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(memory, tuple(shape), steps)
