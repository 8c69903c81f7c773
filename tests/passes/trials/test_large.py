"""Large programs: which are, and what the next attempt keeps of the choices for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.driver import Request
from nautilus.passes.trials.large import LARGE, is_large, kept_choices
from nautilus.scalar.ir import Kernel, Program


@pytest.mark.parametrize(("inlined", "large"), [(0, True), (1, False)])
def test_inlined_definitions_make_no_program_large(inlined: int, large: bool) -> None:
    program = Program("t", (), (), tuple(Kernel(f"k{n}", (), ()) for n in range(LARGE)))
    assert is_large(program, Schedule(inline=tuple(f"k{n}" for n in range(inlined)))) is large


def test_the_next_attempt_keeps_the_definitions_of_a_large_program() -> None:
    plan = KernelPlan("a", tuple(f"k{n}" for n in range(LARGE)), ())
    made = Schedule(inline=("b",), copies=(), splits=(), kernels=(plan,))
    assert kept_choices(made) == Schedule(inline=("b",), copies=())
    assert kept_choices(replace(made, kernels=(replace(plan, ops=plan.ops[1:]),))) is None
    assert kept_choices(None) is None


def test_a_given_schedule_stands_before_earlier_choices() -> None:
    request = Request(Path("t.naut"), decided=Schedule(inline=("b",)))
    assert request.context.schedule == Schedule(inline=("b",))
    assert replace(request, schedule=Schedule()).context.schedule == Schedule()
