"""Matrix products of warpgroups: operands by TMA loads, consumers that divide the rows (``sm_90a`` class).

Loaded operands come to shared memory by bulk copies, swizzled as the instruction reads them.  A left
operand may also be computed: its fragment then is a permutation inside each thread (the accumulator of
the dot before), or is made in the instruction's own layout from loads.  Right operands must be
loaded.  Nothing else goes through shared memory: everything elementwise lies in the accumulators'
layouts or their projections, where it belongs to one consumer and, along columns, to four lanes.

Cooperative warpgroups (``WarpgroupPlan.tile_scheduling``) each run the whole kernel on their part of the rows
(``ma_tile.lowering.consumers``): a loaded left operand has one stage a warpgroup, right operands are shared.

The result is synchronous: TMA loads and MMAs that wait for themselves, in program order,
without barriers (``ma_tile.ir.async_ops``).  Raises ScheduleError that names the dot and the reason
where a kernel cannot be lowered so.
"""

from __future__ import annotations

from nautilus.core.buffers import Buffer
from nautilus.core.errors import Cause, Obstacle, ScheduleError
from nautilus.core.expr.nodes import Op, Var
from nautilus.core.index.sizes import at_most
from nautilus.core.schedule import WarpgroupPlan
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.tma_boxes import TmaBox, tma_box
from nautilus.ma_tile.ir import ops as ma
from nautilus.ma_tile.ir.async_ops import CONSUMER, GROUP_WARPS, WGMMA, TmaLoad
from nautilus.ma_tile.ir.instruction_tables import operand_types
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import Frag, MemKernel, Slot
from nautilus.ma_tile.lowering.consumers import split_axis
from nautilus.ma_tile.lowering.dots import DotPlan, as_operand, forms
from nautilus.ma_tile.lowering.grid import decode_grid
from nautilus.ma_tile.lowering.layouts import a_fragment
from nautilus.ma_tile.lowering.ops import ZERO, Entry, Lowering
from nautilus.ma_tile.lowering.warpgroup_dots import GroupPlan, plan_warpgroup, reject
from nautilus.targets.limits import limits
from nautilus.vr_tile import ir as vr
from nautilus.vr_tile.ir import TileKernel, Value


def lower_warpgroup_kernel(
    kernel: TileKernel, buffers: dict[str, Buffer], mapping: WarpgroupPlan, target: str, strict: bool = False
) -> MemKernel:
    """One kernel, synchronous. With pingpong tile scheduling: what one warpgroup does, as a
    kernel of one.

    ``strict``: only instructions that keep all bits of their accumulators.
    """
    if not limits(target).warpgroup:
        raise ScheduleError(f"the engine warpgroup is for targets with warpgroup MMAs, not {target}", "engine")
    plan = plan_warpgroup(kernel, mapping, strict)
    own = kernel if plan.consumers == 1 else split_axis(kernel, plan.rows, plan.consumers)
    work = _WarpgroupLowering(own, buffers, mapping, plan)
    work.block(own.body)
    blocks, decode = decode_grid(kernel, mapping)
    b = work.b
    return MemKernel(
        kernel.name, blocks, GROUP_WARPS * plan.consumers, mapping.min_blocks, decode, dict(b.layouts),
        tuple(b.smem.values()), (), tuple(b.blocks[0]), kernel.span, plan.consumers,
    )  # fmt: skip


class _WarpgroupLowering(Lowering):
    """How the engine ``warpgroup`` moves values; ``kernel`` is what one consumer does."""

    def __init__(self, kernel: TileKernel, buffers: dict[str, Buffer], mapping: WarpgroupPlan, plan: GroupPlan) -> None:
        super().__init__(kernel, buffers, mapping, dict(plan.dots), (GROUP_WARPS, 1))
        self.plan = plan
        self.bulk: dict[str, Slot] = {}  # loaded value -> where its bulk copy put it
        self.ranges = {CONSUMER: (0, plan.consumers - 1)} | {
            g.var: (0, max(at_most(g.extent) - 1, 0)) for g in kernel.grid
        }

    def exchange(self, entry: Entry, layout: FragLayout) -> Frag:
        """Refused: consumers would have to wait for each other."""
        raise ScheduleError(f"%{entry.value.name} would move between threads of a consumer", kernel=self.kernel.name)

    def scratch(self, out: Frag, count: int) -> str:
        """Refused, likewise."""
        raise ScheduleError(f"%{out.name} is combined along rows, between warps of a consumer", kernel=self.kernel.name)

    def lazy(self, op: vr.MapOp) -> bool:
        """Every exact widening waits: a dot may read what was widened."""
        return super().lazy(op) or len(forms(op.result, self.defs)) > 1

    def store(self, op: vr.StoreOp) -> None:
        """From fragments; what every consumer has the same, the first one stores."""
        store = self.global_store(op, self.any_form(op.value))
        if self.plan.consumers == 1 or self.plan.rows in op.value.type.names:
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
            reject(self.kernel, dot, f"has a right operand, %{v.name}, that is computed, not loaded")
        target = a_fragment(plan, self.sizes)
        if isinstance(entry.op, vr.ConstOp | vr.IndexOp | vr.ParamOp):
            return self.get(v, target)
        self.any_form(v)
        name = self.b.layout(target)
        found = entry.frags.get(name) or self.permuted(entry, target)
        if found is None:
            reject(self.kernel, dot, f"has a left operand, %{v.name}, that lies in other threads' registers")
        entry.frags[name] = found
        return found

    def _loaded(self, entry: Entry, op: vr.LoadOp, dot: vr.DotOp, plan: DotPlan, side: str) -> Frag | Slot:
        found = tma_box(self.buffers[op.buffer], op.result.type.axes, op.index, op.mask, self.ranges)
        if isinstance(found, TmaBox) and found.axes[-1].name != plan.k and not WGMMA[plan.instr].both_majors:
            reason = f"{op.buffer} is not contiguous along {plan.k}, as {plan.instr} wants it"
            found = Obstacle(reason, Cause.ORDER, op.buffer, axis=plan.k)
        if isinstance(found, TmaBox):
            if entry.value.name not in self.bulk:
                self.bulk[entry.value.name] = self._copy(entry, op, found)
            return self.bulk[entry.value.name]
        if side == "a" and (entry.depth < self.b.depth or entry.depth == 0):  # loaded once: not worth a copy
            return self.get(entry.value, a_fragment(plan, self.sizes))
        hand = "left" if side == "a" else "right"
        detail = f"has a {hand} operand, %{entry.value.name}, that no bulk copy can load: {found.reason}"
        reject(self.kernel, dot, detail, found)

    def _copy(self, entry: Entry, op: vr.LoadOp, plan: TmaBox) -> Slot:
        """A bulk copy; where consumers share rows, each has a stage for its own."""
        shared = self.plan.consumers > 1 and self.plan.rows in op.result.type.names
        stages, stage = (self.plan.consumers, Var(CONSUMER)) if shared else (1, ZERO)
        dtype = op.result.type.dtype
        buffer = self.stage_buffer(entry, f"s_{op.result.name}", dtype, plan.axes, plan.swizzle, stages=stages)
        slot = Slot(buffer.name, stage, plan.swizzle)
        index = tuple(self.expr(e, self.candidates.preferred(())) for e in op.index)
        self.b.emit(TmaLoad(slot, op.buffer, index, span=op.span), entry.depth)
        return slot
