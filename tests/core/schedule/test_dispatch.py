"""Decision trees over sizes."""

from __future__ import annotations

import pytest

from nautilus.core.schedule.dispatch import (
    Divided,
    Leaf,
    SizeFact,
    Threshold,
    chosen,
    compared,
    leaves,
    renumbered,
    unproved,
)

TREE = Threshold("M", 64, 0, Threshold("N", 512, 1, Threshold("M", 4096, 2, 1)))

ROWS = Divided((("N", 8),), Threshold("N", 512, 0, 1), 2)


@pytest.mark.parametrize(
    ("m", "n", "want"), [(0, 9999, 0), (64, 1, 0), (65, 512, 1), (65, 513, 2), (4096, 600, 2), (4097, 513, 1)]
)
def test_a_threshold_belongs_to_the_lower_part(m: int, n: int, want: int) -> None:
    assert chosen(TREE, {"M": m, "N": n}) == want


def test_leaves_say_their_whole_condition() -> None:
    assert [(x.condition, x.variant) for x in leaves(TREE)] == [
        ("M <= 64", 0),
        ("M > 64 and N <= 512", 1),
        ("64 < M <= 4096 and N > 512", 2),
        ("M > 4096 and N > 512", 1),
    ]
    assert [(x.condition, x.variant) for x in leaves(3)] == [("", 3)]
    assert [(x.condition, x.variant) for x in leaves(ROWS)] == [
        ("N <= 512 and N % 8 == 0", 0),
        ("N > 512 and N % 8 == 0", 1),
        ("not (N % 8 == 0)", 2),
    ]


def test_renumbering_keeps_thresholds() -> None:
    assert renumbered(TREE, {0: 2, 1: 1, 2: 0}) == Threshold(
        "M", 64, 2, Threshold("N", 512, 1, Threshold("M", 4096, 0, 1))
    )
    assert compared(TREE) == {"M", "N"} and compared(0) == frozenset()


def test_a_size_that_is_compared_must_be_given() -> None:
    with pytest.raises(KeyError):
        chosen(TREE, {"N": 1})


@pytest.mark.parametrize(("n", "want"), [(0, 0), (512, 0), (513, 2), (520, 1), (12, 2)])
def test_sizes_that_are_multiples_have_a_side(n: int, want: int) -> None:
    assert chosen(ROWS, {"N": n}) == want
    assert compared(ROWS) == {"N"}


@pytest.mark.parametrize(
    ("facts", "unmet"),
    [
        pytest.param([[SizeFact("N", 512, 4)], [SizeFact("N", multiple=8)], []], None, id="implied by the path"),
        pytest.param([[SizeFact("N", 511)], [], []], (0, SizeFact("N", 511)), id="a bound below the threshold"),
        pytest.param([[], [SizeFact("N", 512)], []], (1, SizeFact("N", 512)), id="the other side of the threshold"),
        pytest.param([[], [], [SizeFact("N", multiple=2)]], (2, SizeFact("N", multiple=2)), id="no multiple"),
        pytest.param([[SizeFact("M", 9)], [], []], (0, SizeFact("M", 9)), id="a size that is not compared"),
    ],
)
def test_a_variant_is_reached_only_where_its_facts_hold(facts: list[list[SizeFact]], unmet: object) -> None:
    found = unproved(ROWS, facts)
    assert (None if found is None else (found[0].variant, found[1])) == unmet


def test_what_the_spec_says_of_sizes_counts() -> None:
    known = Leaf(0, {"N": (-1, 4096)}, {"N": 16})
    assert unproved(0, [[SizeFact("N", 4096, 8)]], known) is None
    assert unproved(0, [[SizeFact("N", 4096, 32)]], known) is not None
    assert SizeFact("N", 512, 8).text == "N <= 512 and N % 8 == 0" and SizeFact("N", 512, 8).holds(504)
    assert not SizeFact("N", 512, 8).holds(520) and not SizeFact("N", 512, 8).holds(500)
