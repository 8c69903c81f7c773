"""Refuses schedules that fit no program: values that options do not allow, and names that occur twice."""

from __future__ import annotations

import re
from typing import Any

from nautilus.core.errors import ScheduleError
from nautilus.core.schedule.mapping import WarpPlan
from nautilus.core.schedule.options import Option, options_of
from nautilus.core.schedule.plans import KernelPlan, Schedule, SplitPlan
from nautilus.core.text.names import repeated

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_MOST_WARPS = 32  # warps of a block


def check_schedule(schedule: Schedule) -> None:
    """Refuse values that no kernel can have. Raises ScheduleError that names the field.

    The passes check whether the schedule fits a program.
    """
    _check_record(schedule, "the schedule")
    _unique(schedule.inline or (), "inline")
    for n, c in enumerate(schedule.splits or ()):
        if any((c.op, c.axis) == (x.op, x.axis) for x in (schedule.splits or ())[:n]):
            raise ScheduleError(f"{c.op} is cut along {c.axis!r} twice", "splits")
        _check_split(c)
    for copy in schedule.copies or ():
        _check_record(copy, f"copies of {copy.op}")
        _unique(copy.readers, f"the readers of a copy of {copy.op}")
    for p in schedule.packs or ():
        _check_record(p, f"packs of {p.op}")
    _unique(tuple(k.name for k in schedule.kernels), "the schedule's kernels")
    for k in schedule.kernels:
        _check_kernel(k)


def _check_record(found: object, field: str, kernel: str = "") -> None:
    for o in options_of(type(found)):
        fault = fault_of(o, getattr(found, o.name))
        if fault is not None:
            raise ScheduleError(fault, field, kernel=kernel)


def fault_of(o: Option, value: Any) -> str | None:
    """The reason why the option does not allow ``value``; None if it does."""
    if o.values and value not in o.values:
        return f"{o.name} is {value!r}, not one of {', '.join(map(str, o.values))}"
    numbers = value if isinstance(value, tuple) else (value,)
    for n in numbers if o.low is not None or o.high is not None else ():
        if (o.low is not None and n < o.low) or (o.high is not None and n > o.high):
            shown = " x ".join(map(str, numbers))
            return f"{o.name} is {shown}, not {o.low} {f'to {o.high}' if o.high is not None else 'or more'}"
    return None


def _check_split(c: SplitPlan) -> None:
    where = f"splits of {c.op}"
    _check_record(c, where)
    if c.splits % c.interleave:
        raise ScheduleError(f"interleave is {c.interleave}, which does not divide {c.splits} chunks", where)


def _check_kernel(k: KernelPlan) -> None:
    _unique(tuple(a.name for a in k.axes), "axes", k.name)
    _unique(k.ops, "ops", k.name)
    _check_record(k, "", k.name)
    for a in k.axes:
        _check_record(a, f"axis {a.name}", k.name)
    _check_record(k.mapping, "mapping", k.name)
    if isinstance(k.mapping, WarpPlan) and k.mapping.warps[0] * k.mapping.warps[1] > _MOST_WARPS:
        down, across = k.mapping.warps
        raise ScheduleError(f"warps are {down} x {across}; a block has 1 to {_MOST_WARPS}", "mapping", kernel=k.name)


def _unique(names: tuple[str, ...], field: str, kernel: str = "") -> None:
    if (twice := repeated(names)) is not None:
        raise ScheduleError(f"{twice!r} is listed twice", field, kernel=kernel)
    for name in names:
        if not _NAME.fullmatch(name):
            raise ScheduleError(f"{name!r} is not a name", field, kernel=kernel)
