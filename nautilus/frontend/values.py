"""Arrays whose dimensions are named by index variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
    ordered = sorted(v.names, key=names.index)
    array = v.array.transpose([v.names.index(n) for n in ordered]) if list(v.names) != ordered else v.array
    sizes = dict(zip(ordered, array.shape, strict=True))
    return array.reshape([sizes.get(n, 1) for n in names])
