"""How long states remember an error limits how far errors grow."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from nautilus.check.bound.recurrences.memory import Memory, memory
from nautilus.frontend.semantics.check import load_text

STEPS = 64


def remembered(step: str, first: str = "x[0, c]", steps: int = STEPS) -> tuple[Memory, Memory] | None:
    spec = load_text(
        f"dim T = {STEPS}, C = 3\ninput x: f32[T, C]\noutput h: f32[T, C]\nrecur h[t, c] = {step} if t > 0 else {first}"
    )
    x = np.random.default_rng(0).normal(size=(STEPS, 3))
    return memory(spec, {"x": x}, {}, steps, {"h"})


def test_a_mean_over_steps_adds_errors_that_have_faded() -> None:
    spec = load_text(
        "dim T = 64, C = 3\ninput x: f32[T, C], w: f32[C, C]\noutput m: f32[C], y: f32[T, C]\n"
        "recur h[t, c] = 0.5 * h[t - 1, c] + x[t, c] if t > 0 else x[0, c]\n"
        "y[t, d] = sum[c](h[t, c] * w[c, d])\nm[c] = mean[t](y[t, c])"
    )
    arrays = {n: np.ones((64 if n == "x" else 3, 3)) for n in "xw"}
    assert memory(spec, arrays, {}, STEPS, {"h"}) is None
    rows = replace(spec, outputs=spec.outputs[1:], definitions=tuple(d for d in spec.definitions if d.name != "m"))
    assert memory(rows, arrays, {}, STEPS, {"h"}) is not None


def of_one_sign(rate: float, steps: int) -> float:
    return (1.0 - rate**steps) / (1.0 - rate)


def test_errors_that_fade_grow_until_those_of_the_first_steps_have_faded() -> None:
    found = remembered("0.99 * h[t - 1, c] + x[t, c]")
    assert found is not None
    whole = of_one_sign(0.99, 10**5) / of_one_sign(0.99, STEPS)
    assert found[0].growth(10**5) == pytest.approx(1.0 + 1.5 * (whole - 1.0), rel=0.05)
    assert found[0].growth(STEPS) == 1.0


def test_a_sum_forgets_nothing() -> None:
    found = remembered("h[t - 1, c] + x[t, c]")
    assert found is not None
    assert found[0].growth(10 * STEPS) == pytest.approx(1.0 + 1.5 * 9.0, rel=1e-3)


def test_the_element_that_remembers_longest_counts() -> None:
    found = remembered("(0.5 if c > 0 else 1.0) * h[t - 1, c] + x[t, c]")
    assert found is not None
    assert found[0].growth(10 * STEPS) == pytest.approx(14.5, rel=1e-3)


def test_an_error_fades_no_faster_than_the_value_of_the_last_step() -> None:
    found = remembered("0.97 * h[t - 1, c]")
    assert found is not None
    assert found[0].growth(10 * STEPS) < 2.0
    assert found[1].growth(10 * STEPS) > 8.0


def test_few_steps_and_states_that_begin_with_0_show_nothing() -> None:
    assert remembered("0.5 * h[t - 1, c] + x[t, c]", steps=16) is None
    found = remembered("0.5 * h[t - 1, c] + x[t, c]", first="0.0 * x[t, c]")
    assert found is not None and found[0].growth(10 * STEPS) == inf
