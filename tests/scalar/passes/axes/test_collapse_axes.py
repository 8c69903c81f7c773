"""``collapse-axes``: which axes become one, and what keeps two apart."""

from __future__ import annotations

import pytest

from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.axes.collapse_axes import CollapseAxes
from tests.scalar.expect import expect, lowered_by

DIMS = "dim B = 3, M = 4, N = 5, K = 6, L = 7\n"
PRODUCT = DIMS + "input A: f16[B, M, K, L]\ninput W: f16[K, L, N]\n"


def collapsed(text: str) -> Program:
    return lowered_by(CollapseAxes(), text)


def test_rows_and_contracted_axes_of_a_product() -> None:
    p = collapsed(PRODUCT + "output C: f32[B, M, N]\nC[b, i, j] = sum[l, k](A[b, i, k, l] * W[k, l, j])\n")
    expect(p, "input A: f16[12, 42] of [3, 4, 6, 7]\ninput W: f16[42, 5] of [6, 7, 5]")
    expect(p, "output C: f32[12, 5] of [3, 4, 5]\npar b_i in 0..12, j in 0..5 {\nred k_l in 0..42 {")
    expect(p, "C[b_i, j] sum= cast<f32>(A[b_i, k_l]) * cast<f32>(W[k_l, j])")


def test_definitions_that_read_a_collapsed_one_follow() -> None:
    p = collapsed(
        DIMS + "input X: f32[B, M, N]\noutput y: f32\noutput Z: f32[B, M, N]\n"
        "T[b, i, j] = exp(X[b, i, j])\ny = sum[b, i, j](T[b, i, j])\nZ[b, i, j] = T[b, i, j] / y\n"
    )
    expect(p, "temp T: f32[60]\nZ[b_i_j] = T[b_i_j] / y[]")


def test_the_last_axes_of_a_row() -> None:
    p = collapsed(DIMS + "input X: f32[B, M, N]\ninput w: f32[B]\noutput y: f32\ny = sum[b, i, j](w[b] * X[b, i, j])\n")
    expect(p, "input X: f32[3, 20] of [3, 4, 5]\nred b in 0..3, i_j in 0..20 {")


@pytest.mark.parametrize(
    "text",
    [
        "input X: f32[B, M]\noutput Y: f32[B, M]\nY[b, i] = exp(X[b, i])\n",  # no plan depends on it
        "input X: f32[M, M]\noutput y: f32\ny = sum[i, j](X[i, j] * i)\n",  # the position is a value
        "input X: f32[M, M]\noutput y: f32\ny = sum[i, j | i < j](X[i, j])\n",  # a condition
        "input X: f32[M, N]\ninput Z: f32[N, M]\noutput y: f32\ny = sum[i, j](X[i, j] * Z[j, i])\n",  # another order
        "input X: f32[M + 1, N + 1]\noutput y: f32\ny = sum[i: M, j: N](X[i, j])\n",  # a part of a tensor
        "input X: f32[M, N]\noutput y: f32\noutput z: f32[N]\ny = sum[i, j](X[i, j])\nz[j] = X[2, j]\n",  # one row
        "input X: f32[B, M, N]\noutput Y: f32[M, N]\nY[i, j] = sum[b](X[b, i, j])\n",
    ],
)
def test_left_alone(text: str) -> None:
    p = lower(load_text(DIMS + text))
    assert CollapseAxes().apply(p) is p
