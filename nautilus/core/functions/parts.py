"""An f32 number as the sum of two tf32 or three bf16 numbers, and the product of two such sums.

Two parts of tf32.  ``x = high + low``: ``high`` is ``x`` rounded to the 11 significant bits of tf32, to nearest with
ties away from zero, and ``low = x - high`` is exact in f32.  ``low`` is an integer of at most 2^12 units of the last
place of ``x``, and tf32 keeps 11 of its bits, so an MMA that drops the others changes ``x`` by less than one unit:
2^-23 ``|x|``.

``a * b`` becomes ``low_a * high_b + high_a * low_b + high_a * high_b``.  The absent ``low_a * low_b`` is at most
2^-22 ``|a * b|``, because ``low`` is at most 2^-11 ``|x|``.  In all, a term has a relative error of at most 2^-21.

Inf, NaN, and what rounds to inf (from 2^128 - 2^116 on) have a part that is not finite, and so is every sum in which
they occur.  Such sums are computed again from the numbers themselves: an MMA of a warp makes the parts in registers,
sums :data:`DEPTH` terms apart, adds them to its accumulator by an f32 addition, and repeats a sum that is not finite by
scalar instructions.  No other number has a part that is not finite.  Parts below 2^-126 have fewer bits: an ``x`` below
2^-112 may change by 2^-136.

Three parts of bf16.  ``x = x0 + x1 + x2``: each part is what the parts before it leave of ``x``, rounded to the 8
significant bits of bf16, to nearest.  The remainders are exact in f32, and the last one is a bf16 number, so that the
sum is ``x``.  Part ``p`` is at most 2^(1 - 9 p) ``|x|``.

``a * b`` becomes the six products of parts in :data:`PAIRS`, the smallest first.  The absent ones (``a1 * b2``,
``a2 * b1`` and ``a2 * b2``) are together less than 2^-23 ``|a * b|``.  Matrix units multiply the parts, and f32
additions add the sums of one step of the reduction loop.

Inf, NaN, and what rounds to inf (from 2^128 - 2^119 on) have a last part that is NaN, and so is every sum in which they
occur: ``x - inf`` is not finite, and ``inf - inf`` is NaN.  Such sums are computed again from the numbers themselves.
Parts below 2^-126 have fewer bits: an ``x`` below 2^-109 may change by 2^-134.

Source: Dekker, "A floating-point technique for extending the available precision", 1971; Ootomo and Yokota, "Recovering
single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance", 2022.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from nautilus.core.functions.arrays import Array

#: Terms of a sum in one accumulation of the matrix unit, which cuts off what it drops; f32 additions sum the results.
DEPTH: Final = 32

#: Parts of tf32, which have nearly all bits of an f32 number, and of bf16, which have all of them.
PARTS: Final = 2
STORED: Final = 3
#: The parts of the left and the right factor in each product of parts, the smallest products first.
PAIRS: Final = ((2, 0), (0, 2), (1, 1), (1, 0), (0, 1), (0, 0))

_KEPT: Final = np.uint32(0xFFFFE000)
_HALF: Final = np.uint32(0x00001000)


def truncated(x: Array) -> Array:
    """f32 numbers without the 13 low bits, as an MMA of tf32 reads them."""
    return np.asarray((np.asarray(x, np.float32, order="C").view(np.uint32) & _KEPT).view(np.float32))


def parts(x: Array) -> tuple[Array, Array]:
    """(high, low) of the f32 numbers ``x``, as an MMA of tf32 reads them."""
    x = np.asarray(x, np.float32, order="C")
    with np.errstate(all="ignore"):
        high = ((x.view(np.uint32) + _HALF) & _KEPT).view(np.float32)
        return np.asarray(high), truncated(x - high)


def product_of_parts(product: Callable[[Array, Array], Array], a: Array, b: Array) -> Array:
    """``product`` of the f32 numbers ``a`` and ``b`` in parts; where the result is not finite, of the numbers."""
    (high_a, low_a), (high_b, low_b) = parts(a), parts(b)
    with np.errstate(all="ignore"):
        found = product(low_a, high_b) + product(high_a, low_b) + product(high_a, high_b)
        exact = found if np.all(np.isfinite(found)) else product(a, b)
        return np.asarray(np.where(np.isfinite(found), found, exact))


def multiplied(a: Array, b: Array) -> Array:
    """The matrix products ``a @ b`` of f32 (..., m, k) and (..., k, n) in parts, in sums of :data:`DEPTH` terms."""
    a, b = a.astype(np.float32, copy=False), b.astype(np.float32, copy=False)
    total: Array = np.zeros((), np.float32)
    for start in range(0, a.shape[-1], DEPTH):
        end = start + DEPTH
        with np.errstate(all="ignore"):
            total = total + product_of_parts(np.matmul, a[..., start:end], b[..., start:end, :])
    return total
