"""Comparison of arrays: when they agree, and which element the difference names."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.check.compare import exact, floor, norm, relative, same_reals, spacing, within
from nautilus.core.numerics import round_to
from nautilus.core.types import DType

NAN, INF = float("nan"), float("inf")


def test_norm_does_not_overflow() -> None:
    assert norm(np.array([3e200, 4e200])) == pytest.approx(5e200)
    assert norm(np.zeros(3)) == 0.0
    assert norm(np.array([3.0, INF, NAN, 4.0])) == pytest.approx(5.0)


def test_inf_and_nan_must_stand_at_the_same_places() -> None:
    want = np.array([1.0, INF, NAN, -INF])
    assert within(want.copy(), want, 0.0) is None
    for bad in ([1.0, INF, 0.0, -INF], [1.0, -INF, NAN, -INF], [1.0, 2.0, NAN, -INF], [NAN, INF, NAN, -INF]):
        found = within(np.array(bad), want, 1e9)
        assert found is not None
        assert found.measured == INF
        assert relative(np.array(bad), want) == INF


def test_the_first_wrong_element_is_named() -> None:
    want = np.ones((4, 5))
    got = want.copy()
    got[2, 3] = 1.5
    got[3, 0] = 7.0
    found = within(got, want, 0.1)
    assert found is not None
    assert found.index == (2, 3)
    assert found.count == 2
    assert found.text.startswith("[2, 3] is 1.5, expected 1.0")


def test_a_reference_of_zero() -> None:
    zero = np.zeros(4)
    assert within(zero, zero, 0.0) is None
    assert within(zero + 1e-3, zero, 1e-2) is None
    assert within(zero + 1e-1, zero, 1e-2) is not None
    assert relative(zero, zero) == 0.0


def test_integers_are_exact() -> None:
    want = np.arange(6).reshape(2, 3)
    assert exact(want.copy(), want) is None
    got = want.copy()
    got[1, 0] += 1
    found = exact(got, want)
    assert found is not None
    assert found.index == (1, 0)


@pytest.mark.parametrize("dtype", [DType.F16, DType.F32, DType.F64])
def test_spacing_is_numpys(dtype: DType) -> None:
    kind = {DType.F16: np.float16, DType.F32: np.float32, DType.F64: np.float64}[dtype]
    x = np.array([1.0, 1.5, 3.0, 0.1, 1e-7, 0.0, 600.0], kind)
    assert np.array_equal(spacing(x.astype(np.float64), dtype), np.spacing(np.abs(x)).astype(np.float64))


def test_a_tie_makes_a_step_at_most() -> None:
    want = np.arange(1000)
    near, far = want.copy(), want.copy()
    near[3] += 1
    far[3] += 2
    assert exact(near, want, 0.01, 1.0) is None and exact(far, want, 0.01) is None
    assert exact(far, want, 0.01, 1.0) is not None


def test_a_few_ties_may_fall_either_way_but_not_many() -> None:
    rng = np.random.default_rng(0)
    want = round_to(rng.standard_normal(1000), DType.F16)
    one_step = want + spacing(want, DType.F16)
    got = want.copy()
    got[5] = one_step[5]
    assert same_reals(got, want, DType.F16) is None
    assert same_reals(one_step, want, DType.F16) is not None
    got[5] = want[5] + 3 * spacing(want[5:6], DType.F16)[0]
    assert same_reals(got, want, DType.F16) is not None


def test_over_the_reals_a_small_fault_shows() -> None:
    want = np.random.default_rng(0).standard_normal(1000)
    assert same_reals(want * (1 + 1e-13), want, DType.F32) is None
    assert same_reals(want * (1 + 1e-7), want, DType.F32) is not None


def test_shapes_differ() -> None:
    assert within(np.zeros(3), np.zeros(4), 1.0) is not None
    assert same_reals(np.zeros(3), np.zeros(4), DType.F32) is not None


def test_true_ties_are_free_however_many() -> None:
    low = round_to(np.linspace(1.0, 1.9, 500), DType.F16)
    high = low + spacing(low, DType.F16)
    assert same_reals(high, low, DType.F16, truth=(low + high) / 2) is None
    assert same_reals(high, low, DType.F16, truth=low) is not None
    truth = (low + high) / 2
    truth[:2] = low[:2]  # two that are not known to be ties
    assert same_reals(high, low, DType.F16, truth=truth) is None


def test_numbers_below_the_least_of_f32_are_zero_in_it() -> None:
    want = np.array([3e-50, -2e-46, 1e-41])
    assert same_reals(np.array([0.0, 0.0, 1e-41]), want, DType.F32) is None
    assert same_reals(np.array([0.0, 0.0, 1e-41]), want, DType.F64) is not None
    assert same_reals(np.array([0.0, 0.0, 0.9e-41]), want, DType.F32) is not None


@pytest.mark.parametrize(
    ("dtype", "least"), [(DType.F16, -24), (DType.BF16, -126), (DType.F32, -126), (DType.F64, -1022)]
)
def test_the_error_that_any_element_may_have(dtype: DType, least: int) -> None:
    assert floor(dtype) == 2.0**least
