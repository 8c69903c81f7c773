"""What promises say of gathered products: how many neighbours there are, and whether the other ones are finite."""

from __future__ import annotations

import pytest

from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.positions.expand_gathers import ExpandGathers
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.text import format_program

TEXT = """
dim M = 9, N = 6, G = 3
input X: f16[M, 4 * G], V: f16[N, G, 2], I: u8[N, G, 2]
assume {fact}
output Y: f32[M, N]
Y[m, n] = sum[g: G, z: 2](X[m, 4 * g + I[n, g, z]] * V[n, g, z])
"""


def expanded(fact: str, *edits: tuple[str, str]) -> str:
    """The spec with ``fact`` after the pass; an edit replaces a text, which ``{}`` stands for."""
    text = TEXT
    for old, new in edits:
        text = text.replace(old, new.replace("{}", old))
    spec = load_text(text.replace("{fact}", fact))
    return format_program(ExpandGathers(spec).apply(Simplify().apply(lower(spec))))


@pytest.mark.parametrize("fact", ["I[n, g, z] < 4", "I[n, g, z] <= 3", "I[n, g, z] < 3"])
def test_a_promise_bounds_positions(fact: str) -> None:
    text = expanded(fact)
    neighbours = 3 if fact.endswith("< 3") else 4
    assert f"red g in 0..3, neighbour in 0..{neighbours} {{" in text
    assert "where" in text


@pytest.mark.parametrize("fact", ["I[n, g, z] < 5", "I[n, g, z] > 0"])
def test_positions_that_may_be_outside_of_the_group_at_the_end_are_gathered(fact: str) -> None:
    assert "neighbour" not in expanded(fact)


def test_neighbours_that_are_finite_need_no_condition() -> None:
    text = expanded("I[n, g, z] < 4\nassume abs(X[m, k]) < inf")
    assert "neighbour in 0..4" in text
    assert "where" not in text


def test_finite_neighbours_that_overflow_where_they_are_rounded_need_a_condition() -> None:
    text = expanded(
        "I[n, g, z] < 4\nassume abs(X[m, k]) < inf", ("X: f16", "X: f32"), ("X[m, 4 * g + I[n, g, z]]", "f16({})")
    )
    assert "neighbour in 0..4" in text and "where" in text


@pytest.mark.parametrize(("fact", "bounded"), [("256 <= I[n, g, z] < 260", False), ("0 <= I[n, g, z] < 4", True)])
def test_a_promise_bounds_no_position_that_wraps(fact: str, bounded: bool) -> None:
    text = expanded(fact, ("I: u8", "I: i32"), ("4 * G]", "4 * G + 300]"), ("+ I[n, g, z]", "+ i8(I[n, g, z])"))
    assert ("neighbour" in text) is bounded


@pytest.mark.parametrize(("position", "bounded"), [("{}", True), ("+ i32(f16(I[n, g, z]))", False)])
def test_a_promise_bounds_no_position_that_is_rounded_on_its_way(position: str, bounded: bool) -> None:
    """The f16 next to 4097 is 4096, which is no position that the promise allows."""
    long, fact = ("4 * G]", "4 * G + 4200]"), "4096 < I[n, g, z] < 4100"
    assert ("neighbour" in expanded(fact, ("I: u8", "I: i32"), long, ("+ I[n, g, z]", position))) is bounded


def test_the_square_of_an_element_that_is_gathered_has_two_factors() -> None:
    assert "neighbour" not in expanded("I[n, g, z] < 4", ("X[m, 4 * g + I[n, g, z]]", "square({})"))
