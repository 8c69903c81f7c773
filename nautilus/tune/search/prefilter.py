"""Screening: the cost model ranks many points, so that the few that are measured begin among good ones.

Generation by generation.  The first is what the caller knows and even draws; each later one is children of the best
points so far: two of them crossed, then one choice or a few drawn anew.  A child whose schedule is known is drawn
again: most of a space may be choices that others switch off, and changing those changes nothing.  In the end the best
one may climb: all of its single changes, and those that help together, as long as one is better.  Every point is
lowered by a worker as far as the model needs, which finds out as well what no pass accepts.

The model places the fastest measured point among its first ten most of the time, while even draws of a space of 10^13
points hold none that is within 10 % of it: what a search with few trials lacks is good points, not a better order.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nautilus.core.schedule import Schedule
from nautilus.tune.database.rows import schedule_hash
from nautilus.tune.search.mutations import difference, single_changes
from nautilus.tune.search.residual import grouping_of, structure_of
from nautilus.tune.space.choices import SearchSpace
from nautilus.tune.types import Candidate
from nautilus.tune.workers.build import BuildJob
from nautilus.tune.workers.pool import DONE, Outcome, Pool, pause

Values = Mapping[str, Any]
SCREEN = "screen"  # where its candidates come from
_ELITE = 24  # points that have children, and ...
_KINDS = 12  # ... the best one of so many structures that have none among them
_FIRST = 96  # points that are drawn evenly
_GENERATION = 32
_CROSSED = 0.5  # share of children with two parents
_ANY = 0.3  # share of children whose first parent is any of them
_WILD, _REDRAWN = 0.25, 0.4  # share of children of which this share of the choices is drawn anew: other structures
_CHANGED = 1.5  # choices that a child draws anew, on average
_TRIES = 8  # draws until a point is new


@dataclass(frozen=True)
class Screened:
    """A legal point. ``estimate``: the model's seconds."""

    estimate: float
    schedule: Schedule
    values: Values

    @cached_property
    def structure(self) -> str:
        return structure_of(self.schedule)

    @cached_property
    def grouping(self) -> str:
        return grouping_of(self.schedule)


@dataclass
class Screen:
    """``found`` and ``refused`` (the reason) by hash of the schedule."""

    space: SearchSpace
    builders: Pool[Candidate]
    order: random.Random
    found: dict[str, Screened] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    _drawn: set[str] = field(default_factory=set)

    def run(self, given: Iterable[Values], near: Values | None, most: int, seconds: float) -> None:
        """Ask about ``given``, and about ``most`` points more, half of the first of them near ``near``.

        Fewer where that takes longer than ``seconds``.
        """
        end = time.monotonic() + seconds
        self._ask(self._all_new(given), end)
        left = most
        while left > 0 and time.monotonic() < end:
            parents = [] if most - left < min(_FIRST, most // 4) else self.mixed(self.best())
            count = min(left, _GENERATION)
            self._ask((c for n in range(count) if (c := self.child(parents, near if n % 2 else None))), end)
            left -= count

    def climb(self, seconds: float) -> None:
        """Ask about all single changes of the best point and those that help together, as long as one is better."""
        end, before = time.monotonic() + seconds, ""
        while time.monotonic() < end and self.found and (best := self.best(1)[0]) != before:
            before = best
            changes = list(single_changes(self.space.choices, self.found[best].values))
            self._ask(self._all_new(changes), end)
            self._ask(self._all_new(self._together(self.found[best], changes)), end)

    def _together(self, point: Screened, changes: Sequence[Values]) -> Iterator[Values]:
        """``point`` with the best of ``changes`` that help, with the best two, and so on; one of each choice."""
        known = [(p.estimate, n) for n, v in enumerate(changes) if (p := self.found.get(self.space.hash_of(v) or ""))]
        taken: dict[str, Any] = {}
        for _, n in sorted(k for k in known if k[0] < point.estimate):
            (name,) = difference(changes[n], point.values)
            if name not in taken:
                taken[name] = changes[n][name]
                yield {**point.values, **taken}

    def best(self, count: int = 0) -> list[str]:
        """Hashes, the fastest by the model first; ``count`` 0: all."""
        ranked = sorted(self.found, key=lambda h: (self.found[h].estimate, h))
        return ranked[:count] if count else ranked

    def mixed(self, ranked: Sequence[str]) -> list[str]:
        """Parents out of ``ranked``: the first ones, and the first of other structures, which may come to lead.

        The only schedule of its kernels has no choices of its own, so its values are noise: it is no parent.
        """
        variety = Counter(p.grouping for p in self.found.values())
        able = [h for h in ranked if variety[self.found[h].grouping] > 1] or ranked
        return self.leaders(able, _ELITE, _KINDS)

    def leaders(self, ranked: Sequence[str], most: int, kinds: int) -> list[str]:
        """The first ``most`` of ``ranked``, and the first one of up to ``kinds`` structures that have none there."""
        chosen = list(ranked[:most])
        known = {self.found[h].structure for h in chosen}
        for own in ranked[most:]:
            if len(chosen) < most + kinds and (kind := self.found[own].structure) not in known:
                known.add(kind)
                chosen.append(own)
        return chosen

    def _ask(self, wanted: Iterable[Candidate], end: float) -> None:
        waiting = iter(wanted)  # drawn while others are with the builders
        following = next(waiting, None)
        while following is not None or self.builders.busy:
            while following is not None and self.builders.free:
                self.builders.begin(following, BuildJob(following.schedule, False))
                following = next(waiting, None) if time.monotonic() < end else None
            pause([self.builders], 0.5)
            for candidate, outcome in self.builders.finished():
                self.take(candidate, outcome)

    def take(self, candidate: Candidate, outcome: Outcome) -> None:
        """Note what a worker says of a candidate of ours."""
        if outcome.kind != DONE:
            return
        if outcome.value.refused:
            self.refused[candidate.hash] = outcome.value.trouble
        elif outcome.value.estimate is not None and candidate.schedule is not None:
            self.found[candidate.hash] = Screened(outcome.value.estimate, candidate.schedule, candidate.values)

    def child(self, parents: Sequence[str], near: Values | None = None) -> Candidate | None:
        """A new point made of ``parents`` (hashes, the best first); without any an even draw, or one near ``near``."""
        elite = [self.found[h].values for h in parents]
        for _ in range(_TRIES):
            values = self._mixed(elite) if elite else self.space.random(self.order, near)
            if elite and self.order.random() < _WILD:
                values = self.space.random(self.order, values, _REDRAWN)
            if (made := self._new(values)) is not None:
                return made
        return None

    def _mixed(self, elite: list[Values]) -> dict[str, Any]:
        # of two drawn places the better one: the first have the most children
        a, b = (elite[min(self.order.randrange(len(elite)) for _ in range(2))] for _ in range(2))
        if self.order.random() < _ANY:
            a = self.order.choice(elite)
        crossed = self.order.random() < _CROSSED
        values = {n: b.get(n, v) if crossed and self.order.random() < 0.5 else v for n, v in a.items()}
        choices = self.space.choices
        for c in choices:
            if self.order.random() < _CHANGED / len(choices):
                values[c.name] = self.order.choice(c.values)
        return values

    def _all_new(self, points: Iterable[Values]) -> Iterator[Candidate]:
        return (made for values in points if (made := self._new(values)) is not None)

    def _new(self, values: Values) -> Candidate | None:
        schedule, _ = self.space.drafted(values)
        if schedule is None:
            return None
        own = schedule_hash(schedule)
        if own in self._drawn:
            return None
        self._drawn.add(own)
        return Candidate(SCREEN, schedule, own, values)
