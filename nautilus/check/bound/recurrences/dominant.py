"""The slices of an output that may be left out of a relative error, because a few of them have most of its norm.

A state that is divided by an input has no mean square: the norm is that of the slice along an axis, such as a channel,
whose divisor is the smallest, and the relative error of the whole is that of this slice.  Another input has another
smallest divisor, so that this error may be many times as large as that of the evaluated input.  The errors without the
largest slices are those of such inputs.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nautilus.core.numerics import Array

_SHARE: Final = 0.25  # of all squares: with less of it, the largest slice does not decide about the norm
_LEAST: Final = 32  # slices
#: The largest slices, at most, of which none occurs in one of a hundred inputs: (1 - 5 / n) ** n is below 1%.
_MOST: Final = 5


def without_dominant(errors: Array, squares: Array, outer: int | None) -> Array | None:
    """The elements that count, as factors of 0 and 1 that broadcast to ``squares``; None where all of them do.

    ``errors`` and ``squares``: squared errors and squared values of each element.  ``outer``: the axis of the steps.
    The relative error of the elements that count is the largest one without any number of the largest slices.
    """
    best: tuple[float, Array] | None = None
    for axis, n in enumerate(squares.shape):
        if axis == outer or n < _LEAST:
            continue
        rest = tuple(a for a in range(squares.ndim) if a != axis)
        sizes, moved = squares.sum(axis=rest), errors.sum(axis=rest)
        order = np.argsort(sizes)[::-1]
        total = float(sizes.sum())
        if not np.isfinite(total + moved.sum()) or not sizes[order[0]] > _SHARE * total:
            continue
        for left_out in range(_MOST + 1):
            kept = order[left_out:]
            size = float(sizes[kept].sum())
            ratio = float(moved[kept].sum()) / size if size > 0.0 else 0.0
            if best is None or ratio > 1.01 * best[0]:
                counts = np.zeros(n)
                counts[kept] = 1.0
                best = ratio, counts.reshape([n if a == axis else 1 for a in range(squares.ndim)])
    return None if best is None or best[1].all() else best[1]
