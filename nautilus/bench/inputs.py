"""Fast random inputs in raw storage form, since benchmarks use hundreds of millions of numbers.

Floats are standard normal, drawn in f32 by several threads.  Each block has its own generator, so values depend only on
the seed and the tensor.  Integers lie in the ranges that index positions and comparisons of the spec need
(:func:`nautilus.frontend.promises.integer_ranges`).  Bools are uniform.
Ends of segments, as ``ptr`` in ``ptr[n] <= e < ptr[n + 1]``, ascend, as those of sparse matrices and ragged batches do.
All keep the facts of the spec about them.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from math import prod

import numpy as np

from nautilus.core.expr.nodes import Load, Reduce, walk
from nautilus.core.numerics import Array, from_storage, storage_array, storage_numpy
from nautilus.core.types import DType, integer_limits
from nautilus.frontend.promises import integer_ranges, keep
from nautilus.frontend.spec import Spec
from nautilus.planner.rowwise.segments import ends_of, follow

BLOCK = 1 << 20  # elements of one part; each thread of the host draws one part after another


def random_inputs(spec: Spec, seed: int, sizes: Mapping[str, int]) -> dict[str, Array]:
    """Raw storage arrays of all inputs by name; ``sizes`` has the sizes that are known only at launch."""
    ranges, ascending = integer_ranges(spec), _ascending(spec)
    stated = {n.buffer for f in spec.facts for n in walk(f.condition) if isinstance(n, Load)}
    out: dict[str, Array] = {}
    drawn: dict[str, Array] = {}
    for t in spec.inputs:
        shape = tuple(n if isinstance(n, int) else sizes[n.name] for n in t.shape)
        key = [seed, zlib.crc32(t.name.encode())]
        if t.dtype.is_float:
            raw = _normal(t.dtype, shape, key)
            if t.name in stated:
                drawn[t.name] = from_storage(raw, t.dtype)
            else:
                out[t.name] = raw
            continue
        rng = np.random.default_rng(key)
        if t.dtype is DType.BOOL:
            drawn[t.name] = rng.random(shape) < 0.5
        else:
            edge = 100 if t.dtype.bits > 8 else 127
            low, high = ranges.get(t.name, (max(integer_limits(t.dtype)[0], -edge), edge))
            drawn[t.name] = rng.integers(low, high, shape, dtype=np.int64, endpoint=True)
            if t.name in ascending:
                drawn[t.name].sort(axis=ascending[t.name])
    numbers = {s.name: s.default for s in spec.scalars} | dict(sizes)
    kept = keep(spec, drawn, numbers)
    out |= {t.name: storage_array(kept[t.name], t.dtype) for t in spec.inputs if t.name in kept}
    return out


def _ascending(spec: Spec) -> dict[str, int]:
    """The tensors that are ends of segments, with the axis along which these follow each other."""
    found: dict[str, int] = {}
    for e in (e for d in spec.definitions for e in walk(d.expr) if isinstance(e, Reduce)):
        for _, start, end in ends_of(e.cond):
            if follow(start, end):
                found[start.buffer] = next(n for n, x in enumerate(start.index) if x != end.index[n])
    return found


def _normal(dtype: DType, shape: tuple[int, ...], key: list[int]) -> Array:
    raw = np.empty(prod(shape), storage_numpy(dtype))

    def fill(block: int) -> None:
        part = raw[block * BLOCK : (block + 1) * BLOCK]
        drawn = np.random.default_rng([*key, block]).standard_normal(len(part), dtype=np.float32)
        if dtype in (DType.F16, DType.F32, DType.F64):
            part[:] = drawn
        elif dtype is DType.BF16:
            part[:] = _bf16(drawn)
        else:
            part[:] = storage_array(drawn, dtype)

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        list(pool.map(fill, range(-(-len(raw) // BLOCK))))
    return raw.reshape(shape)


def _bf16(x: Array) -> Array:
    """Bits of the nearest bf16, ties to even, of finite f32 numbers."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
