"""Recurrences that are running results: all levels agree with the steps one after another."""

from __future__ import annotations

import pytest

from nautilus.scalar.analysis.definitions import is_recurrence
from tests.endtoend.support import complaints, travel

SPEC = """
    dim B = 3, T = {steps}
    input X: {dtype}[B, T]
    output Y: {dtype}[B, T]
    recur Y[b, t] = {value}
"""


@pytest.mark.parametrize("steps", [5, 300])
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("f32", "Y[b, t - 1] + X[b, t] if t > 0 else X[b, 0]"),
        ("f32", "max(Y[b, t + 1], X[b, t]) if t < T - 1 else X[b, T - 1]"),
        ("f32", "0.5 * X[b, t] + (Y[b, t - 1] if t > 0 else 3)"),
        ("i32", "Y[b, t - 1] * X[b, t] if t > 0 else 1"),
        ("i64", "min(X[b, t], Y[b, t - 1]) if t > 0 else X[b, 0]"),
        ("bool", "Y[b, t - 1] or X[b, t] if t > 0 else X[b, 0]"),
    ],
)
def test_running_results(steps: int, dtype: str, value: str) -> None:
    made = travel(SPEC.format(steps=steps, dtype=dtype, value=value), "sm_90a")
    assert complaints(made) == []
    assert not any(is_recurrence(k) for k in made.result.modules["scalar"].kernels)
