"""Bytes between L2 and the multiprocessors, and between memory and L2.

A tile reads a box of positions of each buffer.  Tiles that run at the same time (a *wave*) load an equal box from
memory once.  The next wave finds the boxes that it shares with the last one where the operands of a wave fit in L2;
all boxes stay where all operands fit.  Tiles of uneven length drift apart, so where the operands of a wave are many
times the cache, shared boxes are loaded again (measured on an H200 with causal masks and without an L2 swizzle).
A tile that reads a box in several loops finds it in L2 where the boxes of all resident tiles fit.
Tiles that wait for the memory do not stay in step: those that are no neighbours load an equal box again, by the share
of the cache that the buffer fills (measured on an H200: products of 48 rows in two tiles of 64 blocks each).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nautilus.core.index.sizes import nominal, volume
from nautilus.core.numerics import ranked
from nautilus.core.records import dataclass
from nautilus.cost.work import Access, Work
from nautilus.ma_tile.ir.layout import Ints
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.targets.memory_rates import SECTOR
from nautilus.targets.rates import Machine

NEAR = 2.0  # uneven tiles of a wave share their loads up to this many times the L2 cache
SMALL = 0.1  # a tensor of at most this share of the L2 cache stays there
FAR = 32  # tiles in order from which on two tiles with an equal box are no neighbours
KEPT = 0.6  # share of the L2 cache in which tiles find again what they have read before


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes: ``l2`` from L2 to multiprocessors; ``dram`` to and from memory, including ``written``.

    ``sectors``: those of whole sectors that plain loads move from L2.  ``apart``: what tiles far apart read that L2
    does not keep between them, where they do not run in step.
    """

    l2: float
    dram: float
    written: float
    sectors: float
    apart: float = 0.0


def traffic(module: MemModule, work: Work, slots: int, m: Machine, l1_bytes: float) -> Traffic:
    """The traffic of all tiles of one kernel when ``slots`` of them run at a time.

    ``l1_bytes``: the L1 cache of a multiprocessor.
    """
    n = work.evaluated
    scale = work.tiles / n
    consumers = 1 if work.separate_tiles or work.specialised else work.consumers
    l2 = float(np.mean(work.consumer.read)) * work.tiles * consumers
    boxes = [_Box.of(module, name, a, n) for (name, _), a in work.loads.items()]
    sizes = [_size(module, name) for name, _ in work.loads]
    total = sum(_once(b.distinct * scale, size, m) for size, b in zip(sizes, boxes, strict=True))
    waves = np.arange(n, dtype=np.int64) // max(1, slots)
    small = [size <= SMALL * m.l2_bytes for size in sizes]
    once = sum(_once(b.distinct * scale, size, m) for size, b, x in zip(sizes, boxes, small, strict=True) if x)
    large = [b for b, x in zip(boxes, small, strict=True) if not x]
    fits = total <= m.l2_bytes or not large
    read = total if fits else once + _dram_reads(large, waves, m.l2_bytes) * scale
    read += _read_again(module, work, boxes, slots, m.l2_bytes) * work.tiles
    written = float(sum(_size(module, name) for name in work.stored))
    found = _through_l1(module, work, boxes, slots, m, l1_bytes) * work.tiles
    shares = (min(1.0, size / (KEPT * m.l2_bytes)) for size in sizes)
    apart = scale * sum(b.apart() * x for b, x in zip(boxes, shares, strict=True)) if fits else 0.0
    return Traffic(l2, min(read, max(l2, 1.0)) + written, written, found, apart)


