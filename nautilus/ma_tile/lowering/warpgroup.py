"""Matrix products of warpgroups: operands by TMA loads, consumers that divide the rows (``sm_90a`` class).

Loaded operands come to shared memory by TMA copies, swizzled as the instruction reads them.  A left
operand may also be computed: its fragment then is a permutation inside each thread (the accumulator of
the dot before), or is computed in the instruction's own layout from loads.  A right operand that is computed from
loads, such as a dequantised tile, is computed by all consumers, a part by each, and stored to shared memory, where all
products that read it find it.  Nothing else goes through shared memory: everything elementwise lies in the layouts of
accumulators or their projections, where it belongs to one consumer and, along columns, to four lanes.

Cooperative warpgroups (``WarpgroupPlan.tile_scheduling``) each run the whole kernel on their part of the rows
(``ma_tile.lowering.consumers``): a loaded left operand has one stage a warpgroup, right operands are shared.  Where
they divide columns instead, all loaded operands are shared.

The result is synchronous: TMA loads and MMAs that wait for themselves, in program order,
without barriers (``ma_tile.ir.async_ops``).  Raises ScheduleError that names the dot and the reason
where a kernel cannot be lowered in this way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer
from nautilus.core.errors import Cause, Obstacle, ScheduleError
from nautilus.core.expr.build import ZERO, calc, integer
from nautilus.core.expr.interleaved import GROUP, base_of
from nautilus.core.expr.nodes import Expr, Load, Op, Ref, Var, rewrite, walk
from nautilus.core.index.divisors import divisor
from nautilus.core.index.sizes import at_most, extent_expr
from nautilus.core.schedule import WarpgroupPlan
from nautilus.core.source import Span
from nautilus.core.tiles import TileAxis
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.tma_boxes import TmaBox, tma_box
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.async_ops import CONSUMER, GROUP_WARPS, LetOp, ProxyFence, TmaLoad
from nautilus.ma_tile.ir.instruction_tables import WGMMA, operand_types
from nautilus.ma_tile.ir.layout import FragLayout, same_threads
from nautilus.ma_tile.ir.ops import Frag, MemKernel, Slot
from nautilus.ma_tile.lowering.consumers import Own, split_axis
from nautilus.ma_tile.lowering.dots import DotPlan, as_operand, forms
from nautilus.ma_tile.lowering.grid import decode_grid
from nautilus.ma_tile.lowering.layouts import a_fragment
from nautilus.ma_tile.lowering.operands.computed_tiles import (
    PIECE,
    ComputedTile,
    computed_tiles,
    delayed,
    pieces,
    unmasked,
)
from nautilus.ma_tile.lowering.ops import Entry, Lowering
from nautilus.ma_tile.lowering.staging import place, shared_vec
from nautilus.ma_tile.lowering.warpgroup_dots import GroupPlan, plan_warpgroup, reject
from nautilus.ma_tile.rewriting.named_barriers import consumers_barrier
from nautilus.targets.limits import limits
from nautilus.vr_tile import ir as vr
from nautilus.vr_tile.ir import TileKernel, Value

LEAST = 2048  # elements of a tile that is worth a TMA copy
_BYTES = 4  # elements of 8 bits in a register


def lower_warpgroup_kernel(
    kernel: TileKernel, buffers: dict[str, Buffer], mapping: WarpgroupPlan, target: str, strict: bool = False
) -> MemKernel:
    """One kernel, synchronous. With pingpong tile scheduling: what one warpgroup does, as a
    kernel of one.

    ``strict``: only instructions that keep all bits of their accumulators. Raises ScheduleError.
    """
    if not limits(target).warpgroup:
        raise ScheduleError(f"the engine warpgroup is for targets with warpgroup MMAs, not {target}", "engine")
    plan = plan_warpgroup(kernel, mapping, strict)
    own = Own(kernel) if plan.consumers == 1 else split_axis(kernel, plan.divided, plan.consumers)
    plan = replace(plan, dots={**plan.dots, **{part: plan.dots[whole] for part, whole in own.dots.items()}})
    work = _WarpgroupLowering(own, buffers, mapping, plan)
    work.block(own.kernel.body)
    blocks, decode = decode_grid(kernel, mapping)
    b = work.b
    return MemKernel(
        kernel.name, blocks, GROUP_WARPS * plan.consumers, mapping.min_blocks, decode, dict(b.layouts),
        tuple(b.smem.values()), (), tuple(b.blocks[0]), kernel.span, plan.consumers,
    )  # fmt: skip


class _WarpgroupLowering(Lowering):
    """How the engine ``warpgroup`` moves values; ``own`` is what one consumer does."""

    def __init__(self, own: Own, buffers: dict[str, Buffer], mapping: WarpgroupPlan, plan: GroupPlan) -> None:
        kernel = own.kernel
        super().__init__(kernel, buffers, mapping, dict(plan.dots), (GROUP_WARPS, 1))
        self.plan, self.parts = plan, own.parts
        self.combined = vr.combined_axes(kernel)
        self.in_shared: dict[str, Slot] = {}  # value -> where it is in shared memory
        self.computed = computed_tiles(own, plan.dots, self.defs, buffers, self.refs) if plan.consumers > 1 else {}
        self.delayed = delayed(kernel, self.computed, self.defs)
        self.pieces: dict[str, int] = {}  # value of a piece -> where the piece begins
        self.interleaved = _interleaved(kernel, buffers, self.defs, plan.dots)  # dot -> where its positions begin
        self.moved = {
            x.name
            for op in vr.walk_ops(kernel.body)
            if isinstance(op, vr.DotOp) and op.result.name in self.interleaved
            for x in (op.a, op.b)
        }  # what is rounded where it is an operand
        self.ranges = {CONSUMER: (0, plan.consumers - 1)} | {
            g.var: (0, max(at_most(g.extent) - 1, 0)) for g in kernel.grid
        }

    def exchange(self, entry: Entry, layout: FragLayout) -> Frag:
        """Raises ScheduleError, because consumers would have to wait for each other."""
        raise ScheduleError(f"%{entry.value.name} would move between threads of a consumer", kernel=self.kernel.name)

    def scratch(self, out: Frag, count: int) -> str:
        """Raises ScheduleError, because warps of a consumer would have to wait for each other."""
        raise ScheduleError(f"%{out.name} is combined along rows, between warps of a consumer", kernel=self.kernel.name)

    def lazy(self, op: vr.MapOp) -> bool:
        """Whether the cast is lowered at its use.

        A dot may read what was exactly widened, and what moves between registers does so before it is rounded.
        """
        apart = op.result.name in self.parts or op.result.name in self.moved or op.result.name in self.delayed
        return super().lazy(op) or len(forms(op.result, self.defs)) > 1 or apart

    def store(self, op: vr.StoreOp) -> None:
        """Store from fragments; the first consumer stores what all consumers have."""
        store = self.global_store(op, self.any_form(op.value))
        if self.plan.consumers == 1 or self.plan.divided in op.value.type.names:
            self.b.emit(store)
            return
        first = Op("eq", (Var(CONSUMER), ZERO), DType.BOOL)
        self.b.emit(ma.IfOp(first, (store,), op.span))

    # -- operands -----------------------------------------------------------------------------
    def operand(self, v: Value, dot: vr.DotOp, plan: DotPlan, side: str) -> Frag | Slot:
        """Loaded operands from shared memory, a computed left one from registers."""
        v = as_operand(v, self.defs, operand_types(WGMMA[plan.instr], side))
        entry = self.env[v.name]
        if isinstance(entry.op, vr.LoadOp) and entry.op.buffer not in self.stored:
            return self._loaded(entry, entry.op, dot, plan, side)
        if side == "b":
            return self._computed(v, dot)
        target = a_fragment(plan, self.sizes)
        if isinstance(entry.op, vr.ConstOp | vr.IndexOp | vr.ParamOp):
            return self.get(v, target)
        if self.interleaved.get(dot.result.name) is not None:
            found = self._in_positions(entry, target, plan.k)
        else:
            self.any_form(v)
            name = self.b.layout(target)
            found = entry.frags.get(name) or self.permuted(entry, target)
            if found is not None:
                entry.frags[name] = found
        if found is None:
            reject(self.kernel, dot, f"has a left operand, %{v.name}, that lies in other threads' registers")
        return found

    def _computed(self, v: Value, dot: vr.DotOp) -> Slot:
        """A computed right operand in shared memory, where each consumer stores its own part of the tile.

        All consumers have read the tile before it, and see the whole of the new one, after a barrier of theirs.
        """
        own, part = self.parts.get(v.name, (v.name, None))
        entry = self.env[own]
        tile = self.computed.get(own)
        if tile is None or entry.depth == 0 or not self.parts:
            reject(self.kernel, dot, f"has a right operand, %{v.name}, that is computed, not loaded")
        if own not in self.in_shared:
            self.in_shared[own] = self._stored(entry, tile, dot.span)
        slot = self.in_shared[own]
        return slot if part is None else replace(slot, stage=integer(part))

    def _stored(self, entry: Entry, tile: ComputedTile, span: Span) -> Slot:
        """The tile in shared memory, computed in pieces for which few registers suffice."""
        dtype, consumers = entry.value.type.dtype, self.plan.consumers
        where = place(tile.axes, dtype, "", tile.axes[-1].name)
        buffer = self.stage_buffer(entry, f"s_{entry.value.name}", dtype, tile.axes, where.swizzle, stages=consumers)
        slot = Slot(buffer.name, Var(CONSUMER), where.swizzle)
        barrier = consumers_barrier(consumers)
        for start in range(0, tile.axes[0].size, tile.rows):
            rows = TileAxis(tile.axes[0].name, tile.rows)
            ops = pieces(self.defs, entry.value, rows, start, lambda name: self._copied(self.env[name]) is not None)
            for op in ops:
                (result,) = vr.results(op)
                self.env.setdefault(result.name, Entry(result, op, entry.depth))
                self.pieces[result.name] = start
            value = vr.results(ops[-1])[0]
            layout = tile.layout(self.b.warps)
            frag = self.get(value, layout)
            if start == 0:
                self.b.emit(barrier, entry.depth)
            vec = shared_vec(layout, tile.axes, dtype)
            self.b.emit(ma.SharedStore(slot, frag, vec, span=span, start=start), entry.depth)
        self.b.emit(ProxyFence(span), entry.depth)
        self.b.emit(barrier, entry.depth)
        return slot

    def _load(self, op: vr.LoadOp, layout: FragLayout, depth: int) -> Frag:
        """A load in ``layout``; a piece of a tile that an operand is computed from comes from shared memory."""
        whole = self.pieces.get(op.result.name)
        if whole is None:
            return super()._load(op, layout, depth)
        name = op.result.name.rpartition(PIECE)[0]
        slot = self._copied(self.env[name]) if name in self.defs else None
        if slot is None:
            return super()._load(op, layout, depth)
        out = self.b.frag(op.result.name, op.result.type, layout)
        buffer = self.b.smem[slot.buffer]
        vec = shared_vec(layout, buffer.axes, buffer.dtype)
        self.b.emit(ma.SharedLoad(out, slot, vec, op.span, whole), depth)
        return out

    def _copied(self, entry: Entry) -> Slot | None:
        """A large tile in shared memory, by a TMA copy; None where it is small or no copy loads it."""
        op = entry.op
        assert isinstance(op, vr.LoadOp)
        if entry.value.name in self.in_shared:
            return self.in_shared[entry.value.name]
        if prod(op.result.type.shape) < LEAST:
            return None
        load = self._at_variables(unmasked(op)[0], entry.depth)
        box = tma_box(
            self.buffers[op.buffer], op.result.type.axes, load.index, load.mask, self.ranges, combined=self.combined
        )
        if not isinstance(box, TmaBox) or box.axes[0].name not in {t.axes[0].name for t in self.computed.values()}:
            return None
        divided = self.plan.divided in op.result.type.names
        stages, stage = (self.plan.consumers, Var(CONSUMER)) if divided else (1, ZERO)
        dtype = op.result.type.dtype
        buffer = self.stage_buffer(entry, f"s_{op.result.name}", dtype, box.axes, box.swizzle, stages=stages)
        slot = self.in_shared[entry.value.name] = Slot(buffer.name, stage, box.swizzle)
        self._load_box(slot, load, entry.depth)
        return slot

    def _in_positions(self, entry: Entry, target: FragLayout, axis: str) -> Frag | None:
        """A computed left operand in ``target``, whose contracted ``axis`` counts interleaved positions.

        What is rounded to 8 bits moves before that, because four of the results share a register.
        """
        op = entry.op
        rounded = op if isinstance(op, vr.MapOp) and op.op == "narrow" and not entry.frags else None
        source = rounded.args[0] if rounded is not None else entry.value
        frag = self.any_form(source)
        if same_threads(self.b.layouts[frag.layout], target, axis) is None:
            return None
        moved = self.b.frag(source.name, source.type, target)
        self.b.emit(ma.ConvertOp(moved, frag, interleaved=axis))
        if rounded is None:
            return moved
        out = self.b.frag(entry.value.name, entry.value.type, target)
        self.b.emit(ma.MapOp(out, rounded.op, (moved,), rounded.span))
        return out

    def _loaded(self, entry: Entry, op: vr.LoadOp, dot: vr.DotOp, plan: DotPlan, side: str) -> Frag | Slot:
        base = self.interleaved.get(dot.result.name)
        op = op if side == "a" or base is None else _in_order(op, calc("add", base, Var(plan.k)))
        op = self._at_variables(op, entry.depth)
        found = tma_box(
            self.buffers[op.buffer], op.result.type.axes, op.index, op.mask, self.ranges, combined=self.combined
        )
        if isinstance(found, TmaBox) and found.axes[-1].name != plan.k and not WGMMA[plan.instr].both_majors:
            reason = f"{op.buffer} is not contiguous along {plan.k}, as {plan.instr} needs it"
            found = Obstacle(reason, Cause.ORDER, op.buffer, axis=plan.k)
        if isinstance(found, TmaBox):
            if entry.value.name not in self.in_shared:
                self.in_shared[entry.value.name] = self._copy(entry, op, found)
            return self.in_shared[entry.value.name]
        if side == "b" and self.parts and self.parts.get(entry.value.name, (entry.value.name,))[0] in self.computed:
            return self._computed(entry.value, dot)
        if side == "a" and (entry.depth < self.b.depth or entry.depth == 0):  # loaded once: not worth a copy
            return self.get(entry.value, a_fragment(plan, self.sizes))
        hand = "left" if side == "a" else "right"
        detail = f"has a {hand} operand, %{entry.value.name}, that no TMA copy can load: {found.reason}"
        reject(self.kernel, dot, detail, found)

    def _copy(self, entry: Entry, op: vr.LoadOp, plan: TmaBox) -> Slot:
        """A TMA copy; where consumers divide an axis of the tile, each has a stage for its own part.

        Of a tile of which they read all parts, every stage is loaded for all of them.
        """
        own, _ = self.parts.get(op.result.name, (op.result.name, 0))
        parts = {n: self.env[name] for name, (whole, n) in self.parts.items() if whole == own}
        divided = self.plan.consumers > 1 and self.plan.divided in op.result.type.names
        stages, stage = (self.plan.consumers, Var(CONSUMER)) if divided else (1, ZERO)
        dtype = op.result.type.dtype
        buffer = self.stage_buffer(entry, f"s_{own}", dtype, plan.axes, plan.swizzle, stages=stages)
        slot = Slot(buffer.name, stage, plan.swizzle)
        for n, part in parts.items():
            self.in_shared[part.value.name] = replace(slot, stage=integer(n))
            assert isinstance(part.op, vr.LoadOp)
            self._load_box(self.in_shared[part.value.name], self._at_variables(part.op, entry.depth), entry.depth)
        if not parts:
            self._load_box(slot, op, entry.depth)
        self.in_shared[own] = slot
        return self.in_shared[op.result.name] if parts else slot

    def _at_variables(self, op: vr.LoadOp, depth: int) -> vr.LoadOp:
        """``op`` with variables for the numbers of its position that are loaded, such as that of a page.

        The role that copies the tile reads such a number for itself.
        """

        def variable(e: Expr) -> Expr | None:
            found = self._number(e)
            if found is None:
                return None
            block = self.b.blocks[depth]
            for let in (x for x in block if isinstance(x, LetOp) and x.expr == found):
                return Var(let.var, found.dtype)
            name = self.b.name(f"{found.buffer}_at")
            self.b.emit(LetOp(name, found, op.span), depth)
            return Var(name, found.dtype)

        index = tuple(rewrite(e, variable) for e in op.index)
        return replace(op, index=index, mask=None if op.mask is None else rewrite(op.mask, variable))

    def _number(self, e: Expr) -> Load | None:
        """The load of the one number ``e`` at a position of variables and such numbers; None where it is none."""
        load = self.env[e.name].op if isinstance(e, Ref) else None
        if not isinstance(load, vr.LoadOp) or load.result.type.axes or load.mask is not None:
            return None
        if load.buffer in self.stored or not load.result.type.dtype.is_int:
            return None
        index = tuple(rewrite(x, self._number) for x in load.index)
        if any(isinstance(n, Ref) for x in index for n in walk(x)):
            return None
        return Load(load.buffer, index, load.result.type.dtype, load.span)

    def _load_box(self, slot: Slot, op: vr.LoadOp, depth: int) -> None:
        index = tuple(self.expr(e, self.candidates.preferred(())) for e in op.index)
        self.b.emit(TmaLoad(slot, op.buffer, index, span=op.span), depth)


def _in_order(op: vr.LoadOp, last: Expr) -> vr.LoadOp:
    """``op`` with ``last`` for the position along rows, which are whole groups: both are within them, or neither is."""
    position = op.index[-1]
    mask = None if op.mask is None else rewrite(op.mask, lambda e: last if e == position else None)
    return replace(op, index=(*op.index[:-1], last), mask=mask)


def _interleaved(
    kernel: TileKernel, buffers: Mapping[str, Buffer], defs: Mapping[str, vr.TileOp], dots: Mapping[str, DotPlan]
) -> dict[str, Expr]:
    """The dots whose right operand is read at interleaved positions of rows of whole groups, and the first of them.

    Such a position is that of an element ``base + k`` for the contracted axis ``k``.
    """
    sizes = {a.name: a.size for a in kernel.axes}
    found: dict[str, Expr] = {}
    for op in vr.walk_ops(kernel.body):
        if not isinstance(op, vr.DotOp) or dots[op.result.name].instr not in WGMMA:
            continue
        plan = dots[op.result.name]
        instr = WGMMA[plan.instr]
        load = defs.get(as_operand(op.a if plan.swap else op.b, defs, operand_types(instr, "b")).name)
        rows = buffers[load.buffer].shape[-1:] if isinstance(load, vr.LoadOp) else ()
        whole = [n for n in rows if divisor(extent_expr(n)) % GROUP == 0]
        if instr.pack == _BYTES and isinstance(load, vr.LoadOp) and whole:
            base = base_of(load.index[-1], plan.k, sizes[plan.k])
            found |= {} if base is None else {op.result.name: base}
    return found
