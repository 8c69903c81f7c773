"""The driver's second tries: kernels that cannot be planned with warpgroup products are planned without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nautilus.core.errors import ScheduleError
from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.driver import Request, plainer
from nautilus.planner.fallbacks import Fallbacks

SPEC = Request(Path("x.naut"))
ONCE = Fallbacks.of({"out": 1})
FAILED = ScheduleError("ptxas has too few registers", "kernel out")


def test_the_named_kernel_is_planned_plainly() -> None:
    once = plainer(SPEC, FAILED)
    assert once == replace(SPEC, fallbacks=ONCE)
    assert plainer(once, ScheduleError("too wide", "kernel other")).fallbacks == Fallbacks.of({"out": 1, "other": 1})


@pytest.mark.parametrize(
    "request_",
    [
        replace(SPEC, fallbacks=ONCE.after("out")),  # it was plain already
        replace(SPEC, path=Path("x.vr")),  # a dump is planned
        replace(SPEC, schedule=Schedule(kernels=(KernelPlan("out", (), ()),))),  # the user's own choice
    ],
)
def test_what_cannot_be_planned_otherwise_is_an_error(request_: Request) -> None:
    with pytest.raises(ScheduleError) as error:
        plainer(request_, FAILED)
    assert error.value is FAILED


def test_an_error_about_no_kernel_is_one() -> None:
    with pytest.raises(ScheduleError):
        plainer(SPEC, ScheduleError("no such axis", "axes"))


def test_a_schedule_without_kernels_leaves_them_to_the_rules() -> None:
    assert plainer(replace(SPEC, schedule=Schedule()), FAILED).fallbacks == ONCE
