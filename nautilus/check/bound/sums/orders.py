"""Orders of sums and products: how many additions follow each other, and which leave the range of f32 on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import log2, prod
from typing import Final

import numpy as np

from nautilus.core.expr.nodes import Load, walk
from nautilus.core.numerics import Array, reduce_array
from nautilus.core.schedule import Schedule, SplitPlan
from nautilus.core.types import FORMATS, DType
from nautilus.frontend.spec import Spec

#: Magnitudes of f32 results above this are taken as infinite: 2^8 below the largest one, because a kernel may compute
#: a multiple of an intermediate result, or the terms of a sum in another order.
LARGEST: Final = 2.0**120
LARGEST_STORED: Final = (2.0 - 2.0**-23) * 2.0**127  # of a number that becomes one of f32
#: Parallel partial sums of a reduction outside the tensor core.
LANES: Final = 32
#: Terms that one lane holds of a short sum.
_ACCESS: Final = 4
#: Terms that one lane has at most where lanes have neighbouring results: a judged figure, because the planner divides
#: longer sums among more lanes.
_STRIDED: Final = 512
#: The fewest parallel partial sums of a part of a sum: where lanes run along another axis, those of the warps.
_WARPS: Final = 4
#: Elements of a tile for each parallel partial sum.
_EACH: Final = 64
#: Integers up to this are numbers of f32.
_WHOLE: Final = 2.0**24
#: Elements that are looked at first, of which few are integers where not all are.
_FIRST: Final = 64
#: Bytes of an operand's terms in one accumulation of the tensor core.
_ACCUMULATED: Final = 32


def cuts(spec: Spec, schedule: Schedule) -> dict[str, SplitPlan]:
    """The first cut of each sum; none of one that reads another cut reduction, because its parts are rescaled."""
    first = {s.op: s for s in reversed(schedule.splits or ())}
    reads = {d.name: {e.buffer for e in walk(d.expr) if isinstance(e, Load)} for d in spec.definitions}
    return {op: s for op, s in first.items() if op in reads and not reads[op] & first.keys()}


def additions(count: int, strided: bool = False) -> float:
    """The additions that follow each other in a sum of ``count`` terms outside the tensor core.

    A lane adds the terms of an access one after the other, and a tree adds the lanes: this decides short sums.  Where
    terms are ``strided``, lanes have neighbouring results, and each adds its terms one after another.
    """
    shared = max(count / LANES, min(count, _ACCESS) + log2(max(1, min(count, LANES))))
    return max(shared, min(count, _STRIDED)) if strided else shared


def accumulations(engine: DType | None, count: int, cut: SplitPlan | None = None) -> float:
    """The accumulations of a tensor core that follow each other in a sum of ``count`` products of operands of type
    ``engine``, in parts where there is a ``cut``; 0 without an engine."""
    if engine is None:
        return 0.0
    return count * FORMATS[engine].bits / (8 * _ACCUMULATED) / (1 if cut is None else cut.splits)


def multiplications(terms: Array, count: int) -> int:
    """The multiplications of a product of ``count`` factors ``terms``; its error grows with their square root.

    The partial products of equal factors are rounded alike: their errors add up, and one lane may have all.  A factor
    that a condition leaves out is 1.
    """
    varied = terms[terms != 1.0]
    return count * count if varied.size and np.ptp(varied) == 0.0 else count


def apart(
    terms: Array, axes: tuple[int, ...], parts: Sequence[Array], count: int, splits: int, lanes: int
) -> Array:  # fmt: skip
    """The error of a sum of ``count`` terms in this many ``splits``, of which each has ``lanes`` parallel partial sums,
    in units of roundoff.

    It is the root of the sum of the squares of all partial sums, of which ``K`` chains of ``c`` additions have
    ``c / (3 K)`` times the square of the sum, and ``c / 2`` times those of the distances of the terms to their mean.
    Where terms of one part are alike, the sums of parts, and along each axis, stand for the terms.
    """
    joined = min(lanes, splits)
    chain, last = count / (splits * lanes), splits / joined
    total = reduce_array("sum", terms, axes, DType.F64)
    common = chain / (3.0 * splits * lanes) + 1.0 / splits + last / (3.0 * joined) + 1.0
    own = chain / 2.0 + log2(lanes) + last / 2.0 + log2(joined)
    sums = [np.stack(parts), *(_along(terms, axes, a) for a in axes if len(axes) > 1)]
    alone = [_spread(x, at) for x, at in ((terms, axes), *((s, (0,)) for s in sums))]
    return np.asarray(np.sqrt(common * total * total + own * np.maximum.reduce(alone)))


def lanes_of(cut: SplitPlan) -> int:
    """The parallel partial sums of each part of a sum, at least."""
    return min(max(cut.tile // _EACH, _WARPS), LANES)


def _spread(x: Array, axes: tuple[int, ...]) -> Array:
    """The sum over ``axes`` of the squares of the distances to the mean; a mean of no elements does not occur."""
    with np.errstate(all="ignore"):
        far = x - np.mean(x, axis=axes, keepdims=True)
        return reduce_array("sum", far * far, axes, DType.F64)


def _along(terms: Array, axes: tuple[int, ...], axis: int) -> Array:
    """The sums for each place along ``axis``, which becomes the first axis."""
    others = tuple(a for a in axes if a != axis)
    moved = np.moveaxis(np.sum(terms, axis=others, keepdims=True), axis, 0)
    return np.asarray(np.squeeze(moved, axis=tuple(a + (a < axis) for a in others)))


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


def in_range(value: Array, sums: Callable[[], tuple[Array, Array]], *terms: Array) -> Array:
    """The sums ``value``, inf where another order of the terms may leave f32 on the way, and NaN where terms of either
    sign do, since these sums may meet.  ``sums``: those of the terms and of their magnitudes.
    """
    largest = prod(float(np.max(np.abs(x), initial=0.0)) for x in terms)
    if largest * max(x.size for x in terms) <= LARGEST:
        return value
    total, magnitudes = sums()
    beyond = np.isfinite(value) & (magnitudes > 2.0 * LARGEST)
    meet = np.isfinite(magnitudes) & (magnitudes - np.abs(total) > 2.0 * LARGEST)
    return np.where(meet, np.nan, np.where(beyond, np.copysign(np.inf, value), value))


def with_signs_of(totals: Array, error: Array) -> Array:
    """An ``error`` that all sums have, negated where sums ``totals`` of both signs are: so are their terms."""
    negative = np.signbit(totals)
    return error if negative.all() else np.where(negative, -error, error)


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
    size, others = terms.shape[axis], tuple(a for a in axes if a != axis)
    rows = reduce_array("sum", terms, others, DType.F64, keepdims=True) if others else terms
    number, before = max(1, min(count, size)), (slice(None),) * axis
    ends = [size // number * n + min(n, size % number) for n in range(number + 1)]  # the first ones have one more
    return [reduce_array("sum", rows[(*before, slice(a, b))], axes, DType.F64) for a, b in pairwise(ends)]


def are_whole(count: int, *factors: Array) -> bool:
    """Whether the products of elements of ``factors`` are integers so small that f32 has each sum of ``count`` of them,
    in any order."""
    if not all(_is_integer(x.flat[:_FIRST]) for x in factors):
        return False
    largest = prod(float(np.max(np.abs(x), initial=0.0)) for x in factors)
    return largest * count <= _WHOLE and all(map(_is_integer, factors))


def _is_integer(x: Array) -> bool:
    return bool((x == np.rint(x)).all())


def in_binades(x: Array, error: Array) -> Array:
    """``x`` with the rounding error that all elements of a binade share, in one direction everywhere."""
    _, exponent = np.frexp(np.where(np.isfinite(x), x, 0.0))
    step = np.where((x != 0.0) & np.isfinite(x), np.ldexp(1.0, exponent - 1), 0.0)
    return np.asarray(x + step * error)
