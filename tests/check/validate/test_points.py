"""The points of the validator: what each kind of them has."""

from __future__ import annotations

import numpy as np

from nautilus.check.inputs import generate, validation_inputs
from nautilus.check.validate.points import INFINITE, points
from nautilus.core.numerics import Array
from nautilus.frontend.promises import integer_ranges
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.lowering import lower

SPEC = """
dim M = 12, N = 9
input X: f16[M, N], w: f32[N]
input len: i32[M]
output Y: f32[M]
Y[i] = sum[j | j < len[i]](X[i, j] * w[j])
"""


def made() -> dict[str, dict[str, Array]]:
    spec = load_text(SPEC)
    found = points(lower(spec).buffers, validation_inputs(spec), dict(generate(spec).scalars), 0)
    return {kind: dict(given.arrays) for kind, given in found}


def test_special_points_have_equal_rows_and_zeros_of_both_signs() -> None:
    x = made()["special"]["X"]
    assert np.array_equal(x[0], x[-1]) and not np.array_equal(x[0], x[1])
    assert {bool(s) for s in np.signbit(x[x == 0.0])} == {False, True}


def test_special_points_have_their_extremes_at_the_ends_of_rows() -> None:
    """A loop that leaves out the first element, or the last one, has another maximum and another minimum."""
    x = made()["special"]["X"]
    for row, (most, least) in ((x[0], (0, -1)), (x[1], (-1, 0))):
        assert np.count_nonzero(row == row.max()) == np.count_nonzero(row == row.min()) == 1
        assert row[most] == row.max() and row[least] == row.min()


def test_infinite_points_have_few_special_numbers_in_rows_and_more_in_vectors() -> None:
    x, w = (made()[INFINITE][n] for n in ("X", "w"))
    assert 0 < np.count_nonzero(~np.isfinite(x)) <= 3
    assert np.count_nonzero(np.isfinite(x).all(axis=1)) >= 9
    assert 0 < np.count_nonzero(~np.isfinite(w)) <= 3


def test_lengths_of_a_generic_point_are_those_at_the_ends() -> None:
    low, high = integer_ranges(load_text(SPEC))["len"]
    assert {low, low + 1, high - 1, high} <= {*made()["generic"]["len"].tolist()}


def test_tensors_without_elements_have_points() -> None:
    spec = load_text("dim M = runtime, N = 3\ninput X: f16[M, N]\noutput Y: f32[M]\nY[i] = sum[j](X[i, j])\n")
    found = dict(points(lower(spec).buffers, [{"X": np.zeros((0, 3))}] * 9, {"M": 0}, 0))
    assert found and all(given.arrays["X"].shape == (0, 3) for given in found.values())
