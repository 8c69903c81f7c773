"""Intervals contain every finite value that the interpreter computes, in every module of the passes' test files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.core.types import DType
from nautilus.passes.pipelines import VR_TILE
from nautilus.vr_tile import interp
from nautilus.vr_tile.analysis.value_range import value_ranges
from nautilus.vr_tile.ir import TileModule, Value
from tests.ir_files import Case, cases, input_of, random_inputs, scalars
from tests.vr_tile.samples import ATTENTION
from tests.vr_tile.support import module

_FOLDER = Path(__file__).parents[1] / "passes"
_CASES = [
    Case("attention", VR_TILE, ATTENTION, ()),
    *(c for f in sorted(_FOLDER.rglob("*.vr")) for c in cases(f.read_text(), VR_TILE)),
]


def observed(m: TileModule, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """Every array that a value has during a run."""
    found: dict[str, list[Any]] = {}
    define = interp._Run.define

    def noted(self: Any, v: Value, data: Any) -> None:
        found.setdefault(v.name, []).append(np.asarray(data))
        define(self, v, data)

    monkeypatch.setattr(interp._Run, "define", noted)
    interp.run_module(m, random_inputs(m), scalars(m))
    return found


@pytest.mark.parametrize("case", _CASES, ids=lambda c: c.title)
def test_values_are_inside(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    m = input_of(case)
    if len(m.kernels) != 1:
        return
    ranges = value_ranges(m.kernels[0])
    for name, arrays in observed(m, monkeypatch).items():
        lo, hi = ranges.found[name]
        for x in arrays:
            if x.dtype.kind != "b":
                finite = x[np.isfinite(x)]
                assert (finite >= lo).all() and (finite <= hi).all(), f"%{name} in [{lo}, {hi}]: {finite}"


def test_a_product_of_bounded_types() -> None:
    m = module(
        """
        %x = load X[i, j] : f16[i: 4, j: 8]
        %d = dot %x, %x over j : f32[i: 4]
        store S[i], %d
        """,
        buffers="input X: f16[4, 8]\noutput S: f32[4]",
    )
    lo, hi = value_ranges(m.kernels[0]).found["d"]
    assert hi == pytest.approx(8 * 65504.0**2, rel=1e-12) and hi > 8 * 65504.0**2
    assert DType.F16.bits == 16 and lo < 0


def test_integers_wrap() -> None:
    m = module(
        """
        %x = load X[i] : i32[i: 4]
        %square = mul %x, %x : i32[i: 4]
        %size = abs %x : i32[i: 4]
        %b = load B[i] : i8[i: 4]
        %c = cast %b : i32[i: 4]
        %small = mul %c, %c : i32[i: 4]
        %f = cast %square : f32[i: 4]
        store S[i], %f
        """,
        buffers="input X: i32[4]\ninput B: i8[4]\noutput S: f32[4]",
    )
    found = value_ranges(m.kernels[0]).found
    assert found["square"] == found["size"] == found["f"] == (-(2.0**31), 2.0**31 - 1) and found["small"][0] == 0
