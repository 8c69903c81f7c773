"""The lowering of VR-tile ops to MA-tile ops, as far as all engines share it.

Values are lowered on demand.  Every value has a preferred layout (``ma_tile.lowering.layouts``), and a use names the
value in the layout that it needs.  The lowering takes the first possible of these ways: the value exists in that
layout; its registers are permuted inside each thread; it is computed again (constants, indices, loads); it is moved
between threads, if the engine can do so.  A form of a value that is defined outside a loop is made outside the loop.

An engine (:mod:`nautilus.ma_tile.lowering.warp`, :mod:`nautilus.ma_tile.lowering.warpgroup`) defines how values move
between threads, how operands reach its dots, and how results are stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import ZERO
from nautilus.core.expr.nodes import Expr, Ref, Var, rewrite
from nautilus.core.records import dataclass
from nautilus.core.schedule import MappingPlan, WarpPlan
from nautilus.core.source import Span
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.access import contiguous_axis, register_run, repeated_width, shifted_width, vector_width
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.instruction_tables import MMA, WGMMA
from nautilus.ma_tile.ir.layout import FragLayout, same_threads
from nautilus.ma_tile.ir.ops import Frag, Slot, Smem
from nautilus.ma_tile.ir.scan import exchanged, levels_of
from nautilus.ma_tile.ir.unpack import packed_layout
from nautilus.ma_tile.lowering.builder import Builder
from nautilus.ma_tile.lowering.dots import DotPlan, definitions, terms
from nautilus.ma_tile.lowering.layouts import (
    LayoutCandidates,
    accumulator,
    make_layout_candidates,
    spread,
    with_registers,
)
from nautilus.ma_tile.lowering.operands.access_costs import collect
from nautilus.ma_tile.lowering.operands.computed_operands import Runs, operand_chains, packed_chains
from nautilus.ma_tile.lowering.operands.shared_tiles import shared_tiles
from nautilus.ma_tile.lowering.operands.sliced_sums import sliced_loads
from nautilus.ma_tile.lowering.operands.unpacked import unpacked
from nautilus.ma_tile.lowering.operands.value_runs import value_runs
from nautilus.ma_tile.lowering.staging import shared_vec
from nautilus.targets.limits import WORD
from nautilus.vr_tile import ir as vr
from nautilus.vr_tile.ir import TileKernel, Value


@dataclass(slots=True)
class Entry:
    """A value of the VR-tile IR: its definition, the depth of its loop, and the forms that exist."""

    value: Value
    op: vr.TileOp | None  # None: a loop argument or result
    depth: int
    frags: dict[str, Frag] = field(default_factory=dict)  # by layout name
    slots: dict[str, Slot] = field(default_factory=dict)  # by purpose: "mma" or "fma"


class Lowering(ABC):
    """The lowering of one kernel; the ops that it makes are in ``b``."""

    def __init__(
        self, kernel: TileKernel, buffers: dict[str, Buffer], mapping: MappingPlan, dots: dict[str, DotPlan],
        warps: tuple[int, int],
    ) -> None:  # fmt: skip
        self.kernel, self.buffers, self.mapping, self.dots = kernel, buffers, mapping, dots
        self.refs = value_runs(kernel)
        self.defs = definitions(kernel.body)
        self.shared = shared_tiles(kernel, buffers, mapping, self.defs)
        cost = collect(kernel, buffers, self.refs, mapping.vector_bytes, dots, self.shared)
        self.sliding = cost.sliding
        self.candidates: LayoutCandidates = make_layout_candidates(kernel, cost, warps, dots)
        self.b = Builder(self.candidates.template.warps)
        for axes, layout in self.candidates.fixed.items():
            self.b.layout(layout, "acc_" + "_".join(a.name for a in kernel.axes if a.name in axes))
        self.sizes: dict[str, int] = {a.name: a.size for a in kernel.axes}
        self.stored = {op.buffer for op in vr.walk_ops(kernel.body) if isinstance(op, vr.StoreOp)}
        self.env: dict[str, Entry] = {}
        self.loops: list[tuple[str | None, list[Smem]]] = []
        self.chains: dict[str, list[Smem]] = {}
        apart = isinstance(mapping, WarpPlan) and mapping.combine_in_block
        self.runs = Runs(self.sizes, self.defs, buffers, self.refs, apart)
        self.override = operand_chains(kernel, buffers, mapping, dots, self.refs, self.b.warps, self.runs)
        self.override |= sliced_loads(kernel, buffers, dots, self.runs)
        self.packed, self.unread = packed_chains(kernel, buffers, dots, self.refs, self.override, self.runs)

    # -- traversal ---------------------------------------------------------------------------------
    def block(self, body: tuple[vr.TileOp, ...]) -> None:
        """Lower the ops of a block in order; cheap ones are lowered at their first use."""
        for op in body:
            if not isinstance(op, vr.StoreOp | vr.ForOp):
                self._define(op.result, op)
            _LOWERED[type(op)](self, op)

    def _early_load(self, op: vr.LoadOp) -> None:
        """A load of a buffer that the kernel writes stays in its place."""
        if op.buffer in self.stored:
            self.get(op.result, self.preferred(op.result))

    def _elementwise(self, op: vr.MapOp) -> None:
        if op.result.name in self.packed:
            self.get(op.result, self.preferred(op.result))
        elif op.result.name not in self.unread:
            self._map(op, self._map_layout(op))

    def _define(self, value: Value, op: vr.TileOp | None) -> Entry:
        self.env[value.name] = Entry(value, op, self.b.depth)
        return self.env[value.name]

    def preferred(self, value: Value) -> FragLayout:
        """The layout in which ``value`` is computed unless a use names another."""
        return self.override.get(value.name) or self.candidates.preferred(value.type.names)

    def _record(self, value: Value, frag: Frag) -> None:
        self.env[value.name].frags.setdefault(frag.layout, frag)

    # -- demand -------------------------------------------------------------------------------
    def get(self, value: Value, layout: FragLayout) -> Frag:
        """``value`` as a fragment in ``layout``."""
        entry = self.env[value.name]
        name = self.b.layout(layout)
        if name not in entry.frags:
            entry.frags[name] = self._materialise(entry, layout)
        return entry.frags[name]

    def any_form(self, value: Value) -> Frag:
        """``value`` in a layout in which it exists, otherwise in its preferred one."""
        frags = self.env[value.name].frags
        return next(iter(frags.values())) if frags else self.get(value, self.preferred(value))

    def _materialise(self, entry: Entry, layout: FragLayout) -> Frag:
        permuted = self.permuted(entry, layout)
        if permuted is not None:
            return permuted
        op = entry.op
        type_ = entry.value.type
        match op:
            case vr.ConstOp() | vr.IndexOp() | vr.ParamOp():
                out = self.b.frag(entry.value.name, type_, layout)
                self.b.emit(self._simple(op, out, layout), entry.depth)
                return out
            case vr.LoadOp() if not (entry.frags and op.buffer in self.stored):
                slot = next(iter(entry.slots.values()), None)
                return self._load(op, layout, entry.depth) if slot is None else self.read(entry, slot, layout)
            case vr.MapOp() if (found := self.packed.get(entry.value.name)) and packed_layout(layout, found.axis, ""):
                return unpacked(self, entry, found, layout)
            case vr.MapOp() if not entry.frags or self._cheap(entry.value):
                args = tuple(self.get(a, layout.project(a.type.names)) for a in op.args)
                out = self.b.frag(entry.value.name, type_, layout)
                self.b.emit(ma.MapOp(out, op.op, args, op.span), entry.depth)
                return out
        return self.exchange(entry, layout)

    def _simple(self, op: vr.ConstOp | vr.IndexOp | vr.ParamOp, out: Frag, layout: FragLayout) -> ma.MemOp:
        match op:
            case vr.ConstOp(value=value):
                return ma.ConstOp(out, value, op.span)
            case vr.IndexOp(expr=expr):
                return ma.IndexOp(out, self.expr(expr, layout), span=op.span)
            case vr.ParamOp(param=param):
                return ma.ParamOp(out, param, op.span)

    def permuted(self, entry: Entry, layout: FragLayout) -> Frag | None:
        """A form made by permuting the registers of another one in each thread; None if there is no such form."""
        for frag in list(entry.frags.values()):
            if same_threads(self.b.layouts[frag.layout], layout) is not None:
                out = self.b.frag(entry.value.name, entry.value.type, layout)
                self.b.emit(ma.ConvertOp(out, frag), entry.depth)
                return out
        return None

    def _cheap(self, value: Value) -> bool:
        """Whether computing ``value`` again costs less than moving it between threads."""
        op = self.env[value.name].op
        match op:
            case vr.ConstOp() | vr.IndexOp() | vr.ParamOp():
                return True
            case vr.LoadOp(buffer=buffer):
                return len(value.type.axes) <= 1 and buffer not in self.stored
            case vr.MapOp(args=args):
                return len(value.type.axes) <= 1 and all(self._cheap(a) for a in args)
        return False

    @abstractmethod
    def exchange(self, entry: Entry, layout: FragLayout) -> Frag:
        """``value`` in ``layout``, moved between threads from a layout in which it exists."""

    @abstractmethod
    def scratch(self, out: Frag, count: int) -> str:
        """The buffer through which warps that split an axis exchange ``count`` values of ``out`` a thread."""

    def read(self, entry: Entry, slot: Slot, layout: FragLayout) -> Frag:
        """The value of ``entry``, which ``slot`` holds, in registers of ``layout``."""
        out = self.b.frag(entry.value.name, entry.value.type, layout)
        buffer = self.b.smem[slot.buffer]
        self.b.emit(ma.SharedLoad(out, slot, shared_vec(layout, buffer.axes, buffer.dtype)), entry.depth)
        return out

    def expr(self, e: Expr, layout: FragLayout) -> Expr:
        """``e`` with values replaced by fragments that are where ``layout`` puts the elements, and the
        position on axes of one element by 0."""

        def rule(n: Expr) -> Expr | None:
            if isinstance(n, Var):
                return ZERO if self.sizes.get(n.name) == 1 else None
            if not isinstance(n, Ref):
                return None
            value = self.env[n.name].value
            return replace(n, name=self.get(value, layout.project(value.type.names)).name)

        return rewrite(e, rule)

    # -- loads, stores, elementwise -------------------------------------------------------------
    def _load(self, op: vr.LoadOp, layout: FragLayout, depth: int) -> Frag:
        """A global load in ``layout``, with the widest vectors that contiguity, alignment and mask allow.

        Where other registers of a thread hold the neighbours in memory, the load has an order of its own.
        """
        loaded, wide = self.loaded(op, layout)
        index = tuple(self.expr(e, loaded) for e in op.index)
        mask = None if op.mask is None else self.expr(op.mask, loaded)
        out = self.b.frag(op.result.name, op.result.type, loaded)
        run, repeat = self._repeated(op, loaded) if wide == 1 else (1, 1)
        width, shared = (run, repeat) if run > 1 else (wide, None)
        vec, shift = self.shifted(op, loaded, wide, depth) if run == 1 else (1, 0)
        made = ma.GlobalLoad(out, op.buffer, index, mask, max(width, vec), repeat=shared, span=op.span)
        self.b.emit(replace(made, shift=shift) if shift else made, depth)
        if loaded is layout:
            return out
        moved = self.b.frag(op.result.name, op.result.type, layout)
        self.b.emit(ma.ConvertOp(moved, out), depth)
        return moved

    def load_bytes(self, op: vr.LoadOp, layout: FragLayout, depth: int) -> Frag:
        """The bytes of packed elements, which ``op`` loads, in ``layout``."""
        return self._load(op, layout, depth)

    def loaded(self, op: vr.LoadOp, layout: FragLayout) -> tuple[FragLayout, int]:
        """The order of registers in which ``op`` is loaded for ``layout``, and the width of its vectors."""
        vec = self._vec(op.buffer, op.index, op.mask, layout, op.result.type)
        ordered = self._in_memory_order(op, layout) if vec == 1 else layout
        wide = self._vec(op.buffer, op.index, op.mask, ordered, op.result.type)
        return (ordered, wide) if wide > vec else (layout, vec)

    def shifted(self, op: vr.LoadOp, layout: FragLayout, wide: int, depth: int) -> tuple[int, int]:
        """Registers of a vector in two aligned ones, and how many elements it lies after a multiple; else (1, 0).

        Only instead of :data:`WORD` aligned vectors of ``wide`` elements at least, which take more instructions.  Not
        in loops, whose passes move loads to other steps, and not beside products, whose epilogues are cut.
        """
        buffer = self.buffers[op.buffer]
        axis = contiguous_axis(buffer, op.index, op.result.type.names, self.refs)
        width = buffer.dtype.bytes
        apart = buffer.dtype is DType.BOOL or width > WORD or layout.registers * width % WORD
        if depth or axis is None or self.candidates.fixed or apart or buffer.space is not Space.INPUT:
            return 1, 0
        limit = min(register_run(layout, axis), self.mapping.vector_bytes // width)
        vec, shift = shifted_width(buffer, op.index, op.mask, axis, limit, self.refs)
        return (vec, shift) if vec >= WORD * wide else (1, 0)

    def _repeated(self, op: vr.LoadOp, layout: FragLayout) -> tuple[int, int]:
        """Registers of a vector of elements that several registers share, and how many share one; else (1, 1)."""
        buffer = self.buffers[op.buffer]
        for axis in op.result.type.names:
            run = register_run(layout, axis)
            most = max(1, self.mapping.vector_bytes // buffer.dtype.bytes)
            positions, repeat = repeated_width(buffer, op.index, op.mask, axis, most, self.refs)
            while positions > run:
                positions //= 2
            if repeat > 1 and positions >= repeat:
                return positions, repeat
            if positions > 1:
                return positions, positions
        return 1, 1

    def _in_memory_order(self, op: vr.LoadOp, layout: FragLayout) -> FragLayout:
        """``layout`` with those registers first that run along the contiguous axis of the access."""
        axis = contiguous_axis(self.buffers[op.buffer], op.index, op.result.type.names, self.refs)
        along = tuple(m for m in layout.reg if m.axis == axis)
        return replace(layout, reg=(*along, *(m for m in layout.reg if m.axis != axis)))

    def _vec(self, name: str, index: tuple[Expr, ...], mask: Expr | None, layout: FragLayout, type_: TileType) -> int:
        buffer = self.buffers[name]
        axis = contiguous_axis(buffer, index, type_.names, self.refs)
        if axis is None:
            return 1
        limit = min(register_run(layout, axis), max(1, self.mapping.vector_bytes // buffer.dtype.bytes))
        return vector_width(buffer, index, mask, axis, limit, self.refs)

    def _map_layout(self, op: vr.MapOp) -> FragLayout:
        """The preferred layout, or that of an operand that has all axes of the result and is expensive to convert."""
        want = self.preferred(op.result)
        name = self.b.layout(want)
        for a in op.args:
            frags = self.env[a.name].frags
            if set(a.type.names) == set(op.result.type.names) and frags and name not in frags:
                first = self.b.layouts[next(iter(frags))]
                if not self._cheap(a) and same_threads(first, want) is None:
                    return first
        return want

    def _map(self, op: vr.MapOp, layout: FragLayout) -> Frag:
        if self.lazy(op):
            return Frag("", op.result.type, "")
        return self.get(op.result, layout)

    def lazy(self, op: vr.MapOp) -> bool:
        """Whether the cast is lowered at its use, because a dot may read the stored tile itself."""
        return op.op == "cast" and isinstance(self.defs.get(op.args[0].name), vr.LoadOp)

    def reduced(self, value: Value) -> Frag:
        """``value`` in the layout in which it is reduced."""
        return self.any_form(value)

    def _reduce(self, op: vr.ReduceOp) -> None:
        arg = self.reduced(op.arg)
        layout = self.b.layouts[arg.layout]
        out = self.b.frag(op.result.name, op.result.type, layout.project(op.result.type.names))
        self.b.emit(self._reduction(out, op.combiner, arg, op.axes, op.span))
        self._record(op.result, out)

    def _reduction(self, out: Frag, combiner: str, arg: Frag, axes: tuple[str, ...], span: Span) -> ma.ReduceOp:
        split = any(m.axis in axes and m.size > 1 for m in self.b.layouts[arg.layout].warp)
        scratch = self.scratch(out, self.b.layouts[out.layout].registers) if split else None
        return ma.ReduceOp(out, combiner, arg, axes, scratch, span=span)

    def _scan(self, op: vr.ScanOp) -> None:
        """A scan in the layout of its operand, or in one that has the digits that a scan needs."""
        arg = self.any_form(op.arg)
        levels = levels_of(op, self.b.layouts[arg.layout])
        if levels is None:
            rest = [a for a in op.arg.type.axes if a.name not in (op.axis, op.states)]
            along = [a for a in op.arg.type.axes if a.name == op.axis]
            own = [a for a in op.arg.type.axes if a.name == op.states]
            arg = self.get(op.arg, with_registers(spread([*rest, *along], 1, self.b.warps), own))
            levels = levels_of(op, self.b.layouts[arg.layout])
        assert levels is not None, "the last axis of a spread layout has the digits of a scan"
        layout = self.b.layouts[arg.layout]
        out = self.b.frag(op.result.name, op.result.type, layout.renamed(op.axis, op.into))
        by = None if op.by is None else self.get(op.by, layout.project(op.by.type.names))
        factors = tuple(self.get(f, layout.project(f.type.names)) for f in op.factors)
        made = ma.ScanOp(
            out, op.combiner, arg, op.axis, op.into, op.reverse, op.exclusive, op.span, by, op.states, factors,
            op.places,
        )  # fmt: skip
        if levels.warps.size > 1:
            made = replace(made, scratch=self.scratch(out, exchanged(made, levels)))
        self.b.emit(made)
        self._record(op.result, out)

    @abstractmethod
    def store(self, op: vr.StoreOp) -> None:
        """Emit a store."""

    def global_store(self, op: vr.StoreOp, frag: Frag) -> ma.GlobalStore:
        """Store ``frag`` as ``op`` says, with the widest vectors that contiguity, alignment and mask allow."""
        layout = self.b.layouts[frag.layout]
        vec = self._vec(op.buffer, op.index, op.mask, layout, op.value.type) if op.combiner is None else 1
        index = tuple(self.expr(e, layout) for e in op.index)
        mask = None if op.mask is None else self.expr(op.mask, layout)
        return ma.GlobalStore(op.buffer, index, frag, mask, vec, op.span, op.combiner)

    # -- loops --------------------------------------------------------------------------------
    def _for(self, op: vr.ForOp) -> None:
        layouts = [self.candidates.preferred(arg.type.names) for arg, _ in op.carried]
        inits = [self.get(init, layout) for (_, init), layout in zip(op.carried, layouts, strict=True)]
        one = self.candidates.preferred(())
        lo, hi = self.expr(op.lo, one), self.expr(op.hi, one)
        self.b.blocks.append([])
        self.loops.append((op.chain, []))
        args: list[Frag] = []
        for (arg, _), layout in zip(op.carried, layouts, strict=True):
            self._define(arg, None)
            args.append(self.b.frag(arg.name, arg.type, layout))
            self._record(arg, args[-1])
        self.block(op.body)
        yields = tuple(self.get(y, layout) for y, layout in zip(op.yields, layouts, strict=True))
        chain, staged = self.loops.pop()
        if chain is not None:
            self.chains.setdefault(chain, staged)
        body = tuple(self.b.blocks.pop())
        results = tuple(self.b.frag(r.name, r.type, layout) for r, layout in zip(op.results, layouts, strict=True))
        carried = tuple(zip(args, inits, strict=True))
        self.b.emit(ma.ForOp(results, op.var, lo, hi, carried, body, yields, op.chain, span=op.span))
        for r, frag in zip(op.results, results, strict=True):
            self._define(r, None)
            self._record(r, frag)

    # -- dots ---------------------------------------------------------------------------------
    def _dot(self, op: vr.DotOp) -> None:
        plan = self.dots[op.result.name]
        if plan.instr == "map":
            self._dot_by_map(op)
            return
        layout = self._dot_layout(op, plan)
        rows, columns = (op.b, op.a) if plan.swap else (op.a, op.b)
        a = self.operand(rows, op, plan, "a")
        b = self.operand(columns, op, plan, "b")
        acc = None if op.acc is None else self.get(op.acc, layout)
        kept = terms(op, plan, self.defs, self.sizes[plan.k])
        out = self.b.frag(op.result.name, op.result.type, layout)
        if acc is not None and self._is_short(plan):  # a short sum stays a short one
            part = self.b.frag(f"{op.result.name}_part", op.result.type, layout)
            self.b.emit(ma.MmaOp(part, plan.instr, a, b, None, op.axes[0], kept, span=op.span))
            self.b.emit(self._added(out, op, acc, part))
        else:
            self.b.emit(ma.MmaOp(out, plan.instr, a, b, acc, op.axes[0], kept, span=op.span))
        self.multiplied(op, plan, out)

    def multiplied(self, op: vr.DotOp, _plan: DotPlan, out: Frag) -> None:
        """Note the result ``out`` of an MMA."""
        self._record(op.result, out)

    def _added(self, out: Frag, op: vr.DotOp, acc: Frag, part: Frag) -> ma.MapOp:
        """``acc + part``, in one operation with a product that ``acc`` is."""
        made = self.defs.get(op.acc.name) if op.acc is not None else None
        if not (isinstance(made, vr.MapOp) and made.op == "mul" and acc.type.dtype.is_float):
            return ma.MapOp(out, "add", (acc, part), op.span)
        layout = self.b.layouts[out.layout]
        pair = [self.get(a, layout.project(a.type.names)) for a in made.args]
        return ma.MapOp(out, "fma", (*pair, part), op.span)

    def _is_short(self, plan: DotPlan) -> bool:
        return plan.instr != "fma" and (WGMMA[plan.instr] if plan.instr in WGMMA else MMA[plan.instr]).short

    def _dot_layout(self, op: vr.DotOp, plan: DotPlan) -> FragLayout:
        if plan.instr == "fma":
            return self.candidates.preferred(op.result.type.names)
        return accumulator(plan, self.sizes)

    def _dot_by_map(self, op: vr.DotOp) -> None:
        """The dot as an elementwise product over the union of the axes and a reduction."""
        dtype = op.result.type.dtype
        names = {*op.a.type.names, *op.b.type.names}
        axes = tuple(a for a in self.kernel.axes if a.name in names)
        layout = self.candidates.preferred(tuple(a.name for a in axes))
        sides = [self._widened(v, dtype, layout.project(v.type.names), op.span) for v in (op.a, op.b)]
        hint = op.result.name
        product = self.b.frag(f"{hint}_p", TileType(dtype, axes), layout)
        self.b.emit(ma.MapOp(product, "mul", tuple(sides), op.span))
        total = self.b.frag(f"{hint}_s" if op.acc else hint, op.result.type, layout.project(op.result.type.names))
        self.b.emit(self._reduction(total, "sum", product, op.axes, op.span))
        if op.acc is not None:
            own = self.b.layouts[total.layout]
            out = self.b.frag(hint, op.result.type, own)
            self.b.emit(ma.MapOp(out, "add", (self.get(op.acc, own), total), op.span))
            total = out
        self._record(op.result, total)

    def _widened(self, v: Value, dtype: DType, layout: FragLayout, span: Span) -> Frag:
        frag = self.get(v, layout)
        if v.type.dtype is dtype:
            return frag
        out = self.b.frag(f"{v.name}_{dtype}", TileType(dtype, v.type.axes), layout)
        self.b.emit(ma.MapOp(out, "cast", (frag,), span))
        return out

    @abstractmethod
    def operand(self, v: Value, dot: vr.DotOp, plan: DotPlan, side: str) -> Frag | Slot:
        """Operand ``side`` of ``dot`` in a form that the instruction can read."""

    def stage_buffer(
        self, entry: Entry, hint: str, dtype: DType, axes: tuple[TileAxis, ...],
        swizzle: int, pad: int = 0, stages: int = 1,
    ) -> Smem:  # fmt: skip
        """A shared buffer; the loops of one chain use the same buffers in the same order."""
        if not 0 < entry.depth <= len(self.loops):
            return self.b.shared(hint, dtype, axes, swizzle, pad, stages)
        chain, staged = self.loops[entry.depth - 1]
        earlier = self.chains.get(chain, []) if chain is not None else []
        buffer = earlier[len(staged)] if len(staged) < len(earlier) else None
        shape = (dtype, axes, swizzle, pad, stages)
        if buffer is None or (buffer.dtype, buffer.axes, buffer.swizzle, buffer.pad, buffer.stages) != shape:
            buffer = self.b.shared(hint, dtype, axes, swizzle, pad, stages)
        staged.append(buffer)
        return buffer


#: op class -> what lowers it; engines have their own stores
_LOWERED: Mapping[type, Callable[[Lowering, Any], None]] = {
    **dict.fromkeys((vr.ConstOp, vr.IndexOp, vr.ParamOp), lambda _lowering, _op: None),  # lowered at their first use
    vr.LoadOp: Lowering._early_load,
    vr.MapOp: Lowering._elementwise,
    vr.ReduceOp: Lowering._reduce,
    vr.ScanOp: Lowering._scan,
    vr.DotOp: Lowering._dot,
    vr.StoreOp: lambda lowering, op: lowering.store(op),
    vr.ForOp: Lowering._for,
}
vr.VR.complete(_LOWERED, "lowering to MA-tile IR")
