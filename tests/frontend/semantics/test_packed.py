"""Packed element types: every value, its bits, and the bytes of tensors."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.numerics import Array
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_text

#: the value of each of the sixteen patterns
VALUES = {
    "u4": [float(n) for n in range(16)],
    "i4": [float(n if n < 8 else n - 16) for n in range(16)],
    "f4e2m1": [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6],
}


def run(text: str, **inputs: Array) -> dict[str, Array]:
    return run_spec(load_text(text), inputs)


@pytest.mark.parametrize("dtype", VALUES)
def test_the_lower_index_is_the_low_half(dtype: str) -> None:
    text = f"input A: {dtype}[2, 8]\noutput O: f32[2, 8]\nO[i, j] = A[i, j]\n"
    codes = np.arange(16).reshape(2, 8)
    packed = codes[:, 0::2] | codes[:, 1::2] << 4
    np.testing.assert_array_equal(run(text, A=packed)["O"], np.asarray(VALUES[dtype]).reshape(2, 8))


@pytest.mark.parametrize("dtype", VALUES)
def test_what_is_written_is_read_again(dtype: str) -> None:
    text = f"input A: {dtype}[2, 8]\noutput O: {dtype}[2, 8]\nO[i, j] = A[i, j]\n"
    packed = np.arange(8).reshape(2, 4) * 33 % 256
    found = run(text, A=packed)["O"]
    if dtype == "f4e2m1":  # a zero has no sign
        low, high = packed & 15, packed >> 4
        packed = np.where(low == 8, 0, low) | np.where(high == 8, 0, high) << 4
    np.testing.assert_array_equal(found, packed)


def test_rounding_to_f4e2m1() -> None:
    """To nearest, ties to the even pattern, by a search over all values."""
    x = np.concatenate([np.arange(-160, 161) / 16.0 / 1.25, [np.inf, -np.inf, np.nan, 0.25, 0.75, 2.5, 3.5, 5.0, -5.0]])
    text = f"input X: f32[{x.size}]\noutput O: f32[{x.size}]\nO[i] = f4e2m1(X[i])\n"
    table = np.asarray(VALUES["f4e2m1"][:8])
    size = np.where(np.isnan(x), 6.0, np.minimum(np.abs(x), 6.0))
    distance = np.abs(size[:, None] - table)
    nearest = [min(range(8), key=lambda n, d=d: (d[n], n % 2)) for d in distance]  # type: ignore[misc]
    want = table[nearest] * np.where(x < 0, -1.0, 1.0)
    np.testing.assert_array_equal(run(text, X=x)["O"], want)


def test_an_intermediate_is_rounded() -> None:
    text = "input X: i32[4]\noutput O: i32[4], P: f32[4]\nT: i4[i] = X[i]\nU: f4e2m1[i] = X[i] / 4\n"
    found = run(text + "O[i] = T[i]\nP[i] = U[i]\n", X=np.asarray([7, 8, -9, 100]))
    assert found["O"].tolist() == [7, -8, 7, 4]
    assert found["P"].tolist() == [2.0, 2.0, -2.0, 6.0]
