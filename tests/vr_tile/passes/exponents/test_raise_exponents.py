"""Attention with one dominant key: the weights of all other keys keep their bits though f16 holds them."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.frontend.interp import run_spec
from nautilus.vr_tile.interp import run_module
from tests.extremes import compiled, normal

_TEXT = """dim M = {m}, N = 300, D = 16
input Q: f16[M, D]
input K: f16[N, D]
input V: f16[N, D]
output O: f32[M, D]
output L: f32[M]
S[i, j] = sum[d](Q[i, d] * K[j, d]) / sqrt(D)
O[i, d] = sum[j](softmax[j](S[i, j]) * V[j, d])
L[i] = max[j](S[i, j]) + log(sum[j](exp(S[i, j] - max[j](S[i, j]))))
"""


@pytest.mark.parametrize("rows", [24, 1])
@pytest.mark.parametrize(("above", "error"), [(0, 1e-3), (10, 1e-3), (14, 1e-3), (17, 8e-3)])
def test_a_dominant_key(rows: int, above: float, error: float) -> None:
    """The key has the value 0, so the result is made of the others alone."""
    r = compiled(_TEXT.format(m=rows))
    rng = np.random.default_rng(0)
    q, k, v = (normal(rng, (n, 16)) * scale for n, scale in ((rows, 0.25), (300, 0.25), (300, 1)))
    q[:, 0], k[:, 0], k[100], v[100] = 1.0, 0.0, 0.0, 0.0
    k[100, 0] = above * 4
    inputs = {"Q": q, "K": k, "V": v}
    want, got = run_spec(r.modules["spec"], inputs), run_module(r.modules["vr-tile"], inputs, mode="typed")
    for name in ("O", "L"):
        assert np.linalg.norm(got[name] - want[name]) <= error * np.linalg.norm(want[name]), name
