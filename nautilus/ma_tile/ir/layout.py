"""Register-fragment and shared-memory layouts of the MA-tile IR.

A *fragment layout* says which tile element a thread holds in which register: three lists of modes,
for the register number, the lane in the warp and the warp in the role.  A mode ``j:4x2`` is one
digit of a mixed-radix number (least significant first) with 4 values, each adding 2 to the position
along axis ``j``; a mode ``*:4`` adds nothing: those lanes or warps hold copies.  Example, the
accumulator of ``mma.m16n8`` over a 32x64 tile in two warps (PTX ISA, "Matrix fragments for
mma.m16n8k16")::

    reg(j:2x1, i:2x8, j:8x8) lane(j:4x2, i:8x1) warp(i:2x16)

Sizes need not be powers of two.  16-bit elements are packed two to a 32-bit register (8-bit: four),
in register order; the first register mode must then hold the packed neighbours.

A *shared-memory layout* is row-major over (rows, columns) cut into slabs of ``swizzle`` bytes of
columns; inside a slab every row is ``swizzle`` bytes long and its 16-byte chunks are permuted by
the row number, so that eight rows of one column chunk lie in different banks.  ``swizzle`` 0 is
plain row-major with ``pad`` bytes after each row.  128: chunk ^= row & 7; 64: chunk ^= (row >> 1)
& 3; 32: chunk ^= (row >> 2) & 1 (the patterns of TMA and of wgmma descriptors, PTX ISA,
"Swizzling modes").

Invariants: lane modes multiply to 32, warp modes to the warps of the role; apart from copies every
element of the tile is held exactly once.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from nautilus.core.expr.interleaved import element_at
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileAxis
from nautilus.core.types import DType
from nautilus.targets.limits import BANKS, WARP, WORD

WAVEFRONT = 128  # bytes of shared memory that one wavefront moves at most

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Mode:
    """``size`` consecutive values, each adding ``stride`` along ``axis`` (None: copies)."""

    size: int
    axis: str | None
    stride: int = 0

    def __str__(self) -> str:
        return f"*:{self.size}" if self.axis is None else f"{self.axis}:{self.size}x{self.stride}"


@dataclass(frozen=True)
class FragLayout:
    """Which element each (warp, lane, register) holds; modes least significant first."""

    reg: tuple[Mode, ...]
    lane: tuple[Mode, ...]
    warp: tuple[Mode, ...]

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[FragLayout], tuple[tuple[Mode, ...], ...]]:
        return FragLayout, (self.reg, self.lane, self.warp)  # hashes differ between processes

    @cached_property
    def _hash(self) -> int:
        return hash((self.reg, self.lane, self.warp))

    def __str__(self) -> str:
        parts = (("reg", self.reg), ("lane", self.lane), ("warp", self.warp))
        return " ".join(f"{name}({', '.join(map(str, modes))})" for name, modes in parts)

    @cached_property
    def registers(self) -> int:
        """Elements a thread holds."""
        return prod(m.size for m in self.reg)

    @cached_property
    def warps(self) -> int:
        """The number of warps."""
        return prod(m.size for m in self.warp)

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Axes that the layout distributes, in order of first mention."""
        modes = (*self.reg, *self.lane, *self.warp)
        return tuple(dict.fromkeys(m.axis for m in modes if m.axis is not None))

    def extent(self, axis: str) -> int:
        """One more than the largest position along ``axis``."""
        modes = (*self.reg, *self.lane, *self.warp)
        return 1 + sum((m.size - 1) * m.stride for m in modes if m.axis == axis)

    def is_digit(self, axis: str, at: int) -> bool:
        """Whether each mode of ``axis`` changes either ``position // at`` or ``position % at`` alone."""
        modes = [m for m in (*self.reg, *self.lane, *self.warp) if m.axis == axis and m.size > 1]
        below = sum((m.size - 1) * m.stride for m in modes if m.stride < at)
        return below < at and all(m.stride % at == 0 for m in modes if m.stride >= at)

    def coords(self, axis: str) -> Ints:
        """Position along ``axis`` held at [warp, lane, register] (0 where the axis is absent)."""
        r, t, w = (_offsets(modes, axis) for modes in (self.reg, self.lane, self.warp))
        return w[:, None, None] + t[None, :, None] + r[None, None, :]

    @cached_property
    def first_holders(self) -> NDArray[np.bool_]:
        """Which [warp, lane, register] is the first one that holds its element."""
        r, t, w = (_offsets(tuple(_copies(m) for m in modes), "") == 0 for modes in (self.reg, self.lane, self.warp))
        return np.asarray(w[:, None, None] & t[None, :, None] & r[None, None, :])

    def project(self, axes: tuple[str, ...]) -> FragLayout:
        """The layout of a tile that varies along ``axes`` only.

        Register modes of other axes are dropped; lane and warp modes of other axes become copies.
        """
        keep = frozenset(axes)
        return FragLayout(
            tuple(m for m in self.reg if m.axis in keep),
            _merge(tuple(m if m.axis in keep else Mode(m.size, None) for m in self.lane)),
            _merge(tuple(m if m.axis in keep else Mode(m.size, None) for m in self.warp)),
        )

    def partial(self, axes: tuple[str, ...], into: str) -> FragLayout:
        """The layout once registers along ``axes`` are combined: lanes and warps that split them hold
        partials, numbered along the new axis ``into``."""
        stride = 1
        parts: list[tuple[Mode, ...]] = []
        for modes in (self.lane, self.warp):
            new = list[Mode]()
            for m in modes:
                new.append(Mode(m.size, into, stride) if m.axis in axes else m)
                stride *= m.size if m.axis in axes else 1
            parts.append(tuple(new))
        return FragLayout(tuple(m for m in self.reg if m.axis not in axes), parts[0], parts[1])

    def renamed(self, axis: str, into: str) -> FragLayout:
        """The layout with ``into`` for ``axis``."""

        def put(modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
            return tuple(Mode(m.size, into, m.stride) if m.axis == axis else m for m in modes)

        return FragLayout(put(self.reg), put(self.lane), put(self.warp))

    def register_map(self, axes: tuple[str, ...]) -> tuple[int, ...]:
        """For each register of this layout, the register of ``project(axes)`` with the same element."""
        keep = frozenset(axes)
        out = np.zeros(1, dtype=np.int64)
        stride = 1
        for m in self.reg:
            step = 0
            if m.axis in keep:
                step, stride = stride, stride * m.size
            out = (out[None, :] + step * np.arange(m.size, dtype=np.int64)[:, None]).reshape(-1)
        return tuple(int(x) for x in out)


def _copies(m: Mode) -> Mode:
    """``m`` as a digit along an axis without a name, if it numbers copies."""
    return Mode(m.size, "" if m.axis is None else None, 1)


def _offsets(modes: tuple[Mode, ...], axis: str) -> Ints:
    out = np.zeros(1, dtype=np.int64)
    for m in modes:
        step = m.stride if m.axis == axis else 0
        out = (out[None, :] + step * np.arange(m.size, dtype=np.int64)[:, None]).reshape(-1)
    return out


def _merge(modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
    """Merge adjacent copy modes, so that equal layouts compare equal."""
    out: list[Mode] = []
    for m in modes:
        if out and m.axis is None and out[-1].axis is None:
            out[-1] = Mode(out[-1].size * m.size, None)
        else:
            out.append(m)
    return tuple(out)


@lru_cache(maxsize=4096)
def same_threads(a: FragLayout, b: FragLayout, interleaved: str | None = None) -> tuple[int, ...] | None:
    """The register permutation from ``a`` to ``b`` inside each thread, or None.

    Entry r is the register of ``a`` that holds what register r of ``b`` must hold.  Along ``interleaved``, ``b`` has
    positions of elements of ``a`` (:mod:`nautilus.core.expr.interleaved`).
    """
    if set(a.axes) != set(b.axes) or a.warps != b.warps or a.registers != b.registers:
        return None
    axes = a.axes
    ca = np.stack([a.coords(x) for x in axes], axis=-1) if axes else np.zeros((a.warps, 32, 1, 1), np.int64)
    places = [element_at(b.coords(x)) if x == interleaved else b.coords(x) for x in axes]
    cb = np.stack(places, axis=-1) if axes else np.zeros((b.warps, 32, 1, 1), np.int64)
    where = {tuple(c): r for r, c in enumerate(ca[0, 0].tolist())}
    perm = tuple(where.get(tuple(c), -1) for c in cb[0, 0].tolist())
    if -1 in perm or not np.array_equal(ca[:, :, list(perm)], cb):
        return None
    return perm


def window_registers(
    whole: FragLayout, windows: FragLayout, axis: str, places: tuple[str, str], sizes: tuple[int, int, int, int]
) -> tuple[int, ...] | None:
    """Registers of ``whole``, along ``axis``, that hold what ``windows`` hold along the two ``places``, or None.

    ``sizes``: how far positions and terms are apart, positions whose windows are along one ``axis``, and the first
    element there.
    """
    step, dilation, together, start = sizes
    positions, terms = places
    rest = tuple(x for x in dict.fromkeys((*whole.axes, *windows.axes)) if x not in (axis, *places))
    if whole.warps != windows.warps:
        return None
    at, term = windows.coords(positions), windows.coords(terms)
    wanted = [windows.coords(x) for x in rest] + [at // together, start + step * (at % together) + dilation * term]
    held = np.stack([whole.coords(x) for x in (*rest, positions, axis)], axis=-1)
    shape = (windows.warps, 32, windows.registers)
    need = np.stack([np.broadcast_to(x, shape) for x in wanted], axis=-1)
    return _found(held, need)


@lru_cache(maxsize=4096)
def slice_registers(whole: FragLayout, part: FragLayout, axis: str, start: int) -> tuple[int, ...] | None:
    """Registers of ``whole`` that hold what ``part`` holds of the tile from ``start`` on along ``axis``, or None.

    Entry r is the register of ``whole`` for register r of ``part``; None: some element is in another thread.
    """
    axes = tuple(dict.fromkeys((*whole.axes, *part.axes)))
    if whole.warps != part.warps:
        return None
    held = np.stack([whole.coords(x) for x in axes], axis=-1) if axes else np.zeros((whole.warps, 32, 1, 0), np.int64)
    wanted = [part.coords(x) + (start if x == axis else 0) for x in axes]
    shape = (part.warps, 32, part.registers)
    need = np.stack([np.broadcast_to(x, shape) for x in wanted], axis=-1) if axes else np.zeros((*shape, 0), np.int64)
    return _found(held, need)


def _found(held: Ints, need: Ints) -> tuple[int, ...] | None:
    """The registers that hold what all threads ``need``, or None: places of elements at [warp, lane, register]."""
    where = {tuple(c): r for r, c in enumerate(held[0, 0].tolist())}
    found = tuple(where.get(tuple(c), -1) for c in need[0, 0].tolist())
    if -1 in found or not np.array_equal(held[:, :, list(found)], need):
        return None
    return found


@dataclass(frozen=True, slots=True)
class SmemLayout:
    """Placement of a 2-D tile of ``dtype`` in shared memory (leading axes flatten into rows)."""

    rows: int
    cols: int
    dtype: DType
    swizzle: int = 0  # bytes a slab row: 0, 32, 64, 128
    pad: int = 0  # bytes after each row, plain layout only

    @property
    def bytes(self) -> int:
        """Size of one stage in bytes."""
        return self.rows * (self.cols * self.dtype.bytes + self.pad)

    def address(self, row: Ints, col: Ints) -> Ints:
        """Byte offset of element (row, col) inside the stage."""
        byte = col * self.dtype.bytes
        if self.swizzle == 0:
            return row * (self.cols * self.dtype.bytes + self.pad) + byte
        width = self.swizzle
        slab, inner = byte // width, byte % width
        chunk = (inner // 16) ^ swizzle_xor(width, row)
        return slab * (self.rows * width) + row * width + chunk * 16 + inner % 16


def swizzle_xor(width: int, row: Ints) -> Ints:
    """The value that the chunk number of ``row`` is xor-ed with in a slab of ``width`` bytes. Raises ValueError."""
    match width:
        case 128:
            return row & 7
        case 64:
            return (row >> 1) & 3
        case 32:
            return (row >> 2) & 1
    raise ValueError(f"no swizzle of {width} bytes")


def tile_shape(axes: tuple[TileAxis, ...]) -> tuple[int, int]:
    """(rows, columns) of a tile in shared memory: the last axis is contiguous."""
    sizes = [a.size for a in axes] or [1]
    return prod(sizes[:-1]), sizes[-1]


@lru_cache(maxsize=1024)  # trials have most accesses in common
def wavefronts(place: SmemLayout, axes: tuple[TileAxis, ...], layout: FragLayout, vec: int) -> int:
    """Wavefronts of one warp that loads or stores a fragment of ``layout`` in a tile, ``vec`` elements at a time.

    Shared memory has 32 banks of 4 bytes.  A wavefront serves lanes whose words lie in different banks, or are the same
    word; an instruction of 8 bytes a lane has the lanes in two halves, one of 16 bytes in four quarters (CUDA C++
    Programming Guide, shared memory of compute capability 5.x).
    """
    rows: Ints = np.zeros((1, 1, 1), np.int64)
    for a in axes[:-1]:
        rows = rows * a.size + layout.coords(a.name)[:1]
    columns = layout.coords(axes[-1].name)[:1] if axes else rows
    address = place.address(rows % max(1, place.rows), columns % max(1, place.cols))
    address = np.broadcast_to(address, (1, WARP, layout.registers))[0, :, ::vec]
    words = max(1, vec * place.dtype.bytes // WORD)
    together, total = WARP // words, 0
    for access in (address // WORD).T:
        for first in range(0, WARP, together):
            touched = access[first : first + together, None] + np.arange(words)
            found = np.unique(touched, return_counts=True)[0]  # without counts, numpy imports its masked arrays: 10 ms
            total += int(np.bincount(found % BANKS).max())
    return total
