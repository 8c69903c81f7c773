"""Bytes between L2 and the multiprocessors, and between memory and L2.

What a tile reads of a buffer is a box of positions.  Tiles that run at the same time (a *wave*) and read the same
box get it from memory once; the next wave finds what it has in common with the last one where a wave's operands
fit in the L2 cache, and everything stays where all operands fit.  Tiles of uneven length drift apart: where a wave's
operands are many times the cache, what they have in common is read again (H200: causal attention without sections).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nautilus.core.expr.nodes import Param
from nautilus.cost.work import Access, Work
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.targets.rates import Machine

Ints = NDArray[np.int64]
NEAR = 2.0  # times the L2 cache: a wave with so many bytes keeps what tiles that drift apart have in common


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
    boxes = [_Box.of(module, name, a, n) for name, a in work.loads.items()]
    total = sum(b.distinct for b in boxes) * scale
    waves = np.arange(n, dtype=np.int64) // max(1, slots)
    read = total if total <= m.l2_bytes else _fetched(boxes, waves, m.l2_bytes) * scale
    written = float(sum(_size(module, name) for name in work.stored))
    return Traffic(l2, min(read, max(l2, 1.0)) + written, written)


def _fetched(boxes: Sequence[_Box], waves: Ints, l2_bytes: float) -> float:
    """Bytes from memory: each distinct box of a wave, but for those of the wave before that are still there."""
    asked = [b.of_waves(waves) for b in boxes]
    per_wave = np.sum([np.bincount(a.wave, weights=a.size, minlength=int(waves[-1]) + 1) for a in asked], axis=0)
    stays = per_wave <= l2_bytes
    first = sum(a.size[~(a.again & stays[np.maximum(a.wave - 1, 0)])].sum() for a in asked)
    apart = np.maximum(0.0, 1.0 - NEAR * l2_bytes / np.maximum(per_wave, 1.0))
    return float(first + sum((apart[a.wave] * a.uneven).sum() for a in asked))


@dataclass(frozen=True, slots=True)
class _Asked:
    """The distinct boxes of one buffer in every wave.

    ``again``: those of the wave before.  ``uneven``: what other tiles read of a box of which each reads another part.
    """

    wave: Ints
    size: NDArray[np.float64]
    again: NDArray[np.bool_]
    uneven: NDArray[np.float64]


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

    def of_waves(self, waves: Ints) -> _Asked:
        """What the tiles of every wave ask for."""
        count = int(self.where.max()) + 1
        pair = waves * count + self.where
        distinct, inverse = np.unique(pair, return_inverse=True)
        size = np.zeros(len(distinct))
        np.maximum.at(size, inverse, self.size)
        all_of_them = np.bincount(inverse, weights=self.size)
        uneven = np.where(all_of_them < np.bincount(inverse) * size, all_of_them - size, 0.0)
        return _Asked(distinct // count, size, np.isin(distinct - count, distinct), uneven)
