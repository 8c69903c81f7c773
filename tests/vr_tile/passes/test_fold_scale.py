"""``fold-scale``: what it makes of a small module, and that the module computes what it did."""

from __future__ import annotations

import numpy as np

from nautilus.vr_tile import text
from nautilus.vr_tile.interp import run_module
from nautilus.vr_tile.passes.dce import Dce
from nautilus.vr_tile.passes.fold_scale import FoldScale
from tests.vr_tile.support import check_pass, row


def test_a_factor_leaves_a_masked_maximum() -> None:
    m = row("""
      %a = const 0.25 : f32
      %z = const -inf : f32
      %c = index j <= i : bool[i: 4, j: 8]
      %s = mul %x, %a : f32[i: 4, j: 8]
      %t = select %c, %s, %z : f32[i: 4, j: 8]
      %y = reduce max %t over j : f32[i: 4]""")
    for precision in ("fast", "strict"):  # exact, so strict has it too
        new = check_pass(m, FoldScale(precision), Dce(), tolerance=0)
        assert "select %c, %x, %z" in text.format(new)
    inputs = {"X": np.random.default_rng(1).standard_normal((4, 8)), "R": np.zeros(4)}
    before, after = (run_module(n, inputs, mode="typed")["S"] for n in (m, new))
    np.testing.assert_array_equal(before, after)
