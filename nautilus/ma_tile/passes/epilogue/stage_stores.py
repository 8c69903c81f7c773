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

A warp then writes whole pieces of a row, with the widest vectors that the rows allow.  The stores of a kernel are
divided into pieces of 64 rows that are swizzled rows of 128 bytes, or of fewer where there is little room.  The pieces of one type alternate between two
stages of each consumer, so that each has one barrier: behind the barrier of the next piece, all threads have read this
one.  The first piece of a block of ops has a barrier before it, too.

Switch: ``WarpgroupPlan.epilogue``, other than ``direct``.  A store is not changed where

* it combines with what is in memory;
* the kernel has no warp roles (``specialise-warps``), because the barriers are those of consumers;
* its index or mask reads fragments, which would be in other threads;
* the accumulator is none of one consumer, or the stages do not fit beside the load pipelines;
* the sectors that a warp touches would not be fewer by :data:`GAIN`.
"""

from __future__ import annotations

from dataclasses import field, replace

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Ref, Var, walk
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpgroupPlan
from nautilus.core.text.names import fresh
from nautilus.core.tiles import TileAxis, TileType
from nautilus.ma_tile.analysis.access import contiguous_axis, vector_width
from nautilus.ma_tile.analysis.sectors import sectors
from nautilus.ma_tile.analysis.tma_boxes import SWIZZLES
from nautilus.ma_tile.ir.async_ops import CONSUMER, GROUP_WARPS, wg_acc_layout
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.ir.ops import (
    Frag,
    GlobalStore,
    MapOp,
    MemKernel,
    MemModule,
    MemOp,
    SharedLoad,
    SharedStore,
    SliceOp,
    Slot,
    Smem,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import each_kernel, rebuild, touch, warpgroup_plan_of
from nautilus.ma_tile.passes.copies.specialise_warps import obstacle
from nautilus.ma_tile.passes.epilogue.tma_stores import pipeline_bytes
from nautilus.ma_tile.passes.finalise.allocate_shared import reallocate
from nautilus.ma_tile.rewriting.named_barriers import consumer_barrier
from nautilus.ma_tile.rewriting.renaming import Names, Renaming, each_block, layout_name
from nautilus.ma_tile.verify.layout import same_map
from nautilus.targets.limits import limits

ROWS = 64  # of a piece: those of one instruction
GAIN = 0.75  # sectors that pieces of rows touch, at most, as a share of those of stores from registers


@dataclass(frozen=True, slots=True)
class StageStores:
    """``limit`` overrides the target's bytes of shared memory a block."""

    schedule: Schedule | None = None
    limit: int | None = None
    name = "stage-stores"

    def apply(self, module: MemModule) -> MemModule:
        limit = self.limit if self.limit is not None else limits(module.target).smem_block

        def one(k: MemKernel) -> MemKernel:
            plan = warpgroup_plan_of(self.schedule, k)
            return k if plan is None else stage_stores(k, module, plan, limit)

        return each_kernel(module, one)


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
    """A store of 64 rows along ``m`` and ``width`` columns along ``n``; ``rows`` is its layout behind the stage."""

    m: TileAxis
    n: TileAxis
    width: int
    vec: int
    rows: FragLayout


