"""Products whose terms the warps of a block divide (CUTLASS: sliced-K).

Both operands have an axis, the *slices*, that the result keeps, and every warp has one position along it::

    part[w, b, i] = sum[k](h[b, w * K + k] * U[w * K + k, i])

A warp multiplies fragments that it loads from memory itself: no other warp needs them.  Those of a matrix that a loop
does not change stay in registers.  The partial results go through shared memory, from which each thread reads those of
all warps for the elements that it adds up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.buffers import Buffer
from nautilus.ma_tile.analysis.access import contiguous_axis
from nautilus.ma_tile.ir.instruction_tables import MMA, operand_types
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.lowering.dots import DotPlan, as_operand
from nautilus.ma_tile.lowering.layouts import in_slices
from nautilus.ma_tile.lowering.operands.computed_operands import Runs, operand_of
from nautilus.vr_tile import ir as vr
from nautilus.vr_tile.ir import TileKernel


def operand_layout(runs: Runs, dot: vr.DotOp, plan: DotPlan, side: str) -> FragLayout:
    """The fragments of one side, of runs where a loaded operand is contiguous along the contracted axis."""
    return in_slices(runs.layout(plan, side, runs=_has_runs(runs, dot, plan)), plan, runs.sizes)


def sliced_loads(
    kernel: TileKernel, buffers: Mapping[str, Buffer], dots: Mapping[str, DotPlan], runs: Runs
) -> dict[str, FragLayout]:  # fmt: skip
    """Value name -> layout, for the loads that are operands of such products."""
    found: dict[str, FragLayout] = {}
    for op in vr.walk_ops(kernel.body):
        plan = dots.get(op.result.name) if isinstance(op, vr.DotOp) else None
        for side in "ab" if plan is not None and plan.slices else "":
            assert isinstance(op, vr.DotOp) and plan is not None
            v = as_operand(operand_of(op, plan, side), runs.defs, operand_types(MMA[plan.instr], side))
            load = runs.defs.get(v.name)
            if isinstance(load, vr.LoadOp):
                layout = operand_layout(runs, op, plan, side)
                last = contiguous_axis(buffers[load.buffer], load.index, v.type.names, runs.refs)
                along = tuple(m for m in layout.reg if m.axis == last)
                found[v.name] = replace(layout, reg=(*along, *(m for m in layout.reg if m not in along)))
    return found


def all_slices(layout: FragLayout, plan: DotPlan, size: int) -> FragLayout:
    """``layout`` of sums with the partial results of all ``size`` slices in the registers of a thread."""
    return replace(layout, reg=(*layout.reg, Mode(size, plan.slices, 1)))


def _has_runs(runs: Runs, dot: vr.DotOp, plan: DotPlan) -> bool:
    if not runs.exist(plan):
        return False
    for side in "ab":
        v = as_operand(operand_of(dot, plan, side), runs.defs, operand_types(MMA[plan.instr], side))
        load = runs.defs.get(v.name)
        if isinstance(load, vr.LoadOp):
            buffer = runs.buffers[load.buffer]
            if contiguous_axis(buffer, load.index, v.type.names, runs.refs) == plan.k:
                return True
    return False
