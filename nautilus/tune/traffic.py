"""Bytes between L2 and the multiprocessors, and between memory and L2.

What a tile reads of a buffer is a box of positions.  Tiles that run at the same time (a *wave*) and read the same
box get it from memory once; the next wave finds what it has in common with the last one where a wave's operands
fit in the L2 cache, and everything stays where all operands fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nautilus.core.expr import Param
from nautilus.memory.ops import MemModule
from nautilus.tune.machine import Machine
from nautilus.tune.work import Access, Work

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Traffic:
    """``l2``: bytes to multiprocessors; ``dram``: to and from memory, of them ``written``."""

    l2: float
    dram: float
    written: float


def traffic(module: MemModule, work: Work, slots: int, m: Machine) -> Traffic:
    """What all tiles of one kernel move when ``slots`` of them run at a time."""
    n = work.evaluated
    scale = work.tiles / n
    units = 1 if work.own or work.specialised else work.units
    l2 = float(np.mean(work.consumer.read)) * work.tiles * units
    boxes = {name: _Box.of(module, name, a, n) for name, a in work.loads.items()}
    total = sum(b.distinct for b in boxes.values()) * scale
    waves = np.arange(n, dtype=np.int64) // max(1, slots)
    wave_bytes = total / max(1.0, float(waves[-1] + 1))
    keeps_all = total <= m.l2_bytes
    read = sum(b.distinct if keeps_all else b.fetched(waves, m.l2_bytes, slots) for b in boxes.values()) * scale
    written = float(sum(_size(module, name) for name in work.stored))
    return Traffic(l2, min(read, max(l2, 1.0)) + written, written) if wave_bytes >= 0 else Traffic(l2, read, written)


def _size(module: MemModule, name: str) -> int:
    b = module.buffer(name)
    return prod(1024 if isinstance(x, Param) else x for x in b.shape) * b.dtype.bytes


class _Box:
    """The boxes of one buffer: a number for each tile's first position, and its bytes."""

    def __init__(self, keys: Ints, size: NDArray[np.float64]) -> None:
        self.keys, self.size = keys, size
        _, self.where = np.unique(keys, return_inverse=True)
        largest = np.zeros(int(self.where.max()) + 1)
        np.maximum.at(largest, self.where, size)
        self.distinct = float(largest.sum())

    @staticmethod
    def of(module: MemModule, name: str, access: Access, n: int) -> _Box:
        """Positions beyond the buffer's ends read nothing."""
        b = module.buffer(name)
        keys: Any = np.zeros(n, np.int64)
        size: Any = np.full(n, float(b.dtype.bytes))
        for low, high, extent in zip(access.lows, access.highs, b.shape, strict=True):
            most = (1024 if isinstance(extent, Param) else extent) - 1
            low, high = np.clip(low, 0, most), np.clip(high, 0, most)
            keys = keys * (most + 1) + low
            size = size * (high - low + 1)
        return _Box(np.broadcast_to(keys, (n,)), np.broadcast_to(size, (n,)))

    def fetched(self, waves: Ints, l2_bytes: float, slots: int) -> float:
        """Bytes from memory: each distinct box of a wave, but for those of the wave before that are still there."""
        count = int(self.where.max()) + 1
        pair = waves * count + self.where
        distinct, inverse = np.unique(pair, return_inverse=True)
        size = np.zeros(len(distinct))
        np.maximum.at(size, inverse, self.size)
        wave = distinct // count
        per_wave = np.bincount(wave, weights=size)
        again = np.isin(distinct - count, distinct)
        kept = again & (per_wave[np.maximum(wave - 1, 0)] <= l2_bytes)
        return float(size[~kept].sum())
