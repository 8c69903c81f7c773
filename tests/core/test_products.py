"""The two sides of a product of several factors."""

from __future__ import annotations

import pytest

from nautilus.core.expr.nodes import Expr, Load, Var, loads
from nautilus.core.expr.products import two_sides
from nautilus.core.types import DType


def tensor(name: str, axes: str) -> Expr:
    return Load(name, tuple(map(Var, axes)), DType.F32)


@pytest.mark.parametrize(
    ("factors", "wanted"),
    [
        ("P:hij V:hjd", ["P V"]),
        ("P:hij V:hjd G:hjd", ["P VG"]),
        ("V:jd P:ij", ["V P"]),
        ("V:jd P:ij G:jd", ["VG P"]),
        ("P:hij s:j V:hjd", ["P sV", "Ps V"]),
        ("s:hj V:hjd P:hij", ["V sP", "sV P"]),
    ],
)
def test_sides(factors: str, wanted: list[str]) -> None:
    pairs = two_sides([tensor(*text.split(":")) for text in factors.split()], "hid", "j")
    assert [" ".join("".join(ld.buffer for ld in loads(side)) for side in pair) for pair in pairs] == wanted


@pytest.mark.parametrize("factors", ["P:ij M:id V:jd", "P:ij V:j", "P:i V:jd", "X:id Y:j"])
def test_no_matrix_product(factors: str) -> None:
    assert not [*two_sides([tensor(*text.split(":")) for text in factors.split()], "id", "j")]
