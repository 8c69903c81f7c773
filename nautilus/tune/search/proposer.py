"""The proposer of a search: chooses the next point by the cost model, its measured error, and measured effects.

There are two sources of the next point.  The *top candidate* is the pre-filtered point
(:mod:`nautilus.tune.search.prefilter`) with the least lower bound of its time by the cost model, corrected by the
measurements (:mod:`nautilus.tune.search.residual`).  A *change* is a point near one of the best points, composed of the
changes with the best effects so far (:mod:`nautilus.tune.search.mutations`).  No point is proposed twice.
"""

from __future__ import annotations

import random
from collections.abc import Set
from dataclasses import field
from math import log

import numpy as np

from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.tune.search.mutations import Values, difference, effects, proposals, single_changes
from nautilus.tune.search.prefilter import Prefilter
from nautilus.tune.search.residual import Fields, corrections, errors_of
from nautilus.tune.search.stopping import GAIN
from nautilus.tune.search.study import Study
from nautilus.tune.space.choices import SearchSpace
from nautilus.tune.types import Candidate, Settings
from nautilus.tune.workers.pool import Pool

_PROPOSED = 48  # points that the effects suggest; the first new one is taken
_BASES = 3  # best points around which the effects are tried, since the best one may be a local optimum
#: seconds of pre-filtering before the first measurement and their share of a time limit; by ``Settings.scratch``
_PREFILTER_TIME = {False: (20.0, 0.2), True: (40.0, 0.33)}
_CLIMB = 0.25  # share of the time for hill climbing from the best point, with ``Settings.scratch``
_GENETIC = 200  # points with the least estimates, of which the corrected model chooses the parents
_WIDER = 4  # factor on the number of pre-filtered points with ``Settings.scratch``
_GROWN = 4  # limit of all pre-filtered points, as a multiple of those before the first measurement
_RANKED, _KINDS = 400, 50  # points among which the next is chosen, and further ones of structures not among them


@dataclass
class Proposer:
    """Proposes points of ``space`` for ``study``.

    ``base`` is the point from which changes are counted: the default schedule's, or the cost model's best.  ``singles``
    holds its single changes by schedule hash, ``given`` the hashes of proposed points, ``parents`` those of the points
    to mutate.
    """

    space: SearchSpace
    study: Study
    prefilter: Prefilter
    base: Values
    singles: dict[str, Values] = field(default_factory=dict)
    fields: Fields = field(default_factory=Fields)
    given: set[str] = field(default_factory=set)
    parents: list[str] = field(default_factory=list)

    @staticmethod
    def of(space: SearchSpace, study: Study, builders: Pool[Candidate], rng: random.Random) -> Proposer:
        """A proposer without any pre-filtered point."""
        return Proposer(space, study, Prefilter(space, builders, rng), space.defaults)

    def rank_points(self, settings: Settings) -> None:
        """Let the cost model rank many points before the first measurement.

        The points are the base, its single changes and points near the base.  With ``settings.scratch`` they are
        unrelated to the base, and the best of them becomes the base.
        """
        prefilter = self.prefilter
        most, share = _PREFILTER_TIME[settings.scratch]
        seconds = min(most, share * settings.timeout or most)
        if settings.scratch:
            prefilter.run((), None, self._most(settings), (1.0 - _CLIMB) * seconds)
            prefilter.hill_climb(_CLIMB * seconds)
            for own in prefilter.best(1):
                self.base = prefilter.found[own].values
        else:
            given = [self.base, *single_changes(self.space.choices, self.base)]
            prefilter.run(given, self.base, self._most(settings), seconds)
        for own, point in prefilter.found.items():
            if len(difference(point.values, self.base)) == 1:
                self.singles[own] = point.values

    @staticmethod
    def _most(settings: Settings) -> int:
        """The number of points to pre-filter before the first measurement, time permitting."""
        return settings.prefiltered * (_WIDER if settings.scratch else 1)

    def list_singles(self) -> None:
        """The single changes of the base, unranked."""
        for values in single_changes(self.space.choices, self.base):
            if (own := self.space.hash_of(values)) is not None:
                self.singles.setdefault(own, values)

    @property
    def best_singles(self) -> list[Values]:
        """Single changes of the base, the least estimate first."""
        ranked = [h for h in self.prefilter.best() if h in self.singles] or list(self.singles)
        return [self.singles[h] for h in ranked]

    def promising(self, seen: Set[str], best: float) -> list[Values]:
        """Pre-filtered points whose lower bound by the corrected cost model is below ``best`` seconds."""
        if not best:
            return []
        return [
            self.prefilter.found[h].values
            for h, least in self._by_lower_bound(seen)
            if least < log((1.0 - GAIN) * best)
        ]

    def top_candidate(self, seen: Set[str]) -> Values | None:
        """The pre-filtered point with the least lower bound by the corrected cost model."""
        for own, _ in self._by_lower_bound(seen)[:1]:
            self.given.add(own)
            return self.prefilter.found[own].values
        return None

    def _by_lower_bound(self, seen: Set[str]) -> list[tuple[str, float]]:
        """Untried pre-filtered points and the lower bound of the logarithm of their seconds, the least bound first."""
        new = [h for h in self.prefilter.best() if h not in seen and h not in self.given]
        left = self.prefilter.top_with_variety(new, _RANKED, _KINDS)
        if not left:
            return []
        expected, doubt = self._expected(left)
        least = expected - doubt
        return [(left[n], float(least[n])) for n in np.argsort(least, kind="stable")]

    def change(self, seen: Set[str], number: int) -> Values | None:
        """The new point near one of the best points that has the best sum of effects."""
        best = self.study.best(_BASES)
        if not best:
            return None
        values = best[number % len(best)][2]
        known = effects(values, self.base, self._estimates(), self.study.points())
        for near in proposals(values, known, _PROPOSED):
            own = self.space.hash_of(near)
            if own is not None and own not in seen and own not in self.given:
                self.given.add(own)
                return near
        return None

    def select_parents(self) -> None:
        """Choose the points to mutate by the cost model, corrected by the measurements so far."""
        wanted = self.prefilter.best(_GENETIC)
        if wanted:
            expected, _ = self._expected(wanted)
            self.parents = self.prefilter.parents([wanted[n] for n in np.argsort(expected, kind="stable")])

    def mutant(self, settings: Settings) -> Candidate | None:
        """Another point to pre-filter; None before the first measurement and beyond the limit."""
        if not self.parents or len(self.prefilter.found) > _GROWN * self._most(settings):
            return None
        return self.prefilter.mutant(self.parents)

    def _expected(self, wanted: list[str]) -> tuple[Array, Array]:
        """Mean and standard deviation of the logarithm of the corrected estimates of pre-filtered points."""
        outcomes = self.study.outcomes()
        for own, schedule, _, _ in outcomes:
            self.fields.add(own, schedule)
        for own in wanted:
            self.fields.add(own, self.prefilter.found[own].schedule)
        names, errors = [o[0] for o in outcomes], errors_of([(o[2], o[3]) for o in outcomes])
        between = self.fields.covariance
        mean, doubt = corrections(between(names, names), errors, between(wanted, names))
        return np.log([self.prefilter.found[h].estimate for h in wanted]) + mean, doubt

    def _estimates(self) -> list[tuple[Values, float]]:
        """Single changes of the base with their estimated time relative to the base."""
        found = self.prefilter.found
        standard = found.get(self.space.hash_of(self.base) or "")
        if standard is None:
            return []
        return [(v, found[h].estimate / standard.estimate) for h, v in self.singles.items() if h in found]
