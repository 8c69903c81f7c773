"""What the facts of a spec say of the elements of an input."""

from __future__ import annotations

import math

import pytest

from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.analysis.contractions.promises import promised_ranges

TEXT = "dim N = 4\ninput x: f32[N]\ninput k: i8[N]\noutput Y: f32[N]\nassume {fact}\nY[i] = x[i] + k[i]\n"


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        ("x[i] <= 5", {"x": (-math.inf, 5.0)}),
        ("abs(x[i]) <= 2", {"x": (-2.0, 2.0)}),
        ("abs(k[i]) < 3", {"k": (-3.0, 3.0)}),
        ("-x[i] <= 2", {}),
        ("sqrt(x[i]) <= 2", {}),
        ("exp(x[i]) <= 2", {}),
        ("x[i] < 5", {"x": (-math.inf, 5.0)}),
        ("k[i] < 5", {"k": (-math.inf, 4)}),
        ("-3 < k[i] and k[i] <= 5", {"k": (-2, 5.0)}),
        ("k[i] > 2.5", {"k": (2.5, math.inf)}),
        ("f32(k[i]) <= 5", {"k": (-math.inf, 5.0)}),
        ("i8(x[i]) <= 5", {}),
        ("f16(x[i]) <= 5", {}),
        ("x[i + 1] <= 3 and k[i] < 5", {}),  # of the last element of k it says nothing
    ],
)
def test_a_fact_bounds_elements_and_not_what_a_conversion_makes_of_them(
    fact: str, expected: dict[str, tuple[float, float]]
) -> None:
    assert promised_ranges(load_text(TEXT.format(fact=fact))) == expected
