"""Mutations of a point by the effects of single changes.

A *change* sets one choice to another value.  Its *effect* is the logarithm of the time with the change over the time
without it.  The effect is measured where two measured points differ in this choice only, else estimated by the cost
model.  Effects of several changes are assumed to add up.  The assumption only orders the points to try; measurements
decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import log
from typing import Any

from nautilus.core.records import dataclass

Values = Mapping[str, Any]
Change = tuple[str, str]  # a choice and its value as text, because values need not be hashable

HELPS = 0.002  # a relative gain below this is noise
_DOUBT = 0.004  # added to an effect that is only estimated
_PAIRS = 6  # best changes that are combined in pairs


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of setting the choice ``name`` to ``value``; a negative ``log_ratio`` means faster."""

    name: str
    value: Any
    log_ratio: float
    measured: bool

    @property
    def change(self) -> Change:
        """The change, with its value as text."""
        return self.name, repr(self.value)

    @property
    def expected(self) -> float:
        """The effect if measured; otherwise half the estimated effect plus a penalty."""
        return self.log_ratio if self.measured else 0.5 * self.log_ratio + _DOUBT


def single_changes(choices: Iterable[Any], values: Values) -> Iterator[dict[str, Any]]:
    """Every point one change away from ``values``, in the order of ``choices`` (the most important first)."""
    for c in choices:
        for v in c.values:
            if repr(v) != repr(values.get(c.name)):
                yield {**values, c.name: v}


def difference(a: Values, b: Values) -> tuple[str, ...]:
    """The choices in which two points differ."""
    return tuple(n for n in a if repr(a[n]) != repr(b.get(n)))


def effects(
    best: Values, base: Values, estimated: Sequence[tuple[Values, float]], points: Sequence[tuple[Values, float]]
) -> dict[Change, Effect]:
    """The effects of single changes of ``best``; a measured effect replaces an estimated one.

    ``estimated``: points one change away from ``base`` and their estimated time relative to it.  ``points``: measured
    points and their seconds.
    """
    return _estimated(best, base, estimated) | _measured(best, points)


def _estimated(best: Values, base: Values, ratios: Sequence[tuple[Values, float]]) -> dict[Change, Effect]:
    known: dict[Change, tuple[str, Any, float]] = {(n, repr(v)): (n, v, 1.0) for n, v in base.items()}
    for values, ratio in ratios:
        names = difference(values, base)
        if len(names) == 1 and ratio > 0.0:
            known[names[0], repr(values[names[0]])] = (names[0], values[names[0]], ratio)
    found = {}
    for change, (name, value, ratio) in known.items():
        now = known.get((name, repr(best.get(name))))
        if now is not None and now is not known[change]:
            found[change] = Effect(name, value, log(ratio / now[2]), False)
    return found


def _measured(best: Values, points: Sequence[tuple[Values, float]]) -> dict[Change, Effect]:
    found: dict[Change, Effect] = {}
    for (a, x), (b, y) in combinations(points, 2):
        names = difference(a, b)
        if len(names) != 1:
            continue
        (name,) = names
        for with_it, slow, without, fast in ((a, x, b, y), (b, y, a, x)):
            if repr(without[name]) == repr(best.get(name)):
                e = Effect(name, with_it[name], log(slow / fast), True)
                old = found.get(e.change)  # the smallest of several measured effects counts
                found[e.change] = e if old is None or abs(e.log_ratio) < abs(old.log_ratio) else old
    return found


def proposals(best: Values, known: Mapping[Change, Effect], count: int) -> list[dict[str, Any]]:
    """Up to ``count`` points near ``best`` by expected time: helpful changes combined, pairs, and single changes."""
    usable = [e for e in known.values() if e.name in best and repr(best[e.name]) != repr(e.value)]
    usable.sort(key=lambda e: (e.expected, e.change))
    leading = _one_a_choice(usable)
    helpful = [e for e in leading if e.expected < -HELPS]
    sets = [tuple(helpful[:n]) for n in range(len(helpful), 1, -1)]
    sets += list(combinations(leading[:_PAIRS], 2))
    sets += [(e,) for e in usable]
    sets.sort(key=lambda s: sum(e.expected for e in s))
    once = {frozenset(e.change for e in s): s for s in sets}
    return [{**best, **{e.name: e.value for e in s}} for s in once.values()][:count]


def _one_a_choice(found: Sequence[Effect]) -> list[Effect]:
    """The first effect of every choice."""
    out: dict[str, Effect] = {}
    for e in found:
        out.setdefault(e.name, e)
    return list(out.values())
