"""How well estimates rank what was measured."""

from __future__ import annotations

import pytest

from nautilus.cost.ranking import best_in_top, place_of_best, rank_correlation

RISING = [(float(n), float(n * n)) for n in range(12)]
FALLING = [(a, -b) for a, b in RISING]


def test_rank_correlation() -> None:
    assert rank_correlation(RISING) == pytest.approx(1.0)
    assert rank_correlation(FALLING) == pytest.approx(-1.0)
    assert rank_correlation([(1.0, 1.0), (1.0, 2.0), (2.0, 3.0)]) == pytest.approx(0.8660254)
    assert rank_correlation([(1.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]) == pytest.approx(0.9487, abs=1e-4)


def test_there_is_no_rank_correlation_without_variation_or_of_two_pairs() -> None:
    assert rank_correlation([(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]) is None
    assert rank_correlation(RISING[:2]) is None


def test_place_of_the_best_measured() -> None:
    assert place_of_best([(3.0, 1.0), (1.0, 2.0), (2.0, 3.0), (4.0, 4.0)]) == 3


def test_the_best_is_in_the_top() -> None:
    assert best_in_top(RISING) and not best_in_top(FALLING)
    assert best_in_top(RISING[:10]) is None
