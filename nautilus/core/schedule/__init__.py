"""A schedule: every choice of the compiler as data, which people can read, edit, replay and compare.

Rules or a search make a :class:`Schedule`.  Passes apply it and refuse a choice that is not legal.

* ``plans``: the records of a schedule; ``mapping``: how a kernel is mapped onto the machine, by engine;
* ``options``: what each field declares, from which ``check``, ``json`` and ``reference`` derive;
* ``recomputed``: kernels that no schedule holds, such as one that computes tiles of another one again;
* ``renamed``: names of version 1 of the format, for error messages.
"""

from nautilus.core.schedule.check import check_schedule
from nautilus.core.schedule.mapping import MappingPlan, WarpgroupPlan, WarpPlan
from nautilus.core.schedule.options import option_of, options_of, said
from nautilus.core.schedule.plans import (
    MAX_SPLITS,
    AxisPlan,
    CopyPlan,
    KernelPlan,
    PackPlan,
    Schedule,
    SplitPlan,
    parts_allowed,
)
from nautilus.core.schedule.recomputed import mapping_of, recomputed, recomputes, recomputing, storing

__all__ = [
    "MAX_SPLITS",
    "AxisPlan",
    "CopyPlan",
    "KernelPlan",
    "MappingPlan",
    "PackPlan",
    "Schedule",
    "SplitPlan",
    "WarpPlan",
    "WarpgroupPlan",
    "check_schedule",
    "mapping_of",
    "option_of",
    "options_of",
    "parts_allowed",
    "recomputed",
    "recomputes",
    "recomputing",
    "said",
    "storing",
]
