"""The kernel that computes tiles of another one again: its name and its mapping, which no schedule holds.

``recompute-masked`` (:mod:`nautilus.vr_tile.passes.masked`) makes it.  It rarely has work, so that its mapping is the
same everywhere: few rows, for few registers and little shared memory, and no pipeline.
"""

from __future__ import annotations

from nautilus.core.schedule.mapping import MappingPlan, WarpPlan
from nautilus.core.schedule.plans import Schedule

ROWS = 32  # of a tile
_SUFFIX = "_masked"
_MAPPING = WarpPlan(stages=0, warps=(ROWS // 16, 2), epilogue="direct", prefetch_fragments=0)


def recomputing(name: str) -> str:
    """The name of the kernel that computes tiles of kernel ``name`` again."""
    return name + _SUFFIX


def recomputed(name: str, schedule: Schedule | None) -> str:
    """The kernel whose tiles kernel ``name`` computes again, which the schedule has; ``name`` if there is none."""
    base = name.removesuffix(_SUFFIX)
    planned = {k.name for k in schedule.kernels} if schedule is not None else set[str]()
    return base if base in planned and name not in planned else name


def mapping_of(schedule: Schedule | None, name: str) -> MappingPlan | None:
    """The mapping of kernel ``name``; None where the schedule has neither it nor the kernel that it computes again."""
    for k in schedule.kernels if schedule is not None else ():
        if k.name == name:
            return k.mapping
    return _MAPPING if recomputed(name, schedule) != name else None
