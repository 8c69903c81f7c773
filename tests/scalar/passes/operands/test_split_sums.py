"""``split-sums``: which sums are split, and what stays."""

from __future__ import annotations

import pytest

from nautilus.check.certificates.rules import check
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.operands.split_sums import SplitSums
from nautilus.scalar.passes.simplify import Simplify
from tests.scalar.expect import expect, sound
from tests.scalar.programs.specs import agree


def product(body: str) -> Spec:
    return load_text(
        "dim M = 5, N = 6, K = 7\ninput A: f16[M, K]\ninput B: f16[K, N]\ninput C: f16[M, K]\ninput D: f16[K, N]\n"
        f"input c: f16[K]\noutput Y: f32[M, N]\n{body}\n"
    )


def ready(spec: Spec) -> Program:
    return Simplify().apply(Inline().apply(lower(spec)))


def split(body: str) -> Program:
    spec = product(body)
    p, (c,) = SplitSums().derive(ready(spec))
    sound(p)
    agree(spec, p)
    assert check(c).ok
    return p


def test_an_output() -> None:
    p = split("Y[i, j] = sum[k | k != i](A[i, k] * B[k, j] + C[i, k] * D[k, j])")
    expect(p, "Y_term[i, j] sum= cast<f32>(C[i, k]) * cast<f32>(D[k, j]) where i != k")
    expect(p, "Y_acc[i, j] sum= cast<f32>(A[i, k]) * cast<f32>(B[k, j]) where i != k")
    expect(p, "Y[i, j] = Y_acc[i, j] + Y_term[i, j]")


def test_signs_and_a_reduction_inside_an_expression() -> None:
    p = split("Y[i, j] = tanh(sum[k](-(f32(A[i, k]) * B[k, j]) - C[i, k] * c[k] * D[k, j] + A[i, k] * D[k, j]))")
    expect(p, "Y[i, j] = tanh(-Y_sum[i, j] - Y_sum_term[i, j] + Y_sum_term_2[i, j])")


@pytest.mark.parametrize(
    "body",
    [
        "Y[i, j] = sum[k](A[i, k] * B[k, j])",  # one product
        "Y[i, j] = sum[k](A[i, k] * B[k, j] + c[k])",  # no product of two matrices
        "Y[i, j] = sum[k](A[i, k] + B[k, j])",
        "Y[i, j] = max[k](A[i, k] * B[k, j] + C[i, k] * D[k, j])",  # not a sum
    ],
)
def test_left_alone(body: str) -> None:
    p = ready(product(body))
    assert SplitSums().derive(p) == (p, ())
