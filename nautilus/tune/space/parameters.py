"""The choices of one kernel, and how each changes its plan.

A tuning parameter starts from the plan that the default rules made for an engine, and its default is what that plan
has: where every parameter has its default, the plan is the rules' own, bit for bit.  A changed tile makes what
depends on it follow the same rules again: the multi-stage pipeline as deep as shared memory allows, registers, the
chunks of the epilogue.  Which values are listed comes from the structure and sizes; measured dead ends are left out
(deeper k-steps, clusters of four, cache hints, single producer warps).
"""

from __future__ import annotations

from typing import Any

from nautilus.core.errors import ScheduleError
from nautilus.core.schedule import KernelPlan, WarpgroupPlan
from nautilus.tune.space import warp_parameters as warp
from nautilus.tune.space import warpgroup_parameters as warpgroup
from nautilus.tune.space.shape import CHAIN, PRODUCT, KernelShape
from nautilus.tune.space.tuning_parameter import TuningParameter


def parameters(plan: KernelPlan, shape: KernelShape) -> tuple[TuningParameter, ...]:
    """The parameters of ``plan``, those that matter most first; those of one value are left out."""
    if isinstance(plan.mapping, WarpgroupPlan):
        ways = {PRODUCT: warpgroup.product, CHAIN: warpgroup.chain}
        found = ways[shape.kind](plan, shape) if shape.kind in ways else []
    elif plan.mapping.combine_in_block:
        found = warp.combined_in_block(plan, shape)
    elif plan.mapping.cluster > 1:
        found = warp.combined_in_cluster(plan)
    elif shape.kind == PRODUCT:
        found = warp.product(plan, shape)
    elif shape.kind == CHAIN:
        found = warp.chain(plan, shape)
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
