"""Names that passes derive from the plan of a kernel."""

from __future__ import annotations

import pytest

from nautilus.core.errors import ScheduleError
from nautilus.core.schedule import AxisPlan, KernelPlan, Schedule
from nautilus.scalar.analysis.derived_names import (
    block_var,
    has_tile,
    is_tiled,
    local_name,
    occurrences,
    phase_of,
    phases,
    plan_of,
)

AXES = (AxisPlan("i", "grid", 16), AxisPlan("j", "loop", 1), AxisPlan("d", "tile", 64), AxisPlan("i0", "grid", 1))
PLAN = KernelPlan("Y", ("s", "m", "Y"), AXES, (("s", "m"), ("s", "s", "Y")))


def test_phases() -> None:
    assert phases(PLAN) == PLAN.phases
    assert phases(KernelPlan("Y", ("s", "Y"), AXES)) == (("s",), ("Y",))


def test_a_definition_that_is_computed_again_has_another_local() -> None:
    assert [*occurrences(PLAN)] == [(0, "s", 0), (0, "m", 0), (1, "s", 1), (1, "s", 2), (1, "Y", 0)]
    assert [local_name("s", n, stored=False) for n in range(3)] == ["s", "s__2", "s__3"]
    assert [local_name("s", n, stored=True) for n in range(2)] == ["s__tile", "s__tile__2"]


def test_the_phase_of_a_buffer_is_that_which_writes_it() -> None:
    found = phase_of(PLAN, frozenset({"s", "s__2", "m__tile"}))
    assert found == {"s": 0, "s__2": 1, "m__tile": 0, "m": 0, "Y": 1}


def test_the_variable_of_a_block_has_a_name_of_its_own() -> None:
    assert [block_var(PLAN, a.name) for a in AXES] == ["i0b", "j", "d", "i0"]
    assert [is_tiled(a) for a in AXES] == [True, False, False, False]
    assert [has_tile(a) for a in AXES] == [True, False, True, False]


def test_the_plan_of_a_kernel() -> None:
    assert plan_of(Schedule(kernels=(PLAN,)), "Y") is PLAN
    with pytest.raises(ScheduleError, match="no kernel 'Z'"):
        plan_of(Schedule(kernels=(PLAN,)), "Z")
