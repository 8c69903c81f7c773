"""``order-contractions``: which orders are found, what stays as it is written, and what inf and NaN give."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from nautilus.check.certificates.rules import check
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec
from nautilus.scalar.analysis.contractions.terms import terms
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.factor import Factor
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.operands.order_contractions import OrderContractions, fenced
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.rewriting import find_defs
from nautilus.targets.rates import machine
from tests.scalar.expect import expect, sound
from tests.scalar.programs.specs import agree, random_inputs

#: operations alone, at one rate, so that small sizes have the orders of large ones
OPERATIONS = OrderContractions(replace(machine("sm_90a"), launch=0.0, dram=math.inf, tensor_half=64.0))

HEAD = """dim M = 16, N = 32, K = 20, L = 17
input A: f16[M, K]
input B: f16[K, N]
input C: f16[N, L]
input S: f16[K, K]
input b: f16[N]
input q: i8[N, L]
"""


def ready(spec: Spec) -> Program:
    p = Simplify().apply(Inline().apply(lower(spec)))
    return Simplify().apply(Factor().apply(p))


def ordered(body: str, made: OrderContractions = OPERATIONS) -> Program | None:
    """The program of ``body`` with its sums in order: sound, certified, equal to the spec; None if it is unchanged."""
    spec = load_text(HEAD + body)
    before = ready(spec)
    p, certificates = replace(made, spec=spec).derive(before)
    if not certificates:
        assert p is before
        return None
    sound(p)
    agree(spec, p)
    for c in certificates:
        found = check(c)
        proved = found.status == "proved" and found.detail in ("on the domain everything", "on the domain finite")
        assert proved or (found.ok and c.before.dtype.is_int)
    return p


def test_the_sum_of_the_outputs_of_a_linear_layer() -> None:
    p = ordered("output y: f32[M]\nY[i, j] = sum[k](A[i, k] * B[k, j]) + b[j]\ny[i] = tanh(mean[j](Y[i, j] / 2) + 1)\n")
    assert p is not None
    expect(p, "y_sum_part[k] sum= cast<f32>(B[k, j])")
    expect(p, "y_sum_part_2[i] sum= cast<f32>(A[i, k]) * y_sum_part[k]")
    expect(p, "y_sum_part_3[] sum= cast<f32>(b[j])")


def test_windows_of_the_outputs() -> None:
    p = ordered("output y: f32[M, N // 2]\nY[i, j] = sum[k](A[i, k] * B[k, j])\n"
                "y[i, p] = sum[w: 2](Y[i, 2 * p + w])\n")  # fmt: skip
    assert p is not None
    expect(p, "y_part[p, k] sum= cast<f32>(B[k, p * 2 + w])")


def test_one_sum_over_three_factors() -> None:
    p = ordered("output y: f32[M, L]\ny[i, l] = sum[k, j](A[i, k] * B[k, j] * C[j, l])\n")
    assert p is not None
    expect(p, "y_part[l, k] sum= cast<f32>(B[k, j]) * cast<f32>(C[j, l])")
    expect(p, "y[i, l] sum= cast<f32>(A[i, k]) * y_part[l, k]")


def test_a_bilinear_form_in_one_sum() -> None:
    p = ordered("output y: f32[M]\ny[i] = sum[k, l: K](A[i, k] * S[k, l] * A[i, l])\n")
    assert p is not None
    expect(p, "y_part[i, l] sum= cast<f32>(A[i, k]) * cast<f32>(S[k, l])")


def test_sums_that_separate() -> None:
    p = ordered("output y: f32[M, L]\ny[i, l] = sum[k, j](A[i, k] * C[j, l])\n")
    assert p is not None
    expect(p, "y[i, l] = y_part[i] * y_part_2[l]")


def test_terms_that_are_equal() -> None:
    p = ordered("output y: f32[M]\ny[i] = sum[k, j: N](A[i, k])\n")
    assert p is not None
    expect(p, "y[i] = y_part[i] * 32.0")


def test_padding_goes_with_what_it_guards() -> None:
    p = ordered(
        "output y: f32[L]\ninput F: f16[3, N, L]\n"
        "Y[t: K, l] = sum[r: 3, j](B[t + r - 1, j] * F[r, j, l] if 0 <= t + r - 1 < K else 0)\n"
        "y[l] = mean[t](Y[t, l])\n"
    )
    assert p is not None
    expect(p, "y_sum_part[r, j] sum= cast<f32>(B[r + t - 1, j]) where r + t >= 1 and r + t < 21")


@pytest.mark.parametrize(
    ("promise", "enough"),
    [
        ("abs(b[j]) < inf", True),
        ("-2 <= b[j] <= 2", True),
        ("b[j] < inf and b[j] > -inf", True),
        ("inf > abs(b[j])", True),
        ("2 >= b[j] and -2 <= b[j]", True),
        ("b[j] >= -2 and 2 > b[j]", True),
        ("b[j] <= 2", False),
        ("b[j] <= 2 and b[j] <= 3", False),
        ("abs(b[j]) >= 2", False),
        ("-b[j] < inf", False),
        ("sqrt(b[j]) < inf", False),
        ("inf >= abs(b[j])", False),
        ("abs(b[j]) <= inf", False),
        ("abs(b[0]) < inf", False),
    ],
)
def test_a_factor_that_is_promised_to_be_finite_may_enter(promise: str, enough: bool) -> None:
    p = ordered(f"assume {promise}\noutput y: f32[M]\nY[i, j] = sum[k](A[i, k] * B[k, j])\n"
                "y[i] = sum[j](Y[i, j] * b[j])\n")  # fmt: skip
    assert (p is not None) == enough
    if p is not None:
        expect(p, "y_part[k] sum= cast<f32>(B[k, j]) * cast<f32>(b[j])")


def test_an_axis_that_may_be_empty_is_summed_over_last() -> None:
    p = ordered(
        "dim R = runtime <= 64\ninput D: f16[M, R]\ninput E: f16[R, N]\noutput y: f32[M, L]\n"
        "y[i, l] = sum[r: R, j](D[i, r] * E[r, j] * C[j, l])\n"
    )
    assert p is not None
    expect(p, "y_part[l, r] sum= cast<f32>(E[r, j]) * cast<f32>(C[j, l])")
    sums = "output y: f32[M]\nY[i, r] = sum[k](A[i, k] * F[k, r])\ny[i] = sum[r](Y[i, r])\n"
    assert ordered("dim R = runtime <= 4096\ninput F: f16[K, R]\n" + sums) is None
    assert ordered("dim R = runtime <= 4096\nassume R >= 1\ninput F: f16[K, R]\n" + sums) is not None


def test_integers_need_no_fence() -> None:
    p = ordered(
        "output y: i32[N]\nG[j, i: N] = sum[l](i32(q[j, l]) * i32(q[i, l]))\ny[j] = sum[i](G[j, i] * i32(q[i, 0]))\n"
    )
    assert p is not None
    expect(p, "y_part[l] sum= cast<i32>(q[i, l]) * cast<i32>(q[i, 0])")


@pytest.mark.parametrize(
    "body",
    [
        "output y: i32[N]\nG[j, i: N] = sum[l](i32(q[j, l]) * -i32(q[i, l]))\ny[j] = sum[i](G[j, i] * i32(q[i, 0]))\n",
        "output y: i32[N]\nG[j, i: N] = sum[l](i32(q[j, l]) * i32(q[i, l]))\ny[j] = sum[i](i32(q[i, 0]) * -G[j, i])\n",
        "output y: f32[M]\nY[i, j] = sum[k](A[i, k] * -B[k, j])\ny[i] = sum[j](Y[i, j] - b[j])\n",
        "output y: f32[M]\nY[i, j] = sum[k](A[i, k] * B[k, j])\ny[i] = sum[j](b[j] - Y[i, j] * tanh(b[j]))\n",
    ],
)
def test_signs_stay(body: str) -> None:
    assert ordered(body) is not None


def test_a_bounded_factor_may_enter() -> None:
    p = ordered("output y: f32[M]\nY[i, j] = sum[k](A[i, k] * B[k, j])\ny[i] = sum[j](Y[i, j] * tanh(b[j]))\n")
    assert p is not None
    expect(p, "y_part[k] sum= cast<f32>(B[k, j]) * tanh(cast<f32>(b[j]))")


@pytest.mark.parametrize(
    "body",
    [
        "output y: f32[M, N]\ny[i, j] = sum[k](A[i, k] * B[k, j])\n",
        "output y: f32[M]\nY[i, j] = sum[k](A[i, k] * B[k, j])\ny[i] = sum[j](Y[i, j] * b[j])\n",  # b may be inf
        "output y: f32[M]\nY: f16[i, j] = sum[k](A[i, k] * B[k, j])\ny[i] = sum[j](Y[i, j])\n",  # a rounding
        "output y: f32[M]\nY[i, j] = sum[k](A[i, k] * B[k, j])\ny[i] = sum[j](max(Y[i, j], 0))\n",
        "output y: f32[M]\nY[i, j] = sum[k](A[i, k] * B[k, j])\ny[i] = sum[j](Y[i, j] * tanh(Y[i, j]))\n",
        "output y: f32[M]\noutput Y: f32[M, N]\nY[i, j] = sum[k](A[i, k] * B[k, j])\ny[i] = sum[j](Y[i, j])\n",
        "output y: f32[M]\noutput z: f32[M]\nY[i, j] = sum[k](A[i, k] * B[k, j])\ny[i] = sum[j](Y[i, j])\n"
        "z[i] = max[j](Y[i, j])\n",  # all elements are needed
        # Elements of B that some results leave out may hold inf.
        "output y: f32[M]\nY[i, j] = sum[k](A[i, k] * B[k, j])\ny[i] = sum[j | j <= i](Y[i, j])\n",
        # The domain of an inner sum is empty at k = 0, where the terms are absent whatever A holds.
        "output y: f32[M]\nY[i, j] = sum[k | k > j](A[i, k] * B[k, j])\ny[i] = sum[j](Y[i, j])\n",
    ],
)
def test_left_alone(body: str) -> None:
    assert ordered(body) is None


def test_more_terms_than_are_tried_stay() -> None:
    for count, known in ((8, True), (9, False)):
        value = " + ".join(f"A[i, k] * B[k, j] * {n}" for n in range(2, 2 + count))
        body = f"output y: f32[M]\ny[i] = sum[k, j]({value})\n"
        defs = find_defs(ready(load_text(HEAD + body)))
        assert (terms(defs["y"], defs, lambda _: False) is not None) is known
    assert ordered(body) is None


@pytest.mark.parametrize(
    ("promise", "value", "inputs"),
    [
        ("abs(X[i, k]) < inf", "Y[i, j] * v[j]", ("v",)),
        ("abs(v[j]) < inf", "Y[i, j] * w[j]", ("w",)),
        ("abs(v[j]) < inf", "Y[i, j] * v[j]", None),
        ("abs(v[j]) < inf", "Y[i, j] * n[j]", None),
    ],
)
def test_inputs_whose_promise_would_make_a_sum_faster(promise: str, value: str, inputs: tuple[str, ...] | None) -> None:
    spec = load_text(f"""
