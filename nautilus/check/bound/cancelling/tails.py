"""Errors without a mean square, by the distribution of those of the sampled elements.

Where an error grows as a power of the distance from a point, the largest errors of n elements fall as a power of their
rank, and with an index of less than 2 a norm is that of a few of them, more so the more elements there are.  The index
is that of the largest errors (Hill, "A simple general approach to inference about the tail of a distribution", 1975).
Errors count in comparison with a large value, because those of an exponential are as large as it is.
"""

from __future__ import annotations

from math import inf, nan
from typing import Final

import numpy as np

from nautilus.core.numerics import Array

SUSPECT: Final = 2.5  # the index of few sampled elements, below which more are evaluated
_WITHOUT_MEAN: Final = 2.2  # the same of more elements; a mean square that exists may be that of few of them, too
LEAST: Final = 128  # sampled elements
_PART: Final = 32  # one of so many elements is among the largest


def index(x: Array) -> float:
    """The index of the tail of the magnitudes ``x``; inf where they are too few."""
    size = np.abs(np.ravel(x))
    size = np.sort(size[np.isfinite(size) & (size > 0.0)])[::-1]
    if size.size < LEAST:
        return inf
    largest = size[: size.size // _PART]
    mean = float(np.mean(np.log(largest / largest[-1])))
    return 1.0 / mean if mean > 0.0 else inf


def grows(error: Array, values: Array, most: float = _WITHOUT_MEAN) -> bool:
    """Whether the norm of ``error`` is that of a few elements, whose ``values`` are not as large in comparison."""
    size = np.where(np.isfinite(values), np.abs(values), inf)
    some = size[size > 0.0]
    with np.errstate(all="ignore"):
        return some.size > 0 and index(error / np.maximum(size, median(some))) < most


def median(x: Array) -> float:
    """The median of numbers; NaN where there are none, or where one is NaN.

    That of numpy imports masked arrays, which takes longer than most bounds.
    """
    ordered = np.sort(x, axis=None)
    if not ordered.size or np.isnan(ordered[-1]):
        return nan
    return float(np.mean(ordered[(ordered.size - 1) // 2 : ordered.size // 2 + 1]))
