"""The choices of one kernel, and how each changes its plan.

A tuning parameter starts from the plan of the default rules for an engine, and its default is the value in that plan.
The plan in which every parameter has its default equals the plan of the rules exactly.  After a change of a tile the
same rules choose the dependent values again: the number of pipeline stages that fit in shared memory, the registers,
and the chunks of the epilogue.  The structure and the sizes determine the listed values.  Values that never gained in
measurements are left out (deeper k-steps, clusters of four, cache hints, single producer warps).
"""

from __future__ import annotations

from typing import Any

from nautilus.core.errors import ScheduleError
from nautilus.core.schedule import KernelPlan, WarpgroupPlan
from nautilus.tune.space import warp_parameters as warp
from nautilus.tune.space import warpgroup_parameters as warpgroup
from nautilus.tune.space.shape import BACK_TO_BACK_GEMM, GEMM, KernelShape
from nautilus.tune.space.tuning_parameter import TuningParameter


def parameters(plan: KernelPlan, shape: KernelShape) -> tuple[TuningParameter, ...]:
    """The parameters of ``plan`` that have several values, those with the largest effect first."""
    if isinstance(plan.mapping, WarpgroupPlan):
        ways = {GEMM: warpgroup.gemm, BACK_TO_BACK_GEMM: warpgroup.back_to_back_gemm}
        found = ways[shape.kind](plan, shape) if shape.kind in ways else []
    elif plan.mapping.combine_in_block:
        found = warp.combined_in_block(plan, shape)
    elif plan.mapping.cluster > 1:
        found = warp.combined_in_cluster(plan)
    elif shape.kind == GEMM:
        found = warp.gemm(plan, shape)
    elif shape.kind == BACK_TO_BACK_GEMM:
        found = warp.back_to_back_gemm(plan, shape)
    else:
        found = warp.rows(plan, shape)
    return tuple(p for p in found if len(p.values) > 1)


def apply(plan: KernelPlan, shape: KernelShape, chosen: dict[str, Any]) -> KernelPlan:
    """``plan`` with the values of ``chosen``. Raises ScheduleError for a value that a parameter does not have."""
    changed = []
    for p in parameters(plan, shape):
        value = chosen.get(p.name, p.default)
        if value not in p.values:
            raise ScheduleError(f"{p.name} is {value!r} here, not one of {', '.join(map(str, p.values))}")
        if value != p.default:
            changed.append((p, value))
    out = plan
    for p, value in changed:
        if p.structural:
            out = p.apply(out, value)
    if isinstance(out.mapping, WarpgroupPlan) and any(p.structural for p, _ in changed):
        out = warpgroup.finalise(out, out.mapping, shape)
    for p, value in changed:
        if not p.structural:
            out = p.apply(out, value)
    return out
