"""Fused programs of the Scalar IR, lowered and rewritten, against the Scalar interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.planner.kernels import default_schedule
from nautilus.scalar.interp.program import run_program
from nautilus.vr_tile import text
from nautilus.vr_tile.interp import run_module
from nautilus.vr_tile.lowering.lower import lower
from nautilus.vr_tile.verify import verify
from tests.scalar.programs.small import CASES
from tests.scalar.test_fusion import stages
from tests.vr_tile.passes.test_pipeline import ALL
from tests.vr_tile.support import assert_same


@pytest.mark.parametrize("name", CASES)
def test_fused(name: str) -> None:
    program, inputs = CASES[name]()
    tiled = stages(program, default_schedule(program))[-1]
    want = run_program(tiled, inputs)
    m = lower(tiled)
    verify(m)
    assert_same(want, run_module(m, inputs))
    for p in ALL:
        m = p.apply(m)
        verify(m)
        assert text.parse(text.format(m)) == m
    assert_same(want, run_module(m, inputs), 2e-3)  # outputs are f16: a last place may differ
    for k, v in run_module(m, inputs, mode="typed").items():
        np.testing.assert_allclose(v, want[k], rtol=5e-3, atol=5e-3, err_msg=k)
