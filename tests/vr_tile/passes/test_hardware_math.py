"""``hardware-math``: which instruction stands for ``tanh``, ``erf`` and ``sigmoid``, and where."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.functions.arrays import erf
from nautilus.vr_tile import text
from nautilus.vr_tile.interp import run_module
from nautilus.vr_tile.ir import TileModule
from nautilus.vr_tile.passes.hardware_math import ERF_FORM, HardwareMath
from nautilus.vr_tile.verify import verify
from tests.vr_tile.support import module, ops, random_inputs

NARROW = "input X: f32[4, 8]\noutput O: {o}[4, 8]\noutput S: f32[4]"
BODY = """
  %x = load X[i, j] : f32[i: 4, j: 8]
  %r = reduce max %x over j : f32[i: 4]
  %t = {f} %x : f32[i: 4, j: 8]
  {more}
  store O[i, j], %y
  store S[i], %r
"""
PLAIN = "%two = const 2.0 : f32\n%y = mul %t, %two : f32[i: 4, j: 8]"


def made(f: str, o: str = "f16", more: str = PLAIN) -> TileModule:
    return module(BODY.format(f=f, more=more), buffers=NARROW.format(o=o))


@pytest.mark.parametrize(("o", "fast"), [("f16", True), ("bf16", True), ("f32", False)])
@pytest.mark.parametrize("f", ["tanh", "erf"])
def test_narrow_outputs_take_the_approximation(f: str, o: str, fast: bool) -> None:
    found = ops(HardwareMath().apply(made(f, o)))
    assert ("tanh_approx" in found) is fast
    assert HardwareMath("strict").apply(made(f, o)) == made(f, o)


IN_TURN = """
module m {
  input X: f32[4, 8]
  temp T: f32[4, 8]
  temp U: f32[4, 8]
  output O: f16[4, 8]
  output I: i32[4, 8]
  kernel first grid() axes(i: 4, j: 8) {
    %x = load X[i, j] : f32[i: 4, j: 8]
    %t = tanh %x : f32[i: 4, j: 8]
    store T[i, j], %t
  }
  kernel second grid() axes(i: 4, j: 8) {
    %x = load T[i, j] : f32[i: 4, j: 8]
    store U[i, j], %x
  }
  kernel third grid() axes(i: 4, j: 8) {
    %x = load U[i, j] : f32[i: 4, j: 8]
    LAST
  }
}
"""


@pytest.mark.parametrize(
    ("last", "fast"),
    [("store O[i, j], %x", True), ("%n = cast %x : i32[i: 4, j: 8]\nstore I[i, j], %n", False)],
    ids=["a narrow output", "an integer"],
)
def test_a_temporary_is_as_accurate_as_what_is_made_of_it(last: str, fast: bool) -> None:
    m = text.parse(IN_TURN.replace("LAST", last))
    verify(m)
    assert ("tanh_approx" in ops(HardwareMath().apply(m))) is fast


def test_the_form_of_erf_is_as_good_as_stated() -> None:
    x = np.concatenate([np.logspace(-8, 1, 4000), np.linspace(0, 8, 4000)[1:]])
    x = np.concatenate([x, -x])
    a, b = ERF_FORM
    got = np.tanh(x * (x * x * b + a))
    assert np.max(np.abs(got / erf(x) - 1)) < 2.0**-10 - 2.0**-11
    m = HardwareMath().apply(made("erf"))
    verify(m)
    inputs = random_inputs(m.buffers)
    inputs["X"] = np.array([[np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30, -1e30, 0.5]] * 4)
    want = run_module(made("erf"), inputs)["O"]
    np.testing.assert_allclose(run_module(m, inputs)["O"], want, rtol=2e-3)
