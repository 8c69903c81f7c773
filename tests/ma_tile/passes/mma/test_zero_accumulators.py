"""``zero-accumulators``: a wrong start is an error. What the pass does: ``zero_accumulators.ma``."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.errors import VerifyError
from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.passes.mma.zero_accumulators import ZeroAccumulators
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from tests.ma_tile.passes.epilogue.test_chunk_epilogue import inputs
from tests.ma_tile.programs.epilogues import biased


def test_reading_an_undefined_start_is_an_error() -> None:
    out = ma_format(ZeroAccumulators().apply(biased()))
    with pytest.raises(InterpError, match="undefined-fragment"):
        m = parse(out.replace("zero_init t == 0", "zero_init t == 1"))
        run_module(m, inputs(m))
    with pytest.raises(VerifyError, match="zero_init needs wgmma with an accumulator"):
        verify(parse(out.replace("+ %x0 over k zero_init t == 0", "over k zero_init t == 0")))


def test_a_fresh_product_does_not_add() -> None:
    m = parse(ma_format(biased()).replace("%x0 over k :", "%x0 over k zero_init t == 1 :"))
    values = inputs(m)
    whole, half = (run_module(x, values)["C"].astype(np.float64) for x in (biased(), m))
    first = parse(ma_format(biased()).replace("for t in 0..2", "for t in 1..2"))
    np.testing.assert_array_equal(half, run_module(first, values)["C"])
    assert not np.array_equal(whole, half)
