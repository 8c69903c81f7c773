"""Quotients at the ends of the range of f32, under a reciprocal that flushes subnormal numbers like the instruction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.core import numerics
from nautilus.vr_tile.interp import run_module
from nautilus.vr_tile.passes.div_to_rcp import DivToRcp
from tests.ir_files import cases_in, input_of


def _flushed(x: Any) -> Any:
    return np.where(np.abs(x) < 2.0**-126, np.copysign(0.0, x), x)


def test_ends_of_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(numerics.EVAL, "rcp", lambda a: _flushed(1 / _flushed(a)))
    r = np.array([3e38, -(2.0**127), 1.5, 0.0, np.inf, 1e-40, 2.0**-126, np.nan])
    x = np.array([[1.0, -3e38, 2.0**100, 0.0]] * 8)
    x[5:7] = [1e-40, 2.0**-60, 3e38, 0.0]
    inputs = {"X": x.astype(np.float32).astype(float), "R": r.astype(np.float32).astype(float)}
    m = input_of(cases_in(Path(__file__).parent / "div_to_rcp.vr")["a quotient of tensors"])
    want, got = (run_module(k, inputs, mode="typed")["O"] for k in (m, DivToRcp().apply(m)))
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=2.0**-125)
    assert got[0, 1] == -1.0 and got[5, 0] == pytest.approx(1.0)
