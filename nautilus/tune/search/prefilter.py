"""The pre-filter: a genetic search by the cost model that gives the measurements good points to start from.

The first generation consists of the caller's points and uniform draws.  Each later generation consists of mutants of
the best points so far: a crossover of two parents, then a few choices drawn again.  A mutant whose schedule is known
is drawn again, because most choices of a space may be disabled by others, so changing them changes nothing.  Optional
hill climbing follows: all single changes of the best point and combinations of those that help, while one is better.
A worker lowers every point as far as the cost model needs, which also finds the points that a pass refuses.

The cost model mostly ranks the fastest measured point among its first ten, while uniform draws from a space of 10^13
points contain none within 10% of it.  A search with few trials therefore lacks good points, not a better order.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.tune.database.rows import schedule_hash
from nautilus.tune.search.mutations import Values, difference, single_changes
from nautilus.tune.search.residual import grouping_of, structure_of
from nautilus.tune.space.choices import SearchSpace
from nautilus.tune.types import Candidate
from nautilus.tune.workers.build import BuildJob
from nautilus.tune.workers.pool import DONE, INTERNAL, Outcome, Pool, pause

PREFILTER = "prefilter"  # the origin of its candidates
_PARENTS = 24  # best points that are parents
_KINDS = 12  # structures without a point among them whose best point is a parent as well
_FIRST = 96  # points of the first generation, drawn uniformly
_GENERATION = 32
_CROSSED = 0.5  # share of mutants with two parents
_UNIFORM = 0.3  # share of mutants whose first parent is drawn uniformly
_HEAVY, _REDRAWN = 0.25, 0.4  # share of mutants with heavy mutation, and share of their choices drawn again
_CHANGED = 1.5  # average number of choices that a mutant draws again
_TRIES = 8  # draws for one new point


@dataclass(frozen=True)
class ScoredPoint:
    """A legal point. ``estimate``: seconds by the cost model."""

    estimate: float
    schedule: Schedule
    values: Values

    @cached_property
    def structure(self) -> str:
        """The kernels and the organisation of their blocks as text."""
        return structure_of(self.schedule)

    @cached_property
    def grouping(self) -> str:
        """The grouping of definitions into kernels as text."""
        return grouping_of(self.schedule)


@dataclass
class Prefilter:
    """Points that the cost model ranked.  ``found`` and ``refused`` (with the reason) are keyed by schedule hash."""

    space: SearchSpace
    builders: Pool[Candidate]
    rng: random.Random
    found: dict[str, ScoredPoint] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    _hashes: set[str] = field(default_factory=set)

    def run(self, given: Iterable[Values], near: Values | None, most: int, seconds: float) -> None:
        """Estimate ``given`` and up to ``most`` further points within ``seconds``.

        Every other point of the first generation is drawn near ``near``.
        """
        end = time.monotonic() + seconds
        self._estimate(self._new_candidates(given), end)
        left = most
        while left > 0 and time.monotonic() < end:
            parents = [] if most - left < min(_FIRST, most // 4) else self.parents(self.best())
            count = min(left, _GENERATION)
            self._estimate((c for n in range(count) if (c := self.mutant(parents, near if n % 2 else None))), end)
            left -= count

    def hill_climb(self, seconds: float) -> None:
        """Estimate single changes of the best point and combinations of helpful ones, while the best point improves."""
        end, before = time.monotonic() + seconds, ""
        while time.monotonic() < end and self.found and (best := self.best(1)[0]) != before:
            before = best
            changes = list(single_changes(self.space.choices, self.found[best].values))
            self._estimate(self._new_candidates(changes), end)
            self._estimate(self._new_candidates(self._together(self.found[best], changes)), end)

    def _together(self, point: ScoredPoint, changes: Sequence[Values]) -> Iterator[Values]:
        """``point`` with the best helpful change, the best two, and so on; at most one change for each choice."""
        known = [(p.estimate, n) for n, v in enumerate(changes) if (p := self.found.get(self.space.hash_of(v) or ""))]
        taken: dict[str, Any] = {}
        for _, n in sorted(k for k in known if k[0] < point.estimate):
            (name,) = difference(changes[n], point.values)
            if name not in taken:
                taken[name] = changes[n][name]
                yield {**point.values, **taken}

    def best(self, count: int = 0) -> list[str]:
        """The hashes of the ``count`` least estimates in ascending order; ``count`` 0 gives all."""
        ranked = sorted(self.found, key=lambda h: (self.found[h].estimate, h))
        return ranked[:count] if count else ranked

    def parents(self, ranked: Sequence[str]) -> list[str]:
        """Parents out of ``ranked``: the first ones, and the first one of further structures for diversity.

        A schedule that is the only one of its kernels has no choices of its own; its values carry no information, so it
        is no parent.
        """
        variety = Counter(p.grouping for p in self.found.values())
        able = [h for h in ranked if variety[self.found[h].grouping] > 1] or ranked
        return self.top_with_variety(able, _PARENTS, _KINDS)

    def top_with_variety(self, ranked: Sequence[str], most: int, kinds: int) -> list[str]:
        """The first ``most`` of ``ranked``, and the first one of up to ``kinds`` structures not among them."""
        chosen = list(ranked[:most])
        known = {self.found[h].structure for h in chosen}
        for own in ranked[most:]:
            if len(chosen) < most + kinds and (kind := self.found[own].structure) not in known:
                known.add(kind)
                chosen.append(own)
        return chosen

    def _estimate(self, wanted: Iterable[Candidate], end: float) -> None:
        waiting = iter(wanted)  # lazy, so that points are drawn while the builders work
        following = next(waiting, None)
        while following is not None or self.builders.busy:
            while following is not None and self.builders.free:
                self.builders.begin(following, BuildJob(following.schedule, False))
                following = next(waiting, None) if time.monotonic() < end else None
            pause([self.builders], 0.5)
            for candidate, outcome in self.builders.finished():
                self.record(candidate, outcome)

    def record(self, candidate: Candidate, outcome: Outcome) -> None:
        """Record the outcome of a job of this pre-filter."""
        if outcome.kind == INTERNAL:
            self.space.internal.record(outcome.reason, candidate.schedule, candidate.values)
        if outcome.kind != DONE:
            return
        if outcome.value.refused:
            self.refused[candidate.hash] = outcome.value.failure
        elif outcome.value.estimate is not None and candidate.schedule is not None:
            self.found[candidate.hash] = ScoredPoint(outcome.value.estimate, candidate.schedule, candidate.values)

    def mutant(self, parents: Sequence[str], near: Values | None = None) -> Candidate | None:
        """A new mutant of ``parents`` (hashes, best first); without parents a uniform draw, or one near ``near``."""
        parent_values = [self.found[h].values for h in parents]
        for _ in range(_TRIES):
            values = self._crossover(parent_values) if parent_values else self.space.random(self.rng, near)
            if parent_values and self.rng.random() < _HEAVY:
                values = self.space.random(self.rng, values, _REDRAWN)
            if (made := self._new_candidate(values)) is not None:
                return made
        return None

    def _crossover(self, parents: list[Values]) -> dict[str, Any]:
        # a tournament of two: the better of two drawn ranks
        a, b = (parents[min(self.rng.randrange(len(parents)) for _ in range(2))] for _ in range(2))
        if self.rng.random() < _UNIFORM:
            a = self.rng.choice(parents)
        crossed = self.rng.random() < _CROSSED
        values = {n: b.get(n, v) if crossed and self.rng.random() < 0.5 else v for n, v in a.items()}
        choices = self.space.choices
        for c in choices:
            if self.rng.random() < _CHANGED / len(choices):
                values[c.name] = self.rng.choice(c.values)
        return values

    def _new_candidates(self, points: Iterable[Values]) -> Iterator[Candidate]:
        return (made for values in points if (made := self._new_candidate(values)) is not None)

    def _new_candidate(self, values: Values) -> Candidate | None:
        schedule, _ = self.space.drafted(values)
        if schedule is None:
            return None
        own = schedule_hash(schedule)
        if own in self._hashes:
            return None
        self._hashes.add(own)
        return Candidate(PREFILTER, schedule, own, values)
