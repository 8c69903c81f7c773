"""Kernels that no schedule holds: their names and their mappings, which are the same everywhere.

``recompute-masked`` (:mod:`nautilus.vr_tile.passes.masked`) makes a kernel that computes tiles of another one again.
It rarely has work: few rows, for few registers and little shared memory, and no pipeline.

``store-parts`` (:mod:`nautilus.vr_tile.passes.parts`) makes a kernel that stores the parts of a tensor: elementwise
work, 8 elements a thread.  So are the kernels that store the initial values of scattered buffers
(:mod:`nautilus.vr_tile.lowering.fills`).
"""

from __future__ import annotations

from nautilus.core.schedule.mapping import MappingPlan, WarpPlan
from nautilus.core.schedule.plans import Schedule

ROWS = 32  # rows of a tile
_SUFFIX, _PARTS, _FILL = "_masked", "_parts", "_fill"
_STORING = WarpPlan(stages=0, warps=(1, 8), epilogue="direct", prefetch_fragments=0)
_MAPPING = WarpPlan(stages=0, warps=(ROWS // 16, 2), epilogue="direct", prefetch_fragments=0)


def recomputing(name: str) -> str:
    """The name of the kernel that computes tiles of kernel ``name`` again."""
    return name + _SUFFIX


def storing(buffer: str) -> str:
    """The name of the kernel that stores the parts of ``buffer``, and of the tensor that it stores."""
    return buffer + _PARTS


def filling(buffer: str) -> str:
    """The name of the kernel that stores the initial values of ``buffer``, and of others of its shape."""
    return buffer + _FILL


def recomputed(name: str, schedule: Schedule | None) -> str:
    """The kernel whose tiles kernel ``name`` computes again, which the schedule has; ``name`` if there is none."""
    base = name.removesuffix(_SUFFIX)
    planned = {k.name for k in schedule.kernels} if schedule is not None else set[str]()
    return base if base in planned and name not in planned else name


def recomputes(name: str, schedule: Schedule | None) -> bool:
    """Whether kernel ``name`` computes a few tiles of another one again, so that its registers hardly matter."""
    return recomputed(name, schedule) != name


def mapping_of(schedule: Schedule | None, name: str) -> MappingPlan | None:
    """The mapping of kernel ``name``; None where neither the schedule nor a rule has it."""
    for k in schedule.kernels if schedule is not None else ():
        if k.name == name:
            return k.mapping
    if recomputes(name, schedule):
        return _MAPPING
    return _STORING if name.rstrip("0123456789").endswith((_PARTS, _FILL)) else None
