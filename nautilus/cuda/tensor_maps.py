"""Tensor maps: the TMA descriptors of buffers, derived from the TMA copies of a kernel.

All copies of one shape from (or to) one buffer use the same map.  Adjacent buffer axes without a tile axis are merged,
so that a map has few axes.  An axis along which a tile, or its place, may lie outside of the buffer is not merged, so
that the elements there are filled with zeros and never stored.  A tile axis may count several axes of the buffer
(:mod:`nautilus.ma_tile.analysis.digits`); the axes of a map are in the order of the stage.  The host launcher and the
runtime encode the maps (CUDA Driver API, cuTensorMapEncodeTiled).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from re import sub
from types import MappingProxyType

from nautilus.core.buffers import Buffer, TensorMap, show_shape
from nautilus.core.errors import UnsupportedError
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, substitute
from nautilus.core.index.simplify import Ranges, bounds, divisible_by, simplify
from nautilus.core.index.sizes import Extent, at_bound, extent_expr, volume
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity
from nautilus.ma_tile.analysis.digits import Digit, digit_of, is_whole
from nautilus.ma_tile.analysis.tma_boxes import multicast_part
from nautilus.ma_tile.ir.layout import tile_shape
from nautilus.ma_tile.ir.ops import ForOp, MemKernel, MemModule, Smem, TmaLoad, TmaStore, walk_ops
from nautilus.ma_tile.rewriting.renaming import uniform_ranges
from nautilus.targets.limits import BOX, TENSOR_MAP_AXES

_SWIZZLE = 128  # the most frequent width, which names of maps omit


@dataclass(frozen=True, slots=True)
class Copy:
    """One TMA copy: its map, and the coordinates of the tile's origin, innermost first.

    One instruction moves each slab, which is ``steps`` from the origin along the axes; they are ``slab_bytes`` of
    shared memory apart.  For a multicast, those of one block; the part of the next block starts ``part_bytes`` further,
    and ``part_size`` along ``part_axis``.
    """

    map: TensorMap
    origin: tuple[Expr, ...]
    steps: tuple[tuple[int, ...], ...]
    slab_bytes: int
    part_axis: int = 0
    part_size: int = 0
    part_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _MapAxis:
    """An axis of a map: axes ``first`` to ``last`` of the buffer, and what counts its positions in the tile."""

    first: int
    last: int
    digit: Digit | None


def copy_of(module: MemModule, kernel: MemKernel, op: TmaLoad | TmaStore) -> Copy:
    """The map and coordinates of ``op``. Raises UnsupportedError for what the TMA unit cannot move."""
    smem = next(s for s in kernel.smem if s.name == op.slot.buffer)
    buffer = module.buffer(op.buffer)
    shape = buffer.shape
    tile = {a.name: a.size for a in smem.axes}
    axes = _map_axes(op, buffer, tile, _ranges(kernel))
    columns = smem.axes[-1].size
    width = op.slot.swizzle or columns * buffer.dtype.bytes
    slab = width // buffer.dtype.bytes
    ordered = _in_stage_order(axes[::-1], smem)
    sizes, strides, box, origin = list[Extent](), list[Extent](), list[int](), list[Expr]()
    for x in ordered:
        sizes.append(volume(map(at_bound, shape[x.first : x.last + 1])))
        strides.append(volume((buffer.stride(x.last), buffer.dtype.bytes)))
        in_columns = x.digit is not None and x.digit.axis == smem.axes[-1].name
        box.append(1 if x.digit is None or in_columns else x.digit.size)
        origin.append(_linear(op.index[x.first : x.last + 1], shape[x.first : x.last + 1], tile))
    box[0] = slab
    slabs, slab_bytes, part = columns // slab, prod(box) * buffer.dtype.bytes, (0, 0, 0)
    if isinstance(op, TmaLoad) and op.multicast > 1:
        slabs, part = _part(op, smem, box, slab_bytes, ordered)
    _check(op, buffer, smem, sizes, strides, box, ordered)
    stream = isinstance(op, TmaLoad) and op.stream
    order = [str(x.first) for x in ordered] if ordered != axes[::-1] else []
    label = _label(op, box, sizes if len(axes) < len(shape) else [], order, stream)
    pitches = tuple(strides[1:])
    made = TensorMap(label, op.buffer, buffer.dtype, tuple(sizes), pitches, tuple(box), op.slot.swizzle, stream)
    steps = tuple(_step(n * slab, ordered, smem) for n in range(slabs))
    return Copy(made, tuple(origin), steps, slab_bytes, *part)


def _in_stage_order(axes: Sequence[_MapAxis], smem: Smem) -> list[_MapAxis]:
    """``axes``, innermost first, with those that digits count in the order of the stage."""
    names = [a.name for a in reversed(smem.axes)]
    counted = [(names.index(x.digit.axis), x.digit.stride, n) for n, x in enumerate(axes) if x.digit is not None]
    order = iter([n for *_, n in sorted(counted)])
    return [x if x.digit is None else axes[next(order)] for x in axes]


def _step(column: int, axes: Sequence[_MapAxis], smem: Smem) -> tuple[int, ...]:
    """How far the slab that starts at ``column`` of a stage is from the first one, along each axis of the map."""
    mine = [x.digit if x.digit is not None and x.digit.axis == smem.axes[-1].name else None for x in axes]
    return tuple(0 if d is None else column // d.stride % d.size for d in mine)


def _part(
    op: TmaLoad, smem: Smem, box: list[int], slab_bytes: int, axes: Sequence[_MapAxis]
) -> tuple[int, tuple[int, int, int]]:
    """Instructions of one block of a multicast, and where the next one's part starts; ``box`` becomes a part's."""
    found = multicast_part(smem, op.multicast)
    assert found is not None, "the verifier admits equal parts only"
    slabs, rows = found
    if rows == tile_shape(smem.axes)[0]:
        if any(x.digit is not None and x.digit.axis == smem.axes[-1].name for x in axes[1:]):
            raise UnsupportedError(f"a TMA copy of {op.buffer}", "parts of columns along several axes", op.span)
        return slabs, (0, slabs * box[0], slabs * slab_bytes)
    axis = max(n for n, size in enumerate(box) if size > 1)  # the outermost one with a tile axis
    if box[axis] % op.multicast:
        raise UnsupportedError(f"a TMA copy of {op.buffer}", f"parts of a box of {box[axis]}", op.span)
    box[axis] //= op.multicast
    return slabs, (axis, box[axis], slab_bytes // op.multicast)


@by_identity(8)
@by_identity(256)
def kernel_maps(module: MemModule, kernel: MemKernel) -> tuple[TensorMap, ...]:
    """Every map that ``kernel`` takes, in the order of its parameters."""
    return tuple({m.name: m for m in _maps(module, kernel)}.values())


def _maps(module: MemModule, kernel: MemKernel) -> Iterator[TensorMap]:
    for op in walk_ops(kernel.body):
        if isinstance(op, TmaLoad | TmaStore):
            yield copy_of(module, kernel, op).map


def _label(op: TmaLoad | TmaStore, box: list[int], merged: list[Extent], order: list[str], stream: bool) -> str:
    """A name that no other map of the kernel has.

    ``merged``: sizes, where they are not the buffer's own; ``order``: its axes, where they are in another one.
    """
    parts = ["map", op.buffer, *(str(b) for b in reversed(box))]
    if op.slot.swizzle != _SWIZZLE:
        parts += ["swizzle", str(op.slot.swizzle)]
    if merged:
        parts += ["of", *(sub(r"\W+", "_", show_shape((n,))) for n in reversed(merged))]
    if order:
        parts += ["by", *reversed(order)]
    if stream:
        parts.append("stream")
    return "_".join(parts)


def _map_axes(op: TmaLoad | TmaStore, buffer: Buffer, tile: Mapping[str, int], ranges: Ranges) -> list[_MapAxis]:
    """The map's axes, outermost first.

    Adjacent axes of the buffer that no tile axis counts are one, unless a place along one of them may lie outside or
    the buffer has strides.
    """
    out: list[_MapAxis] = []
    merges = False  # the axis before this one can be merged with it
    for n, e in enumerate(op.index):
        digit = digit_of(e, {name: size for name, size in tile.items() if size > 1})
        low, high = bounds(_origin(e, tile), ranges) if digit is None else (None, None)
        size = buffer.shape[n]
        inside = buffer.strides is None and _within(low, high, size)
        if merges and inside and n + 1 < len(op.index):
            out[-1] = replace(out[-1], last=n)
        else:
            out.append(_MapAxis(n, n, digit))
        merges = inside
    return out


def _within(low: int | None, high: int | None, size: Extent) -> bool:
    return low is not None and high is not None and low >= 0 and isinstance(size, int) and high < size


@by_identity(8)
def _ranges(kernel: MemKernel) -> Ranges:
    """The ranges of the uniform variables and of the loop variables of ``kernel``."""
    out, unknown = dict(uniform_ranges(kernel)), set[str]()
    for op in walk_ops(kernel.body):
        if isinstance(op, ForOp):
            low, high = bounds(op.lo, out)[0], bounds(op.hi, out)[1]
            if low is not None and high is not None:
                before = out.get(op.var, (low, high - 1))
                out[op.var] = (min(low, before[0]), max(high - 1, before[1]))
            else:
                unknown.add(op.var)
    return MappingProxyType({name: found for name, found in out.items() if name not in unknown})


def _linear(index: tuple[Expr, ...], shape: tuple[Extent, ...], tile: Iterable[str]) -> Expr:
    """Row-major position of the tile's origin on merged axes."""
    total: Expr = integer(0)
    for e, size in zip(index, shape, strict=True):
        total = calc("add", calc("mul", total, size), _origin(e, tile))
    return simplify(total)


