"""References of running maxima at -inf: rows without an element in their first tiles have numbers in the end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nautilus.check.inputs import generate
from nautilus.check.levels import run
from nautilus.frontend.interp import run_spec
from nautilus.scalar.text import format_program
from tests.endtoend.support import travel

_SINK = """
dim M = 300, D = 64, W = 100
input Q: f16[M, D]
input K: f16[M, D]
input V: f16[M, D]
input s: f32
output Y: f32[M, D]
S[i, j] = sum[d](Q[i, d] * K[j, d]) / 8
t[i] = max(max[j | i - W < j <= i](S[i, j]), s)
E[i, j] = exp(S[i, j] - t[i]) if i - W < j <= i else 0
Y[i, d] = sum[j](E[i, j] * V[j, d]) / (sum[j](E[i, j]) + exp(s - t[i]))
"""
_ROUNDED = """
dim M = 3, N = 20000
input X: f32[M, N]
output Y: f32[M]
t[i] = max[j](X[i, j])
Y[i] = sum[j](exp(X[i, j] - {reference}))
"""


@pytest.mark.parametrize("reference", ["ceil(t[i])", "f16(t[i])", "abs(t[i])"])
def test_a_function_of_a_maximum_is_no_reference(reference: str) -> None:
    made = travel(_ROUNDED.format(reference=reference), "sm_90a", "vr-tile")
    given = generate(made.result.modules["spec"], "random", 0)
    x = np.array(given.arrays["X"])
    x[1, :15000] = -np.inf
    given = replace(given, arrays={"X": x})
    want = run_spec(made.result.modules["spec"], given.arrays)["Y"]
    assert np.isfinite(want).all()
    assert np.allclose(run(made.last("scalar"), given, "typed")["Y"], want, rtol=1e-4)


def test_a_maximum_with_a_bound_of_minus_infinity() -> None:
    """In some rows of a tile, the window begins after the first tile of keys."""
    made = travel(_SINK, "sm_90a", "vr-tile")
    given = generate(made.result.modules["spec"], "random", 0)
    given = replace(given, arrays={**given.arrays, "s": np.full((), -np.inf)})
    want = run_spec(made.result.modules["spec"], given.arrays)["Y"]
    assert np.isfinite(want).all()
    for stage in ("scalar", "vr-tile"):
        assert np.allclose(run(made.last(stage), given, "typed")["Y"], want, atol=1e-2)


@pytest.mark.parametrize(("seen", "score"), [("j", "X[i, j]"), ("j | j % 3 != 0", "(X[i, j] if j % 3 != 0 else -inf)")])
def test_a_maximum_of_infinity_that_the_sum_leaves_out(seen: str, score: str) -> None:
    text = f"""
        dim M = 3, N = 20000
        input X: f32[M, N]
        input C: bool[M, N]
        output Y: f32[M]
        t[i] = max[{seen}](X[i, j])
        Y[i] = sum[j | C[i, j]](exp({score} - t[i]))
    """
    made = travel(text, "sm_90a", "vr-tile")
    given = generate(made.result.modules["spec"], "random", 0)
    x, c = np.array(given.arrays["X"]), np.array(given.arrays["C"])
    x[1, 5], c[1, 5] = np.inf, False
    given = replace(given, arrays={"X": x, "C": c})
    want = run_spec(made.result.modules["spec"], given.arrays)["Y"]
    assert want[1] == 0.0
    for stage in ("scalar", "vr-tile"):
        assert np.allclose(run(made.last(stage), given, "typed")["Y"], want, rtol=1e-4)


@pytest.mark.parametrize("score", ["S[i, j] if j <= i else -inf", "-inf if j > i else S[i, j]"])
def test_scores_of_minus_infinity_keep_one_loop(score: str) -> None:
    text = _SINK[: _SINK.index("t[i]")].replace("input s: f32\n", "").replace("f32[M, D]\nS", "f16[M, D]\nS")
    text += f"P[i, j] = softmax[j]({score})\nY[i, d] = sum[j](P[i, j] * V[j, d])\n"
    made = travel(text, "sm_90a", "vr-tile")
    assert made.result.context.schedule is not None
    (kernel,) = made.result.context.schedule.kernels
    assert len(kernel.phases) == 2
    assert "tf32" not in format_program(made.result.modules["scalar"])  # factors have 16 bits
    given = generate(made.result.modules["spec"], "random", 0)
    want = run_spec(made.result.modules["spec"], given.arrays)["Y"]
    np.testing.assert_allclose(run(made.last("scalar"), given, "typed")["Y"], want, atol=1e-3)