dim M = 2048, K = 768, N = 512
input X: f32[M, K], W: f32[N, K], v: f32[N], w: f32[N], n: i8[N]
output y: f32[M], U: f32
assume {promise}
Y[i, j] = sum[k](X[i, k] * W[j, k])
y[i] = sum[j]({value})
U = v[0] + w[0] + n[0]
""")
    found = fenced(Simplify().apply(Inline().apply(lower(spec))), spec)
    assert [(f.name, f.inputs) for f in found] == ([] if inputs is None else [("y", inputs)])


def test_a_small_gain_is_none() -> None:
    assert ordered("output y: f32[M]\nY[i, j] = sum[k](A[i, k] * B[k, j])\ny[i] = sum[j](Y[i, j])\n",
                   OrderContractions()) is None  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        "output y: f32[M]\nY[i, j] = sum[k](A[i, k] * B[k, j]) + b[j]\ny[i] = sum[j](Y[i, j])\n",
        "output y: f32[M, L]\ny[i, l] = sum[k, j](A[i, k] * B[k, j] * C[j, l])\n",
        "output y: f32[M]\nY[i, j] = sum[k](A[i, k] * B[k, j])\ny[i] = sum[j](Y[i, j] * tanh(b[j]))\n",
    ],
)
def test_where_the_spec_gives_a_number_or_inf_the_new_order_does(body: str) -> None:
    spec = load_text(HEAD + body)
    p, certificates = OPERATIONS.derive(ready(spec))
    assert certificates
    rng = np.random.default_rng(5)
    defined = 0
    for seed in range(30):
        inputs = random_inputs(spec, seed)
        for name in [t.name for t in spec.inputs if t.dtype.is_float]:
            values = inputs[name] if seed % 2 else np.abs(inputs[name])  # inf alone is never cancelled
            special = rng.choice([0.0, math.inf, -math.inf, math.nan], values.shape) if seed % 2 else math.inf
            inputs[name] = np.where(rng.random(values.shape) < 0.01, special, values)
        want, have = run_spec(spec, inputs)["y"], run_program(p, inputs)["y"]
        known = ~np.isnan(want)
        defined += int(np.isinf(want).sum())
        np.testing.assert_allclose(have[known], want[known], rtol=1e-9, atol=1e-9)
    assert defined  # some results are inf


TRIANGLES = """input T: {type}[L, L]
output t: {result}
t = sum[i, j, k | i < j and j < k]({result}(T[i, j]) * T[j, k] * T[i, k])
"""


def test_sums_of_integers_over_nothing() -> None:
    """A condition on the axes of a result is one of its reader."""
    p = ordered(TRIANGLES.format(type="i8", result="i32"))
    assert p is not None
    expect(p, "t_part[j, k] sum= cast<i32>(T[i, j]) * cast<i32>(T[i, k]) where i < j")
    expect(p, "t[] sum= cast<i32>(T[j, k]) * t_part[j, k] where j < k")


def test_sums_of_floats_over_nothing() -> None:
    """The 0 of a sum over nothing would meet inf."""
    assert ordered(TRIANGLES.format(type="f16", result="f32")) is None
