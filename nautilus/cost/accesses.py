"""What accesses of warps to memory cost beside their bytes.

Loads: lines of L1 that each instruction touches, and sectors that a block moves from L2.  Stores: instructions, sectors
that they write in part, and atomic operations that wait for each other.  Shared memory: wavefronts, which conflicts of
banks add.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from nautilus.core.buffers import Buffer
from nautilus.core.expr.nodes import Const, Expr, Param, Ref, Var, free_vars, loads, refs, rewrite, walk
from nautilus.core.index.linear import linear
from nautilus.core.index.sizes import nominal, volume
from nautilus.core.index.strides import pad
from nautilus.core.ops import declaration
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileAxis
from nautilus.core.types import DType
from nautilus.cost.estimates import estimated
from nautilus.ma_tile.analysis.access import offset
from nautilus.ma_tile.analysis.sectors import ENDS, LINE, sectors
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.layout import WAVEFRONT, FragLayout, wavefronts
from nautilus.ma_tile.ir.ops import Frag, GlobalLoad, GlobalStore, MemKernel, TmaLoad, walk_ops
from nautilus.ma_tile.ir.traverse import bound
from nautilus.ma_tile.ir.values import Smem
from nautilus.targets.limits import VECTOR_BYTES
from nautilus.targets.memory_rates import ATOMIC_LINES, OUTSIDE, SECTOR, SHARED_ATOMIC, SPLIT, split_rows

REQUEST = 0.75  # share of the time of a sector alone in its line that its neighbours in the line do not take again
COMBINED = 8  # sectors written in part, as which an instruction that combines 32 neighbouring elements counts
SCATTERED = 36  # the same of elements anywhere: 95e9 a second on an H200 (histogram of 65536 counters)
_SCHEDULERS = 4  # warp instructions that a multiprocessor begins in a cycle
_CACHED = 4 << 20  # bytes of a tensor that stays in L2
#: bytes that memory loads in the time in which it begins a row of less than a line: copies load neighbouring parts of
#: the line at different times (H200, weights of few bits: rows of 16, 32, 64 bytes 1.1, 1.6, 2.4 TB/s)
_BEGIN = 48.0
_SHIFT, _ELEMENT = 40, 16  # instructions of an aligned vector of a row, and of an element at its ends


@dataclass(frozen=True, slots=True)
class StoreWork:
    """The work of a store: warp instructions, sectors written in part, and requests for each line that combines."""

    issue: float = 0.0
    sectors: float = 0.0
    meets: float = 0.0


def store_work(buffer: Buffer, op: GlobalStore, kernel: MemKernel, warps: int) -> StoreWork:
    """The work of ``op`` of ``kernel`` in ``buffer``, in ``warps`` warps.

    A request is that of a lane where values decide about its place, and that of a warp where lanes have neighbours.
    """
    layout = kernel.layouts[op.value.layout]
    count, words = warps * layout.registers / max(1, op.vec), buffer.dtype.bytes / 4
    if op.scratch is not None:
        return StoreWork(issue=count * words * SHARED_ATOMIC * _SCHEDULERS)
    if op.combiner is not None:
        lines = min(ATOMIC_LINES, max(1, prod(nominal(n) for n in buffer.shape) * buffer.dtype.bytes // LINE))
        each, sectors_each = (32, SCATTERED) if refs(op.index[-1]) else (1, COMBINED)
        return StoreWork(sectors=count * sectors_each * words, meets=count * each * words / lines)
    found = sectors(buffer, op.index, layout, op.vec)
    return StoreWork(issue=2 * count, sectors=count * found.part)


def copy_work(buffer: Buffer, op: ma.AsyncCopy, layout: FragLayout, elements: int) -> tuple[float, float]:
    """The instructions of a copy of ``elements`` by all warps, and the cycles in which L1 looks up their lines."""
    count = elements / max(1, op.vec) / 32
    if any(refs(e) for e in op.index):  # vectors of rows that an element chooses
        return count, count * op.vec * buffer.dtype.bytes * 32 / LINE
    each = sectors(buffer, op.index, layout, op.vec)
    return count, count * max(each.finds, each.size / LINE)


def row_work(stage: Smem) -> StoreWork:
    """The work of a store of the rows of ``stage``."""
    size = prod(a.size for a in stage.axes) * stage.dtype.bytes
    rows = prod(a.size for a in stage.axes[:-1])
    ends = rows * VECTOR_BYTES / stage.dtype.bytes / 32
    return StoreWork(issue=size / VECTOR_BYTES / 32 * _SHIFT + ends * _ELEMENT, sectors=rows * ENDS)


def with_strides(buffer: Buffer) -> Buffer:
    """``buffer`` with numbers for strides that are known only at launch: those that leave a gap after each axis."""
    if buffer.strides is None or all(isinstance(n, int) for n in buffer.strides):
        return buffer
    own = [n for n in buffer.strides if not isinstance(n, Param)]
    computed = (n for n in (*buffer.shape, *own) if not isinstance(n, int))
    sizes = {p.name: nominal(p) for n in computed for p in walk(n) if isinstance(p, Param)}
    return replace(buffer, strides=pad([nominal(n) for n in buffer.shape], buffer.strides, sizes))


def shared_bytes(
    op: ma.SharedLoad | ma.SharedStore | ma.MatrixLoad | ma.MatrixStore, stage: Smem, layout: FragLayout
) -> int:
    """The bytes that ``op`` moves for a warp, at least those that its wavefronts could."""
    size = layout.registers * stage.dtype.bytes * 32
    if isinstance(op, ma.SharedLoad | ma.SharedStore):
        return max(size, WAVEFRONT * wavefronts(stage.layout(op.slot.swizzle), stage.axes, layout, op.vec))
    return size


class PlainLoads:
    """The sectors that loads into registers move, counted in the order of the kernel's ops.

    ``moved``: bytes of sectors a tile, by buffer.  ``gathered``: the same of elements whose places are read.
    ``anywhere``: a whole sector for each element that is read from a place of its own.
    """

    def __init__(self, kernel: MemKernel) -> None:
        self.moved: dict[str, float] = {}
        self.gathered: dict[str, float] = {}
        self.anywhere: dict[str, float] = {}
        self._places, self._read, self._layouts = _places(kernel), _read_values(kernel), kernel.layouts
        self._near: dict[object, float] = {}

    def enter(self) -> dict[object, float]:
        """Begin a body; returns the sectors that the body around it has moved, by their place, for ``leave``."""
        around, self._near = self._near, {}
        return around

    def leave(self, around: dict[object, float]) -> None:
        """End a body; ``around``: the result of ``enter``."""
        self._near = around

    def add(self, buffer: Buffer, op: GlobalLoad, times: float, alone: float) -> float:
        """Count the sectors of ``op``, and return the cycles in which L1 looks up its lines for one warp.

        ``alone``: the bytes of whole sectors of its elements, where each is read from a place of its own, else 0.
        L1 finds a line of an instruction in a cycle.  What one instruction leaves of a sector, later ones of the warp
        find in L1, and so do loads of the same body from other columns of rows of one sector.  Of the lines of a small
        table, lanes that choose anywhere choose some several times.
        """
        if alone:
            self.anywhere[op.buffer] = self.anywhere.get(op.buffer, 0.0) + times * alone
        layout = self._layouts[op.result.layout]
        index = tuple(rewrite(e, self._position) for e in op.index)
        whole = sectors(buffer, index, layout, layout.registers, self._places)
        each = sectors(buffer, index, layout, op.vec, self._places)
        most = -(-nominal(volume(buffer.shape)) * buffer.dtype.bytes // LINE)
        used = {a for e in index for x in (e, *(y for n in refs(e) for y in self._places[n])) for a in free_vars(x)}
        warps = prod(m.size for m in layout.warp if m.axis in used)
        found = min(whole.touched * warps, most * (LINE // SECTOR))
        form = offset(buffer, index)
        place = op.buffer, frozenset(form.terms.items()), round(form.const * buffer.dtype.bytes / SECTOR)
        known = self._near.get(place, 0.0)
        self._near[place] = max(found, known)
        asked = 1.0 - REQUEST + REQUEST * each.lines / each.touched
        gathers = any(refs(e) or loads(e) for e in index)
        moved = self.gathered if gathers else self.moved
        moved[op.buffer] = moved.get(op.buffer, 0.0) + times * asked * max(0.0, found - known) * SECTOR
        vectors = layout.registers / max(1, op.vec) * (1 if op.shift is None else 2)
        steps = each.finds / each.lines
        lines = most * (1.0 - (1.0 - 1.0 / most) ** each.lines) if gathers else min(each.lines, most)
        return float(vectors * max(lines * steps, each.size / LINE))

    def _position(self, e: Expr) -> Expr | None:
        """The position of an element for a value in an index that depends on no memory: neighbours have neighbours."""
        if not isinstance(e, Ref) or e.name in self._read:
            return None
        along = [x for place in self._places[e.name] for x in free_vars(place)]
        return Var(along[-1], e.dtype) if along else Const(0, e.dtype)


def _read_values(kernel: MemKernel) -> frozenset[str]:
    """The values of ``kernel`` that depend on memory, or that loops carry."""
    out = set[str]()
    for op in walk_ops(kernel.body):
        of_memory = isinstance(op, GlobalLoad | ma.SharedLoad | ma.MatrixLoad | ma.ForOp)
        if of_memory or any(isinstance(x, Frag) and x.name in out for x in declaration(type(op)).operands(op)):
            out |= {f.name for f in bound(op)}
    return frozenset(out)


def _places(kernel: MemKernel) -> dict[str, tuple[Expr, ...]]:
    """For each value of ``kernel`` expressions of its axes: where they are equal, elements of the value are equal."""
    out: dict[str, tuple[Expr, ...]] = {}
    for op in walk_ops(kernel.body):
        for f in bound(op):
            found: tuple[Expr, ...] = tuple(Var(a, DType.I32) for a in f.type.names)
            if isinstance(op, GlobalLoad) and not any(refs(e) or loads(e) for e in op.index):
                found = op.index
            elif isinstance(op, ma.MapOp):
                found = tuple(dict.fromkeys(e for x in op.args for e in out.get(x.name, found)))
            out[f.name] = found
    return out


def alone(buffer: Buffer, op: GlobalLoad, axes: Mapping[str, tuple[str, ...]]) -> float:
    """Bytes that an element of ``op`` moves beside its own, where a loaded value decides about each element's place.

    ``axes``: those of values by their names.  Rows that a value chooses are read along their contiguous axis.  A value
    that chooses in a row of few bytes, such as a table of 16 weights, chooses elements of sectors that others read.
    """
    last = op.index[-1] if op.index else None
    row = nominal(buffer.shape[-1]) * buffer.dtype.bytes if op.index else 0
    if row <= SECTOR and not any(refs(e) for e in op.index[:-1]):
        return 0.0
    chosen = {x for e in op.index for name in refs(e) for x in axes.get(name, ())}
    rows = {a.name for a in op.result.type.axes} - chosen
    near = last is not None and not refs(last) and bool(free_vars(last) & rows)
    return 0.0 if not chosen or near else float(SECTOR - buffer.dtype.bytes)


def shares_loads(kernel: MemKernel) -> bool:
    """Whether the blocks of a cluster share loads (pass ``multicast-loads``)."""
    return any(isinstance(op, TmaLoad) and op.multicast > 1 for op in walk_ops(kernel.body))


def box_rows(op: TmaLoad, axes: Sequence[TileAxis], buffer: Buffer, env: Mapping[str, Any]) -> Any:
    """The time of the rows of a TMA box, relative to that of rows which the tensor has; TMA fills others with zeros.

    Rows that the tensor has in part take as long as others (two convolutions of windows: 5.8 and 6.2 cycles).  Whole
    rows were measured for matrices; boxes of images with a border take no longer.  Rows that lie in two lines of memory
    take as long (rows in part were measured together with these).  Each block of a cluster that shares the box loads
    its part.
    """
    cut = max(_cut_rows(op, axes, buffer), _split_rows(op, axes, buffer) * (SPLIT - 1.0) / (OUTSIDE - 1.0))
    if len(op.index) > 2:
        return (1.0 + (OUTSIDE - 1.0) * cut) / op.multicast
    sizes = {a.name: a.size for a in axes}
    inside: Any = 1.0
    for e, extent in zip(op.index[:-1], buffer.shape[:-1], strict=True):
        size = prod(sizes[x] for x in free_vars(e) if x in sizes)
        if size == 1:
            continue  # one position, which may be read from a tensor
        low = np.asarray(estimated(e, {**env, **dict.fromkeys(sizes, np.asarray(0))}), np.float64)
        found = np.minimum(low + size, nominal(extent)) - np.maximum(low, 0.0)
        inside = inside * np.clip(found / size, 0.0, 1.0)
    return (1.0 + (OUTSIDE - 1.0) * (1.0 - inside * (1.0 - cut))) / op.multicast


def _split_rows(op: TmaLoad, axes: Sequence[TileAxis], buffer: Buffer) -> float:
    """The share of the rows in shared memory that a box fills whose elements lie in two lines of memory."""
    size = buffer.dtype.bytes
    row = op.slot.swizzle or min(LINE, axes[-1].size * size)
    strides = (buffer.stride(i) for i in range(len(buffer.shape) - 1))
    begin = int(linear(op.index[-1]).const) * size if op.index else 0
    return split_rows(row, [nominal(n) * size for n in strides], begin)


def _cut_rows(op: TmaLoad, axes: Sequence[TileAxis], buffer: Buffer) -> float:
    """The share of the rows in shared memory that a box fills, of whose elements the tensor does not have all."""
    size = axes[-1].size
    row = op.slot.swizzle // buffer.dtype.bytes if op.slot.swizzle else size
    whole = min(size, nominal(buffer.shape[-1])) // row
    return 1.0 - whole * row / size if box_share(op, axes, buffer) < 1.0 else 0.0


def box_share(op: TmaLoad, axes: Iterable[TileAxis], buffer: Buffer) -> float:
    """The share of the rows of a TMA box that the tensor has, where its rows are shorter: the rest is not read."""
    last, sizes = op.index[-1], {a.name: a.size for a in axes}
    if isinstance(last, Var) and last.name in sizes:
        return min(1.0, nominal(buffer.shape[-1]) / sizes[last.name])
    return 1.0


def unmasked_share(mask: Expr | None, env: Mapping[str, Any], axes: Iterable[TileAxis]) -> Any:
    """The share of unmasked elements at position 0 of a tile or, after a border, in its middle; most are whole."""
    middle = {**env, **{a.name: np.asarray(a.size // 2) for a in axes}}
    return 1.0 if mask is None else 1.0 * np.maximum(estimated(mask, env), estimated(mask, middle))


def row_overhead(stage: Smem, buffer: Buffer) -> float:
    """Bytes that memory would load in the time in which it begins the short rows of a ``stage`` of bytes."""
    row, tensor = stage.axes[-1].size * stage.dtype.bytes, nominal(volume(buffer.shape))
    short = stage.dtype.bytes == 1 and tensor > _CACHED and row < LINE
    return stage.stage_bytes * (_BEGIN / row - _BEGIN / LINE) if short else 0.0
