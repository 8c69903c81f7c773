"""``split-sums``: which factors enter a sum, and what inf and NaN give."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nautilus.check.certificates.rules import check
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.operands.split_sums import SplitSums, fenced
from nautilus.scalar.passes.simplify import Simplify
from tests.scalar.expect import expect, sound
from tests.scalar.programs.specs import agree, random_inputs


def relative(head: str = "", element: str = "Q[i, d] * (K[j, d] + T[clamp(j - i, -2, 2) + 2, d])") -> Spec:
    """Scores with relative positions."""
    return load_text(f"""
dim M = 5, N = 6, D = 7
input Q: f16[M, D]
input K: f16[N, D]
input T: f16[5, D]
output S: f32[M, N]
{head}
S[i, j] = sum[d]({element})
""")


@pytest.mark.parametrize(
    ("element", "terms"),
    [
        ("Q[i, d] * (K[j, d] + T[clamp(j - i, -2, 2) + 2, d])", 1),
        ("2 * (K[j, d] - T[clamp(j - i, -2, 2) + 2, d] + T[4 - clamp(j - i, -2, 2) - 2, d]) * Q[i, d]", 2),
    ],
)
def test_a_factor_that_is_promised_to_be_finite_enters_a_sum(element: str, terms: int) -> None:
    spec = relative("assume abs(Q[i, d]) < inf", element)
    program, certificates = SplitSums(spec).derive(Simplify().apply(Inline().apply(lower(spec))))
    sound(program)
    agree(spec, program)
    expect(program, "S_acc[i, j] sum=")
    assert sum(k.name.startswith("S_term") for k in program.kernels) == terms
    assert all(check(c).status == "proved" for c in certificates)


@pytest.mark.parametrize(
    ("head", "element"),
    [
        ("", "Q[i, d] * (K[j, d] + T[clamp(j - i, -2, 2) + 2, d])"),
        ("assume abs(K[j, d]) < inf and abs(T[i, d]) < inf", "Q[i, d] * (K[j, d] + T[clamp(j - i, -2, 2) + 2, d])"),
        ("assume abs(Q[i, d]) < inf", "exp(Q[i, d]) * (K[j, d] + T[clamp(j - i, -2, 2) + 2, d])"),  # no tame function
        ("assume abs(Q[i, d]) < inf", "Q[i, d] * (K[j, d] + T[0, d])"),  # a product of matrices as it is
        ("assume abs(Q[i, d]) < inf", "Q[i, d] * (T[clamp(j - i, -2, 2) + 2, d] + T[0, d])"),  # none in either form
    ],
)
def test_other_sums_stay(head: str, element: str) -> None:
    spec = relative(head, element)
    program = Simplify().apply(Inline().apply(lower(spec)))
    assert SplitSums(spec).derive(program) == (program, ())


def test_the_promise_that_is_missing_is_named() -> None:
    spec = relative()
    (found,) = fenced(Simplify().apply(Inline().apply(lower(spec))), spec)
    assert found.inputs == ("Q",)
    assert not fenced(Simplify().apply(Inline().apply(lower(spec))), relative("assume abs(Q[i, d]) < inf"))


def test_where_the_spec_gives_a_number_or_inf_the_terms_do() -> None:
    spec = relative("assume abs(Q[i, d]) < inf")
    program, _ = SplitSums(spec).derive(Simplify().apply(Inline().apply(lower(spec))))
    rng = np.random.default_rng(5)
    infinite = 0
    for seed in range(30):
        inputs = random_inputs(spec, seed)
        for name in ("K", "T"):
            special = rng.choice([0.0, math.inf, -math.inf, math.nan], inputs[name].shape)
            inputs[name] = np.where(rng.random(inputs[name].shape) < 0.03, special, inputs[name])
        want, have = run_spec(spec, inputs)["S"], run_program(program, inputs)["S"]
        infinite += int(np.isinf(want).sum())
        np.testing.assert_allclose(have, want, rtol=1e-9, atol=1e-9)
    assert infinite


def quantised(element: str, x: str = "u8") -> Spec:
    """A product of integers with zero points."""
    return load_text(f"""
dim M = 5, N = 6, D = 7
input X: {x}[M, D], W: i8[N, D], z: i32[M]
scalar p: i32 = 9, q: i32 = 2147483647
output Y: i32[M, N]
Y[i, j] = sum[d]({element}) + p + q
""")


@pytest.mark.parametrize(
    ("element", "shapes"),
    [("(X[i, d] - p) * W[j, d]", [(6,)]), ("(X[i, d] - z[i]) * (W[j, d] + q)", [(5, 6), (5,), (5,)])],
)
def test_zero_points_leave_a_product_of_bytes(element: str, shapes: list[tuple[int, ...]]) -> None:
    spec = quantised(element)
    program, certificates = SplitSums(spec).derive(Simplify().apply(Inline().apply(lower(spec))))
    sound(program)
    agree(spec, program)
    assert all(check(c).ok for c in certificates)
    assert [b.shape for b in program.buffers if b.name.startswith("Y_sum_term")] == shapes


@pytest.mark.parametrize("element", ["(X[i, d] - 128) * W[j, d]", "(z[i] - p) * W[j, d]", "X[i, d] * W[j, d]"])
def test_bytes_and_wide_integers_stay(element: str) -> None:
    spec = quantised(element)
    program = Simplify().apply(Inline().apply(lower(spec)))
    assert SplitSums(spec).derive(program) == (program, ())
