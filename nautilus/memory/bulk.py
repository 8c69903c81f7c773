"""Which loads the TMA unit can do: boxes of a buffer, zeros where they reach over its edges.

A bulk copy moves a box (PTX ISA, "Tensors"; the limits are those of tensor maps): unit steps along two
axes of the buffer, one of them the contiguous one, a fixed place along the others; elements outside of
the buffer arrive as zeros.  A load's mask says no more than that when every part of it follows from
"the element is inside the buffer" along those two axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nautilus.core.calc import within
from nautilus.core.expr import Load, Ref, free_vars, walk
from nautilus.core.index import TRUE, Ranges, conjuncts, linear_in, simplify
from nautilus.memory.layout import tile_shape
from nautilus.memory.staging import ordered
from nautilus.memory.values import Smem
from nautilus.scalar.ops import Buffer
from nautilus.tile.ops import LoadOp, TileAxis

MOST_ROWS = 256  # elements of a box along one axis
MOST_AXES = 5  # of a tensor map
ROW_BYTES = 16  # rows of the buffer start at multiples of this
SWIZZLES = (128, 64, 32)


@dataclass(frozen=True, slots=True)
class BulkPlan:
    """Axis order in shared memory (the buffer's contiguous axis last) and swizzle."""

    axes: tuple[TileAxis, ...]
    swizzle: int


def plan_bulk(op: LoadOp, buffer: Buffer, ranges: Ranges) -> BulkPlan | str:
    """How a bulk copy does ``op``, an operand of a warpgroup product; or why it cannot."""
    sizes = {a.name: a.size for a in op.result.type.axes}
    shape = [n for n in buffer.shape if isinstance(n, int)]
    if len(shape) < len(buffer.shape):
        return f"{op.buffer} has a size that is known only at run time"
    if len(shape) > MOST_AXES:
        return f"{op.buffer} has {len(shape)} axes, more than {MOST_AXES}"
    if shape[-1] * buffer.dtype.bytes % ROW_BYTES:
        return f"rows of {op.buffer} are {shape[-1] * buffer.dtype.bytes} bytes, not a multiple of {ROW_BYTES}"
    walked = _walked(op, sizes)
    if isinstance(walked, str):
        return walked
    if len(shape) - 1 not in walked:
        return f"the contiguous axis of {op.buffer} is not one of the tile's"
    known = {**ranges} | {name: (0, size - 1) for name, size in sizes.items()}
    inside = tuple(part for n in walked for part in within(op.index[n], shape[n]))
    for part in () if op.mask is None else conjuncts(op.mask):
        if simplify(part, known, inside) != TRUE:
            return f"the mask of the load from {op.buffer} is not the buffer's own bounds"
    axes = ordered(op.result.type.axes, walked[len(shape) - 1])
    if any(a.size > MOST_ROWS for a in axes[:-1]):
        return f"the tile of {op.buffer} has more than {MOST_ROWS} rows"
    row = axes[-1].size * buffer.dtype.bytes
    swizzle = next((w for w in SWIZZLES if row % w == 0), 0)
    if not swizzle:
        return f"rows of the tile of {op.buffer} are {row} bytes, not a multiple of {SWIZZLES[-1]}"
    return BulkPlan(axes, swizzle)


def _walked(op: LoadOp, sizes: Mapping[str, int]) -> dict[int, str] | str:
    """Buffer axis -> the tile axis that walks it in unit steps; or why the tile is no box."""
    out: dict[int, str] = {}
    for n, e in enumerate(op.index):
        if any(isinstance(x, Load | Ref) for x in walk(e)):
            return f"where the load from {op.buffer} starts depends on loaded values"
        along = sorted(free_vars(e) & sizes.keys())
        if not along:
            continue
        form = linear_in(e, along[0])
        if len(along) > 1 or form is None or form[0] != 1 or along[0] in out.values():
            return f"the load from {op.buffer} does not step along its axes one by one"
        out[n] = along[0]
    if len(sizes) != 2 or len(out) != 2:
        return f"the load from {op.buffer} is not a matrix"
    return out


def multicast_part(stage: Smem, blocks: int) -> tuple[int, int] | None:
    """(slabs, rows) of a stage that each of ``blocks`` blocks of a cluster loads for all; None: no equal parts.

    Parts lie one behind the other in each slab: whole slabs in order where there are enough, else each block has
    so many positions of the stage's outermost axis, in every slab and in whole groups of 8 rows.
    """
    rows, columns = tile_shape(stage.axes)
    slabs = columns * stage.dtype.bytes // stage.swizzle if stage.swizzle else 1
    if slabs % blocks == 0:
        return slabs // blocks, rows
    outer = next((a.size for a in stage.axes[:-1] if a.size > 1), 1)
    return (slabs, rows // blocks) if outer % blocks == 0 and rows // blocks % 8 == 0 else None
