"""Errors of sums of products on matrix units: of f32 in parts, and of 8-bit floats, which are added in few bits.

``errors``: of each element, in units of the largest one.  ``squares``: the sums of the squares of the ``count`` terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import Final

import numpy as np

from nautilus.check.bound.exactness import U32
from nautilus.core.numerics import Array
from nautilus.targets.limits import SHORT_DEPTH, WHOLE_DEPTH

#: The error of products of f32 in parts: in units of u of a short sum, and of a term if errors are alike.
_PARTED: Final = 12.0
#: The same of a term whose parts have random digits: an MMA drops up to 2 u of each factor, and 4 u of the product.
#: The root mean square of these is 1.3 u, a third of that of errors of up to twice this figure.
_TERM: Final = 3.5
#: Half of the least number of bf16: what the last part loses at most where it is that small.
_LEAST_PART: Final = 2.0**-134
#: What MMAs of 8-bit floats cut off each term, relative to the largest number of the sum so far.
_SHORT_CUT: Final = 2.0**-13


def in_parts(
    total: Array, squares: Array, count: int, others: float, errors: Array, loss: float, regular: bool = False
) -> Array:
    """The sums ``total`` with errors of each term, or where all lose magnitude, of what an MMA cuts off short sums too.

    ``others``: the largest factor of an error of one factor of a product.  ``loss``: in units of the largest error, 0
    where errors are independent.  ``regular``: the terms have no random digits.
    """
    size = (_PARTED if regular else _TERM) * U32 * np.sqrt(squares) + _LEAST_PART * sqrt(count) * others
    if loss:  # every short sum loses magnitude, so that together they lose a part of their sum
        size, errors = np.hypot(size, _PARTED * U32 * total), -loss * np.copysign(1.0, total)
    moved = total + np.where(np.isfinite(size), size, 0.0) * errors
    return np.where(np.isfinite(total), moved, total)


def largest_others(found: Sequence[Array]) -> float:
    """The product of the largest numbers of all but one of the factors ``found``, added for each of them."""
    largest = [float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x))) for x in found]
    return sum(prod(largest[:n] + largest[n + 1 :]) for n in range(len(largest)))


def in_few_bits(total: Array, squares: Array, count: int, errors: Array, alike: bool) -> Array:
    """The sums ``total`` of products of 8-bit floats, of which each term is cut off; ``alike``: so are their errors."""
    typical = np.sqrt(squares / max(count, 1))
    chunk = count if count <= WHOLE_DEPTH else SHORT_DEPTH
    largest = np.maximum(np.abs(total) * chunk / count, 3.0 * typical)
    many = np.abs(total) / np.where(typical > 0.0, typical, 1.0) if alike else sqrt(count)  # half a unit of each term
    return np.asarray(total + 0.5 * _SHORT_CUT * largest * many * errors)