def _origin(e: Expr, tile: Iterable[str]) -> Expr:
    return substitute(e, {name: integer(0) for name in tile})


def _beyond(extents: Sequence[Extent], bits: int) -> bool:
    """Whether one of ``extents`` needs more bits; the driver refuses a runtime size that does."""
    return any(isinstance(n, int) and n >= 1 << bits for n in extents)


def _check(
    op: TmaLoad | TmaStore, buffer: Buffer, smem: Smem, sizes: list[Extent], strides: list[Extent], box: list[int],
    axes: Sequence[_MapAxis],
) -> None:  # fmt: skip
    digits = [x.digit for x in axes if x.digit is not None]
    whole = all(is_whole(digits, a.name, a.size) for a in smem.axes if a.size > 1)
    inner = axes[0].digit.size if axes[0].digit is not None else 1
    rows = axes[0].last + 1 == len(buffer.shape) and buffer.stride(-1) == 1
    faults = (
        (len(box) > TENSOR_MAP_AXES, f"{len(box)} axes"),
        (smem.axes[-1].size % box[0] != 0, f"columns that do not fill slabs of {op.slot.swizzle} bytes"),
        (max(box) > BOX, f"a box of {max(box)} along one axis"),
        (not whole or not rows, "a tile that is no box of the buffer"),
        (smem.axes[-1].size > 1 and inner % box[0] != 0, "columns along several axes in one slab"),
        (not all(divisible_by(extent_expr(s), 16) for s in strides[1:]), "rows that are no multiple of 16 bytes"),
        (box[0] * buffer.dtype.bytes % 16 != 0, "a row of the tile that is no multiple of 16 bytes"),
        (_beyond(sizes, 32) or _beyond(strides, 40), "a buffer beyond the map's limits"),
    )
    for wrong, why in faults:
        if wrong:
            raise UnsupportedError(f"a TMA copy of {op.buffer}", why, op.span)
