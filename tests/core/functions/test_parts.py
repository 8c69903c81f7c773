"""Numbers of f32 in two parts of tf32: the parts, what is lost, and numbers that have no such parts."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.functions.parts import DEPTH, multiplied, parts, truncated
from nautilus.core.numerics import Array, round_to
from nautilus.core.types import DType

LARGEST = float(np.finfo(np.float32).max)


def numbers(count: int, seed: int = 0) -> Array:
    """f32 numbers with all bits random, of all exponents between 2^-100 and 2^120."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 23, count, np.uint32) | (rng.integers(27, 247, count, np.uint32) << np.uint32(23))
    signed = bits | (rng.integers(0, 2, count, np.uint32) << np.uint32(31))
    return np.asarray(signed.view(np.float32))


def test_both_parts_are_tf32_and_lose_less_than_a_unit_of_the_last_place() -> None:
    x = numbers(100_000)
    high, low = parts(x)
    for part in (high, low):
        np.testing.assert_array_equal(part, round_to(part, DType.TF32))
    lost = np.abs(x.astype(np.float64) - high - low)
    assert float(np.max(lost / np.abs(x))) < 2.0**-23
    assert float(np.max(np.abs(low / x.astype(np.float64)))) <= 2.0**-11


def test_numbers_of_22_bits_lose_nothing() -> None:
    x = (np.arange(1, 1 << 16, dtype=np.float32) * np.float32(1 + 2.0**-6)).astype(np.float32)
    high, low = parts(x)
    np.testing.assert_array_equal(high.astype(np.float64) + low, x)


def test_a_product_loses_2_to_the_minus_21() -> None:
    a, b = numbers(50_000, 1)[:, None, None], numbers(50_000, 2)[:, None, None]
    a, b = a * np.float32(2.0**-10), np.sign(b) * np.abs(b) ** np.float32(0.01)
    exact = a.astype(np.float64) * b
    assert float(np.max(np.abs(multiplied(a, b) / exact - 1))) < 2.0**-21


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, LARGEST, -LARGEST])
def test_what_has_no_finite_parts_is_multiplied_as_it_is(value: float) -> None:
    assert not np.isfinite(parts(np.array([value], np.float32))).all()
    a, b = np.ones((4, 40), np.float32), np.ones((40, 3), np.float32)
    a[1, 7], b[7, 2], b[35, 0] = value, 0.0, 0.0
    b[7, :2] = 2.0**-20
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(multiplied(a, b), (a[..., None] * b).sum(1, dtype=np.float32))


def test_the_bits_that_an_mma_drops_are_those_of_tf32() -> None:
    x = np.array([1.0 + 2.0**-10, 1.0 + 2.0**-11, -1.0 - 2.0**-11, np.inf], np.float32)
    np.testing.assert_array_equal(truncated(x), np.array([1.0 + 2.0**-10, 1.0, -1.0, np.inf], np.float32))


def test_a_sum_in_parts_has_the_accuracy_of_f32() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((16, 40 * DEPTH), (40 * DEPTH, 16)))
    exact = a.astype(np.float64) @ b
    coarse = truncated(a) @ truncated(b)
    error, tf32 = (np.linalg.norm(x - exact) / np.linalg.norm(exact) for x in (multiplied(a, b), coarse))
    assert error < 6e-7 < 1e-4 < tf32
