"""Groups of exponentials whose references are copies of one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nautilus.core.tiles import TileType
from nautilus.core.types import DType
from nautilus.vr_tile.analysis.references import Element, Group
from nautilus.vr_tile.ir import Value

V = Value("x", TileType(DType.F32, ()))
FIRST = Element(V, V, V, 1.5, -2.0, V, V)


@pytest.mark.parametrize(("change", "uniform"), [
    ({}, True), ({"scale": 2.0}, True), ({"factor": 1.25}, False), ({"raised": -1.0}, False),
    ({"factor": 1.25, "raised": -1.0}, False),
])  # fmt: skip
def test_elements_of_one_factor_and_one_constant_are_uniform(change: dict[str, float], uniform: bool) -> None:
    other = replace(FIRST, **change)  # type: ignore[arg-type]
    assert Group((FIRST, other), (), (), True).is_uniform == uniform == Group((other, FIRST), (), (), True).is_uniform
