"""Errors of sums by the order of their additions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nautilus.check.bound.sums.orders import LARGEST_STORED, additions, apart, cuts, lanes_of, partial_sums
from nautilus.core.numerics import Array
from nautilus.core.schedule import Schedule, SplitPlan
from nautilus.frontend.semantics.check import load_text

CUT = SplitPlan("Y", "i", 16, 2048)


def size(terms: Array, axes: tuple[int, ...]) -> Array:
    return apart(terms, axes, partial_sums(terms, axes, 8), 1 << 16, CUT.splits, lanes_of(CUT))


def normal(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape)


def test_the_additions_of_a_sum() -> None:
    assert additions(1) == 1.0
    assert additions(64) == 9.0  # four terms of an access, and a tree of 32 lanes
    assert additions(1 << 16) == 2048.0


def test_a_sum_relative_to_a_cut_maximum_has_no_cut() -> None:
    text = (
        "dim N = 64\ninput X: f32[N]\noutput Y: f32, Z: f32\nm = max[i](X[i])\nY = sum[i](exp(X[i] - m))\n"
        "Z = sum[i](X[i])\n"
    )
    plans = tuple(replace(CUT, op=op) for op in ("m", "Y", "Z"))
    assert set(cuts(load_text(text), Schedule(splits=plans))) == {"m", "Z"}


def test_parts_of_terms_of_one_sign_average_out() -> None:
    """The error relative to the sum is that of the last additions."""
    terms = np.abs(normal(1 << 16))
    assert size(terms, (0,)) < 2.0 * terms.sum()


def test_parts_of_terms_of_both_signs_have_the_error_of_a_chain() -> None:
    terms = normal(1 << 16)
    chain = (1 << 16) / 16 / 32
    assert 0.5 * np.sqrt(chain) < size(terms, (0,)) / np.linalg.norm(terms) < np.sqrt(chain)


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_terms_that_are_alike_along_an_axis_do_not_average_out(axes: tuple[int, ...]) -> None:
    """The sums of rows cancel; a chain in one of them has the sum of its terms."""
    rows = np.broadcast_to(normal(256, 1) * np.where(np.arange(256) % 2, 1.0, -1.0)[:, None], (256, 256))
    assert size(rows, axes) > 8.0 * size(normal(256, 256), axes)


def test_the_sum_is_over_its_axes_alone() -> None:
    terms = normal(3, 64, 5, 32)
    whole = size(terms, (1, 3))
    assert whole.shape == (3, 5)
    assert np.allclose(whole[1, 2], size(terms[1, :, 2], (0, 1)), rtol=0.3)


def test_the_largest_number_that_is_stored_is_that_of_f32() -> None:
    assert float(np.finfo(np.float32).max) == LARGEST_STORED
