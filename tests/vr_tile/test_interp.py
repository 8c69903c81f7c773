"""The VR-tile interpreter against numpy, and its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nautilus.vr_tile import text
from nautilus.vr_tile.interp import TileRunError, run_module
from tests.vr_tile import samples


def attention_inputs(seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {n: rng.standard_normal((1, h, 32, 16)).astype(np.float16) for n, h in (("Q", 2), ("K", 1), ("V", 1))}


def attention_reference(x: Any) -> Any:
    q, k, v = (x[n].astype(np.float64) for n in "QKV")
    s = np.einsum("bhid,bjd->bhij", q, k[:, 0]) * 0.25
    s = np.where(np.tril(np.ones((32, 32), bool)), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("bhij,bjd->bhid", p / p.sum(-1, keepdims=True), v[:, 0])


@pytest.mark.parametrize(("mode", "tolerance"), [("real", 1e-3), ("typed", 3e-3)])
def test_attention(mode: Any, tolerance: float) -> None:
    x = attention_inputs()
    out = run_module(text.parse(samples.ATTENTION), x, mode=mode)["O"]
    np.testing.assert_allclose(out, attention_reference(x), atol=tolerance, rtol=tolerance)


def test_masked_loads_are_zero_and_touch_nothing() -> None:
    e = np.arange(42, dtype=np.float32).reshape(7, 6)
    t = np.array([3, -1, 99, 0, 6])
    out = run_module(text.parse(samples.GATHER), {"T": t, "E": e}, {"eps": 0.5})
    want = np.where(((t >= 0) & (t < 7))[:, None], e[np.clip(t, 0, 6)], 0)
    np.testing.assert_array_equal(out["O"], want + 0.5)
    np.testing.assert_array_equal(out["S"], want.sum(1))


def test_out_of_range_names_the_op() -> None:
    bad = samples.GATHER.replace("where i0 * 4 + i < 5 : i32", ": i32")
    with pytest.raises(TileRunError, match=r"T has extent 5 in dimension 0, accessed at 5 \(i0=1\): %t = load T\["):
        run_module(text.parse(bad), {"T": np.zeros(5, int), "E": np.zeros((7, 6))})


def test_unwritten_elements_show() -> None:
    part = samples.GATHER.replace(
        "store S[i0 * 4 + i], %s where i0 * 4 + i < 5", "store S[i0 * 4 + i], %s where i0 * 4 + i < 3"
    )
    out = run_module(text.parse(part), {"T": np.zeros(5, int), "E": np.zeros((7, 6))})["S"]
    np.testing.assert_array_equal(np.isnan(out), [False, False, False, True, True])


def test_missing_input() -> None:
    with pytest.raises(TileRunError, match="no value for input E"):
        run_module(text.parse(samples.GATHER), {"T": np.zeros(5, int)})
