"""Tiles that change their layout on the way between registers and memory, through shared memory.

The layout in which a kernel computes suits most of its accesses.  A tensor that is contiguous along another axis, or
whose rows begin anywhere in a sector, would then be read or written in short pieces.  It has a layout of its own
(:func:`whole_sectors`), and shared memory is between the two (:func:`stage_between`).
"""

from __future__ import annotations

from math import prod

from nautilus.core.buffers import Buffer
from nautilus.core.expr.nodes import Expr, Load, Ref, walk
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.access import contiguous_axis, vector_width
from nautilus.ma_tile.analysis.sectors import sectors
from nautilus.ma_tile.ir.layout import FragLayout, SmemLayout, tile_shape, wavefronts
from nautilus.ma_tile.lowering.layouts import spread
from nautilus.ma_tile.lowering.staging import ordered, pad_for, shared_vec
from nautilus.targets.limits import WORD

LEAST = 1024  # elements of a tile that is worth two barriers
STORES, LOADS = 0.75, 0.5  # sectors that the other layout touches, at most, as a share: L1 keeps sectors that are read
LOOPED = 0.2  # LOADS in a loop, each iteration of which has the barriers
OPERANDS = 0.25  # LOADS in a kernel of MMAs, whose fragments have 16 bytes in a row
WIDE = 8  # bytes of a vector that is worth its instruction: another access finds the rest of its sector in L1


@dataclass(frozen=True, slots=True)
class Access:
    """An access to global memory of a tile of ``type_``, in vectors of ``vec`` elements in the layout ``own``."""

    buffer: Buffer
    index: tuple[Expr, ...]
    mask: Expr | None
    type_: TileType
    own: FragLayout
    vec: int


def whole_sectors(
    access: Access, gain: float, warps: int, vector_bytes: int, least: int = LEAST
) -> tuple[FragLayout, int] | None:
    """The layout and the vector width in which ``access`` touches fewer sectors; None where it has no such layout.

    ``gain``: sectors that it then touches, at most, as a share of those that it touches in its own layout; ``least``:
    elements of the tile.
    """
    axes, buffer = access.type_.axes, access.buffer
    exprs = access.index if access.mask is None else (*access.index, access.mask)
    if prod(access.type_.shape) < least or buffer.dtype.bytes > 4:
        return None
    if any(isinstance(n, Ref | Load) for e in exprs for n in walk(e)):
        return None
    last = contiguous_axis(buffer, access.index, access.type_.names, {})
    before = sectors(buffer, access.index, access.own, access.vec)
    if last is None or before.waste * gain < 1:
        return None
    tile = ordered(axes, last)
    most = min(vector_bytes // buffer.dtype.bytes, tile[-1].size & -tile[-1].size)
    vec = vector_width(buffer, access.index, access.mask, last, most, {}) if most > 1 else 1
    layout = spread(tile, vec, warps)
    after = sectors(buffer, access.index, layout, vec)
    return (layout, vec) if after.waste <= gain * before.waste else None


@dataclass(frozen=True, slots=True)
class Staging:
    """The axes of a tile in shared memory, the bytes after each row, and the widths of the accesses to it."""

    axes: tuple[TileAxis, ...]
    pad: int
    store: int
    load: int

    def bytes(self, dtype: DType) -> int:
        """Bytes of the tile."""
        row = self.axes[-1].size * dtype.bytes + self.pad
        return prod(a.size for a in self.axes[:-1]) * row


def stage_between(type_: TileType, source: FragLayout, target: FragLayout, pads: tuple[int, ...] = ()) -> Staging:
    """The stage through which a tile changes its layout in the fewest wavefronts, and then instructions.

    ``pads``: bytes after each row that are tried besides.
    """
    found: list[tuple[int, int, int, Staging]] = []
    size = type_.dtype.bytes
    for n, last in enumerate(a.name for a in type_.axes if a.size > 1):
        axes = ordered(type_.axes, last)
        row = axes[-1].size * size
        for pad in (pad_for(row), WORD * (1 + (row // WORD) % 2) + -row % WORD, *pads):
            aligned = (row + pad) & -(row + pad)
            store, load = (min(shared_vec(x, axes, type_.dtype), max(1, aligned // size)) for x in (source, target))
            place = SmemLayout(*tile_shape(axes), type_.dtype, 0, pad)
            cycles = wavefronts(place, axes, source, store) + wavefronts(place, axes, target, load)
            instructions = source.registers // store + target.registers // load
            found.append((cycles, instructions, n, Staging(axes, pad, store, load)))
    return min(found, key=lambda x: x[:3])[3]
