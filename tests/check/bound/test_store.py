"""The last rounding of an output is part of its stated bound."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.check.bound.stated import stated
from nautilus.check.bound.store import last_rounding, last_unit
from nautilus.check.inputs import generate
from nautilus.core.numerics import round_to
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_spec

SCALED = "dim N = 128\ninput X: f16[N]\noutput Y: {}[N]\nY[i] = X[i] * {}\n"
PRODUCT = "dim M = 3, N = 33, K = 20\ninput A: f16[M, K], B: {}[K, N]\noutput Y: f64[M, N]\nY[i, j] = {}\n"


@pytest.mark.parametrize(("dtype", "scale"), [("f16", 1e-6), ("f16", 3e-7), ("f16", 1e-4), ("f16", 3.0), ("bf16", 3.0)])
def test_denormal_results_have_the_error_of_their_spacing(dtype: str, scale: float) -> None:
    spec = load_spec(SCALED.format(dtype, scale))
    said = stated(spec)["Y"].relative
    for seed in range(4):
        given = generate(spec, "random", seed)
        want = run_spec(spec, given.arrays, given.scalars)["Y"]
        made = np.linalg.norm(round_to(want, spec.outputs[0].dtype) - want) / np.linalg.norm(want)
        assert 0.1 * said < made < said


def test_an_output_of_f64_that_is_computed_in_f32_has_the_unit_roundoff_of_f32() -> None:
    units = {}
    for dtype, body in (
        ("f16", "sum[k](A[i, k] * B[k, j])"), ("f64", "sum[k](A[i, k] * B[k, j])"),
        ("f16", "f64(A[i, 0]) * f64(B[0, j])"),
    ):  # fmt: skip
        spec = load_spec(PRODUCT.format(dtype, body))
        units[dtype, body[0]] = last_unit(spec, spec.outputs[0])
    assert units == {("f16", "s"): 2.0**-24, ("f64", "s"): 2.0**-53, ("f16", "f"): 2.0**-53}


def test_zeros_and_values_that_become_zero_have_no_larger_error_than_themselves() -> None:
    spec = load_spec(SCALED.format("f16", 1e-9))
    assert last_rounding(spec, spec.outputs[0], [np.array([0.0, 1e-9])]) == 1.0
    assert last_rounding(spec, spec.outputs[0], [np.array([0.0, 1.0])]) == 2.0**-11
    assert last_rounding(spec, spec.outputs[0], [np.zeros(2)]) == 2.0**-11


@pytest.mark.parametrize(("body", "units"), [
    ("max[k](A[i, k])", 0.0),
    ("max[k](H[i, k])", 1 / 4),  # one of 64 elements may be rounded the other way
    ("min(H[i, 0], 0.0625) if A[i, 0] > 0.0 else 0.0", 1 / 4),
    ("max[k](A[i, k] * 1.1)", 1.0),
])  # fmt: skip
def test_what_only_chooses_numbers_of_its_type_is_not_rounded_again(body: str, units: float) -> None:
    head = "dim M = 64, K = 20\ninput A: f16[M, K]\noutput Y: f16[M]\noutput Z: f16[M]\n"
    spec = load_spec(f"{head}H: f16[i, k] = A[i, k] * 1.1\nZ[i] = H[i, 1]\nY[i] = {body}\n")
    assert last_unit(spec, spec.outputs[0]) == units * 2.0**-11
    assert (stated(spec)["Y"].relative > 0.0) is (units > 0.0)