def _through_l1(module: MemModule, work: Work, boxes: Sequence[_Box], slots: int, m: Machine, l1_bytes: float) -> float:
    """Bytes of sectors a tile that plain loads move from L2.

    Blocks of one multiprocessor find in L1 what they have read before while all that they read fits; up to twice its
    size, a part of that.  Of elements from anywhere in a buffer, L1 has as large a share as of the buffer.
    """
    together = -(-slots // m.multiprocessors)
    consumers = 1 if work.separate_tiles else work.consumers
    once: dict[str, float] = {}
    for (name, _), b in zip(work.loads, boxes, strict=True):
        if name in work.moved:
            once[name] = once.get(name, 0.0) + b.of_blocks(m.multiprocessors, together)
    kept = min(1.0, max(0.0, 2.0 - sum(once.values()) / max(1.0, l1_bytes)))
    found = 0.0
    for name, moved in work.moved.items():
        most = moved * consumers
        found += most - kept * max(0.0, most - once.get(name, most) / together)
    for name, moved in work.gathered.items():
        found += moved * consumers * max(0.0, 1.0 - l1_bytes / _size(module, name))
    return found


def _once(distinct: float, size: int, m: Machine) -> float:
    """Bytes of the ``distinct`` boxes of a buffer; what stays in the L2 cache is read once, however often gathered."""
    return min(distinct, size) if size <= KEPT * m.l2_bytes else distinct


def _read_again(module: MemModule, work: Work, boxes: Sequence[_Box], slots: int, l2_bytes: float) -> float:
    """Bytes a tile that a block loads from memory again, because the boxes of all blocks do not stay in L2.

    Blocks that read one box keep it once.  The rest of the cache holds what the blocks write (:data:`KEPT`).  A small
    table stays (:data:`SMALL`).
    """
    sizes = [(name, float(np.mean(b.size))) for (name, _), b in zip(work.loads, boxes, strict=True)]
    once = sum(size for _, size in sizes)
    loaded = {**work.moved, **work.anywhere}
    tables = {n: moved for n, moved in loaded.items() if _size(module, n) <= SMALL * l2_bytes}
    found = sum(max(0.0, read - sum(x for n, x in sizes if n == name)) for name, read in tables.items())
    again = float(np.mean(work.consumer.read)) - once - found
    scale = work.tiles / work.evaluated
    held = (min(slots * size, b.distinct * scale, _size(module, n)) for (n, size), b in zip(sizes, boxes, strict=True))
    kept = float(sum(held))
    return max(0.0, float(again)) * max(0.0, 1.0 - KEPT * l2_bytes / max(1.0, kept))


def _dram_reads(boxes: Sequence[_Box], waves: Ints, l2_bytes: float) -> float:
    """Bytes from memory: each distinct box of a wave except those of the previous wave that are still in L2."""
    asked = [b.of_waves(waves) for b in boxes]
    per_wave = np.sum([np.bincount(a.wave, weights=a.size, minlength=int(waves[-1]) + 1) for a in asked], axis=0)
    stays = per_wave <= l2_bytes
    first = sum(a.size[~(a.again & stays[np.maximum(a.wave - 1, 0)])].sum() for a in asked)
    apart = np.maximum(0.0, 1.0 - NEAR * l2_bytes / np.maximum(per_wave, 1.0))
    return float(first + sum((apart[a.wave] * a.uneven).sum() for a in asked))


@dataclass(frozen=True, slots=True)
class _WaveReads:
    """The distinct boxes of one buffer in every wave.

    ``again``: whether the previous wave has the box.  ``uneven``: bytes that further tiles read of a box whose tiles
    read different parts.
    """

    wave: Ints
    size: NDArray[np.float64]
    again: NDArray[np.bool_]
    uneven: NDArray[np.float64]


def _size(module: MemModule, name: str) -> int:
    b = module.buffer(name)
    return nominal(volume(b.shape)) * b.dtype.bytes


def _apart(low: Any, high: Any, starts: int) -> Any:
    """The length of each box along an axis; of boxes that overlap, their shares of what they cover together.

    ``starts``: the number of different positions in ``low``.
    """
    together = np.max(high) - np.min(low) + 1
    return np.minimum(high - low + 1, together / starts)


class _Box:
    """The boxes of one buffer: for each tile a number for its first position, and the bytes."""

    def __init__(self, keys: Ints, size: NDArray[np.float64], sectors: NDArray[np.float64]) -> None:
        self.size, self.sectors = size, sectors
        _, self.where = ranked(keys)
        largest = np.zeros(int(self.where.max()) + 1)
        np.maximum.at(largest, self.where, size)
        self.distinct = float(largest.sum())

    @staticmethod
    def of(module: MemModule, name: str, access: Access, n: int) -> _Box:
        """The boxes of buffer ``name`` in ``n`` tiles; positions outside the buffer read nothing."""
        b = module.buffer(name)
        keys: Any = np.zeros(n, np.int64)  # in the order of the first positions, with few numbers between them
        size: Any = np.full(n, float(b.dtype.bytes))  # without what other boxes have as well
        moved: Any = size
        factor = radix = 1
        reads: Any = True  # whether the box of a tile has a position
        for low, high, extent in reversed(list(zip(access.lows, access.highs, access.extents, strict=True))):
            most, reads = extent - 1, reads & (np.asarray(low) <= high)
            low, high = np.clip(low, 0, most), np.clip(high, 0, most)
            starts, places = ranked(low.reshape(-1))
            keys = keys + places.reshape(low.shape) * radix
            size = size * _apart(low, high, len(starts))
            radix *= len(starts)
            whole = factor * extent * b.dtype.bytes <= SECTOR  # one sector has all positions along the axis
            moved = moved * (extent if whole else high - low + 1)
            if not whole and factor * b.dtype.bytes < SECTOR:
                moved = np.ceil(moved / SECTOR) * SECTOR
            factor *= extent
        size, moved = np.where(reads, size, 0.0), np.where(reads, moved, 0.0)
        return _Box(np.broadcast_to(keys, (n,)), np.broadcast_to(size, (n,)), np.broadcast_to(moved, (n,)))

    def of_blocks(self, step: int, count: int) -> float:
        """Bytes of the sectors of the distinct boxes of ``count`` tiles, each ``step`` after another."""
        first = slice(0, step * count, step)
        where = self.where[first]
        at = np.full(int(where.max()) + 1, -1)
        at[where[::-1]] = np.arange(len(where))[::-1]  # of tiles with an equal box, the first one is written last
        return float(self.sectors[first][at[at >= 0]].sum())

    def apart(self) -> float:
        """Bytes of the boxes that the last tile with an equal box, at least :data:`FAR` tiles before, has read."""
        where = self.where if int(self.where.max()) >> 16 else self.where.astype(np.uint16)  # sorted by its digits
        order = np.argsort(where, kind="stable")
        same = self.where[order][1:] == self.where[order][:-1]
        return float(self.size[order][1:][same & (np.diff(order) >= FAR)].sum())

    def of_waves(self, waves: Ints) -> _WaveReads:
        """The distinct boxes that the tiles of every wave load."""
        count = int(self.where.max()) + 1
        pair = waves * count + self.where
        distinct, inverse = ranked(pair)
        size = np.zeros(len(distinct))
        np.maximum.at(size, inverse, self.size)
        all_of_them = np.bincount(inverse, weights=self.size)
        uneven = np.where(all_of_them < np.bincount(inverse) * size, all_of_them - size, 0.0)
        before = np.searchsorted(distinct, distinct - count)  # where the same box of the wave before would be
        again = distinct[before] == distinct - count
        return _WaveReads(distinct // count, size, again, uneven)
