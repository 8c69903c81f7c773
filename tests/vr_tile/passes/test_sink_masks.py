"""``sink-masks``: the mask after an exponential is removed where the mask of its argument has the same effect."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nautilus.vr_tile.interp import run_module
from nautilus.vr_tile.passes.sink_masks import SinkMasks
from tests.ir_files import cases_in, input_of

BLOCK = cases_in(Path(__file__).parent / "sink_masks.vr")["the mask after the exponential goes, the one below it stays"]


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
    before = input_of(BLOCK)
    want, got = run_module(before, inputs), run_module(SinkMasks().apply(before), inputs)
    np.testing.assert_array_equal(want["T"], got["T"])
    np.testing.assert_allclose(want["S"], got["S"], rtol=1e-12)
