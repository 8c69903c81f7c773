"""``drop-unit-axes``: which axes of one element go, and which ones stay."""

from __future__ import annotations

import pytest

from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.axes.drop_unit_axes import DropUnitAxes
from tests.scalar.expect import expect, lowered_by


def dropped(text: str) -> Program:
    return lowered_by(DropUnitAxes(), text)


def test_a_reduced_axis_beside_another_one_and_a_last_dimension() -> None:
    p = dropped(
        "dim M = 4, N = 5, K = 6\ninput A: f16[M, K, 1]\ninput B: f16[K, 1, N]\noutput C: f32[M, N]\n"
        "C[i, j] = sum[k, u](A[i, k, u] * B[k, u, j])\n"
    )
    expect(p, "input A: f16[4, 6] of [4, 6, 1]\ninput B: f16[6, 5] of [6, 1, 5]\nred k in 0..6 {\n!u in")


def test_a_last_axis_goes_from_all_definitions_that_are_aligned() -> None:
    p = dropped(
        "dim M = 4, N = 5\ninput X: f32[M, N, 1]\noutput Y: f32[M, N, 1]\nS[i, u] = sum[j](X[i, j, u])\n"
        "Y[i, j, u] = X[i, j, u] / S[i, u] + u\n"
    )
    expect(p, "input X: f32[4, 5] of [4, 5, 1]\noutput Y: f32[4, 5] of [4, 5, 1]\ntemp S: f32[4]\n!u in")


def test_a_reduction_of_one_element_under_a_condition() -> None:
    p = dropped("dim M = 4\ninput X: f32[M, 1]\noutput Y: f32[M]\nY[i] = max[u | i > 1](X[i, u])\n")
    expect(p, "Y[i] = select(i >= 2, X[i], -inf)\n!red")


@pytest.mark.parametrize(
    "text",
    [
        "input X: f32[1, 4]\noutput Y: f32[1, 4]\nY[u, i] = X[u, i]\n",  # a coordinate of blocks
        # the last axis of a temp
        "input X: f32[4, 1, 4]\noutput Y: f32[4, 1, 4]\nS[i, u] = sum[k](X[i, u, k])\nY[i, u, k] = S[i, u]\n",
        "input X: f32[4, 4]\noutput Y: f32[4]\nY[i] = sum[k](X[i, k])\n",
        "input X: f32[1]\noutput Y: f32[1]\nY[i] = X[i]\n",
    ],
)
def test_left_alone(text: str) -> None:
    p = lower(load_text(text))
    assert DropUnitAxes().apply(p) is p
