"""Matrix products of single warps: operands through cp.async and ldmatrix (``sm_80`` class).

A loaded tile that feeds a dot unchanged is copied to shared memory asynchronously; a computed one
becomes an operand fragment when that is a permutation inside each thread, else it is stored to shared
memory.  Values move between threads through shared memory as well.  The ops come out without waits or
barriers.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cached_property
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.build import ZERO
from nautilus.core.index.sizes import nominal, volume
from nautilus.core.schedule import WarpPlan
from nautilus.core.tiles import TileAxis, TileType
from nautilus.ma_tile.analysis.access import contiguous_axis, vector_width
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.instruction_tables import MMA, operand_types
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import Frag, MemKernel, Slot
from nautilus.ma_tile.ir.scan import state_matrix
from nautilus.ma_tile.lowering.builder import Builder
from nautilus.ma_tile.lowering.dots import DotPlan, as_operand, plan_dots, unwidened
from nautilus.ma_tile.lowering.exchange import (
    LOADS,
    LOOPED,
    OPERANDS,
    STORES,
    WIDE,
    Access,
    Staging,
    stage_between,
    whole_sectors,
)
from nautilus.ma_tile.lowering.grid import decode_grid
from nautilus.ma_tile.lowering.layouts import canonical, spread
from nautilus.ma_tile.lowering.operands.computed_operands import operand_of, turned, users
from nautilus.ma_tile.lowering.operands.shared_tiles import positions_of
from nautilus.ma_tile.lowering.operands.sliced_sums import all_slices, operand_layout
from nautilus.ma_tile.lowering.ops import Entry, Lowering
from nautilus.ma_tile.lowering.staging import CopyPlan, pad_for, place, plan_copy, shared_vec, spill_axes, spill_place
from nautilus.targets.limits import VECTOR_BYTES, WARP, WORD, held_registers
from nautilus.vr_tile import ir as vr
from nautilus.vr_tile.ir import TileKernel, Value

VECTOR = 512  # largest number of elements of a vector that is copied with the operands of a loop
SHARED = 4  # threads that read each of its elements, at least
BYTE = 8  # bits of an element of a matrix that is copied ahead of the work on it
FEW_LINES, MANY_BLOCKS = 1 << 14, 512  # bytes of a tensor, and blocks that read it, with which it is hot
MANY_ROWS = 32  # rows for which scaled matrices of bytes are copied ahead
BYTES_AHEAD = 8  # of its elements that one thread copies at a time, at least
_SLICES = "slices"  # the purpose of a slot with partial results
THREADS = 1024  # that a multiprocessor has at once where blocks scan states: 64 registers each
STEADY, VARYING = 32, 16  # states of a thread that these registers hold: with one matrix, and with one of each step
_PADS = (0, 8, 32)  # bytes after rows of partial results


def lower_warp_kernel(
    kernel: TileKernel, buffers: dict[str, Buffer], mapping: WarpPlan, short: bool = True, room: int = 0
) -> MemKernel:
    """One kernel. ``mapping.warps`` is the wanted warp grid; tiles that do not fit it get another.

    ``short``: also by instructions whose sums have few bits.  ``room``: bytes of shared memory for tiles that change
    their layout on the way between registers and memory.
    """
    dots = plan_dots(kernel, mapping, short)
    dots = turned(kernel, buffers, mapping, dots) if mapping.combine_in_block else dots
    work = _WarpLowering(kernel, buffers, mapping, dots, mapping.warps)
    work.room = room
    work.block(kernel.body)
    blocks, decode = decode_grid(kernel, replace(mapping, raster_order="natural") if kernel.team > 1 else mapping)
    b = work.b
    if kernel.spread > 1 and (b.smem or b.warps % kernel.spread):
        reason = f"its {b.warps} warps share memory, or do not share the work of {kernel.spread} blocks alike"
        raise ScheduleError(reason, kernel=kernel.name)
    return MemKernel(
        kernel.name, blocks, b.warps, max(mapping.min_blocks, _beside(b)), decode, dict(b.layouts),
        tuple(b.smem.values()), (), tuple(b.blocks[0]), kernel.span, spread=kernel.spread, team=kernel.team,
    )  # fmt: skip


def _beside(b: Builder) -> int:
    """How many blocks a multiprocessor has at once.

    A block with a scan of states loads, computes and stores one after another, so that others fill the time; without
    such a demand the register allocator interleaves the steps of a thread until few blocks fit.
    """
    scans = [op for op in b.blocks[0] if isinstance(op, ma.ScanOp) and op.states is not None]
    fit = [b.layouts[op.arg.layout].registers <= (STEADY if state_matrix(op).steady else VARYING) for op in scans]
    return max(1, THREADS // (32 * b.warps)) if scans and all(fit) else 1


class _WarpLowering(Lowering):
    """How the engine ``warp`` moves values. ``room``: bytes of shared memory for stages of loads and stores."""

    room: int = 0

    @cached_property
    def slices(self) -> dict[str, tuple[FragLayout, int]]:
        """For each value in slices that is in shared memory, the layout in which it is reduced, and its vectors."""
        return {}

    @cached_property
    def positions(self) -> frozenset[str]:
        """The values from which addresses and masks of loads, and bounds of loops, are computed."""
        return positions_of(self.kernel, self.defs)

    def exchange(self, entry: Entry, layout: FragLayout) -> Frag:
        """Through shared memory into another layout."""
        source = next(iter(entry.frags.values()))
        own = self.b.layouts[source.layout]
        type_ = entry.value.type
        axes = spill_axes(type_.axes, own)
        row = (axes[-1].size if axes else 1) * type_.dtype.bytes
        buffer = self.b.shared(f"x_{entry.value.name}", type_.dtype, axes, 0, pad_for(row))
        slot = Slot(buffer.name, ZERO)
        self.b.emit(ma.SharedStore(slot, source, shared_vec(own, axes, type_.dtype)), entry.depth)
        return self.read(entry, slot, layout)

    def scratch(self, out: Frag, count: int) -> str:
        """One slot a warp, value and lane."""
        shape = (TileAxis("warp", self.b.warps), TileAxis("reg", count), TileAxis("lane", 32))
        return self.b.shared(f"r_{out.name}", out.type.dtype, shape).name

    def store(self, op: vr.StoreOp) -> None:
        """Accumulators with epilogue ``shared`` are stored by rows; 8-bit floats that are only moved stay so."""
        source = unwidened(op.value, self.defs)
        moved = source.type.dtype.is_float8 and source.type.dtype is self.buffers[op.buffer].dtype
        frag = self.any_form(source if moved and op.combiner is None else op.value)
        shared = self.mapping.epilogue == "shared" and self._is_accumulator(self.b.layouts[frag.layout])
        if shared and op.combiner is None and len(op.value.type.axes) > 1:
            frag = self._through_shared(op, frag, self.buffers[op.buffer])
        elif op.combiner is None:
            frag = self._in_whole_sectors(op, frag)
        self.b.emit(self.global_store(op, frag))

    def _in_whole_sectors(self, op: vr.StoreOp, frag: Frag) -> Frag:
        """``frag``, or its elements in a layout of whole sectors where its own is not and there is room for a stage."""
        buffer, own = self.buffers[op.buffer], self.b.layouts[frag.layout]
        vec = self._vec(op.buffer, op.index, op.mask, own, op.value.type)
        access = Access(buffer, op.index, op.mask, op.value.type, own, vec)
        found = whole_sectors(access, STORES, self.b.warps, self.mapping.vector_bytes)
        if found is None or self.b.depth:
            return frag
        type_ = TileType(buffer.dtype, op.value.type.axes)
        stage = stage_between(type_, own, found[0])
        if stage.bytes(buffer.dtype) > self.room:
            return frag
        if frag.type.dtype is not buffer.dtype:
            rounded = self.b.frag(f"{op.value.name}_{buffer.dtype}", type_, own)
            self.b.emit(ma.MapOp(rounded, "cast", (frag,), op.span))
            frag = rounded
        return self._staged(frag, stage, found[0], f"out_{op.buffer}", self.b.depth)

    def _staged(self, frag: Frag, stage: Staging, layout: FragLayout, hint: str, depth: int) -> Frag:
        """The elements of ``frag`` in ``layout``."""
        buffer = self.b.shared(hint, frag.type.dtype, stage.axes, 0, stage.pad)
        self.room -= stage.bytes(frag.type.dtype)
        slot = Slot(buffer.name, ZERO)
        out = self.b.frag(f"{frag.name}_moved", frag.type, layout)
        self.b.emit(ma.SharedStore(slot, frag, stage.store), depth)
        self.b.emit(ma.SharedLoad(out, slot, stage.load), depth)
        return out

    def _load(self, op: vr.LoadOp, layout: FragLayout, depth: int) -> Frag:
        """A load in ``layout``, or through a layout of whole sectors where it is none (in loops: far from it)."""
        if op.result.name in self.shared:
            return self._shared_tile(op, layout, depth)
        type_, buffer = op.result.type, self.buffers[op.buffer]
        copy = self._vector_copy(op, layout, depth) or self._matrix_copy(op, depth)
        if copy is not None:
            entry = self.env[op.result.name]
            entry.slots["copied"] = self._copied(entry, op, copy)
            return self.read(entry, entry.slots["copied"], layout)
        ordered, vec = self.loaded(op, layout)
        slides = not self.sliding.isdisjoint(type_.names)  # a thread loads the elements of its windows once
        made_here = buffer.space is Space.TEMP  # in the order of its readers, which may find it in shared memory
        wide = vec * buffer.dtype.bytes >= WIDE or self.shifted(op, ordered, vec, depth)[1] > 0
        if made_here or op.buffer in self.stored or wide or slides:
            return super()._load(op, layout, depth)
        access = Access(buffer, op.index, op.mask, type_, ordered, vec)
        gain = OPERANDS if self.candidates.fixed else LOOPED if depth else LOADS
        found = whole_sectors(access, gain, self.b.warps, self.mapping.vector_bytes)
        stage = None if found is None else stage_between(type_, found[0], layout)
        if found is None or stage is None or stage.bytes(type_.dtype) > self.room:
            return super()._load(op, layout, depth)
        return self._staged(super()._load(op, found[0], depth), stage, layout, f"in_{op.buffer}", depth)

    def _shared_tile(self, op: vr.LoadOp, layout: FragLayout, depth: int) -> Frag:
        """A tile that many threads read, through shared memory: copied ahead where its rows allow it."""
        entry, buffer = self.env[op.result.name], self.buffers[op.buffer]
        copy = plan_copy(op, buffer, self.refs, self.b.warps, self.mapping.vector_bytes)
        row = copy.axes[-1].size * buffer.dtype.bytes
        pad = pad_for(row) if len(copy.axes) > 1 else 0
        if copy.asynchronous:
            slot = self._copied(entry, op, copy, pad)
        else:
            kept = self.stage_buffer(entry, f"s_{op.result.name}", op.result.type.dtype, copy.axes, 0, pad)
            slot = Slot(kept.name, ZERO)
            loaded = super()._load(op, copy.threads, depth)
            self.b.emit(
                ma.SharedStore(slot, loaded, shared_vec(copy.threads, copy.axes, buffer.dtype), span=op.span), depth
            )
        entry.slots["copied"] = slot
        along = tuple(m for m in layout.reg if m.axis == copy.axes[-1].name)
        ordered = replace(layout, reg=(*along, *(m for m in layout.reg if m not in along)))
        if shared_vec(ordered, copy.axes, buffer.dtype) == shared_vec(layout, copy.axes, buffer.dtype):
            return self.read(entry, slot, layout)
        moved = self.b.frag(op.result.name, op.result.type, layout)
        self.b.emit(ma.ConvertOp(moved, self.read(entry, slot, ordered)), depth)
        return moved

    def _vector_copy(self, op: vr.LoadOp, layout: FragLayout, depth: int) -> CopyPlan | None:
        """How a loop of MMAs copies a vector that many threads read with its operands; None where it does not.

        The vector, such as the scales of a dequantised tile, arrives with the operands, some iterations ahead.  A load
        to registers would wait for the memory in every iteration, or hold the registers of the iterations ahead.  Temps
        are in L2, where an earlier kernel has put them: their loads wait less than the stages may cost in blocks.
        """
        axes, buffer = op.result.type.axes, self.buffers[op.buffer]
        elements = prod(a.size for a in axes)
        few = 1 < elements <= VECTOR and layout.registers * 32 * self.b.warps >= SHARED * elements
        if depth == 0 or not self.candidates.fixed or self.mapping.stages < 2 or not few or op.buffer in self.stored:
            return None
        if buffer.space is not Space.INPUT:
            return None
        if op.result.name in self.positions:
            return None  # a copy needs its address when it is issued, before a vector in shared memory has arrived
        copy = plan_copy(op, buffer, self.refs, self.b.warps, self.mapping.vector_bytes)
        return copy if copy.asynchronous and buffer.dtype is op.result.type.dtype else None

    def _matrix_copy(self, op: vr.LoadOp, depth: int) -> CopyPlan | None:
        """How a loop of MMAs copies a matrix of bytes that an operand is computed from; None where it does not.

        It arrives some iterations ahead, as operands do that are not computed.  Registers would hold one iteration at
        most, which leaves the memory idle while the warps convert.  Loops of several products, and scaled elements for
        few rows that pass through shared memory again, wait for shared memory instead (H200, groups of i8 for 64 rows
        62 us, 68 without; for 16 rows 58 and 46; decoding with caches of i8 617 and 361).
        """
        t = op.result.type
        dots = [(d, self.dots[d.result.name]) for ds in self._dots for d in ds]
        direct = all(p.instr in MMA and any(self._has_runs(d, p, x) for x in "ab") for d, p in dots)
        few = self._rows_beside(t.names) < MANY_ROWS and not direct
        if max(map(len, self._dots), default=0) != 1 or (few and self._meets_others(op.result.name)):
            return None
        if depth == 0 or len(t.axes) != 2 or t.dtype.bits != BYTE or self.buffers[op.buffer].dtype is not t.dtype:
            return None
        if not self.candidates.fixed or self.mapping.stages < 2 or op.buffer in self.stored:
            return None
        if op.result.name not in self.env:
            return None  # the words of packed elements have no entry of their own
        if op.result.name in self.positions or not all(isinstance(x, vr.MapOp) for x in self._readers[op.result.name]):
            return None
        copy = plan_copy(op, self.buffers[op.buffer], self.refs, self.b.warps, self.mapping.vector_bytes)
        size = self.mapping.stages * prod(t.shape)
        if not copy.asynchronous or copy.vec < BYTES_AHEAD or size > self.room:
            return None
        self.room -= size
        return copy

    def _meets_others(self, name: str) -> bool:
        """Whether an element that is computed from the value ``name`` alone meets another one before a product."""
        made = [x for x in self._readers.get(name, []) if isinstance(x, vr.MapOp)]
        return any(len(vr.operands(x)) > 1 or self._meets_others(x.result.name) for x in made)

    def _rows_beside(self, names: Collection[str]) -> int:
        """The elements of the result of a product in a loop along the axes that are not among ``names``."""
        axes = next((d.result.type.axes for (d, *_) in self._dots), ())
        return prod(a.size for a in axes if a.name not in names)

    @cached_property
    def _dots(self) -> list[list[vr.DotOp]]:
        """The products in the body of each loop that has some."""
        loops = (op.body for op in vr.walk_ops(self.kernel.body) if isinstance(op, vr.ForOp))
        return [found for body in loops if (found := [x for x in body if isinstance(x, vr.DotOp)])]

    @cached_property
    def _readers(self) -> dict[str, list[vr.TileOp]]:
        return users(self.kernel)

    def _is_accumulator(self, layout: FragLayout) -> bool:
        return any(canonical(layout) == canonical(x) for x in self.candidates.fixed.values())

    def _through_shared(self, op: vr.StoreOp, frag: Frag, buffer: Buffer) -> Frag:
        """Accumulator fragments to rows: rounded, stored, read back so that stores are 16 bytes wide."""
        value, own = op.value, self.b.layouts[frag.layout]
        type_ = TileType(buffer.dtype, value.type.axes)
        if frag.type.dtype is not buffer.dtype:
            rounded = self.b.frag(f"{value.name}_{buffer.dtype}", type_, own)
            self.b.emit(ma.MapOp(rounded, "cast", (frag,), op.span))
            frag = rounded
        last = contiguous_axis(buffer, op.index, value.type.names, self.refs) or value.type.names[-1]
        axes = (*(a for a in type_.axes if a.name != last), *(a for a in type_.axes if a.name == last))
        limit = max(1, self.mapping.vector_bytes // buffer.dtype.bytes)
        limit = min(limit, axes[-1].size & -axes[-1].size)
        vec = vector_width(buffer, op.index, op.mask, last, limit, self.refs)
        rows = spread(axes, vec, self.b.warps)
        shared = self.b.shared(f"out_{op.buffer}", buffer.dtype, axes, 0, pad_for(axes[-1].size * buffer.dtype.bytes))
        slot = Slot(shared.name, ZERO)
        self.b.emit(ma.SharedStore(slot, frag, shared_vec(own, axes, buffer.dtype), span=op.span))
        out = self.b.frag(f"{value.name}_rows", type_, rows)
        self.b.emit(ma.SharedLoad(out, slot, shared_vec(rows, axes, buffer.dtype), op.span))
        return out

    def multiplied(self, op: vr.DotOp, plan: DotPlan, out: Frag) -> None:
        """The partial results of slices go to shared memory, where those of one warp need no registers."""
        super().multiplied(op, plan, out)
        if plan.slices:
            layout = all_slices(self.candidates.preferred((plan.m, plan.n)), plan, self.sizes[plan.slices])
            stage = stage_between(out.type, self.b.layouts[out.layout], layout, _PADS)
            buffer = self.b.shared(f"x_{out.name}", out.type.dtype, stage.axes, 0, stage.pad)
            slot = Slot(buffer.name, ZERO)
            self.b.emit(ma.SharedStore(slot, out, stage.store))
            self.env[op.result.name].slots[_SLICES] = slot
            self.slices[op.result.name] = layout, stage.load

    def reduced(self, value: Value) -> Frag:
        """Of slices, each thread has the partial results of all warps for its elements."""
        if value.name not in self.slices:
            return super().reduced(value)
        layout, vec = self.slices[value.name]
        out = self.b.frag(value.name, value.type, layout)
        self.b.emit(ma.SharedLoad(out, self.env[value.name].slots[_SLICES], vec))
        return out

    def _of_slices(self, v: Value, dot: vr.DotOp, plan: DotPlan, side: str) -> Frag:
        """An operand in slices, in the fragments of the instruction.

        Matrices for which a block has no registers are in shared memory, in the order in which threads read vectors.
        """
        source = as_operand(v, self.defs, operand_types(MMA[plan.instr], side))
        entry, layout = self.env[source.name], operand_layout(self.runs, dot, plan, side)
        if entry.depth or not isinstance(entry.op, vr.LoadOp) or not self._is_crowded:
            return self.get(source, layout)
        if _SLICES not in entry.slots:
            frag = self.get(source, layout)
            stage = stage_between(source.type, layout, layout)
            buffer = self.b.shared(f"s_{source.name}", source.type.dtype, stage.axes, 0, stage.pad)
            entry.slots[_SLICES] = Slot(buffer.name, ZERO)
            self.b.emit(ma.SharedStore(entry.slots[_SLICES], frag, stage.store), entry.depth)
            self.slices[source.name] = layout, stage.load
        out = self.b.frag(source.name, source.type, layout)
        self.b.emit(ma.SharedLoad(out, entry.slots[_SLICES], self.slices[source.name][1]))
        return out

    @cached_property
    def _is_crowded(self) -> bool:
        """Whether the registers of a thread do not hold the operands of all products in slices."""
        dots = [op for op in vr.walk_ops(self.kernel.body) if isinstance(op, vr.DotOp)]
        sliced = [(op, self.dots[op.result.name]) for op in dots if self.dots[op.result.name].slices]
        held = {v.name: prod(v.type.shape) * v.type.dtype.bytes // WORD for op, _ in sliced for v in (op.a, op.b)}
        results = max((prod(op.result.type.shape) for op, _ in sliced), default=0)
        parts = any(MMA[plan.instr].parts > 1 for _, plan in sliced)
        return (sum(held.values()) + results) // (WARP * self.b.warps) > held_registers(self.b.warps, parts)

    def operand(self, v: Value, dot: vr.DotOp, plan: DotPlan, side: str) -> Frag | Slot:
        """An operand where the instruction can read it: shared memory, or its own fragment layout."""
        if plan.slices:
            return self._of_slices(v, dot, plan, side)
        v = (
            unwidened(v, self.defs)
            if plan.instr == "fma"
            else as_operand(v, self.defs, operand_types(MMA[plan.instr], side))
        )
        entry = self.env[v.name]
        purpose = "fma" if plan.instr == "fma" else f"mma {plan.k}" if v.type.dtype.bytes != 2 else "mma"
        if purpose in entry.slots:
            return self._in_runs(entry, entry.slots[purpose], dot, plan, side) or entry.slots[purpose]
        if isinstance(entry.op, vr.LoadOp) and v.name in self.override:
            self.get(entry.value, self.override[v.name])
        elif isinstance(entry.op, vr.LoadOp) and entry.op.buffer not in self.stored:
            entry.slots[purpose] = self._stage(entry, entry.op, plan)
            return self._in_runs(entry, entry.slots[purpose], dot, plan, side) or entry.slots[purpose]
        if plan.instr != "fma" and MMA[plan.instr].parts == 1:  # parts are made from shared memory
            grabbed = self._as_fragment(entry, dot, plan, side)
            if grabbed is not None:
                return grabbed
        entry.slots[purpose] = self._spill(entry, plan)
        return entry.slots[purpose]

    def _in_runs(self, entry: Entry, slot: Slot, dot: vr.DotOp, plan: DotPlan, side: str) -> Frag | None:
        """The operand in ``slot`` as fragments of runs where that on the other side of ``dot`` is computed as some."""
        if not self._has_runs(dot, plan, "ab"[side == "a"]):
            return None
        target, vectors = self.runs.layout(plan, side, runs=True), self.runs.vectors(plan, side)
        if self.b.layout(vectors) not in entry.frags:
            self._record(entry.value, self.read(entry, slot, vectors))
        return self.get(entry.value, target)

    def _has_runs(self, dot: vr.DotOp, plan: DotPlan, side: str) -> bool:
        """Whether the operand of ``dot`` on one side is computed as fragments of runs."""
        found = self.override.get(operand_of(dot, plan, side).name)
        return found is not None and self.runs.exist(plan) and found == self.runs.vectors(plan, side)

    def _as_fragment(self, entry: Entry, dot: vr.DotOp, plan: DotPlan, side: str) -> Frag | None:
        target = self.runs.layout(plan, side, runs=self._has_runs(dot, plan, side))
        name = self.b.layout(target)
        if name in entry.frags or isinstance(entry.op, vr.ConstOp | vr.IndexOp):
            return self.get(entry.value, target)
        permuted = self.permuted(entry, target)
        if permuted is not None:
            entry.frags[name] = permuted
        return permuted

    def _spill(self, entry: Entry, plan: DotPlan) -> Slot:
        """A computed operand to shared memory."""
        frag = self.any_form(entry.value)
        own, type_ = self.b.layouts[frag.layout], entry.value.type
        where = spill_place(type_, own, plan.instr, plan.k)
        buffer = self.stage_buffer(entry, f"s_{entry.value.name}", type_.dtype, where.axes, where.swizzle, where.pad)
        slot = Slot(buffer.name, ZERO, where.swizzle)
        self.b.emit(ma.SharedStore(slot, frag, shared_vec(own, where.axes, type_.dtype)), entry.depth)
        return slot

    def load_bytes(self, op: vr.LoadOp, layout: FragLayout, depth: int) -> Frag:
        """The bytes in registers; in loops they go through shared memory, so that copies run ahead of the work."""
        copy = plan_copy(op, self.buffers[op.buffer], self.refs, self.b.warps, self.mapping.vector_bytes)
        if depth == 0 or not copy.asynchronous:
            return super().load_bytes(op, layout, depth)
        entry = Entry(op.result, op, depth)
        narrow = shared_vec(layout, copy.axes, op.result.type.dtype) < WORD  # lanes in several rows use few banks
        return self.read(entry, self._copied(entry, op, copy, pad_for(copy.axes[-1].size) if narrow else 0), layout)

    def _copied(self, entry: Entry, op: vr.LoadOp, copy: CopyPlan, pad: int = 0) -> Slot:
        """The tile that ``op`` loads in shared memory, in the order of ``copy``, with ``pad`` bytes after each row."""
        buffer = self.stage_buffer(entry, f"s_{op.result.name}", op.result.type.dtype, copy.axes, 0, pad)
        slot = Slot(buffer.name, ZERO)
        self._copy(entry, op, copy, slot)
        return slot

    def _stage(self, entry: Entry, op: vr.LoadOp, plan: DotPlan) -> Slot:
        """A loaded operand to shared memory, unchanged."""
        copy = plan_copy(op, self.buffers[op.buffer], self.refs, self.b.warps, self.mapping.vector_bytes)
        dtype = op.result.type.dtype
        where = place(copy.axes, dtype, plan.instr, plan.k)
        buffer = self.stage_buffer(entry, f"s_{op.result.name}", dtype, copy.axes, where.swizzle, where.pad)
        slot = Slot(buffer.name, ZERO, where.swizzle)
        if copy.asynchronous:
            self._copy(entry, op, copy, slot)
        else:
            frag = self.get(entry.value, copy.threads)
            vec = shared_vec(copy.threads, copy.axes, dtype)
            self.b.emit(ma.SharedStore(slot, frag, vec, span=op.span), entry.depth)
        return slot

    def _is_hot(self, buffer: Buffer) -> bool:
        """Whether many blocks read the few lines of ``buffer``, which are then in few slices of L2.

        A slice gives one line 64 bytes in a cycle (a filter of 64 taps in 8192 blocks: 94 of 103 us on an H200).
        L1 gives it to later blocks of a multiprocessor.
        """
        blocks = prod(nominal(g.extent) for g in self.kernel.grid)
        return nominal(volume(buffer.shape)) * buffer.dtype.bytes <= FEW_LINES and blocks >= MANY_BLOCKS

    def _copy(self, entry: Entry, op: vr.LoadOp, copy: CopyPlan, slot: Slot) -> None:
        """The tile that ``op`` loads to shared memory, asynchronously."""
        index = tuple(self.expr(e, copy.threads) for e in op.index)
        mask = None if op.mask is None else self.expr(op.mask, copy.threads)
        threads = self.b.layout(copy.threads, "copy_" + "_".join(a.name for a in copy.axes))
        cached = copy.vec * op.result.type.dtype.bytes == VECTOR_BYTES and self._is_hot(self.buffers[op.buffer])
        made = ma.AsyncCopy(slot, op.buffer, index, mask, copy.vec, threads, None, op.span, cached)
        self.b.emit(made, entry.depth)
        self.b.emit(ma.AsyncCommit(op.span), entry.depth)
