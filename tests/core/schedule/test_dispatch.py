"""Decision trees over sizes."""

from __future__ import annotations

import pytest

from nautilus.core.schedule.dispatch import Threshold, chosen, compared, leaves, renumbered

TREE = Threshold("M", 64, 0, Threshold("N", 512, 1, Threshold("M", 4096, 2, 1)))


@pytest.mark.parametrize(
    ("m", "n", "want"), [(0, 9999, 0), (64, 1, 0), (65, 512, 1), (65, 513, 2), (4096, 600, 2), (4097, 513, 1)]
)
def test_a_threshold_belongs_to_the_lower_part(m: int, n: int, want: int) -> None:
    assert chosen(TREE, {"M": m, "N": n}) == want


def test_leaves_say_their_whole_condition() -> None:
    assert list(leaves(TREE)) == [
        ("M <= 64", 0),
        ("M > 64 and N <= 512", 1),
        ("64 < M <= 4096 and N > 512", 2),
        ("M > 4096 and N > 512", 1),
    ]
    assert list(leaves(3)) == [("", 3)]


def test_renumbering_keeps_thresholds() -> None:
    assert renumbered(TREE, {0: 2, 1: 1, 2: 0}) == Threshold(
        "M", 64, 2, Threshold("N", 512, 1, Threshold("M", 4096, 0, 1))
    )
    assert compared(TREE) == {"M", "N"} and compared(0) == frozenset()


def test_a_size_that_is_compared_must_be_given() -> None:
    with pytest.raises(KeyError):
        chosen(TREE, {"N": 1})
