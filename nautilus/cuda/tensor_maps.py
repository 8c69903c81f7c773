"""Tensor maps: the TMA descriptors of buffers, derived from the TMA copies of a kernel.

All copies of one shape from (or to) one buffer use the same map.  Adjacent buffer axes without a tile
axis are merged, so that a map has at most five axes.  An axis with a tile axis is not merged, so that
elements outside of it are filled with zeros and never stored.  The host launcher and the
runtime encode the maps (CUDA Driver API, cuTensorMapEncodeTiled).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from nautilus.core.buffers import Buffer, TensorMap
from nautilus.core.errors import UnsupportedError
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Var, substitute, walk
from nautilus.core.index.simplify import simplify
from nautilus.ma_tile.analysis.tma_boxes import multicast_part
from nautilus.ma_tile.ir.layout import tile_shape
from nautilus.ma_tile.ir.ops import MemKernel, MemModule, Smem, TmaLoad, TmaStore, walk_ops

_MAX_RANK = 5
_MAX_BOX = 256  # elements of one axis
_SWIZZLE = 128  # the most frequent width, which names of maps omit


@dataclass(frozen=True, slots=True)
class Copy:
    """One TMA copy: its map, and the coordinates of the tile's origin, innermost first.

    ``slabs`` instructions move ``slab_columns`` columns each, ``slab_bytes`` of shared memory apart.  For a multicast,
    those of one block; the part of the next block starts ``part_bytes`` further, and ``part_size`` along ``part_axis``.
    """

    map: TensorMap
    origin: tuple[Expr, ...]
    slabs: int
    slab_columns: int
    slab_bytes: int
    part_axis: int = 0
    part_size: int = 0
    part_bytes: int = 0


def copy_of(module: MemModule, kernel: MemKernel, op: TmaLoad | TmaStore) -> Copy:
    """The map and coordinates of ``op``. Raises UnsupportedError for what the TMA unit cannot move."""
    smem = next(s for s in kernel.smem if s.name == op.slot.buffer)
    buffer = module.buffer(op.buffer)
    shape = _shape(buffer)
    tile = {a.name: a.size for a in smem.axes}
    groups = _groups(op.index, {name for name, size in tile.items() if size > 1})
    columns = smem.axes[-1].size
    width = op.slot.swizzle or columns * buffer.dtype.bytes
    slab = width // buffer.dtype.bytes
    sizes, strides, box, origin = list[int](), list[int](), list[int](), list[Expr]()
    for first, last, axis in reversed(groups):
        sizes.append(prod(shape[first : last + 1]))
        strides.append(prod(shape[last + 1 :]) * buffer.dtype.bytes)
        box.append(1 if axis is None else tile[axis])
        origin.append(_linear(op.index[first : last + 1], shape[first : last + 1], tile))
    box[0] = slab
    slabs, slab_bytes, part = columns // slab, prod(box) * buffer.dtype.bytes, (0, 0, 0)
    if isinstance(op, TmaLoad) and op.multicast > 1:
        slabs, part = _part(op, smem, box, slab_bytes)
    _check(op, buffer, smem, sizes, strides, box, [g[2] for g in groups])
    stream = isinstance(op, TmaLoad) and op.stream
    label = _label(op, box, sizes if len(groups) < len(shape) else [], stream)
    pitches = tuple(strides[1:])
    made = TensorMap(label, op.buffer, buffer.dtype, tuple(sizes), pitches, tuple(box), op.slot.swizzle, stream)
    return Copy(made, tuple(origin), slabs, slab, slab_bytes, *part)


def _part(op: TmaLoad, smem: Smem, box: list[int], slab_bytes: int) -> tuple[int, tuple[int, int, int]]:
    """Instructions of one block of a multicast, and where the next one's part starts; ``box`` becomes a part's."""
    found = multicast_part(smem, op.multicast)
    assert found is not None, "the verifier admits equal parts only"
    slabs, rows = found
    if rows == tile_shape(smem.axes)[0]:
        return slabs, (0, slabs * box[0], slabs * slab_bytes)
    axis = max(n for n, size in enumerate(box) if size > 1)  # the outermost one with a tile axis
    box[axis] //= op.multicast
    return slabs, (axis, box[axis], slab_bytes // op.multicast)


def kernel_maps(module: MemModule, kernel: MemKernel) -> tuple[TensorMap, ...]:
    """Every map that ``kernel`` takes, in the order of its parameters."""
    return tuple({m.name: m for m in _maps(module, kernel)}.values())


def _maps(module: MemModule, kernel: MemKernel) -> Iterator[TensorMap]:
    for op in walk_ops(kernel.body):
        if isinstance(op, TmaLoad | TmaStore):
            yield copy_of(module, kernel, op).map


def _shape(buffer: Buffer) -> tuple[int, ...]:
    sizes = tuple(n for n in buffer.shape if isinstance(n, int))
    if len(sizes) != len(buffer.shape):
        raise UnsupportedError("runtime dims", f"a tensor map of {buffer.name}")
    return sizes


def _label(op: TmaLoad | TmaStore, box: list[int], merged: list[int], stream: bool) -> str:
    """A name that no other map of the kernel has; ``merged``: sizes, where they are not the buffer's own."""
    parts = ["map", op.buffer, *(str(b) for b in reversed(box))]
    if op.slot.swizzle != _SWIZZLE:
        parts += ["swizzle", str(op.slot.swizzle)]
    if merged:
        parts += ["of", *(str(n) for n in reversed(merged))]
    if stream:
        parts.append("stream")
    return "_".join(parts)


