"""Quotients at the ends of the range of f32, under a reciprocal that flushes subnormal numbers like the instruction."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.core import numerics
from nautilus.cuda.intrinsics import HELPERS
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


def _close_to_ties(y: int) -> Iterator[int]:
    """Significands ``x`` whose quotient by ``y`` is within 9 / 2y units in the last place of a tie."""
    for bits in (24, 25):
        inverse = pow(y, -1, 2**bits)
        for rest in (r for r in range(-9, 10) if r):
            twice = -rest * inverse % 2**bits
            for middle in range(twice, 2**25, 2**bits):
                x = (middle * y + rest) >> bits
                if middle >= 2**24 and 2**23 <= x < 2**24 and (x >= y) is (bits == 24):
                    yield x


def _rounded(x: Fraction) -> Fraction:
    """``x`` rounded to 24 bits, ties to even."""
    if not x:
        return x
    unit = Fraction(2) ** (24 - 1)
    scale = Fraction(1)
    while abs(x) * scale < unit:
        scale *= 2
    while abs(x) * scale >= 2 * unit:
        scale /= 2
    return Fraction(round(x * scale)) / scale


def test_the_device_function_rounds_correctly() -> None:
    """What ``div_by`` of :mod:`nautilus.cuda.intrinsics` computes is the quotient rounded once."""
    assert "fmaf(fmaf(-y, q, x), z, q)" in HELPERS["div_by"].text
    tried = 0
    for y in (2**23 + 1, 2**24 - 1, *(2 * int(n) + 1 for n in np.random.default_rng(0).integers(2**22, 2**23, 60))):
        z = _rounded(Fraction(1, y))
        for x in _close_to_ties(y):
            q = _rounded(x * z)
            rest = _rounded(x - y * q)
            assert _rounded(q + rest * z) == _rounded(Fraction(x, y)), (x, y)
            tried += 1
    assert tried > 300
