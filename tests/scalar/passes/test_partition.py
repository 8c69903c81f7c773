"""Ranges of blocks whose ends scalars of the caller decide, and blocks in which a running result changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nautilus.core.index.order import certainly_less
from nautilus.core.schedule import Schedule
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Loop, Program
from nautilus.scalar.passes.partition import Partition
from nautilus.scalar.text import parse_program
from tests.ir_files import Case, cases_in, program_of

_CASES = cases_in(Path(__file__).with_name("partition.scalar"))
_WINDOW = _CASES["one range of a window whose width a scalar gives certainly runs"]
_SUM = _CASES["a sum without a condition visits every block"]
_I, _J = "(i0 * 4 + i)", "(j0 * 4 + j)"


def partitioned(program: Program, case: Case) -> Program:
    return Partition(Schedule.from_json("\n".join(case.all("SCHEDULE")))).apply(program)


def loops(program: Program) -> list[Loop]:
    (grid,) = program.kernels[0].body
    assert isinstance(grid, Loop)
    return [s for s in grid.body if isinstance(s, Loop) and s.var == "j0"]


@pytest.mark.parametrize(
    "condition",
    [
        f"{_J} <= {_I} and {_I} - {_J} < w", f"{_I} - {_J} < w", f"{_J} - {_I} <= w",
        f"abs({_I} - {_J}) <= w", f"{_J} < w", f"{_I} - {_J} <= w // 2",
    ],
)  # fmt: skip
def test_a_loop_of_a_window_of_any_width_certainly_runs(condition: str) -> None:
    program = parse_program(program_of(_WINDOW).replace("j0 * 4 + j < w", condition))
    made = partitioned(program, _WINDOW)
    x = np.random.default_rng(0).normal(size=(20, 20)).astype(np.float32)
    for w in (-(2**31), -(2**30), -7, -1, 0, 1, 3, 4, 5, 9, 20, 2**30, 2**31 - 1):
        want, found = (run_program(p, {"X": x}, {"w": w})["m"] for p in (program, made))
        np.testing.assert_array_equal(found, want, err_msg=str(w))
    first = loops(made)[0]
    assert certainly_less(first.lo, first.hi, {"i0": (0, 4)})


def test_a_sum_without_a_condition_visits_every_block() -> None:
    program = parse_program(program_of(_SUM))
    x = np.random.default_rng(0).normal(size=(20, 20)).astype(np.float32)
    want, found = (run_program(p, {"X": x})["m"] for p in (program, partitioned(program, _SUM)))
    np.testing.assert_array_equal(found, want)
