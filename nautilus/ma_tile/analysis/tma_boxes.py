"""Which loads the TMA unit can do: boxes of a buffer, zeros where they reach over its edges.

A TMA copy moves a box (PTX ISA, "Tensors"; the limits are those of tensor maps): unit steps along some axes of the
buffer, the contiguous one among them, a fixed place along the others; elements outside of the buffer arrive as zeros.
Each axis of the tile counts one axis of the buffer, or several of them as digits (:mod:`.digits`).  A load's mask has
the same effect if every part of it follows from "the element is inside the buffer".

Along the contiguous axis a box starts at a multiple of 16 bytes: an H200 ends a copy that starts elsewhere with an
illegal instruction.  Along the other axes it may start anywhere, before the buffer too.

The map of a buffer that ends at a size in device memory ends at the bound of the size, which the host knows; the
memory up to there is the caller's.  Elements between the size and the bound arrive as they are, so such a buffer is
loaded only where they stay apart: no op of the kernel combines elements along the axis (:func:`combined_axes`), and
stores leave them out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from nautilus.core.buffers import Buffer, show_shape
from nautilus.core.errors import Cause, Obstacle
from nautilus.core.expr.build import calc, integer, within
from nautilus.core.expr.nodes import Expr, Load, Param, Ref, free_vars, substitute, walk
from nautilus.core.index.simplify import TRUE, Ranges, conjuncts, divisible_by, simplify
from nautilus.core.index.sizes import extent_expr, volume
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileAxis
from nautilus.ma_tile.analysis.digits import Digit, digit_of, is_whole
from nautilus.ma_tile.ir.layout import tile_shape
from nautilus.ma_tile.ir.ops import MemKernel, MmaOp, ReduceOp, ScanOp, walk_ops
from nautilus.ma_tile.ir.values import Smem
from nautilus.ma_tile.lowering.staging import ordered
from nautilus.targets.limits import BOX, TENSOR_MAP_AXES

ROW_BYTES = 16  # rows of the buffer start at multiples of this
STAGE_BYTES = 128  # stages of vectors follow each other, and each of them starts at a multiple of this
SWIZZLES = (128, 64, 32)


@dataclass(frozen=True, slots=True)
class TmaBox:
    """Axis order in shared memory (the buffer's contiguous axis last) and swizzle."""

    axes: tuple[TileAxis, ...]
    swizzle: int


def tma_box(
    buffer: Buffer, tile: tuple[TileAxis, ...], index: tuple[Expr, ...], mask: Expr | None, ranges: Ranges,
    vectors: bool = False, combined: Collection[str] | None = None,
) -> TmaBox | Obstacle:  # fmt: skip
    """How a TMA load brings ``buffer[index] where mask`` over the axes of ``tile``; or why it cannot.

    ``vectors``: tiles of one axis are boxes too; ``combined``: axes along which the kernel combines elements, if known.
    """
    sizes = {a.name: a.size for a in tile}
    shape = buffer.shape
    if len(shape) > TENSOR_MAP_AXES:
        return Obstacle(f"{buffer.name} has {len(shape)} axes, more than {TENSOR_MAP_AXES}")
    if not whole_rows(buffer):
        if buffer.strides is not None:
            reason = f"the strides of {buffer.name} are not multiples of {ROW_BYTES} bytes with neighbours side by side"
            return Obstacle(reason)
        length = volume((shape[-1], buffer.dtype.bytes))
        reason = f"rows of {buffer.name} are {show_shape((length,))} bytes, not a multiple of {ROW_BYTES}"
        return Obstacle(reason, Cause.ROWS, buffer.name, max(1, ROW_BYTES // buffer.dtype.bytes))
    counted = _counted(buffer, index, sizes, 1 if vectors and len(sizes) == 1 else 2)
    if isinstance(counted, str):
        return Obstacle(counted)
    for n, size in device_ends(buffer).items():
        if combined is None or n not in counted or counted[n].axis in combined:
            reason = f"{buffer.name} ends at {size}, which is in device memory: what lies beyond would not be zeros"
            return Obstacle(reason)
    last = counted.get(len(shape) - 1)
    if last is None or last.stride != 1:
        return Obstacle(f"the contiguous axis of {buffer.name} is not one of the tile's")
    if not aligned(index[-1], sizes, buffer.dtype.bytes):
        return Obstacle(f"tiles of {buffer.name} do not start at multiples of {ROW_BYTES} bytes of its rows")
    known = {**ranges} | {name: (0, size - 1) for name, size in sizes.items()}
    inside = tuple(part for e, n in zip(index, shape, strict=True) for part in within(e, n))
    # Nothing follows from facts about sums of a scalar, which may wrap, so such a mask is compared as it stands.
    stated = {simplify(part, known) for part in inside}
    for part in () if mask is None else conjuncts(mask):
        if simplify(part, known) not in stated and simplify(part, known, inside) != TRUE:
            return Obstacle(f"the mask of the load from {buffer.name} is not the buffer's own bounds")
    axes = ordered(tile, last.axis)
    if any(d.size > BOX for d in counted.values() if d.axis != last.axis):
        return Obstacle(f"the tile of {buffer.name} has more than {BOX} rows")
    row = last.size * buffer.dtype.bytes
    swizzle = next((w for w in SWIZZLES if row % w == 0), 0)
    if len(tile) == 1:  # a vector has no rows, over which chunks are permuted
        if len(counted) > 1:
            return Obstacle(f"a vector of elements of several rows of {buffer.name} is no box")
        if last.size > BOX or row % STAGE_BYTES:
            return Obstacle(f"a vector of {last.size} elements of {buffer.name} fills no stages")
        return TmaBox(axes, 0)
    if not swizzle:
        return Obstacle(f"rows of the tile of {buffer.name} are {row} bytes, not a multiple of {SWIZZLES[-1]}")
    return TmaBox(axes, swizzle)


def device_ends(buffer: Buffer) -> dict[int, str]:
    """The axes of the buffer that end at sizes in device memory, with these."""
    late = ((n, x) for n, e in enumerate(buffer.shape) if not isinstance(e, int) for x in walk(e))
    return {n: x.name for n, x in late if isinstance(x, Param) and x.device}


def combined_axes(kernel: MemKernel) -> frozenset[str]:
    """The axes along which ``kernel`` combines elements: in reductions, scans and MMAs."""
    found = set[str]()
    for op in walk_ops(kernel.body):
        match op:
            case ReduceOp(axes=axes):
                found.update(axes)
            case ScanOp(axis=axis) | MmaOp(over=axis):
                found.add(axis)
            case _:
                pass
    return frozenset(found)


def whole_rows(buffer: Buffer) -> bool:
    """Whether rows of the buffer certainly start at multiples of :data:`ROW_BYTES`."""
    if buffer.strides is None:
        return divisible_by(extent_expr(volume((buffer.shape[-1], buffer.dtype.bytes))), ROW_BYTES)
    outer = (volume((n, buffer.dtype.bytes)) for n in buffer.strides[:-1])
    return buffer.aligned and buffer.strides[-1] == 1 and all(divisible_by(extent_expr(n), ROW_BYTES) for n in outer)


def aligned(e: Expr, tile: Iterable[str], width: int) -> bool:
    """Whether ``e``, the index of the contiguous axis, starts a tile at a multiple of :data:`ROW_BYTES`.

    ``tile``: the names of the tile's axes; ``width``: bytes of an element.
    """
    start = substitute(e, {name: integer(0) for name in tile})
    return divisible_by(simplify(calc("mul", start, width)), ROW_BYTES)


def _counted(buffer: Buffer, index: tuple[Expr, ...], sizes: Mapping[str, int], rank: int) -> dict[int, Digit] | str:
    """Buffer axis -> what counts it in unit steps; or why the tile is no box of ``rank`` axes."""
    out: dict[int, Digit] = {}
    for n, e in enumerate(index):
        if any(isinstance(x, Load | Ref) for x in walk(e)):
            return f"where the load from {buffer.name} starts depends on loaded values"
        if free_vars(e).isdisjoint(sizes):
            continue
        found = digit_of(e, sizes)
        if found is None:
            return f"the load from {buffer.name} does not step along its axes one by one"
        out[n] = found
    counted = {d.axis for d in out.values()}
    if not all(is_whole(out.values(), name, sizes[name]) for name in counted):
        return f"the load from {buffer.name} does not step along its axes one by one"
    if len(sizes) != rank or counted != sizes.keys():
        return f"the load from {buffer.name} is not a matrix"
    return out


def multicast_part(stage: Smem, blocks: int) -> tuple[int, int] | None:
    """(slabs, rows) of a stage that one of ``blocks`` blocks loads for its cluster; None: no equal parts.

    Parts lie one after the other in each slab: whole slabs in order where there are enough, else each block has
    this many positions of the stage's outermost axis, in every slab and in whole groups of 8 rows.
    """
    rows, columns = tile_shape(stage.axes)
    slabs = columns * stage.dtype.bytes // stage.swizzle if stage.swizzle else 1
    if slabs % blocks == 0:
        return slabs // blocks, rows
    outer = next((a.size for a in stage.axes[:-1] if a.size > 1), 1)
    return (slabs, rows // blocks) if outer % blocks == 0 and rows // blocks % 8 == 0 else None
