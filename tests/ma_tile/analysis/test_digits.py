"""Which index expressions count a digit of a tile axis, and which digits make a whole axis."""

from __future__ import annotations

import pytest

from nautilus.core.text.expressions import parse_expr
from nautilus.ma_tile.analysis.digits import Digit, digit_of, is_whole

SIZES = {"p": 128, "c": 64}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("p", Digit("p", 1, 128)),
        ("b * 3 + p - 1", Digit("p", 1, 128)),
        ("p // 16 + y0 * 8", Digit("p", 16, 8)),
        ("p % 16", Digit("p", 1, 16)),
        ("p // 4 % 8 + r", Digit("p", 4, 8)),
        ("p % 64 // 8", Digit("p", 8, 8)),
        ("(p + 64) // 4 % 8", Digit("p", 4, 8)),
        ("c", Digit("c", 1, 64)),
    ],
)
def test_digits(text: str, want: Digit) -> None:
    assert digit_of(parse_expr(text), SIZES) == want


@pytest.mark.parametrize(
    "text", ["b", "p * 2", "p + c", "-p", "p // 16 * 2", "(p + 1) // 16", "p // 128", "p // 16 + p"]
)
def test_no_digit(text: str) -> None:
    assert digit_of(parse_expr(text), SIZES) is None


@pytest.mark.parametrize(
    ("digits", "whole"),
    [
        ([(1, 128)], True),
        ([(16, 8), (1, 16)], True),
        ([(64, 2), (1, 8), (8, 8)], True),
        ([(1, 16)], False),
        ([(16, 8)], False),
        ([(16, 8), (1, 8)], False),
        ([(1, 128), (1, 128)], False),
        ([], False),
    ],
)
def test_whole_axes(digits: list[tuple[int, int]], whole: bool) -> None:
    other = Digit("c", 1, 64)
    assert is_whole([other, *(Digit("p", *d) for d in digits)], "p", 128) == whole