@dataclass(slots=True)
class _Stores:
    """The stores of one kernel. ``new``: the buffers, by the shape of their pieces."""

    kernel: MemKernel
    module: MemModule
    room: int
    consumers: int
    layouts: dict[str, FragLayout] = field(default_factory=dict)
    new: dict[tuple[object, ...], Smem] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.layouts = dict(self.kernel.layouts)
        self.names = Names(self.kernel).frags

    def store(self, op: GlobalStore) -> tuple[MemOp, ...]:
        """The ops that replace ``op``; their slots say the stage of the consumer, which :meth:`ordered` changes."""
        axes = self._accumulator(op)
        buffer = self.module.buffer(op.buffer)
        if axes is None or op.combiner is not None or _reads_tiles(op):
            return (op,)
        if contiguous_axis(buffer, op.index, (axes[0].name, axes[1].name), {}) != axes[1].name:
            return (op,)
        for width in _widths(axes[1], buffer):
            piece = self._piece(op, buffer, *axes, width)
            smem = None if piece is None else self._stage(op, buffer, piece)
            if piece is not None and smem is not None:
                return tuple(self._pieces(op, buffer, piece, smem))
        return (op,)

    def _accumulator(self, op: GlobalStore) -> tuple[TileAxis, TileAxis] | None:
        """Rows and columns of the value, if it is an accumulator of one consumer."""
        layout = self.layouts[op.value.layout]
        axes = [a for a in op.value.type.axes if a.size > 1]
        if len(axes) != 2 or layout.warps != GROUP_WARPS:
            return None
        for m, n in (axes, axes[::-1]):
            if m.size % ROWS == 0 and n.size % 8 == 0:
                if same_map(layout, wg_acc_layout(m.name, n.name, m.size, n.size)):
                    return m, n
        return None

    def _piece(self, op: GlobalStore, buffer: Buffer, m: TileAxis, n: TileAxis, width: int) -> _Piece | None:
        """Pieces of ``width`` columns, if their rows touch fewer sectors than the accumulator's."""
        most = min(16 // buffer.dtype.bytes, width & -width)
        vec = vector_width(buffer, op.index, op.mask, n.name, most, {}) if most > 1 else 1
        rows = _rows(m.name, n.name, width, vec)
        before = sectors(buffer, op.index, self.layouts[op.value.layout], op.vec)
        after = sectors(buffer, op.index, rows, vec)
        return _Piece(m, n, width, vec, rows) if after.waste <= GAIN * before.waste else None

    def _stage(self, op: GlobalStore, buffer: Buffer, piece: _Piece) -> Smem | None:
        """The buffer for such pieces: two stages a consumer; None where they do not fit."""
        axes = (TileAxis(piece.m.name, ROWS), TileAxis(piece.n.name, piece.width))
        key = (buffer.dtype, axes)
        if key not in self.new:
            name = fresh(f"rows_{op.buffer}", {s.name for s in (*self.kernel.smem, *self.new.values())})
            made = Smem(name, buffer.dtype, axes, 2 * self.consumers, piece.width * buffer.dtype.bytes)
            if made.bytes > self.room - sum(s.bytes for s in self.new.values()):
                return None
            self.new[key] = made
        return self.new[key]

    def _pieces(self, op: GlobalStore, buffer: Buffer, piece: _Piece, smem: Smem) -> list[MemOp]:
        out: list[MemOp] = []
        slot = Slot(smem.name, Var(CONSUMER), smem.swizzle)
        for row in range(0, piece.m.size, ROWS):
            part = self._sliced(out, op.value, piece.m, row, ROWS, piece)
            for column in range(0, piece.n.size, piece.width):
                value = self._sliced(out, part, piece.n, column, piece.width, piece)
                if value.type.dtype is not buffer.dtype:
                    cast = self._frag(value, f"{buffer.dtype}", replace(value.type, dtype=buffer.dtype), value.layout)
                    out.append(MapOp(cast, "cast", (value,), op.span))
                    value = cast
                layout = layout_name(self.layouts, piece.rows, f"rows_{piece.m.name}_{piece.n.name}")
                rows = self._frag(value, "rows", value.type, layout)
                starts = {piece.m.name: row, piece.n.name: column}
                moved: dict[str, Expr] = {axis: calc("add", Var(axis), start) for axis, start in starts.items() if start}
                store = Renaming({op.value.name: rows}, moved).op(replace(op, vec=piece.vec))
                out += [
                    SharedStore(slot, value, min(2, 16 // buffer.dtype.bytes), span=op.span),
                    consumer_barrier(),
                    SharedLoad(rows, slot, piece.vec, op.span),
                    store,
                ]
        return out

    def _sliced(self, out: list[MemOp], value: Frag, axis: TileAxis, start: int, size: int, piece: _Piece) -> Frag:
        """The ``size`` positions of ``value`` along ``axis`` from ``start`` on."""
        if axis.size == size:
            return value
        axes = tuple(TileAxis(a.name, size) if a.name == axis.name else a for a in value.type.axes)
        sizes = {a.name: a.size for a in axes}
        layout = wg_acc_layout(piece.m.name, piece.n.name, sizes[piece.m.name], sizes[piece.n.name])
        name = layout_name(self.layouts, layout, f"{value.layout}_{size}")
        part = self._frag(value, f"{start}", TileType(value.type.dtype, axes), name)
        out.append(SliceOp(part, value, axis.name, start))
        return part

    def _frag(self, like: Frag, suffix: str, type_: TileType, layout: str) -> Frag:
        return Frag(fresh(f"{like.name}_{suffix}", self.names), type_, layout)

    def placed(self, body: tuple[MemOp, ...]) -> tuple[MemOp, ...]:
        """``body``, a block of ops, whose pieces alternate between the two stages of their buffer.

        The stage of the piece before is not known where ``body`` begins, and behind an op that has pieces inside.
        """
        ours = {s.name for s in self.new.values()}
        count: dict[str, int] = {}
        out: list[MemOp] = []
        for op in body:
            if any(touch(x).writes and touch(x).writes[0].buffer in ours for x in walk_ops((op,)) if x is not op):
                count.clear()
            if isinstance(op, SharedStore | SharedLoad) and op.slot.buffer in ours:
                name = op.slot.buffer
                out += [consumer_barrier()] if name not in count else []
                number = count.setdefault(name, 0)
                stage = simplify(calc("add", calc("mul", Var(CONSUMER), 2), number % 2))
                count[name] = number + isinstance(op, SharedLoad)
                op = replace(op, slot=replace(op.slot, stage=stage))
            out.append(op)
        return tuple(out)


def _widths(n: TileAxis, buffer: Buffer) -> list[int]:
    """Columns of pieces whose rows are one swizzled row each, and that divide those of the tile; the widest first."""
    widths = [row // buffer.dtype.bytes for row in SWIZZLES]
    return [w for w in widths if n.size % w == 0 and w % 8 == 0]


def _rows(m: str, n: str, width: int, vec: int) -> FragLayout:
    """Pieces by rows: lanes along a row first.  A warp has the rows that it has in the accumulator."""
    lanes = min(32, width // vec)
    down = 32 // lanes
    reg = (Mode(vec, n, 1), Mode(width // (vec * lanes), n, vec * lanes), Mode(ROWS // (GROUP_WARPS * down), m, down))
    lane = (Mode(lanes, n, vec), Mode(down, m, 1))
    used = tuple(x for x in reg if x.size > 1), tuple(x for x in lane if x.size > 1)
    return FragLayout(*used, (Mode(GROUP_WARPS, m, ROWS // GROUP_WARPS),))


def _reads_tiles(op: GlobalStore) -> bool:
    """Whether the place or the condition of a stored element reads fragments."""
    exprs = op.index if op.mask is None else (*op.index, op.mask)
    return any(isinstance(n, Ref) for e in exprs for n in walk(e))
