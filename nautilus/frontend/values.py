"""Arrays whose dimensions are named by index variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from nautilus.core.numerics import Array
from nautilus.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Value:
    """An array with one dimension for each of ``names``, whose size is that variable's current extent."""

    array: Array
    names: tuple[str, ...]


def union(values: Iterable[Value], order: Mapping[str, int]) -> tuple[str, ...]:
    """The variables that any of ``values`` depends on, in ``order``."""
    found = {v.names for v in values if v.names}
    if len(found) <= 1:  # those of most operations, which are in order
        return next(iter(found), ())
    return tuple(sorted({n for names in found for n in names}, key=order.__getitem__))


def line_up(v: Value, names: tuple[str, ...]) -> Array:
    """``v.array`` with a dimension for each of ``names`` (1 where ``v`` does not depend on it)."""
    if v.names == names:
        return v.array
    order, places = _placed(v.names, names)
    array = v.array if order is None else v.array.transpose(order)
    return array.reshape([1 if at is None else array.shape[at] for at in places])


@lru_cache(1 << 10)
def _placed(own: tuple[str, ...], names: tuple[str, ...]) -> tuple[tuple[int, ...] | None, tuple[int | None, ...]]:
    """The order of the dimensions of ``own`` (None: as they are), and the place of each of ``names`` among these."""
    ordered = sorted(own, key=names.index)
    order = tuple(own.index(n) for n in ordered) if list(own) != ordered else None
    return order, tuple(ordered.index(n) if n in ordered else None for n in names)
