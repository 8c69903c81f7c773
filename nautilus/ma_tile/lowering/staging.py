"""Where tiles lie in shared memory: axis order, swizzle or padding, and who copies them.

The contiguous axis of a staged tile is the one contiguous in global memory, so that a copy moves
16-byte pieces; ``ldmatrix`` reads 16-bit operands in either orientation, other types are read by
plain loads.  Rows of 16-bit matrix operands are swizzled by the widest pattern that divides them;
everything else is padded by 16 bytes a row, which keeps 16-byte alignment and moves successive
rows to different banks (32-bit rows along N: 32 bytes, four rows are read at once).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nautilus.core.buffers import Buffer
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.access import RefAxes, contiguous_axis, register_run, vector_width
from nautilus.ma_tile.ir.layout import FragLayout, SmemLayout, tile_shape, wavefronts
from nautilus.ma_tile.lowering.layouts import spread
from nautilus.vr_tile.ir import LoadOp


@dataclass(frozen=True, slots=True)
class Placement:
    """Axis order (last contiguous), swizzle and padding of a shared tile."""

    axes: tuple[TileAxis, ...]
    swizzle: int
    pad: int


def ordered(axes: Sequence[TileAxis], last: str | None) -> tuple[TileAxis, ...]:
    """``axes`` with ``last`` moved to the end."""
    return tuple(a for a in axes if a.name != last) + tuple(a for a in axes if a.name == last)


_BANKS, _ROW_F64 = 128, 32  # bytes of all banks, and those that half a warp reads of one of four rows of f64


def place(axes: tuple[TileAxis, ...], dtype: DType, instr: str, k: str) -> Placement:
    """Shared placement of an operand of ``instr`` (``fma``, or a name in MMA) with contracted axis ``k``."""
    row = axes[-1].size * dtype.bytes if axes else dtype.bytes
    if instr != "fma" and dtype.bytes == 8:
        return Placement(axes, 0, _ROW_F64 + -row % _BANKS)
    if instr != "fma" and (dtype.bytes == 2 or axes[-1].name == k):
        for width in (128, 64, 32):
            if row % width == 0:
                return Placement(axes, width, 0)
    if instr != "fma" and dtype.bytes == 4 and axes and axes[-1].name != k:
        return Placement(axes, 0, 32)
    return Placement(axes, 0, pad_for(row))


def pad_for(row: int) -> int:
    """Bytes after a row of ``row`` bytes: up to a multiple of 16, and one 16-byte step more."""
    return 16 + -row % 16


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How a global tile reaches shared memory: ``vec`` elements a thread at a time over ``threads``."""

    axes: tuple[TileAxis, ...]
    threads: FragLayout
    vec: int
    asynchronous: bool


def plan_copy(op: LoadOp, buffer: Buffer, refs: RefAxes, warps: int, limit_bytes: int) -> CopyPlan:
    """The widest legal copy of the tile that ``op`` loads."""
    names = op.result.type.names
    last = contiguous_axis(buffer, op.index, names, refs) or (names[-1] if names else None)
    axes = ordered(op.result.type.axes, last)
    size = buffer.dtype.bytes
    vec = 1
    if last is not None:
        limit = max(1, min(limit_bytes, 16) // size)
        vec = vector_width(buffer, op.index, op.mask, last, min(limit, _two(axes[-1].size)), refs)
    return CopyPlan(axes, spread(axes, vec, warps), vec, vec * size in (4, 8, 16))


def _two(n: int) -> int:
    return n & -n


def spill_axes(axes: tuple[TileAxis, ...], layout: FragLayout) -> tuple[TileAxis, ...]:
    """Axis order for storing a fragment: its longest register run becomes contiguous, else its neighbouring lanes."""
    if not axes:
        return axes
    near = layout.lane[0].axis if layout.lane else None
    return ordered(axes, max(axes, key=lambda a: (register_run(layout, a.name), a.name == near, axes.index(a))).name)


def spill_place(type_: TileType, layout: FragLayout, instr: str, k: str) -> Placement:
    """Shared placement of an operand of ``instr`` that a fragment of ``layout`` is stored to.

    The instructions read rows and columns of 16 and 32 bits, and of others rows along the contracted axis ``k``.
    """
    axes = spill_axes(type_.axes, layout)
    if instr != "fma" and type_.dtype.bytes not in (2, 4):
        axes = ordered(type_.axes, k)
    return place(axes, type_.dtype, instr, k)


def with_fewest_conflicts(layout: FragLayout, type_: TileType, instr: str, k: str) -> FragLayout:
    """``layout``, or it with its lanes in another order, whichever stores to shared memory in fewer wavefronts.

    Lanes with long runs of one row use the same banks.  Lanes of different rows do not, because chunks are permuted.
    """

    def stored(x: FragLayout) -> int:
        where = spill_place(type_, x, instr, k)
        tile = SmemLayout(*tile_shape(where.axes), type_.dtype, where.swizzle, where.pad)
        return wavefronts(tile, where.axes, x, shared_vec(x, where.axes, type_.dtype))

    return min(layout, replace(layout, lane=layout.lane[::-1]), key=stored)


def shared_vec(layout: FragLayout, axes: Sequence[TileAxis], dtype: DType) -> int:
    """Widest shared access of a fragment on a tile whose last axis is contiguous (16-byte row steps)."""
    if not axes or dtype.bytes > 4:
        return 1
    return max(1, min(register_run(layout, axes[-1].name), 16 // dtype.bytes))
