"""Softmax of large scores: masked by large negative numbers, of huge inputs, of rows that are masked throughout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nautilus.core.numerics import round_to
from nautilus.core.types import DType
from nautilus.frontend.interp import run_spec
from tests.extremes import compiled, normal, outputs_at

_ATTENTION = """dim H = 2, M = {m}, N = {n}, D = 16
input Q: {t}[H, M, D]
input K: {t}[H, N, D]
input V: {t}[H, N, D]
input start: i32[H]
output O: f32[H, M, D]
S[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(D)
T[h, i, j] = S[h, i, j] if j >= start[h] and j <= i else {fill}
O[h, i, d] = sum[j](softmax[j](T[h, i, j]) * V[h, j, d])
"""
_ERRORS = {"f16": 1e-3, "bf16": 8e-3, "f32": 2e-6}


def inputs(t: str, m: int, n: int, scale: float = 1.0) -> dict[str, Any]:
    rng = np.random.default_rng(m)
    q, k, v = (normal(rng, (2, rows, 16)) for rows in (m, n, n))
    k[:, n // 2] = k[:, 0]  # two scores that are equal
    return {"Q": round_to(q * scale, DType(t)), "K": round_to(k * scale, DType(t)), "V": v, "start": np.array([0, 17])}


@pytest.mark.parametrize("t", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("fill", ["-1e4", "-65504.0", "-1e9", "-1e30", "-3.4028234663852886e38"])
def test_large_negative_fills(t: str, fill: str) -> None:
    """Rows that hold nothing but the fill are uniform."""
    r = compiled(_ATTENTION.format(t=t, m=24, n=40, fill=fill))
    x = inputs(t, 24, 40)
    want = run_spec(r.modules["spec"], x)["O"]
    uniform = x["V"][1].mean(axis=0)
    np.testing.assert_allclose(want[1, :17], np.broadcast_to(uniform, (17, 16)), rtol=1e-12)
    for level, got in outputs_at(r, x, "O"):
        assert np.linalg.norm(got - want) <= _ERRORS[t] * np.linalg.norm(want), level


@pytest.mark.parametrize("rows", [24, 1])
@pytest.mark.parametrize("scale", [3e1, 1e3, 1e4, 3e8])
def test_huge_scores(rows: int, scale: float) -> None:
    """Scores of up to 2^60, through loops that repair accumulators and through the combination of chunks."""
    r = compiled(_ATTENTION.format(t="f32", m=rows, n=300, fill="-1e38").replace("j <= i", "j >= 0"))
    x = inputs("f32", rows, 300, scale)
    want = run_spec(r.modules["spec"], x)["O"]
    for level, got in outputs_at(r, x, "O"):
        assert np.linalg.norm(got - want) <= 1e-4 * np.linalg.norm(want), level


def test_rows_of_equal_numbers() -> None:
    """A row of one number is uniform whatever the number is; no rounding of ``x * c`` moves the exponent from 0."""
    r = compiled("dim M = 6, N = 64\ninput X: f32[M, N]\noutput Y: f32[M, N]\nY[i, j] = softmax[j](X[i, j] * 0.3)\n")
    rows = np.array([-3.4028234663852886e38, 3.4028234663852886e38, -1e30, 1e9, -1e9, 0.0])
    x = {"X": round_to(np.repeat(rows[:, None], 64, axis=1), DType.F32)}
    for level, got in outputs_at(r, x, "Y"):
        np.testing.assert_allclose(got, 1 / 64, rtol=1e-6, err_msg=level)
