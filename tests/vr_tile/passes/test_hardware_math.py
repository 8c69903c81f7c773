"""``hardware-math``: which instruction stands for ``tanh``, ``erf`` and ``sigmoid``, and where."""

from __future__ import annotations

import numpy as np

from nautilus.core.functions.arrays import erf
from nautilus.vr_tile.interp import run_module
from nautilus.vr_tile.ir import TileModule
from nautilus.vr_tile.passes.hardware_math import ERF_FORM, HardwareMath
from nautilus.vr_tile.verify import verify
from tests.vr_tile.support import module, random_inputs

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
