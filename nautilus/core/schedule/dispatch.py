"""The choice among several variants of a compilation, by the sizes that are known at launch.

A *dispatch* is a binary decision tree.  A leaf is the number of a variant.  An inner node compares one runtime size
with a threshold, or tests whether sizes are multiples of numbers.

A variant may have *facts* about sizes of its own, under which it was compiled (:class:`SizeFact`).  It is legal only
where they hold, so each path of the tree that leads to it implies them (:func:`unproved`).  Among the variants that are
legal at some sizes, the choice affects the speed alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import lcm
from typing import TypeAlias

from nautilus.core.records import dataclass


@dataclass(frozen=True, slots=True)
class SizeFact:
    """Runtime size ``size`` is at most ``most``, unless that is None, and a multiple of ``multiple``."""

    size: str
    most: int | None = None
    multiple: int = 1

    @property
    def text(self) -> str:
        """The fact as a condition of a spec."""
        parts = [f"{self.size} <= {self.most}"] if self.most is not None else []
        return " and ".join([*parts, *([f"{self.size} % {self.multiple} == 0"] if self.multiple > 1 else [])])

    def holds(self, value: int) -> bool:
        """Whether the fact holds where the size is ``value``."""
        return (self.most is None or value <= self.most) and value % self.multiple == 0


@dataclass(frozen=True, slots=True)
class Threshold:
    """``within`` where runtime size ``size`` is at most ``most``, else ``beyond``."""

    size: str
    most: int
    within: Dispatch
    beyond: Dispatch

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether ``within`` is chosen."""
        return sizes[self.size] <= self.most


@dataclass(frozen=True, slots=True)
class Divided:
    """``within`` where each size of ``divisors`` is a multiple of its number, else ``beyond``."""

    divisors: tuple[tuple[str, int], ...]
    within: Dispatch
    beyond: Dispatch

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether ``within`` is chosen."""
        return all(sizes[name] % by == 0 for name, by in self.divisors)


Dispatch: TypeAlias = "int | Threshold | Divided"
Range: TypeAlias = tuple[int, "int | None"]  # least value exclusive, greatest value or None


def chosen(dispatch: Dispatch, sizes: Mapping[str, int]) -> int:
    """The variant for ``sizes``. Raises KeyError for a size that is compared and not given."""
    while not isinstance(dispatch, int):
        dispatch = dispatch.within if dispatch.holds(sizes) else dispatch.beyond
    return dispatch


def compared(dispatch: Dispatch) -> frozenset[str]:
    """The runtime sizes that the dispatch compares."""
    if isinstance(dispatch, int):
        return frozenset()
    own = {dispatch.size} if isinstance(dispatch, Threshold) else {name for name, _ in dispatch.divisors}
    return frozenset(own) | compared(dispatch.within) | compared(dispatch.beyond)


def renumbered(dispatch: Dispatch, numbers: Mapping[int, int]) -> Dispatch:
    """``dispatch`` with other numbers of variants."""
    if isinstance(dispatch, int):
        return numbers[dispatch]
    within, beyond = renumbered(dispatch.within, numbers), renumbered(dispatch.beyond, numbers)
    return replace(dispatch, within=within, beyond=beyond)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf with what its path says: the range of each compared size, and numbers that divide sizes.

    ``undivided``: conditions that do not hold, as text.
    """

    variant: int
    ranges: Mapping[str, Range]
    divisors: Mapping[str, int]
    undivided: tuple[str, ...] = ()

    @property
    def condition(self) -> str:
        """The path as text, such as ``16 < M <= 512``; empty if there is none."""
        parts = [_within(name, low, high) for name, (low, high) in self.ranges.items()]
        parts += [_divided(name, by) for name, by in self.divisors.items() if by > 1]
        return " and ".join([*parts, *(f"not ({text})" for text in self.undivided)])

    def implies(self, fact: SizeFact) -> bool:
        """Whether ``fact`` holds wherever the path leads to this leaf."""
        high = self.ranges.get(fact.size, (-1, None))[1]
        within = fact.most is None or (high is not None and high <= fact.most)
        return within and self.divisors.get(fact.size, 1) % fact.multiple == 0


def leaves(dispatch: Dispatch, known: Leaf | None = None) -> Iterator[Leaf]:
    """Every leaf in order. ``known``: what holds of the sizes already, a leaf whose variant is not used."""
    known = known or Leaf(0, {}, {})
    if isinstance(dispatch, int):
        yield replace(known, variant=dispatch)
    elif isinstance(dispatch, Threshold):
        low, high = known.ranges.get(dispatch.size, (-1, None))
        most = dispatch.most if high is None else min(dispatch.most, high)
        yield from leaves(dispatch.within, replace(known, ranges={**known.ranges, dispatch.size: (low, most)}))
        beyond = {**known.ranges, dispatch.size: (max(low, dispatch.most), high)}
        yield from leaves(dispatch.beyond, replace(known, ranges=beyond))
    else:
        found = {name: lcm(by, known.divisors.get(name, 1)) for name, by in dispatch.divisors}
        yield from leaves(dispatch.within, replace(known, divisors={**known.divisors, **found}))
        text = " and ".join(_divided(name, by) for name, by in dispatch.divisors)
        yield from leaves(dispatch.beyond, replace(known, undivided=(*known.undivided, text)))


def unproved(
    dispatch: Dispatch, facts: Sequence[Sequence[SizeFact]], known: Leaf | None = None
) -> tuple[Leaf, SizeFact] | None:
    """A leaf and a fact of its variant that its path does not imply; None where the dispatch is legal.

    ``facts``: of each variant, by its number; ``known``: what holds of all sizes.
    """
    return next(((x, f) for x in leaves(dispatch, known) for f in facts[x.variant] if not x.implies(f)), None)


def _within(name: str, low: int, high: int | None) -> str:
    if high is None:
        return f"{name} > {low}"
    return f"{name} <= {high}" if low < 0 else f"{low} < {name} <= {high}"


def _divided(name: str, by: int) -> str:
    return f"{name} % {by} == 0"
