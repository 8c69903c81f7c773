"""Copies the tiles that elementwise work in a loop of MMAs reads to shared memory, with the operands.

A thread of a warpgroup has two neighbouring elements in a row of an accumulator, so a load from memory in that layout
reads 16 bytes in each of eight rows, and waits for them beside the MMAs.  A bulk copy loads the tile ahead, in the
pipelines of the operands (``specialise-warps``)::

    for j0 in ..                                for j0 in ..
        %s = mma ..                                 tma.load in_A[consumer], A[i0 + i, j0 * 64 + j]
        %a = ld.global A[i0 + i, j0 * 64 + j]       %s = mma ..
        %t = add %s, %a                             %a = ld.shared in_A[consumer]
                                                    %t = add %s, %a

Loads of one buffer, with tiles of one shape, share their stages in the loops of one chain.

Measured on an H200 (us, attention of 2 x 16 heads, 2048 x 2048, D = 64): 162 with a mask of f16 that is loaded in the
layout of the accumulator, 75 without a mask.

Switch: ``WarpgroupPlan.warp_specialised``.  A load is not changed where

* the kernel has no warp roles (``specialise-warps``), or writes the buffer;
* the tile is no whole accumulator of one consumer with at least :data:`LEAST` elements;
* the loop reads several such tiles, for which ptxas finds too few registers beside the MMAs;
* no bulk copy loads it (:mod:`nautilus.ma_tile.analysis.tma_boxes`), or its stages do not fit beside the others.
"""

from __future__ import annotations

from dataclasses import field, replace

from nautilus.core.buffers import Space
from nautilus.core.expr.build import integer
from nautilus.core.expr.nodes import Var, free_vars
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, WarpgroupPlan
from nautilus.core.text.names import fresh
from nautilus.core.tiles import TileAxis
from nautilus.ma_tile.analysis.tma_boxes import TmaBox, tma_box
from nautilus.ma_tile.ir.async_ops import CONSUMER, GROUP_WARPS, TmaLoad, TmaStore
from nautilus.ma_tile.ir.instruction_tables import WGMMA, wg_acc_layout
from nautilus.ma_tile.ir.ops import (
    ForOp,
    Frag,
    GlobalLoad,
    GlobalStore,
    MemKernel,
    MemModule,
    MemOp,
    MmaOp,
    SharedLoad,
    Slot,
    Smem,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import each_kernel, rebuild, warpgroup_plan_of
from nautilus.ma_tile.passes.copies.specialise_warps import obstacle
from nautilus.ma_tile.passes.epilogue.tma_stores import known_ranges, pipeline_bytes
from nautilus.ma_tile.passes.finalise.allocate_shared import reallocate
from nautilus.ma_tile.verify.layout import same_map
from nautilus.targets.limits import limits

LEAST = 2048  # elements of a tile
VECTOR = 2  # neighbouring elements of an accumulator


@dataclass(frozen=True, slots=True)
class StageLoads:
    """``limit`` overrides the target's bytes of shared memory a block."""

    schedule: Schedule | None = None
    limit: int | None = None
    name = "stage-loads"

    def apply(self, module: MemModule) -> MemModule:
        limit = self.limit if self.limit is not None else limits(module.target).smem_block

        def one(k: MemKernel) -> MemKernel:
            plan = warpgroup_plan_of(self.schedule, k)
            return k if plan is None else stage_loads(k, module, plan, limit)

        return each_kernel(module, one)


def stage_loads(kernel: MemKernel, module: MemModule, plan: WarpgroupPlan, limit: int) -> MemKernel:
    """``kernel`` with bulk copies for the tiles of elementwise work in its loops of MMAs."""
    if not plan.warp_specialised or plan.stages < 2 or obstacle(kernel) is not None:
        return kernel
    work = _Loads(kernel, module, plan, limit)
    body = rebuild(kernel.body, lambda op: (work.loop(op),) if isinstance(op, ForOp) else (op,))
    if not work.new:
        return kernel
    staged = replace(kernel, smem=(*kernel.smem, *work.new.values()), body=body)
    return reallocate(staged, limits(module.target))


@dataclass(slots=True)
class _Loads:
    """The loads of one kernel. ``new``: the buffers, by tensor and axes."""

    kernel: MemKernel
    module: MemModule
    plan: WarpgroupPlan
    limit: int
    new: dict[tuple[str, tuple[TileAxis, ...]], Smem] = field(default_factory=dict)

    def loop(self, op: ForOp) -> ForOp:
        """``op``, if it has MMAs of warpgroups, with copies for its loads."""
        if not any(isinstance(x, MmaOp) and x.instr in WGMMA for x in op.body):
            return op
        found = [x for x in op.body if isinstance(x, GlobalLoad) and self._is_tile(x)]
        staged = self._staged(found[0]) if len(found) == 1 else None
        if staged is None:
            return op
        return replace(op, body=tuple(y for x in op.body for y in (staged if x is found[0] else (x,))))

    def _is_tile(self, op: GlobalLoad) -> bool:
        """Whether ``op`` loads a whole accumulator's worth of an input, or of what other kernels made."""
        written = {x.buffer for x in walk_ops(self.kernel.body) if isinstance(x, GlobalStore | TmaStore)}
        inside = self.module.buffer(op.buffer).space in (Space.INPUT, Space.TEMP) and op.buffer not in written
        return inside and self._is_accumulator(op.result)

    def _staged(self, op: GlobalLoad) -> tuple[MemOp, ...] | None:
        buffer = self.module.buffer(op.buffer)
        box = tma_box(buffer, op.result.type.axes, op.index, op.mask, known_ranges(self.kernel))
        if not isinstance(box, TmaBox) or op.repeat is not None:
            return None
        apart = any(CONSUMER in free_vars(e) for e in op.index)
        stages = self.kernel.consumers if apart else 1
        key = op.buffer, box.axes
        if key not in self.new:
            name = fresh(f"in_{op.buffer}", {s.name for s in (*self.kernel.smem, *self.new.values())})
            made = Smem(name, buffer.dtype, box.axes, stages, box.swizzle)
            if not self._fits(made):
                return None
            self.new[key] = made
        smem = self.new[key]
        if smem.stages != stages:
            return None
        slot = Slot(smem.name, Var(CONSUMER) if apart else integer(0), smem.swizzle)
        vec = VECTOR if buffer.dtype.bytes <= 4 and op.vec >= VECTOR else 1
        return TmaLoad(slot, op.buffer, op.index, span=op.span), SharedLoad(op.result, slot, vec, op.span)

    def _is_accumulator(self, f: Frag) -> bool:
        layout, axes = self.kernel.layouts[f.layout], [a for a in f.type.axes if a.size > 1]
        if len(axes) != 2 or axes[0].size * axes[1].size < LEAST or layout.warps != GROUP_WARPS:
            return False
        return any(same_map(layout, wg_acc_layout(m.name, n.name, m.size, n.size)) for m, n in (axes, axes[::-1]))

    def _fits(self, made: Smem) -> bool:
        """Whether all stages of ``made`` fit beside those of the kernel."""
        consumers = self.plan.warpgroups if self.plan.is_pingpong else 1
        more = sum(s.bytes for s in (*self.new.values(), made)) * self.plan.stages * consumers
        return pipeline_bytes(self.kernel, self.plan) + more <= self.limit
