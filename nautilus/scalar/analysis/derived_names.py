"""Names that ``fuse``, ``split``, ``reorder`` and ``rolling-update`` derive from a kernel's plan.

The passes exchange plain Scalar IR.  Further conventions are functions of the plan alone and are defined here: the
local that holds a definition in a phase, and the name of the block variable of a tiled axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nautilus.core.errors import ScheduleError
from nautilus.core.index.sizes import Extent, blocks, rounded_up
from nautilus.core.schedule import AxisPlan, KernelPlan, Schedule, WarpgroupPlan

GRID: Final = "grid"
LOOP: Final = "loop"
TILE: Final = "tile"


def phases(plan: KernelPlan) -> tuple[tuple[str, ...], ...]:
    """The phases in order; without phases in the plan, each op is a phase of its own."""
    return plan.phases or tuple((o,) for o in plan.ops)


def occurrences(plan: KernelPlan) -> Iterator[tuple[int, str, int]]:
    """(phase, op, number of earlier computations of the op) in emission order."""
    seen: dict[str, int] = {}
    for p, ops in enumerate(phases(plan)):
        for op in ops:
            yield p, op, seen.get(op, 0)
            seen[op] = seen.get(op, 0) + 1


def local_name(op: str, occurrence: int, *, stored: bool) -> str:
    """The local of ``op``; ``stored``: the definition also has a buffer with its name."""
    base = f"{op}__tile" if stored else op
    return base if occurrence == 0 else f"{base}__{occurrence + 1}"


def phase_of(plan: KernelPlan, locals_: frozenset[str]) -> dict[str, int]:
    """Buffer -> the phase that writes it: a local's own phase, or the last phase of a stored definition."""
    table: dict[str, int] = {}
    for p, op, k in occurrences(plan):
        for stored in (False, True):
            name = local_name(op, k, stored=stored)
            if name in locals_:
                table[name] = p
        if op not in locals_:
            table[op] = p
    return table


def block_var(plan: KernelPlan, axis: str) -> str:
    """The loop variable that counts tiles of ``axis`` (the axis itself where tiles have one element)."""
    if not is_tiled(plan.axis(axis)):
        return axis
    names = {a.name for a in plan.axes}
    name = f"{axis}0"
    while name in names:
        name += "b"
    return name


def tiles_along(plan: KernelPlan, axis: str, extent: Extent) -> Extent:
    """The tiles of a grid or loop axis of this extent.

    Along the last grid axis but one these are whole clusters, where neighbouring blocks have neighbouring tiles along
    it and share the loads of a cluster: a last tile may lie outside of the axis.
    """
    found, mapping = blocks(extent, plan.axis(axis).tile), plan.mapping
    if not isinstance(mapping, WarpgroupPlan) or mapping.cluster == 1 or mapping.raster_order != "grouped":
        return found
    grid = [a for a in plan.axes if a.role == GRID]
    neighbours = len(grid) > 1 and grid[-2].name == axis and has_tile(grid[-2])
    return rounded_up(found, mapping.cluster) if neighbours and not mapping.raster_group % mapping.cluster else found


def is_tiled(axis: AxisPlan) -> bool:
    """Whether positions along ``axis`` are ``block * tile + inner`` (role tile: inner alone)."""
    return axis.role != TILE and axis.tile > 1


def has_tile(axis: AxisPlan) -> bool:
    """Whether a tile variable of that name exists."""
    return axis.role == TILE or axis.tile > 1


def plan_of(schedule: Schedule, kernel: str) -> KernelPlan:
    """The plan of kernel ``kernel``. Raises ScheduleError."""
    for k in schedule.kernels:
        if k.name == kernel:
            return k
    raise ScheduleError(f"the schedule has no kernel {kernel!r}")
