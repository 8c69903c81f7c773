"""The mapping of a kernel, checked to have the engine that a test expects."""

from __future__ import annotations

from nautilus.core.schedule import KernelPlan, WarpgroupPlan, WarpPlan


def warp_of(plan: KernelPlan) -> WarpPlan:
    """The mapping of a kernel for the engine ``warp``."""
    assert isinstance(plan.mapping, WarpPlan)
    return plan.mapping


def warpgroup_of(plan: KernelPlan) -> WarpgroupPlan:
    """The mapping of a kernel for the engine ``warpgroup``."""
    assert isinstance(plan.mapping, WarpgroupPlan)
    return plan.mapping
