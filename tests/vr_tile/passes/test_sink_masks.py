"""``sink-masks``: the mask behind an exponential goes where the one below it does its work."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.vr_tile import text
from nautilus.vr_tile.interp import run_module
from nautilus.vr_tile.passes.sink_masks import SinkMasks

#: One masked row block of a running maximum and a sum of exponentials; ``{...}`` are what tests vary.
BLOCK = """
module m {{
  input X: f32[4, 8]
  input C: bool[4, 8]
  input M: f32[4]
  output S: f32[4]
  output T: f32[4]
  kernel S grid() axes(i: 4, j: 8) {{
    %x = load X[i, j] : f32[i: 4, j: 8]
    %c = load C[i, j] : bool[i: 4, j: 8]
    %old = load M[i] : f32[i: 4]
    %low = const -inf : f32
    %zero = const 0.0 : f32
    %y = select %c, %x, {fill} : f32[i: 4, j: 8]
    %r = reduce max %y over j : f32[i: 4]
    %m = max %old, %r : f32[i: 4]
    %gone = eq %m, %low : bool[i: 4]
    %ref = select %gone, %zero, %m : f32[i: 4]
    %k = const {k} : f32
    %nk = const {nk} : f32
    %b = mul {guarded}, %nk : f32[i: 4]
    %a = fma %x, %k, %b : f32[i: 4, j: 8]
    %e = exp2 %a : f32[i: 4, j: 8]
    %z = select %c, %e, %zero : f32[i: 4, j: 8]
    %s = reduce {sum} %z over j : f32[i: 4]
    store S[i], %s
    store T[i], %m
  }}
}}
"""
GOOD = {"fill": "%low", "k": "1.5", "nk": "-1.5", "guarded": "%ref", "sum": "sum"}


@pytest.mark.parametrize("seed", range(8))
def test_same_sums(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((4, 8)) * 10
    x[1, 2], x[2, 5] = -np.inf, np.inf
    if seed % 2:
        x[3, 3] = np.nan
    c = rng.random((4, 8)) < 0.5
    c[0] = False  # a row with nothing in it
    old = np.where(rng.random(4) < 0.5, -np.inf, rng.standard_normal(4))
    inputs = {"X": x, "C": c, "M": old}
    before = text.parse(BLOCK.format(**GOOD))
    want, got = run_module(before, inputs), run_module(SinkMasks().apply(before), inputs)
    np.testing.assert_array_equal(want["T"], got["T"])
    np.testing.assert_allclose(want["S"], got["S"], rtol=1e-12)
