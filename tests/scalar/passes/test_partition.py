"""Ranges of blocks whose ends scalars of the caller decide, and blocks in which a running result changes."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.index.order import certainly_less
from nautilus.core.schedule import Schedule
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Loop, Program
from nautilus.scalar.passes.partition import Partition
from nautilus.scalar.text import parse_program

_PLAN = """{"version": 2, "kernels": [{"name": "m", "ops": ["m"], "phases": [["m"]],
"axes": [{"name": "i", "role": "grid", "tile": 4}, {"name": "j", "role": "loop", "tile": 4}],
"iteration_order": "mixed-first"}]}"""
_WINDOW = """program spec {
  input X: f32[20, 20]
  output m: f32[20]
  param w: i32 = 4
  kernel m {
    local t: f32[4]
    grid i0 in 0..5 {
      tile i in 0..4 {
        t[i] = -inf
      }
      seq j0 in 0..5 {
        tile i in 0..4 {
          tile.red j in 0..4 {
            t[i] max= X[i0 * 4 + i, j0 * 4 + j] where CONDITION
          }
        }
      }
      tile i in 0..4 {
        m[i0 * 4 + i] = t[i]
      }
    }
  }
}
"""
_I, _J = "(i0 * 4 + i)", "(j0 * 4 + j)"


def partitioned(program: Program, order: str = "mixed-first") -> Program:
    return Partition(Schedule.from_json(_PLAN.replace("mixed-first", order))).apply(program)


def loops(program: Program) -> list[Loop]:
    (grid,) = program.kernels[0].body
    assert isinstance(grid, Loop)
    return [s for s in grid.body if isinstance(s, Loop) and s.var == "j0"]


@pytest.mark.parametrize(
    "condition",
    [
        f"{_J} <= {_I} and {_I} - {_J} < w", f"{_I} - {_J} < w", f"{_J} - {_I} <= w",
        f"abs({_I} - {_J}) <= w", f"{_J} < w",
    ],
)  # fmt: skip
def test_a_loop_of_a_window_of_any_width_certainly_runs(condition: str) -> None:
    program = parse_program(_WINDOW.replace("CONDITION", condition))
    made = partitioned(program)
    x = np.random.default_rng(0).normal(size=(20, 20)).astype(np.float32)
    for w in (-(2**30), -7, -1, 0, 1, 3, 4, 5, 9, 20, 2**30):
        want, found = (run_program(p, {"X": x}, {"w": w})["m"] for p in (program, made))
        np.testing.assert_array_equal(found, want, err_msg=str(w))
    first = loops(made)[0]
    assert certainly_less(first.lo, first.hi, {"i0": (0, 4)})


_SUM = """program spec {
  input X: f32[20, 20]
  output m: f32[20]
  kernel m {
    local r: f32[4]
    local n: f32[4]
    local t: f32[4]
    grid i0 in 0..5 {
      tile i in 0..4 {
        r[i] = -inf
      }
      tile i in 0..4 {
        t[i] = 0.0
      }
      seq j0 in 0..5 {
        tile i in 0..4 {
          n[i] = r[i]
        }
        tile i in 0..4 {
          tile.red j in 0..4 {
            n[i] max= X[i0 * 4 + i, j0 * 4 + j] where j0 * 4 + j <= i0 * 4 + i
          }
        }
        tile i in 0..4 {
          t[i] = t[i] * exp(r[i] - n[i])
        }
        tile i in 0..4 {
          tile.red j in 0..4 {
            t[i] sum= X[i0 * 4 + i, j0 * 4 + j]
          }
        }
        tile i in 0..4 {
          r[i] = n[i]
        }
      }
      tile i in 0..4 {
        m[i0 * 4 + i] = t[i]
      }
    }
  }
}
"""


def test_a_sum_without_a_condition_visits_every_block() -> None:
    program = parse_program(_SUM)
    x = np.random.default_rng(0).normal(size=(20, 20)).astype(np.float32)
    want, found = (run_program(p, {"X": x})["m"] for p in (program, partitioned(program, "ascending")))
    np.testing.assert_array_equal(found, want)
