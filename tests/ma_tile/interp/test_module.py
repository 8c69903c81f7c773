"""The physical interpreter on programs that are right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nautilus.ma_tile.interp.module import run_block, run_module
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.text import format as to_text
from nautilus.ma_tile.text import parse
from tests.ma_tile.programs import plain as p


def test_copy_through_swizzled_shared_memory() -> None:
    x = p.random(0, 77, 64)
    out = run_module(parse(p.COPY), {"X": x})
    assert out["Y"].dtype == np.float16
    assert np.array_equal(out["Y"], x.astype(np.float16))


@pytest.mark.parametrize("axes", ["k_last", "n_last"])
def test_pipeline_matches_numpy(axes: str) -> None:
    a, b = p.random(1, 64, 128), p.random(2, 64, 128)
    out = run_module(p.gemm(axes), {"A": a, "B": b if axes == "k_last" else b.T})
    assert np.allclose(out["C"], p.f16(a) @ p.f16(b).T, atol=1e-4)


def chained_inputs() -> dict[str, np.ndarray]:
    return {"Q": p.random(3, 64, 64) * 0.1, "K": p.random(4, 96, 64), "V": p.random(5, 96, 64)}


def chained_reference(x: dict[str, np.ndarray]) -> np.ndarray:
    q, k, v = (p.f16(x[n]).astype(np.float64) for n in "QKV")
    e = np.exp(q @ k.T)
    return np.asarray(e @ v / e.sum(axis=1, keepdims=True))


def test_chained_products_through_registers() -> None:
    x = chained_inputs()
    out = run_module(p.chained(), x)
    assert np.allclose(out["O"], chained_reference(x), atol=2e-3)


def test_reduce_across_warps() -> None:
    x = p.random(6, 8, 256)
    out = run_module(parse(p.REDUCE), {"X": x})
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    assert np.array_equal(out["M"], x.max(axis=1))
    assert np.allclose(out["Y"], e / e.sum(axis=1, keepdims=True), atol=1e-6)


def test_lanes_may_store_nan_of_either_sign() -> None:
    """Lanes that hold the same element computed it in different orders, and the sign of a NaN is not specified."""
    x = p.random(6, 8, 256)
    x[1, 3], x[1, 200] = np.nan, -np.nan
    out = run_module(parse(p.REDUCE), {"X": x})
    assert np.array_equal(out["M"], x.max(axis=1), equal_nan=True)


@pytest.mark.parametrize("seed", range(6))
def test_roles_under_every_policy(seed: int) -> None:
    x = p.random(7, 384, 32)
    out = run_block(p.roles(), "roles", 0, {"X": x}, seed=seed)
    total = np.zeros((64, 32), np.float32)
    for t in range(6):
        total = total + x[64 * t : 64 * t + 64]
    assert np.array_equal(out["Y"], total)


@pytest.mark.parametrize("make", [lambda: parse(p.COPY), p.gemm, lambda: p.gemm("n_last"), p.chained,
                                  lambda: parse(p.REDUCE), p.roles])  # fmt: skip
def test_text_parses_back_equal(make: Callable[[], MemModule]) -> None:
    m = make()
    text = to_text(m)
    assert parse(text) == m
    assert to_text(parse(text)) == text
