"""VR-tile IR to MA-tile IR for targets where all warps run the same code (``sm_80`` class).

Lowering is by demand: every value has a *home* layout (``memory.layouts``), a use asks for the value
in the layout it needs, and the value is found there, permuted inside each thread, computed again
(constants, indices, loads), or sent through shared memory, in this order of preference.  What a use
outside a loop's own values asks for is made outside the loop.

Operands of matrix products: a loaded tile that feeds the product unchanged is copied to shared
memory asynchronously; a computed one becomes an operand fragment when that is a permutation inside
each thread, else it is stored to shared memory.

The ops come out in dependence order without waits or barriers; :func:`lower_module` then allocates
shared memory and synchronises (``passes.allocate_shared``, ``passes.synchronize``), so its result
runs as it is, one stage deep, with nothing overlapped.

Raises ``core.errors.UnsupportedError`` for runtime sizes in strides that the target cannot address.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from nautilus.core.expr import Const, Expr, Ref, Var, rewrite
from nautilus.core.schedule import MemoryPlan, Schedule
from nautilus.core.source import Span
from nautilus.core.types import DType
from nautilus.memory import ops as ma
from nautilus.memory.access import contiguous_axis, register_run, vector_width
from nautilus.memory.builder import Builder
from nautilus.memory.chains import operand_chains
from nautilus.memory.dots import DotPlan, definitions, plan_dots, unwidened
from nautilus.memory.grid import decode_grid
from nautilus.memory.layout import FragLayout, same_threads
from nautilus.memory.layouts import Homes, canonical, collect, make_homes, spread
from nautilus.memory.ops import Frag, MemKernel, MemModule, Slot, Smem, a_layout, b_layout
from nautilus.memory.staging import pad_for, place, plan_copy, shared_vec, spill_axes
from nautilus.scalar.ops import Buffer
from nautilus.tile import ops as vr
from nautilus.tile.ops import TileAxis, TileKernel, TileModule, TileType, Value

ZERO = Const(0, DType.I32)


def lower_raw(module: TileModule, schedule: Schedule | None, target: str) -> MemModule:
    """Lower without waits, barriers and shared-memory offsets (for the passes that place them)."""
    plans = {k.name: k.memory for k in schedule.kernels} if schedule is not None else {}
    buffers = {b.name: b for b in module.buffers}
    kernels = tuple(lower_kernel(k, buffers, plans.get(k.name, MemoryPlan())) for k in module.kernels)
    return MemModule(module.name, target, module.buffers, module.params, kernels)


def lower_module(module: TileModule, schedule: Schedule | None, target: str) -> MemModule:
    """VR-tile to MA-tile, correct and synchronous. Raises ScheduleError when shared memory does not suffice."""
    from nautilus.memory.passes.allocate_shared import AllocateShared
    from nautilus.memory.passes.synchronize import Synchronize

    return Synchronize().apply(AllocateShared().apply(lower_raw(module, schedule, target)))


def lower(module: TileModule, schedule: Schedule | None, arch: str) -> MemModule:
    """:func:`lower_module` under the names that the pass manager binds."""
    return lower_module(module, schedule, arch)


def lower_kernel(kernel: TileKernel, buffers: dict[str, Buffer], memory: MemoryPlan) -> MemKernel:
    """One kernel. ``memory.warps`` is the wanted warp grid; tiles that do not fit it get another."""
    dots = plan_dots(kernel, memory)
    refs = {v.name: v.type.names for op in vr.walk_ops(kernel.body) for v in vr.results(op)}
    refs |= {
        arg.name: arg.type.names for op in vr.walk_ops(kernel.body) if isinstance(op, vr.ForOp) for arg, _ in op.carried
    }
    votes = collect(kernel, buffers, refs, memory.vector_bytes, dots)
    homes = make_homes(kernel, votes, memory, dots)
    builder = Builder(homes.template.warps)
    for axes, layout in homes.fixed.items():
        builder.layout(layout, "acc_" + "_".join(a.name for a in kernel.axes if a.name in axes))
    _Lowering(kernel, buffers, memory, dots, refs, homes, builder).block(kernel.body)
    blocks, decode = decode_grid(kernel, memory)
    return MemKernel(
        kernel.name, blocks, builder.warps, memory.min_blocks, decode, dict(builder.layouts),
        tuple(builder.smem.values()), (), tuple(builder.blocks[0]), kernel.span,
    )  # fmt: skip


@dataclass(slots=True)
class Entry:
    """A VR value: its definition, the depth at which it exists, and the forms it has taken."""

    value: Value
    op: vr.TileOp | None  # None: a loop argument or result
    depth: int
    frags: dict[str, Frag] = field(default_factory=dict)  # by layout name
    slots: dict[str, Slot] = field(default_factory=dict)  # by purpose: "mma" or "fma"


class _Lowering:
    """The walk over one kernel."""

    def __init__(
        self, kernel: TileKernel, buffers: dict[str, Buffer], memory: MemoryPlan,
        dots: dict[str, DotPlan], refs: dict[str, tuple[str, ...]], homes: Homes, builder: Builder,
    ) -> None:  # fmt: skip
        self.kernel, self.buffers, self.memory, self.dots = kernel, buffers, memory, dots
        self.refs, self.homes, self.b = refs, homes, builder
        self.sizes = {a.name: a for a in kernel.axes}
        self.defs = definitions(kernel.body)
        self.stored = {op.buffer for op in vr.walk_ops(kernel.body) if isinstance(op, vr.StoreOp)}
        self.env: dict[str, Entry] = {}
        self.loops: list[tuple[str | None, list[Smem]]] = []
        self.chains: dict[str, list[Smem]] = {}
        self.override = operand_chains(kernel, buffers, memory, dots, refs, homes.template.warps)

    # -- walk ---------------------------------------------------------------------------------
    def block(self, body: tuple[vr.TileOp, ...]) -> None:
        """Lower the ops of a block in order; cheap ones wait until somebody asks for them."""
        for op in body:
            match op:
                case vr.ConstOp() | vr.IndexOp() | vr.ParamOp():
                    self._define(op.result, op)
                case vr.LoadOp():
                    self._define(op.result, op)
                    if op.buffer in self.stored:
                        self.get(op.result, self.preferred(op.result))
                case vr.MapOp():
                    self._define(op.result, op)
                    self._map(op, self._map_layout(op))
                case vr.ReduceOp():
                    self._define(op.result, op)
                    self._reduce(op)
                case vr.DotOp():
                    self._define(op.result, op)
                    self._dot(op)
                case vr.StoreOp():
                    self._store(op)
                case vr.ForOp():
                    self._for(op)

    def _define(self, value: Value, op: vr.TileOp | None) -> Entry:
        self.env[value.name] = Entry(value, op, self.b.depth)
        return self.env[value.name]

    def preferred(self, value: Value) -> FragLayout:
        """The layout in which ``value`` is computed unless a use asks for another."""
        return self.override.get(value.name) or self.homes.home(value.type.names)

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
        """``value`` in a layout it has already, else in its preferred one."""
        frags = self.env[value.name].frags
        return next(iter(frags.values())) if frags else self.get(value, self.preferred(value))

    def _materialise(self, entry: Entry, layout: FragLayout) -> Frag:
        permuted = self._permuted(entry, layout)
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
                return self._load(op, layout, entry.depth) if slot is None else self._read(entry, slot, layout)
            case vr.MapOp() if not entry.frags or self._cheap(entry.value):
                args = tuple(self.get(a, layout.project(a.type.names)) for a in op.args)
                out = self.b.frag(entry.value.name, type_, layout)
                self.b.emit(ma.MapOp(out, op.op, args, op.span), entry.depth)
                return out
        return self._exchange(entry, layout)

    def _simple(self, op: vr.ConstOp | vr.IndexOp | vr.ParamOp, out: Frag, layout: FragLayout) -> ma.MemOp:
        match op:
            case vr.ConstOp(value=value):
                return ma.ConstOp(out, value, op.span)
            case vr.IndexOp(expr=expr):
                return ma.IndexOp(out, self.expr(expr, layout), op.span)
            case vr.ParamOp(param=param):
                return ma.ParamOp(out, param, op.span)

    def _permuted(self, entry: Entry, layout: FragLayout) -> Frag | None:
        """An existing form whose registers only need reordering; None if there is none."""
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

    def _exchange(self, entry: Entry, layout: FragLayout) -> Frag:
        """Through shared memory into another layout."""
        source = next(iter(entry.frags.values()))
        own = self.b.layouts[source.layout]
        type_ = entry.value.type
        axes = spill_axes(type_.axes, own)
        row = (axes[-1].size if axes else 1) * type_.dtype.bytes
        buffer = self.b.shared(f"x_{entry.value.name}", type_.dtype, axes, 0, pad_for(row))
        slot = Slot(buffer.name, ZERO)
        self.b.emit(ma.SharedStore(slot, source, shared_vec(own, axes, type_.dtype)), entry.depth)
        return self._read(entry, slot, layout)

    def _read(self, entry: Entry, slot: Slot, layout: FragLayout) -> Frag:
        out = self.b.frag(entry.value.name, entry.value.type, layout)
        buffer = self.b.smem[slot.buffer]
        self.b.emit(ma.SharedLoad(out, slot, shared_vec(layout, buffer.axes, buffer.dtype)), entry.depth)
        return out

    def expr(self, e: Expr, layout: FragLayout) -> Expr:
        """``e`` with values replaced by fragments that live where ``layout`` puts the elements, and the
        position on axes of one element by 0."""

        def rule(n: Expr) -> Expr | None:
            if isinstance(n, Var):
                return ZERO if n.name in self.sizes and self.sizes[n.name].size == 1 else None
            if not isinstance(n, Ref):
                return None
            value = self.env[n.name].value
            return replace(n, name=self.get(value, layout.project(value.type.names)).name)

        return rewrite(e, rule)

    # -- loads, stores, elementwise -------------------------------------------------------------
    def _load(self, op: vr.LoadOp, layout: FragLayout, depth: int) -> Frag:
        """A global load in ``layout``, as wide as contiguity, alignment and mask allow."""
        vec = self._vec(op.buffer, op.index, op.mask, layout, op.result.type)
        index = tuple(self.expr(e, layout) for e in op.index)
        mask = None if op.mask is None else self.expr(op.mask, layout)
        out = self.b.frag(op.result.name, op.result.type, layout)
        self.b.emit(ma.GlobalLoad(out, op.buffer, index, mask, vec, op.span), depth)
        return out

    def _vec(self, name: str, index: tuple[Expr, ...], mask: Expr | None, layout: FragLayout, type_: TileType) -> int:
        buffer = self.buffers[name]
        axis = contiguous_axis(buffer, index, type_.names, self.refs)
        if axis is None or buffer.dtype.bytes > 4:
            return 1
        limit = min(register_run(layout, axis), max(1, self.memory.vector_bytes // buffer.dtype.bytes))
        return vector_width(buffer, index, mask, axis, limit, self.refs)

    def _map_layout(self, op: vr.MapOp) -> FragLayout:
        """The preferred layout, or that of an operand which spans the result and cannot come there cheaply."""
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
        if self._lazy(op):
            return Frag("", op.result.type, "")
        return self.get(op.result, layout)

    def _lazy(self, op: vr.MapOp) -> bool:
        """Widenings of stored tiles wait: a matrix product may read the tile itself."""
        return op.op == "cast" and isinstance(self.defs.get(op.args[0].name), vr.LoadOp)

    def _reduce(self, op: vr.ReduceOp) -> None:
        arg = self.any_form(op.arg)
        layout = self.b.layouts[arg.layout]
        out = self.b.frag(op.result.name, op.result.type, layout.project(op.result.type.names))
        self.b.emit(self._reduction(out, op.combiner, arg, op.axes, op.span))
        self._record(op.result, out)

    def _reduction(self, out: Frag, combiner: str, arg: Frag, axes: tuple[str, ...], span: Span) -> ma.ReduceOp:
        """A reduction; warps that split a reduced axis meet in scratch of one slot a warp, register and lane."""
        layout = self.b.layouts[arg.layout]
        scratch = None
        if any(m.axis in axes and m.size > 1 for m in layout.warp):
            count = self.b.layouts[out.layout].registers
            shape = (TileAxis("warp", self.b.warps), TileAxis("reg", count), TileAxis("lane", 32))
            scratch = self.b.shared(f"r_{out.name}", out.type.dtype, shape).name
        return ma.ReduceOp(out, combiner, arg, axes, scratch, span=span)

    def _store(self, op: vr.StoreOp) -> None:
        value = op.value
        buffer = self.buffers[op.buffer]
        frag = self._store_form(op)
        layout = self.b.layouts[frag.layout]
        if self.memory.epilogue == "shared" and self._is_accumulator(layout) and len(value.type.axes) > 1:
            frag = self._through_shared(op, frag, buffer)
            layout = self.b.layouts[frag.layout]
        vec = self._vec(op.buffer, op.index, op.mask, layout, value.type)
        index = tuple(self.expr(e, layout) for e in op.index)
        mask = None if op.mask is None else self.expr(op.mask, layout)
        self.b.emit(ma.GlobalStore(op.buffer, index, frag, mask, vec, op.span))

    def _store_form(self, op: vr.StoreOp) -> Frag:
        return self.any_form(op.value)

    def _is_accumulator(self, layout: FragLayout) -> bool:
        return any(canonical(layout) == canonical(x) for x in self.homes.fixed.values())

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
        limit = max(1, self.memory.vector_bytes // buffer.dtype.bytes)
        limit = min(limit, axes[-1].size & -axes[-1].size)
        vec = vector_width(buffer, op.index, op.mask, last, limit, self.refs)
        rows = spread(axes, vec, self.b.warps)
        shared = self.b.shared(f"out_{op.buffer}", buffer.dtype, axes, 0, pad_for(axes[-1].size * buffer.dtype.bytes))
        slot = Slot(shared.name, ZERO)
        self.b.emit(ma.SharedStore(slot, frag, shared_vec(own, axes, buffer.dtype), op.span))
        out = self.b.frag(f"{value.name}_rows", type_, rows)
        self.b.emit(ma.SharedLoad(out, slot, shared_vec(rows, axes, buffer.dtype), op.span))
        return out

    # -- loops --------------------------------------------------------------------------------
    def _for(self, op: vr.ForOp) -> None:
        layouts = [self.homes.home(arg.type.names) for arg, _ in op.carried]
        inits = [self.get(init, layout) for (_, init), layout in zip(op.carried, layouts, strict=True)]
        one = self.homes.home(())
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
        self.b.emit(ma.ForOp(results, op.var, lo, hi, carried, body, yields, op.chain, op.span))
        for r, frag in zip(op.results, results, strict=True):
            self._define(r, None)
            self._record(r, frag)

    # -- products -----------------------------------------------------------------------------
    def _dot(self, op: vr.DotOp) -> None:
        plan = self.dots[op.result.name]
        if plan.instr == "map":
            self._dot_by_map(op)
            return
        layout = self._dot_layout(op, plan)
        rows, columns = (op.b, op.a) if plan.swap else (op.a, op.b)
        a = self._operand(rows, op, plan, "a")
        b = self._operand(columns, op, plan, "b")
        acc = None if op.acc is None else self.get(op.acc, layout)
        out = self.b.frag(op.result.name, op.result.type, layout)
        self.b.emit(ma.MmaOp(out, plan.instr, a, b, acc, op.axes[0], span=op.span))
        self._record(op.result, out)

    def _dot_layout(self, op: vr.DotOp, plan: DotPlan) -> FragLayout:
        if plan.instr == "fma":
            return self.homes.home(op.result.type.names)
        return ma.acc_layout(plan.m, plan.n, (self.sizes[plan.m].size, self.sizes[plan.n].size), plan.warps)

    def _dot_by_map(self, op: vr.DotOp) -> None:
        """Elementwise product in the union of the axes, then a reduction."""
        dtype = op.result.type.dtype
        names = {*op.a.type.names, *op.b.type.names}
        axes = tuple(a for a in self.kernel.axes if a.name in names)
        layout = self.homes.home(tuple(a.name for a in axes))
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

    def _operand(self, v: Value, dot: vr.DotOp, plan: DotPlan, side: str) -> Frag | Slot:
        """An operand where the instruction can read it: shared memory, or its own fragment layout."""
        v = unwidened(v, self.defs)
        entry = self.env[v.name]
        purpose = "fma" if plan.instr == "fma" else f"mma {plan.k}" if v.type.dtype.bytes != 2 else "mma"
        if purpose in entry.slots:
            return entry.slots[purpose]
        if isinstance(entry.op, vr.LoadOp) and entry.op.buffer not in self.stored:
            entry.slots[purpose] = self._stage(entry, entry.op, plan)
            return entry.slots[purpose]
        if plan.instr != "fma":
            grabbed = self._as_fragment(entry, plan, side)
            if grabbed is not None:
                return grabbed
        entry.slots[purpose] = self._spill(entry, plan)
        return entry.slots[purpose]

    def _as_fragment(self, entry: Entry, plan: DotPlan, side: str) -> Frag | None:
        if side == "a":
            tile = (self.sizes[plan.m].size, self.sizes[plan.k].size)
            target = a_layout(plan.instr, plan.m, plan.k, tile, plan.warps)
        else:
            tile = (self.sizes[plan.k].size, self.sizes[plan.n].size)
            target = b_layout(plan.instr, plan.k, plan.n, tile, plan.warps)
        name = self.b.layout(target)
        if name in entry.frags or isinstance(entry.op, vr.ConstOp | vr.IndexOp):
            return self.get(entry.value, target)
        permuted = self._permuted(entry, target)
        if permuted is not None:
            entry.frags[name] = permuted
        return permuted

    def _spill(self, entry: Entry, plan: DotPlan) -> Slot:
        """A computed operand to shared memory."""
        frag = self.any_form(entry.value)
        own, type_ = self.b.layouts[frag.layout], entry.value.type
        axes = spill_axes(type_.axes, own)
        if plan.instr != "fma" and type_.dtype.bytes != 2:
            axes = (*(a for a in type_.axes if a.name != plan.k), *(a for a in type_.axes if a.name == plan.k))
        where = place(axes, type_.dtype, plan.instr, plan.k)
        buffer = self._stage_buffer(entry, f"s_{entry.value.name}", type_.dtype, axes, where.swizzle, where.pad)
        slot = Slot(buffer.name, ZERO, where.swizzle)
        self.b.emit(ma.SharedStore(slot, frag, shared_vec(own, axes, type_.dtype)), entry.depth)
        return slot

    def _stage(self, entry: Entry, op: vr.LoadOp, plan: DotPlan) -> Slot:
        """A loaded operand to shared memory, unchanged."""
        copy = plan_copy(op, self.buffers[op.buffer], self.refs, self.b.warps, self.memory.vector_bytes)
        dtype = op.result.type.dtype
        where = place(copy.axes, dtype, plan.instr, plan.k)
        buffer = self._stage_buffer(entry, f"s_{op.result.name}", dtype, copy.axes, where.swizzle, where.pad)
        slot = Slot(buffer.name, ZERO, where.swizzle)
        if copy.asynchronous:
            index = tuple(self.expr(e, copy.threads) for e in op.index)
            mask = None if op.mask is None else self.expr(op.mask, copy.threads)
            threads = self.b.layout(copy.threads, "copy_" + "_".join(a.name for a in copy.axes))
            self.b.emit(ma.AsyncCopy(slot, op.buffer, index, mask, copy.vec, threads, None, op.span), entry.depth)
            self.b.emit(ma.AsyncCommit(op.span), entry.depth)
        else:
            frag = self.get(entry.value, copy.threads)
            vec = shared_vec(copy.threads, copy.axes, dtype)
            self.b.emit(ma.SharedStore(slot, frag, vec, op.span), entry.depth)
        return slot

    def _stage_buffer(
        self, entry: Entry, hint: str, dtype: DType, axes: tuple[TileAxis, ...], swizzle: int, pad: int
    ) -> Smem:
        """A shared buffer; the loops of one chain use the same buffers in the same order."""
        if not 0 < entry.depth <= len(self.loops):
            return self.b.shared(hint, dtype, axes, swizzle, pad)
        chain, staged = self.loops[entry.depth - 1]
        earlier = self.chains.get(chain, []) if chain is not None else []
        buffer = earlier[len(staged)] if len(staged) < len(earlier) else None
        if buffer is None or (buffer.dtype, buffer.axes, buffer.swizzle, buffer.pad) != (dtype, axes, swizzle, pad):
            buffer = self.b.shared(hint, dtype, axes, swizzle, pad)
        staged.append(buffer)
        return buffer
