"""Specs whose running sum leaves the range in which a repair is finite: computed in loops of their own."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.frontend.interp import run_spec
from tests.extremes import compiled, normal, outputs_at


@pytest.mark.parametrize(
    "body",
    [
        "max[j](X[i, j] * X[i, j] * exp2(-Z[i]))",
        "sum[j](exp2(X[i, j] - Z[i]))",
        "max[j](X[i, j] / (Z[i] * Z[i]))",
        "max[j](exp(X[i, j] * 0.5 - Z[i]))",
        "sum[j](X[i, j] * exp(-abs(Z[i])))",
        "min[j](X[i, j] + 1 / Z[i])",
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_a_sum_in_an_exponent_or_a_divisor(body: str, order: int) -> None:
    """The first half of a row adds up to several hundred, which the second half takes back."""
    n = 1500
    r = compiled(f"dim M = 3, N = {n}\ninput X: f16[M, N]\noutput Y: f32[M]\nZ[i] = sum[j](X[i, j])\nY[i] = {body}\n")
    x = np.abs(np.clip(normal(np.random.default_rng(1), (3, n)), -1, 1))
    x[:, n // 2 :] *= -1
    x[:, -1] = 1.0
    x *= order
    want = run_spec(r.modules["spec"], {"X": x})["Y"]
    assert np.isfinite(want).all()
    for level, got in outputs_at(r, {"X": x}, "Y"):
        np.testing.assert_allclose(got, want, rtol=2e-4, err_msg=level)
