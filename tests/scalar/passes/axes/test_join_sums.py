"""``join-sums``: which reductions are joined, and what stays."""

from __future__ import annotations

import pytest

from nautilus.check.certificates.rules import check
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.axes.join_sums import JoinSums
from nautilus.scalar.passes.factor import Factor
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.simplify import Simplify
from tests.scalar.expect import expect, sound
from tests.scalar.programs.specs import agree


def spec_of(body: str) -> Spec:
    return load_text(
        "dim M = 5, N = 6, K = 7, L = 3\ninput A: f16[M, K, L]\ninput B: f16[K, L, N]\ninput w: f32[K]\n"
        f"output Y: f32[M, N]\n{body}\n"
    )


def ready(spec: Spec) -> Program:
    return Factor().apply(Simplify().apply(Inline().apply(lower(spec))))


def joined(body: str) -> Program:
    spec = spec_of(body)
    p, certificates = JoinSums().derive(ready(spec))
    sound(p)
    agree(spec, p)
    assert certificates and all(check(c).ok for c in certificates)
    return p


def test_a_product_over_two_axes() -> None:
    p = joined("Y[i, j] = sum[k](sum[l](A[i, k, l] * B[k, l, j]))")
    expect(p, "red k in 0..7, l in 0..3 {\nY[i, j] sum= cast<f32>(A[i, k, l]) * cast<f32>(B[k, l, j])")
    assert len(p.kernels) == 1


def test_conditions_of_both_hold_for_a_term() -> None:
    p = joined("Y[i, j] = sum[k | k < i](sum[l | l != k](A[i, k, l] * B[k, l, j]))")
    expect(p, "where k < i and k != l")


def test_three_reductions() -> None:
    p = joined("Y[k: M, j] = max[i: K](max[l](max[m: M](A[m, i, l] + B[i, l, j]))) + f32(A[k, 0, 0])")
    expect(p, "red i in 0..7, l in 0..3, m in 0..5 {")


def test_an_axis_whose_name_is_taken() -> None:
    p = joined("T[k: L, j] = sum[i: K](A[0, i, k] * B[i, k, j])\nY[k: M, j] = sum[i: L](T[i, j]) + f32(A[k, 0, 0])")
    expect(p, "red i in 0..3, i_1 in 0..7 {\nsum= cast<f32>(A[0, i_1, i]) * cast<f32>(B[i_1, i, j])")


@pytest.mark.parametrize(
    "body",
    [
        "Y[i, j] = sum[k](max[l](A[i, k, l] * B[k, l, j]))",  # other combiners
        "Y[i, j] = sum[k](w[k] * sum[l](A[i, k, l] * B[k, l, j]))",  # a factor between them
        "T: f16[i, k, j] = sum[l](A[i, k, l] * B[k, l, j])\nY[i, j] = sum[k](T[i, k, j])",  # a rounding between them
        "T[i, k] = sum[l](f32(A[i, k, l]))\nY[i, j] = sum[k](T[i, k]) * T[i, 0]",  # another reader
    ],
)
def test_left_alone(body: str) -> None:
    p = ready(spec_of(body))
    assert JoinSums().derive(p) == (p, ())
