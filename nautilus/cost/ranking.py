"""How well estimates rank what was measured; arithmetic only."""

from __future__ import annotations

from collections.abc import Sequence

TOP = 10  # number of least estimates among which a search expects the fastest candidate


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's rank correlation (ties share their mean rank); None below three pairs or without variation.

    ``pairs``: estimated and measured seconds of each candidate.
    """
    if len(pairs) < 3:
        return None
    a, b = _ranks([x for x, _ in pairs]), _ranks([y for _, y in pairs])
    mean = (len(pairs) - 1) / 2
    top = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    left, right = (sum((x - mean) ** 2 for x in r) for r in (a, b))
    return float(top / (left * right) ** 0.5) if left * right > 0.0 else None


def place_of_best(pairs: Sequence[tuple[float, float]]) -> int:
    """The rank (from 1) of the fastest measured candidate by its estimate; ``pairs`` is not empty."""
    best = min(range(len(pairs)), key=lambda i: pairs[i][1])
    return 1 + sum(e < pairs[best][0] for e, _ in pairs)


def best_in_top(pairs: Sequence[tuple[float, float]]) -> bool | None:
    """Whether the fastest candidate is among the :data:`TOP` least estimates; None for that many pairs or fewer."""
    return place_of_best(pairs) <= TOP if len(pairs) > TOP else None


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for i in order[start : end + 1]:
            ranks[i] = (start + end) / 2
        start = end + 1
    return ranks
