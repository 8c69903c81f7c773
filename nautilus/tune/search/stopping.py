"""Stopping rules of a search; arithmetic only."""

from __future__ import annotations

from collections.abc import Sequence

GAIN = 0.005  # a relative gain below this is noise
_ENOUGH = 8  # measured candidates before the first one is pruned
_PRUNE_FACTOR = 1.4  # a candidate is pruned where its optimistic estimate exceeds the best time by this factor
_OPTIMISM = 0.1  # the quantile of measured / estimated that gives the optimistic estimate


def nothing_left(history: Sequence[float], trials: int) -> bool:
    """Whether the last quarter of ``trials`` measured candidates, 12 at least, brought no gain."""
    window = max(12, trials // 4)
    if len(history) < max(16, trials // 4) + window:
        return False
    return min(history[-window:]) > (1.0 - GAIN) * min(history[:-window])


def beats(candidate: Sequence[float], standard: Sequence[float]) -> bool:
    """Whether ``candidate`` is faster by more than noise: its upper quartile is below the lower one of ``standard``."""
    return _quantile(candidate, 0.75) < _quantile(standard, 0.25)


def _quantile(samples: Sequence[float], share: float) -> float:
    ordered = sorted(samples)
    at = share * (len(ordered) - 1)
    low = ordered[int(at)]
    return low + (at - int(at)) * (ordered[min(int(at) + 1, len(ordered) - 1)] - low)


def pruning_limit(pairs: Sequence[tuple[float, float]], best: float) -> float:
    """The estimate in seconds above which a candidate is pruned; 0.0 while there are too few measurements.

    ``pairs``: estimated and measured seconds of the tried candidates.  A low quantile of their ratio bounds how much
    faster than its estimate a candidate can be.
    """
    if len(pairs) < _ENOUGH or not best:
        return 0.0
    ratios = sorted(m / e for e, m in pairs if e > 0.0)
    return _PRUNE_FACTOR * best / ratios[int(_OPTIMISM * len(ratios))]
