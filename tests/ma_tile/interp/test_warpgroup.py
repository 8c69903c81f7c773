"""The physical interpreter on programs of the sm_90a class that are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nautilus.ma_tile.interp.module import run_block, run_module
from nautilus.ma_tile.interp.tile_scheduler import fixed, split
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from tests.ma_tile.programs import plain as p
from tests.ma_tile.programs import warpgroup as w

A, B = p.random(1, 130, 256) * 0.1, p.random(2, 64, 256)
Q, K, V = p.random(3, 128, 64) * 0.1, p.random(4, 192, 64), p.random(5, 192, 64)
X = p.random(6, 512, 64)


def product(**shape: int) -> tuple[str, dict[str, np.ndarray], np.ndarray]:
    rows, steps = shape.get("rows", 130), shape.get("steps", 4)
    a, b = A[:rows, : 64 * steps], B[:, : 64 * steps]
    return w.product(**shape), {"A": a, "B": b}, p.f16(a) @ p.f16(b).T


def chain() -> tuple[str, dict[str, np.ndarray], np.ndarray]:
    q, k, v = (p.f16(x).astype(np.float64) for x in (Q, K, V))
    return w.chain(), {"Q": Q, "K": K, "V": V}, np.exp(q @ k.T) @ v


def alone() -> tuple[str, dict[str, np.ndarray], np.ndarray]:
    a, b = A[:64, :128], B.T[:128]
    return w.alone(), {"A": a, "B": b}, p.f16(a) @ p.f16(b)


def cluster() -> tuple[str, dict[str, np.ndarray], np.ndarray]:
    a, b = A[:128, :128], B[:, :128]
    return w.cluster(), {"A": a, "B": b}, 2 * (p.f16(a) @ p.f16(b).T)


def tiles(order: str) -> tuple[str, dict[str, np.ndarray], np.ndarray]:
    return w.tiles(order), {"X": X}, 2 * p.f16(X)


CASES: dict[str, Callable[[], tuple[str, dict[str, Any], Any]]] = {
    "alone": alone, "product": product, "one_consumer": lambda: product(consumers=1, rows=64),
    "after": lambda: product(behind=1), "two_steps": lambda: product(steps=2, behind=1), "chain": chain,
    "static": lambda: tiles("static"), "snake": lambda: tiles("snake"), "dynamic": lambda: tiles("dynamic"),
    "cluster": cluster, "named": lambda: (w.named(), {"X": X[:128]}, 2 * X[:128]),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("seed", range(3))
def test_right_programs_give_right_numbers(name: str, seed: int) -> None:
    text, inputs, want = CASES[name]()
    (got,) = run_module(parse(text), inputs, seed=seed).values()
    assert np.allclose(got.astype(np.float64), want, rtol=3e-3, atol=3e-2)


def test_a_carried_result_is_awaited_in_the_next_round() -> None:
    """The first iteration has nothing to wait for, which is legal."""
    text, inputs, want = alone()
    for old, new in (
        ("barrier\n", "wg.wait 0 %acc\n barrier\n"),
        ("%next = ", "wg.fence %next = "),
        ("over k :", "over k async :"),
        ("yield", "wg.commit yield"),
        ("st.global", "wg.wait 0 %c st.global"),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    verify(parse(text))
    (got,) = run_module(parse(text), inputs).values()
    assert np.allclose(got, want, atol=3e-2)


def test_rows_outside_are_zeros_and_are_not_stored() -> None:
    text, inputs, want = product()
    (got,) = run_block(parse(text), "product", 1, inputs).values()
    assert np.isnan(got[:128]).all()
    assert np.allclose(got[128:].astype(np.float64), want[128:], atol=3e-2)


def test_every_tile_is_taken_once() -> None:
    for seed in range(4):
        assert sorted(t for part in split(11, 3, seed) for t in part) == list(range(14))
    for order in ("static", "snake"):
        assert sorted(t for b in range(3) for t in fixed(order, 11, b, 3)) == list(range(11))
    assert list(fixed("snake", 11, 0, 3)) == [0, 5, 6]
    assert {tuple(part) for part in split(2, 3, 0)} in ({(0, 3), (1, 4), (2,)}, {(0, 4), (1, 3), (2,)})
