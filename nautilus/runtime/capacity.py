"""Arrays for kernels that read sizes in device memory: tensors have the shape of the bound, and sizes are inputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nautilus.core.buffers import Space, extents
from nautilus.core.index.sizes import at_bound
from nautilus.core.numerics import Array
from nautilus.cuda.host.capacity import device_sizes
from nautilus.ma_tile.ir.ops import MemModule


def at_capacity(module: MemModule, inputs: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    """``inputs`` in the shapes that the launcher takes, NaN or -1 past their elements, and the sizes on the device."""
    on_device, out = device_sizes(module), dict(inputs)
    for b in module.buffers if on_device else ():
        if b.space is not Space.INPUT:
            continue
        shape = extents(tuple(map(at_bound, b.array_shape)), sizes)
        if shape != inputs[b.name].shape:
            filler = np.nan if inputs[b.name].dtype.kind == "f" else inputs[b.name].dtype.type(-1)
            out[b.name] = np.full(shape, filler, inputs[b.name].dtype)
            out[b.name][tuple(map(slice, inputs[b.name].shape))] = inputs[b.name]
    return out | {name: np.array(sizes[name]) for name in on_device}


def at_sizes(module: MemModule, outputs: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    """The elements of ``outputs`` that the spec defines."""
    if not device_sizes(module):
        return dict(outputs)
    shapes = {b.name: extents(b.array_shape, sizes) for b in module.buffers}
    return {name: x[tuple(map(slice, shapes[name]))] for name, x in outputs.items()}
