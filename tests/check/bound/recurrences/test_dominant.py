"""Slices with most of the norm of a recurrence's output do not hide the errors of the others."""

from __future__ import annotations

import numpy as np

from nautilus.check.bound.recurrences.dominant import without_dominant


def test_a_slice_with_most_of_the_norm_does_not_count_where_others_have_larger_errors() -> None:
    values = np.ones((3, 2, 64))
    values[..., 7] = 1e6
    counts = without_dominant((np.where(values > 1.0, 1e-7, 1e-3) * values) ** 2, values**2, 0)
    assert counts is not None and counts.shape == (1, 1, 64)
    assert list(np.flatnonzero(counts.ravel() == 0.0)) == [7]


def test_a_slice_with_most_of_the_norm_and_the_largest_error_counts() -> None:
    values = np.ones((3, 64))
    values[:, 7] = 1e6
    assert without_dominant((np.where(values > 1.0, 1e-3, 1e-7) * values) ** 2, values**2, 0) is None


def test_all_elements_count_where_no_slice_has_much_of_the_norm() -> None:
    values = np.random.default_rng(0).standard_normal((3, 64))
    assert without_dominant(1e-6 * np.abs(values), values**2, 0) is None


def test_steps_and_few_slices_are_not_left_out() -> None:
    values = np.ones((64, 2))
    values[7] = values[:, 1] = 1e6
    assert without_dominant(np.where(values > 1.0, 1e-7, 1e-3), values**2, 0) is None
