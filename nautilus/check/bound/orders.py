"""Sums and products in other orders: which of them leave the range of f32 on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from nautilus.core.numerics import Array, reduce_array
from nautilus.core.types import DType

#: Magnitudes of f32 results above this are taken as infinite: 2^8 below the largest one, because a kernel may compute
#: a multiple of an intermediate result, or the terms of a sum in another order.
LARGEST: Final = 2.0**120
#: Parallel partial sums of a reduction outside the tensor core.
LANES: Final = 32


def in_every_order(value: Array, terms: Array, axes: tuple[int, ...]) -> Array:
    """The products ``value`` of ``terms``; inf or NaN where an order of the multiplications in f32 leads there."""
    kept = [a for a in range(terms.ndim) if a not in axes]
    rows = np.transpose(terms, (*kept, *axes)).reshape(*value.shape, -1).astype(np.float32)
    for found in _products(rows) if rows.shape[-1] else ():
        agrees = np.isfinite(found) | np.isinf(value) & ~np.isnan(found)
        value = np.where(agrees, value, found)
    return value


def _products(rows: Array) -> Iterator[Array]:
    """The products of ``rows`` from the left, from the right, of lanes, and of neighbours."""
    yield np.multiply.accumulate(rows, axis=-1)[..., -1]
    yield np.multiply.accumulate(rows[..., ::-1], axis=-1)[..., -1]
    yield np.multiply.reduce([np.multiply.reduce(rows[..., n::LANES], axis=-1) for n in range(LANES)], axis=0)
    while rows.shape[-1] > 1:
        even = rows.shape[-1] // 2 * 2
        rows = np.concatenate([rows[..., :even:2] * rows[..., 1:even:2], rows[..., even:]], axis=-1)
    yield rows[..., 0]


def partial_sums(terms: Array, axes: tuple[int, ...], count: int) -> list[Array]:
    """``terms`` summed over ``axes`` in ``count`` parts of one of them, whose sums one after another are largest.

    A kernel may take the axes in any order, and terms that cancel along one of them may not along another.
    """
    found = [_parts(terms, axes, a, count) for a in axes if terms.shape[a] > 1] or [_parts(terms, axes, axes[0], count)]
    if len(found) == 1:
        return found[0]
    with np.errstate(all="ignore"):
        return max(found, key=lambda parts: float(np.nansum(np.cumsum(parts, axis=0) ** 2)))


def _parts(terms: Array, axes: tuple[int, ...], axis: int, count: int) -> list[Array]:
    places = np.array_split(np.arange(terms.shape[axis]), max(1, min(count, terms.shape[axis])))
    return [reduce_array("sum", np.take(terms, at, axis), axes, DType.F64) for at in places]
