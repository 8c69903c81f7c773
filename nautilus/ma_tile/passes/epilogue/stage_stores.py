"""Stores accumulators row by row, where a store from registers writes parts of sectors.

A warp holds eight rows of an accumulator and a few columns of each, so a store from registers writes 8 to 32 bytes of
a row.  Where rows of the result begin anywhere in a sector, or elements have one byte, these are parts of sectors,
which take several times as long to write (:mod:`nautilus.ma_tile.analysis.sectors`).  TMA stores (``tma-stores``, which
runs before) need rows of multiples of 16 bytes and elements of 16 bits.  Every other store of a warpgroup's
accumulator is changed so::

    st.global C[i0 + i, j0 + j], %c            %c_f16 = cast %c
                                               st.shared rows_C[2 * consumer], %c_f16
                                               barrier (1 + consumer), 128
                                               %c_rows = ld.shared rows_C[2 * consumer]
                                               st.global C[i0 + i, j0 + j], %c_rows

A warp then writes whole pieces of a row, with the widest vectors that the rows allow.  A piece has 64 rows or columns
of the accumulator and as many bytes along the tensor's last axis as a swizzled row: 128, or fewer where there is little
room.  The pieces of one shape and type alternate between two stages of each consumer, so that each has one barrier:
after the barrier of the next piece, all threads have read this one.  The first piece of a block of ops has a barrier
before it, too.

Rows that do not begin at multiples of 16 bytes are stored from the stage in vectors that are aligned in memory
(:mod:`nautilus.ma_tile.ir.row_store`)::

                                               st.rows rows_C[consumer], C[i0 + i, j0 + j]

The ends of each row write parts of sectors, so these pieces are as long along the tensor's last axis as there is room.
Where there is room for one stage only, each piece has two barriers.

Switch: ``WarpgroupPlan.epilogue``, other than ``direct``.  A store is not changed where

* it combines with what is in memory;
* the kernel has no warp roles (``specialise-warps``), because the barriers are those of consumers;
* its index or mask reads fragments, which would be in other threads;
* the accumulator is none of one consumer, or the stages do not fit beside the load pipelines;
* the sectors that a warp touches would not be fewer by :data:`GAIN`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from math import gcd

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Ref, Var, walk
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpgroupPlan
from nautilus.core.text.names import fresh
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.access import contiguous_axis, is_contiguous, vector_width
from nautilus.ma_tile.analysis.sectors import sectors
from nautilus.ma_tile.analysis.tma_boxes import SWIZZLES
from nautilus.ma_tile.ir.async_ops import CONSUMER, GROUP_WARPS
from nautilus.ma_tile.ir.instruction_tables import wg_acc_layout
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.ir.ops import (
    Frag,
    GlobalStore,
    MapOp,
    MemKernel,
    MemModule,
    MemOp,
    RowStore,
    SharedLoad,
    SharedStore,
    SliceOp,
    Slot,
    Smem,
    walk_ops,
)
from nautilus.ma_tile.ir.row_store import in_rows, is_range
from nautilus.ma_tile.ir.traverse import each_planned_kernel, rebuild, touch
from nautilus.ma_tile.passes.copies.specialise_warps import obstacle
from nautilus.ma_tile.passes.epilogue.tma_stores import pipeline_bytes
from nautilus.ma_tile.passes.finalise.allocate_shared import reallocate
from nautilus.ma_tile.rewriting.named_barriers import consumer_barrier
from nautilus.ma_tile.rewriting.renaming import Names, Renaming, each_block, layout_name
from nautilus.ma_tile.verify.layout import same_map
from nautilus.targets.limits import VECTOR_BYTES, WGMMA_ROWS, limits

PAD = 16  # bytes between rows that are not swizzled, which puts eight of them into different banks
LEAST = 128  # bytes of rows that begin anywhere
GAIN = 0.75  # sectors that pieces of rows touch, at most, as a share of those of stores from registers


@dataclass(frozen=True, slots=True)
class StageStores:
    """``limit`` overrides the target's bytes of shared memory a block."""

    schedule: Schedule | None = None
    limit: int | None = None
    name = "stage-stores"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` whose accumulators are stored by rows."""
        limit = self.limit if self.limit is not None else limits(module.target).smem_block

        return each_planned_kernel(module, self, WarpgroupPlan, lambda k, plan: stage_stores(k, module, plan, limit))


def stage_stores(kernel: MemKernel, module: MemModule, plan: WarpgroupPlan, limit: int) -> MemKernel:
    """``kernel`` with its accumulators stored by rows where that writes fewer sectors."""
    if plan.epilogue == "direct" or not plan.warp_specialised or obstacle(kernel) is not None:
        return kernel
    consumers = plan.warpgroups if plan.is_pingpong else kernel.consumers
    work = _Stores(kernel, module, limit - pipeline_bytes(kernel, plan), consumers)
    body = rebuild(kernel.body, lambda op: work.store(op) if isinstance(op, GlobalStore) else (op,))
    if not work.new:
        return kernel
    smem = (*kernel.smem, *work.new.values())
    staged = replace(kernel, layouts=work.layouts, smem=smem, body=each_block(body, work.placed))
    return reallocate(staged, limits(module.target))


@dataclass(frozen=True, slots=True)
class _Piece:
    """A store of part of an accumulator of rows ``m`` and columns ``n``: of ``down`` rows and ``across`` columns.

    ``axes``: of the stage, the last one is contiguous in the tensor; ``layout``: after the stage; ``anywhere``: rows
    begin anywhere in memory.
    """

    m: TileAxis
    n: TileAxis
    down: int
    across: int
    vec: int
    axes: tuple[TileAxis, TileAxis]
    layout: FragLayout
    anywhere: bool = False


@dataclass(slots=True)
class _Stores:
    """The stores of one kernel. ``new``: the buffers, by type and axes."""

    kernel: MemKernel
    module: MemModule
    room: int
    consumers: int
    layouts: dict[str, FragLayout] = field(default_factory=dict)
    new: dict[tuple[DType, tuple[TileAxis, TileAxis], bool], Smem] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.layouts = dict(self.kernel.layouts)
        self.names = Names(self.kernel).frags

    def store(self, op: GlobalStore) -> tuple[MemOp, ...]:
        """The ops that replace ``op``; :meth:`placed` chooses the stages of their slots."""
        found = self._accumulator(op)
        if found is None or op.combiner is not None or _reads_tiles(op):
            return (op,)
        buffer = self.module.buffer(op.buffer)
        before = sectors(buffer, op.index, self.layouts[op.value.layout], op.vec)
        for piece in _candidates(op, buffer, *found):
            gains = piece.anywhere or sectors(buffer, op.index, piece.layout, piece.vec).waste <= GAIN * before.waste
            smem = self._stage(op, buffer, piece) if gains else None
            if smem is not None:
                return tuple(self._pieces(op, buffer, piece, smem))
        return (op,)

    def _accumulator(self, op: GlobalStore) -> tuple[TileAxis, TileAxis] | None:
        """Rows and columns of the value, if it is an accumulator of one consumer."""
        layout = self.layouts[op.value.layout]
        axes = [a for a in op.value.type.axes if a.size > 1]
        if len(axes) != 2 or layout.warps != GROUP_WARPS:
            return None
        for m, n in (axes, axes[::-1]):
            whole = m.size % WGMMA_ROWS == 0 and n.size % 8 == 0
            if whole and same_map(layout, wg_acc_layout(m.name, n.name, m.size, n.size)):
                return m, n
        return None

    def _stage(self, op: GlobalStore, buffer: Buffer, piece: _Piece) -> Smem | None:
        """The buffer for such pieces: two stages a consumer, or one; None where they do not fit."""
        key = (buffer.dtype, piece.axes, piece.anywhere)
        if key not in self.new:
            row = piece.axes[1].size * buffer.dtype.bytes
            swizzle, pad = (row, 0) if row in SWIZZLES else (0, PAD)
            if piece.anywhere:
                swizzle, pad = 0, PAD * max(1, buffer.dtype.bytes // 2)
            name = fresh(f"rows_{op.buffer}", {s.name for s in (*self.kernel.smem, *self.new.values())})
            made = Smem(name, buffer.dtype, piece.axes, 2 * self.consumers, swizzle, pad)
            room = self.room - sum(s.bytes for s in self.new.values())
            if made.bytes > room and piece.anywhere:
                made = replace(made, stages=self.consumers)
            if made.bytes > room:
                return None
            self.new[key] = made
        return self.new[key]

    def _pieces(self, op: GlobalStore, buffer: Buffer, piece: _Piece, smem: Smem) -> Iterator[MemOp]:
        """Each piece: its slice of the accumulator, rounded, to the stage, and from there to memory."""
        slot = Slot(smem.name, Var(CONSUMER), smem.swizzle)
        layout = layout_name(self.layouts, piece.layout, f"rows_{piece.axes[0].name}_{piece.axes[1].name}")
        along = piece.axes[1].name == piece.n.name
        for row in range(0, piece.m.size, piece.down):
            whole = self._slice(op.value, piece.m, row, piece.down, piece)
            for column in range(0, piece.n.size, piece.across):
                part = self._slice(whole.result, piece.n, column, piece.across, piece)
                yield from () if column else whole.ops
                yield from part.ops
                value = part.result
                if value.type.dtype is not buffer.dtype:
                    cast = self._frag(value, str(buffer.dtype), replace(value.type, dtype=buffer.dtype), value.layout)
                    yield MapOp(cast, "cast", (value,), op.span)
                    value = cast
                starts = ((piece.m.name, row), (piece.n.name, column))
                moved: dict[str, Expr] = {axis: calc("add", Var(axis), start) for axis, start in starts if start}
                yield SharedStore(slot, value, 2 if along and buffer.dtype.bytes <= 4 else 1, span=op.span)
                yield consumer_barrier()
                if piece.anywhere:
                    place = Renaming({}, moved)
                    index, mask = tuple(map(place.expr, op.index)), None if op.mask is None else place.expr(op.mask)
                    yield RowStore(slot, op.buffer, index, mask, layout, op.span)
                    continue
                rows = self._frag(value, "rows", value.type, layout)
                yield SharedLoad(rows, slot, piece.vec, op.span)
                yield Renaming({op.value.name: rows}, moved).op(replace(op, vec=piece.vec))

    def _slice(self, value: Frag, axis: TileAxis, start: int, size: int, piece: _Piece) -> _Part:
        """The ``size`` positions of ``value`` along ``axis`` from ``start`` on."""
        if axis.size == size:
            return _Part(value)
        axes = tuple(TileAxis(a.name, size) if a.name == axis.name else a for a in value.type.axes)
        sizes = {a.name: a.size for a in axes}
        layout = wg_acc_layout(piece.m.name, piece.n.name, sizes[piece.m.name], sizes[piece.n.name])
        name = layout_name(self.layouts, layout, f"{value.layout}_{size}")
        part = self._frag(value, f"{start}", TileType(value.type.dtype, axes), name)
        return _Part(part, (SliceOp(part, value, axis.name, start),))

    def _frag(self, like: Frag, suffix: str, type_: TileType, layout: str) -> Frag:
        return Frag(fresh(f"{like.name}_{suffix}", self.names), type_, layout)

    def placed(self, body: tuple[MemOp, ...]) -> tuple[MemOp, ...]:
        """``body``, a block of ops, whose pieces alternate between the stages of their buffer.

        The stage of the piece before is not known where ``body`` begins, and after an op that has pieces inside.
        """
        ours = {s.name: s.stages // self.consumers for s in self.new.values()}
        count: dict[str, int] = {}
        out: list[MemOp] = []
        for op in body:
            if any(touch(x).writes and touch(x).writes[0].buffer in ours for x in walk_ops((op,)) if x is not op):
                count.clear()
            if isinstance(op, SharedStore | SharedLoad | RowStore) and op.slot.buffer in ours:
                name, stages = op.slot.buffer, ours[op.slot.buffer]
                waits = name not in count or (stages == 1 and isinstance(op, SharedStore))
                out += [consumer_barrier()] if waits else []
                number = count.setdefault(name, 0)
                stage = simplify(calc("add", calc("mul", Var(CONSUMER), stages), number % stages))
                count[name] = number + (not isinstance(op, SharedStore))
                op = replace(op, slot=replace(op.slot, stage=stage))
            out.append(op)
        return tuple(out)


@dataclass(frozen=True, slots=True)
class _Part:
    """A value, and the ops that make it."""

    result: Frag
    ops: tuple[MemOp, ...] = ()


def _candidates(op: GlobalStore, buffer: Buffer, m: TileAxis, n: TileAxis) -> Iterator[_Piece]:
    """Pieces of ``op``, those with the longest rows first."""
    size = buffer.dtype.bytes
    last = contiguous_axis(buffer, op.index, (m.name, n.name), {})
    if last is not None and size <= 4 and is_range(op.mask, last) and _begins_anywhere(op, buffer, last):
        yield from _rows_anywhere(m, n, last, size)
    for width in (row // size for row in SWIZZLES):
        if last is None or n.size % width or width % 8:
            continue
        outer, inner = TileAxis(m.name, WGMMA_ROWS), TileAxis(n.name, width)
        axes = (outer, inner) if last == n.name else (inner, outer)
        most = min(16 // size, axes[1].size) if size <= 4 else 1
        vec = vector_width(buffer, op.index, op.mask, last, most, {}) if most > 1 else 1
        layout = _by_rows(*axes, vec)
        if layout is not None:
            yield _Piece(m, n, WGMMA_ROWS, width, vec, axes, layout)


def _begins_anywhere(op: GlobalStore, buffer: Buffer, last: str) -> bool:
    """Whether rows are contiguous and may begin at other places than multiples of 16 bytes."""
    vec = VECTOR_BYTES // buffer.dtype.bytes
    return is_contiguous(buffer, op.index, last) and vector_width(buffer, op.index, None, last, vec, {}) < vec


def _rows_anywhere(m: TileAxis, n: TileAxis, last: str, size: int) -> Iterator[_Piece]:
    """Pieces whose rows begin anywhere, those with the longest rows first."""
    vec, down = VECTOR_BYTES // size, WGMMA_ROWS if last == n.name else m.size
    for across in (n.size // parts for parts in (1, 2, 3, 4, 6, 8) if n.size % (8 * parts) == 0):
        outer, inner = TileAxis(m.name, down), TileAxis(n.name, across)
        axes = (outer, inner) if last == n.name else (inner, outer)
        layout = _by_rows(*axes, vec) if axes[1].size * size >= LEAST and axes[1].size % vec == 0 else None
        if layout is not None and in_rows(layout, last, vec):
            yield _Piece(m, n, down, across, vec, axes, layout, True)


def _by_rows(outer: TileAxis, inner: TileAxis, vec: int) -> FragLayout | None:
    """Vectors and lanes along ``inner`` first; warps along ``outer``, with neighbouring rows each."""
    lanes = gcd(32, inner.size // vec)
    down = 32 // lanes
    if outer.size % (GROUP_WARPS * down):
        return None
    each = outer.size // GROUP_WARPS
    along = (Mode(vec, inner.name, 1), Mode(inner.size // (vec * lanes), inner.name, vec * lanes))
    reg = (*along, Mode(each // down, outer.name, down))
    lane = (Mode(lanes, inner.name, vec), Mode(down, outer.name, 1))
    warp = (Mode(GROUP_WARPS, outer.name, each),)
    return FragLayout(tuple(x for x in reg if x.size > 1), tuple(x for x in lane if x.size > 1), warp)


def _reads_tiles(op: GlobalStore) -> bool:
    """Whether the place or the condition of a stored element reads fragments."""
    exprs = op.index if op.mask is None else (*op.index, op.mask)
    return any(isinstance(n, Ref) for e in exprs for n in walk(e))
