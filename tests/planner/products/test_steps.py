"""Plans of recurrences whose steps are products of matrices, and the tiles that they have."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.fallbacks import LIGHTER, NO_FALLBACKS, WITHOUT, Fallbacks
from nautilus.core.schedule import Schedule, WarpgroupPlan, WarpPlan
from nautilus.planner.products.steps import plan_steps
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Kind, Program
from nautilus.scalar.passes.recurrences.tile_recurrences import TileRecurrences
from nautilus.scalar.text import format_program, parse_program
from tests.scalar.expect import sound

STEPS = """program p {
  input a: bf16[6, 32, 16]
  input b: bf16[6, 16, 32]
  input x: f32[6, 64, 32]
  temp r: f32[6, 64, 16]
  temp s: f32[6, 64, 32]
  temp h: f32[6, 64, 32]
  output y: f32[6, 64, 32]
  kernel y {
    par e in 0..64 {
      seq t in 0..6 {
        par i in 0..32 {
          h[t, e, i] = select(t > 0, y[t - 1, e, i], x[t, e, i])
        }
        par o in 0..16 {
          r[t, e, o] = 0.0
          red k in 0..32 {
            r[t, e, o] sum= cast<f32>(narrow<bf16>(h[t, e, k])) * cast<f32>(a[t, k, o])
          }
        }
        par j in 0..32 {
          s[t, e, j] = 0.0
          red l in 0..16 {
            s[t, e, j] sum= cast<f32>(narrow<bf16>(r[t, e, l])) * cast<f32>(b[t, l, j])
          }
        }
        par n in 0..32 {
          y[t, e, n] = s[t, e, n] * 0.125 + x[t, e, n]
        }
      }
    }
  }
}
"""


def program(*edits: tuple[str, str]) -> Program:
    text = STEPS
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return parse_program(text)


def test_products_of_16_bits_have_a_warpgroup_and_others_warps() -> None:
    (plan,) = plan_steps(program(), "sm_90a", NO_FALLBACKS)
    assert isinstance(plan.mapping, WarpgroupPlan) and plan.axis("e").tile == 64
    for given, arch, steps in (
        (program(), "sm_80", 0),
        (program(), "sm_90a", LIGHTER),
        (program(("a: bf16", "a: f32")), "sm_90a", 0),
    ):
        (plan,) = plan_steps(given, arch, Fallbacks.of({"y": steps}))
        assert isinstance(plan.mapping, WarpPlan) and plan.mapping.warps == (4, 1)
    assert plan_steps(program(), "sm_90a", Fallbacks.of({"y": WITHOUT})) == ()


@pytest.mark.parametrize(
    "edits",
    [
        [("a[t, k, o]", "a[0, k, o]")],  # the same matrix in all steps, which the cache has
        [("bf16[6, 32, 16]", "bf16[6, 64, 16]"), ("a[t, k, o]", "a[t, e, o]")],  # no matrix that the lanes share
        [("64", "24")],
        [("narrow<bf16>(r[t, e, l])", "narrow<bf16>(x[t, e, l])")],  # no tensor of the recurrence
        [  # positions of the result that other threads sum over
            ("0..16", "0..32"),
            ("32, 16]", "32, 32]"),
            ("16, 32]", "32, 32]"),
            ("64, 16]", "64, 32]"),
            ("r[t, e, l]", "h[t, e, l]"),
        ],
    ],
)
def test_other_sums_have_no_plan(edits: list[tuple[str, str]]) -> None:
    assert plan_steps(program(*edits), "sm_90a", NO_FALLBACKS) == ()


def test_a_planned_recurrence_has_lanes() -> None:
    given = program()
    planned = Schedule(kernels=plan_steps(given, "sm_90a", NO_FALLBACKS))
    for schedule, lanes in ((planned, 64), (None, None)):
        made = TileRecurrences(schedule=schedule).apply(given)
        sound(made)
        (kernel,) = made.kernels
        sizes = {b.shape for b in kernel.locals}
        assert ((64, 32) in sizes) is (lanes is not None)
        assert kernel.body[0].kind is Kind.GRID  # type: ignore[union-attr]
        inputs = {b.name: np.random.default_rng(1).normal(size=b.shape) for b in given.buffers[:3]}  # type: ignore[arg-type]
        want, got = (run_program(p, inputs, {}, "typed")["y"] for p in (given, made))
        assert abs(want - got).max() < 1e-4 * abs(want).max()


def test_a_state_before_the_first_step_is_in_the_tile_of_the_step_before() -> None:
    given = program(("y[t - 1, e, i], x[t, e, i]", "y[t - 1, e, i], x[0, e, i]"))
    made = TileRecurrences(schedule=Schedule(kernels=plan_steps(given, "sm_90a", NO_FALLBACKS))).apply(given)
    sound(made)
    printed = format_program(made)
    assert "y__1[e, j] = x[0, e0 * 64 + e, j]" in printed and "select" not in printed
    other = TileRecurrences(schedule=Schedule(kernels=plan_steps(program(), "sm_90a", NO_FALLBACKS))).apply(program())
    assert "y__1[e, j] = 0.0" in format_program(other)
