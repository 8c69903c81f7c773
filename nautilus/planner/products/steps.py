"""Plans of recurrences whose steps are products of matrices (:mod:`nautilus.scalar.analysis.states.step_products`).

Where all factors have 16 bits, a warpgroup has the 64 lanes of a block, and a producer loads the factors from memory.
Otherwise each warp has 16 lanes, or several warps share them where rows are long.  What the steps make stays in the
registers of the warps that have its lanes, where these are not shared.
"""

from __future__ import annotations

from nautilus.core.fallbacks import LIGHTER, WITHOUT, Fallbacks
from nautilus.core.schedule import AxisPlan, KernelPlan, MappingPlan, WarpgroupPlan, WarpPlan
from nautilus.scalar.analysis.definitions import is_recurrence
from nautilus.scalar.analysis.states.step_products import StepProducts, step_products
from nautilus.scalar.ir import Kernel, Program
from nautilus.targets.limits import Limits, limits

_ROWS = 64  # rows of a product of a warpgroup
_STAGES = 4
_WARP_ROWS = 16
_ELEMENTS = 2048  # elements of a tile that a warp has


def plan_steps(program: Program, arch: str, fallbacks: Fallbacks) -> tuple[KernelPlan, ...]:
    """The plans of the recurrences of ``program`` whose steps are products of matrices."""
    known = ((k, step_products(k)) for k in program.kernels if is_recurrence(k))
    return tuple(
        _plan(k, found, limits(arch), fallbacks.steps(k.name))
        for k, found in known
        if found is not None and fallbacks.steps(k.name) < WITHOUT
    )


def _plan(k: Kernel, found: StepProducts, target: Limits, step: int) -> KernelPlan:
    axes = (AxisPlan(found.lanes.var, "grid", found.tile),)
    room = target.smem_block * 3 // 4
    down = found.tile // _WARP_ROWS
    mapping: MappingPlan = WarpPlan(warps=(down, max(1, found.elements // (down * _ELEMENTS))), stages=2)
    if target.warpgroup and found.halves and found.tile == _ROWS and step < LIGHTER and found.loaded <= room:
        mapping = WarpgroupPlan(warpgroups=1, stages=min(_STAGES, room // found.loaded), pipeline_mma=False)
    return KernelPlan(k.name, (k.name,), axes, mapping=mapping)
