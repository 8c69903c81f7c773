"""The choice among several variants of a compilation, by the sizes that are known at launch.

A *dispatch* is a binary decision tree.  A leaf is the number of a variant.  An inner node compares one runtime size
with a threshold.  Every variant computes the right result at every size, so a dispatch is a matter of speed alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from nautilus.core.records import dataclass

Dispatch: TypeAlias = "int | Threshold"


@dataclass(frozen=True, slots=True)
class Threshold:
    """``within`` where runtime size ``size`` is at most ``most``, else ``beyond``."""

    size: str
    most: int
    within: Dispatch
    beyond: Dispatch


def chosen(dispatch: Dispatch, sizes: Mapping[str, int]) -> int:
    """The variant for ``sizes``. Raises KeyError for a size that is compared and not given."""
    while isinstance(dispatch, Threshold):
        dispatch = dispatch.within if sizes[dispatch.size] <= dispatch.most else dispatch.beyond
    return dispatch


def compared(dispatch: Dispatch) -> frozenset[str]:
    """The runtime sizes that the dispatch compares."""
    if isinstance(dispatch, int):
        return frozenset()
    return frozenset({dispatch.size}) | compared(dispatch.within) | compared(dispatch.beyond)


def renumbered(dispatch: Dispatch, numbers: Mapping[int, int]) -> Dispatch:
    """``dispatch`` with other numbers of variants."""
    if isinstance(dispatch, int):
        return numbers[dispatch]
    within, beyond = renumbered(dispatch.within, numbers), renumbered(dispatch.beyond, numbers)
    return Threshold(dispatch.size, dispatch.most, within, beyond)


def leaves(dispatch: Dispatch, ranges: Mapping[str, tuple[int, int | None]] | None = None) -> Iterator[tuple[str, int]]:
    """(condition, variant) of every leaf in order; the condition is text such as ``16 < M <= 512``, ``""`` if none.

    ``ranges``: what is known of sizes, as (least value exclusive, greatest value or None).
    """
    known = dict(ranges or {})
    if isinstance(dispatch, int):
        yield " and ".join(_within(name, low, high) for name, (low, high) in known.items()), dispatch
        return
    low, high = known.get(dispatch.size, (-1, None))
    yield from leaves(dispatch.within, {**known, dispatch.size: (low, dispatch.most)})
    yield from leaves(dispatch.beyond, {**known, dispatch.size: (dispatch.most, high)})


def _within(name: str, low: int, high: int | None) -> str:
    if high is None:
        return f"{name} > {low}"
    return f"{name} <= {high}" if low < 0 else f"{low} < {name} <= {high}"
