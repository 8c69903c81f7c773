"""When a search may end early, and how good the cost model was; arithmetic only."""

from __future__ import annotations

from collections.abc import Sequence

GAIN = 0.005  # a best that is better by less than this is noise
_ENOUGH = 8  # measured candidates before the model may give one up
_HOPELESS = 1.4  # times the best, by an optimistic estimate
_OPTIMISM = 0.1  # the quantile of measured / estimated that an untried point is granted


def nothing_left(history: Sequence[float], trials: int) -> bool:
    """The last quarter of ``trials`` measured candidates, 12 at least, brought no gain."""
    window = max(12, trials // 4)
    if len(history) < max(16, trials // 4) + window:
        return False
    return min(history[-window:]) > (1.0 - GAIN) * min(history[:-window])


def beats(candidate: Sequence[float], standard: Sequence[float]) -> bool:
    """The slow quarter of ``candidate`` is still faster than the fast quarter of ``standard``: more than noise."""
    return _quantile(candidate, 0.75) < _quantile(standard, 0.25)


def _quantile(samples: Sequence[float], share: float) -> float:
    ordered = sorted(samples)
    at = share * (len(ordered) - 1)
    low = ordered[int(at)]
    return low + (at - int(at)) * (ordered[min(int(at) + 1, len(ordered) - 1)] - low)


def hopeless(pairs: Sequence[tuple[float, float]], best: float) -> float:
    """Seconds of an estimate that cannot be the best any more; 0.0 while too little is known to say so.

    ``pairs``: the model's and the measured seconds of what was tried, whose low quantile says how much faster than
    estimated a point can be.
    """
    if len(pairs) < _ENOUGH or not best:
        return 0.0
    ratios = sorted(m / e for e, m in pairs if e > 0.0)
    return _HOPELESS * best / ratios[int(_OPTIMISM * len(ratios))]


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's rank correlation (ties share their mean rank); None below three pairs or without variation."""
    return spearman(pairs) if len(pairs) >= 3 else None


def best_in_top(pairs: Sequence[tuple[float, float]], count: int = 10) -> bool | None:
    """The best measured candidate is among the model's ``count`` best; None with no more than that."""
    return place_of_best(pairs) <= count if len(pairs) > count else None


def spearman(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's rank correlation of any number of pairs; None without variation on either side."""
    a, b = _ranks([x for x, _ in pairs]), _ranks([y for _, y in pairs])
    mean = (len(pairs) - 1) / 2
    top = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    left, right = (sum((x - mean) ** 2 for x in r) for r in (a, b))
    return float(top / (left * right) ** 0.5) if left * right > 0.0 else None


def place_of_best(pairs: Sequence[tuple[float, float]]) -> int:
    """The place (from 1) that the model gives the candidate that measured best; ``pairs`` is not empty."""
    best = min(range(len(pairs)), key=lambda i: pairs[i][1])
    return 1 + sum(e < pairs[best][0] for e, _ in pairs)


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
