"""Arithmetic on residues."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.check.validate.residues import P, Q, inverse, of_floats, of_integers, power, products


@pytest.mark.parametrize("modulus", [P, Q])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (16,), (17,), (3, 5, 7), (1001,)])
def test_inverses(modulus: int, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(len(shape)).integers(0, modulus, shape)
    x = np.where(x % 5 == 0, 0, x)
    assert np.array_equal(inverse(x, modulus), power(x, modulus - 2, modulus))
    assert np.array_equal(inverse(x, modulus) * x % modulus, x != 0)


@pytest.mark.parametrize("modulus", [P, Q])
@pytest.mark.parametrize("depth", [1, 3, 3000])
def test_products_are_those_of_integers(modulus: int, depth: int) -> None:
    rng = np.random.default_rng(depth)
    a, b = (rng.integers(0, modulus, shape) for shape in ((2, 3, depth), (depth, 2)))
    a[0, 0], b[:, 0] = modulus - 1, modulus - 1  # the largest sums
    want = [
        [[sum(map(int.__mul__, row, column)) % modulus for column in b.T.tolist()] for row in m] for m in a.tolist()
    ]
    assert products(a, b, modulus).tolist() == want


@pytest.mark.parametrize("modulus", [P, Q])
def test_residues_of_numbers(modulus: int) -> None:
    x = np.array([0.0, 3.0, -5.0, 2.0**60, 0.75, -(2.0**-40), np.inf, np.nan])
    half = pow(2, -1, modulus)
    want = [0, 3, -5, 2**60, 3 * half * half, -pow(half, 40, modulus), 0, 0]
    assert of_floats(x, modulus).tolist() == [w % modulus for w in want]
    assert of_integers(np.array([7, -1, 2**62]), modulus).tolist() == [7, modulus - 1, 2**62 % modulus]
