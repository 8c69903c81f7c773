"""Positions of running extremes beside NaN, infinities and equal elements."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.positions.scan_positions import ScanPositions


@pytest.mark.parametrize("order", ["<=", ">="])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_special_numbers_have_the_positions_of_the_search(name: str, order: str) -> None:
    text = "dim R = 200, T = 12\ninput x: f32[R, T]\noutput i: i32[R, T]\n"
    before = lower(load_text(text + f"i[r, t] = {name}[s | s {order} t](x[r, s])\n"))
    after = ScanPositions().apply(before)
    assert after is not before
    drawn = np.random.default_rng(0).choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 2.0], (200, 12))
    want, got = (run_program(p, {"x": drawn.astype(np.float32)}, {}, "typed")["i"] for p in (before, after))
    np.testing.assert_array_equal(got, want)