def _groups(index: tuple[Expr, ...], tile: set[str]) -> list[tuple[int, int, str | None]]:
    """(first axis, last axis, tile axis) of the map's axes, outermost first."""
    out: list[tuple[int, int, str | None]] = []
    for n, e in enumerate(index):
        axes = [x.name for x in walk(e) if isinstance(x, Var) and x.name in tile]
        axis = axes[0] if axes else None
        if axis is None and n + 1 < len(index) and out and out[-1][2] is None and out[-1][1] == n - 1:
            out[-1] = (out[-1][0], n, None)
        else:
            out.append((n, n, axis))
    return out


def _linear(index: tuple[Expr, ...], shape: tuple[int, ...], tile: Iterable[str]) -> Expr:
    """Row-major position of the tile's origin on merged axes."""
    total: Expr = integer(0)
    for e, size in zip(index, shape, strict=True):
        total = calc("add", calc("mul", total, size), _origin(e, tile))
    return simplify(total)


def _origin(e: Expr, tile: Iterable[str]) -> Expr:
    return substitute(e, {name: integer(0) for name in tile})


def _check(
    op: TmaLoad | TmaStore, buffer: Buffer, smem: Smem, sizes: list[int], strides: list[int], box: list[int],
    axes: list[str | None],
) -> None:  # fmt: skip
    wanted = [a.name for a in smem.axes if a.size > 1]
    faults = (
        (len(box) > _MAX_RANK, f"{len(box)} axes"),
        (smem.axes[-1].size % box[0] != 0, f"columns that do not fill slabs of {op.slot.swizzle} bytes"),
        (max(box) > _MAX_BOX, f"a box of {max(box)} along one axis"),
        ([a for a in axes if a is not None] != wanted, "an axis order that is not the buffer's"),
        (any(s % 16 for s in strides[1:]), "rows that are no multiple of 16 bytes"),
        (box[0] * buffer.dtype.bytes % 16 != 0, "a row of the tile that is no multiple of 16 bytes"),
        (max(sizes) >= 1 << 32 or any(s >= 1 << 40 for s in strides), "a buffer beyond the map's limits"),
    )
    for wrong, why in faults:
        if wrong:
            raise UnsupportedError(f"a TMA copy of {op.buffer}", why, op.span)
