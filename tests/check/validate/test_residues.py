"""Arithmetic on residues."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.check.validate.residues import P, Q, inverse, power


@pytest.mark.parametrize("modulus", [P, Q])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (16,), (17,), (3, 5, 7), (1001,)])
def test_inverses(modulus: int, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(len(shape)).integers(0, modulus, shape)
    x = np.where(x % 5 == 0, 0, x)
    assert np.array_equal(inverse(x, modulus), power(x, modulus - 2, modulus))
    assert np.array_equal(inverse(x, modulus) * x % modulus, x != 0)
