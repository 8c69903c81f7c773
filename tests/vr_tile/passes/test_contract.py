"""``contract``: multiply-adds and polynomials in Horner's form, where they save operations."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.vr_tile.interp import run_module
from nautilus.vr_tile.ir import TileModule
from nautilus.vr_tile.passes.contract import Contract
from nautilus.vr_tile.passes.dce import Dce
from tests.vr_tile.support import check_pass, elementwise, ops, random_inputs

GELU = """
  %half = const 0.5 : f32
  %h = mul %x, %half : f32[i: 4, j: 8]
  %c = const 0.044715 : f32
  %a = mul %x, %c : f32[i: 4, j: 8]
  %b = mul %a, %x : f32[i: 4, j: 8]
  %d = mul %b, %x : f32[i: 4, j: 8]
  %e = add %x, %d : f32[i: 4, j: 8]
  %k = const 0.8 : f32
  %u = mul %e, %k : f32[i: 4, j: 8]
  %t = tanh %u : f32[i: 4, j: 8]
  %one = const 1.0 : f32
  %f = add %t, %one : f32[i: 4, j: 8]
  %y = mul %h, %f : f32[i: 4, j: 8]"""


def after(body: str) -> TileModule:
    return check_pass(elementwise(body), Contract(), Dce())


def test_infinities_of_an_odd_polynomial() -> None:
    inputs = random_inputs(elementwise(GELU).buffers)
    inputs["X"] = np.array([[np.inf, -np.inf, np.nan, 0.0, 1e30, -1e30, 1.0, -3.0]] * 4)
    for got, want in zip(run_module(after(GELU), inputs).values(), run_module(elementwise(GELU), inputs).values(),
                         strict=True):  # fmt: skip
        np.testing.assert_allclose(got, want, rtol=1e-9)


POLYNOMIALS = {
    "%c = const 3.0 : f32\n%a = mul %x, %x : f32[i: 4, j: 8]\n%b = mul %a, %x : f32[i: 4, j: 8]\n"
    "%d = mul %b, %c : f32[i: 4, j: 8]\n%e = mul %a, %c : f32[i: 4, j: 8]\n%f = add %d, %e : f32[i: 4, j: 8]\n"
    "%g = sub %f, %x : f32[i: 4, j: 8]\n%y = add %g, %c : f32[i: 4, j: 8]": None,
    "%y = mul %x, %x : f32[i: 4, j: 8]": 1,
    "%a = mul %x, %x : f32[i: 4, j: 8]\n%b = mul %a, %a : f32[i: 4, j: 8]\n%y = mul %b, %b : f32[i: 4, j: 8]": 3,
}


@pytest.mark.parametrize(("body", "count"), POLYNOMIALS.items())
def test_polynomials_compute_the_same_and_do_not_grow(body: str, count: int | None) -> None:
    m = after(body)
    before = sum(name in ("add", "sub", "mul", "fma") for name in ops(elementwise(body)))
    now = sum(name in ("add", "sub", "mul", "fma") for name in ops(m))
    assert now <= before if count is None else now == count
