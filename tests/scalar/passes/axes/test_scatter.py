"""Sums of f32 as sums of integers, where terms are not finite, or have the largest magnitude that the rule admits."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.schedule import Schedule
from nautilus.frontend.semantics.check import load_spec
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.axes.scatter import Scatter

TEXT = """\
dim T = 9, E = 4
input X: f32[T]
input key: i32[T]
output S: f32[E]
S[e: E] = sum[t | key[t] == e](X[t])
"""
INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(("terms", "total"), [
    ([INF, 1.0, INF], INF),
    ([-INF, 1.0], -INF),
    ([-INF, -INF, -INF], -INF),
    ([INF, -INF], NAN),
    ([INF, INF, -INF], NAN),
    ([NAN, 1.0], NAN),
    ([NAN, INF], NAN),
    ([NAN, -INF, -INF], NAN),
    ([3.0e37] * 9, 2.7e38),
    ([1.9999999] * 9, 17.9999991),
    ([-1.9999999] * 9, -17.9999991),
    ([1.0e-38, 1.0e-38], 2.0e-38),
    ([], 0.0),
])  # fmt: skip
def test_a_sum_of_such_terms(terms: list[float], total: float) -> None:
    program = Scatter(Schedule(scatters=("S",))).apply(lower(load_spec(TEXT)))
    given = np.zeros(9)
    given[: len(terms)] = terms
    key = np.where(np.arange(9) < len(terms), 2, 7)
    found = run_program(program, {"X": given, "key": key})["S"]
    assert np.allclose(found[2], total, rtol=1e-6, atol=0.0, equal_nan=True)
    assert (found[[0, 1, 3]] == 0.0).all()


RELATIVE = """\
dim T = 9, E = 4
input X: f32[T]
input key: i32[T]
output M: f32[E], S: f32[E]
M[e: E] = max[t | key[t] == e](X[t])
S[e: E] = sum[t | key[t] == e](exp(X[t] - M[e]))
"""


@pytest.mark.parametrize(("terms", "total"), [
    ([2.0, 2.0, 1.0], 2.36787944), ([-INF, 1.0], 1.0), ([1.0e38, -1.0e38], 1.0), ([INF, 1.0], NAN),
    ([-INF, -INF], NAN), ([NAN, 1.0], NAN), ([NAN, INF], NAN), ([], 0.0),
])  # fmt: skip
def test_a_sum_relative_to_the_largest_of_its_arguments(terms: list[float], total: float) -> None:
    program = Scatter(Schedule(scatters=("M", "S"))).apply(lower(load_spec(RELATIVE)))
    given = np.zeros(9)
    given[: len(terms)] = terms
    key = np.where(np.arange(9) < len(terms), 2, 7)
    found = run_program(program, {"X": given, "key": key})["S"]
    assert np.allclose(found[2], total, rtol=1e-6, atol=0.0, equal_nan=True)
