"""Signals with contiguous time: the stores of steps go through shared memory, and all levels agree."""

from __future__ import annotations

import pytest

from tests.endtoend.support import complaints, travel

SMOOTHED = """
    dim B = 40, T = {steps}
    scalar a: f32 = 0.95
    assume 0 <= a <= 1
    input X: {dtype}[B, T]
    output Y: {dtype}[B, T]
    recur Y[b, t] = max(a * Y[b, t - 1], X[b, t]) if t > 0 else X[b, 0]
"""


@pytest.mark.parametrize(
    ("steps", "dtype", "staged"),
    [(160, "f32", True), (163, "f32", True), (47, "f32", False), (256, "f16", True), (200, "bf16", True)],
)
def test_rows_of_steps(steps: int, dtype: str, staged: bool) -> None:
    made = travel(SMOOTHED.format(steps=steps, dtype=dtype), "sm_90a")
    assert complaints(made) == []
    assert ("steps_Y" in made.result.cuda_module.code) is staged
    assert ("steps_X" in made.result.cuda_module.code) is (steps == 163)  # rows that begin at odd places
