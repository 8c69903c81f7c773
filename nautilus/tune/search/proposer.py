"""Where a search looks next: the model's word on many points, what measurements say of the model, and of changes.

Two ways to a next point.  The *favourite* is the screened point (:mod:`nautilus.tune.search.prefilter`) that may be
the fastest
once the model is corrected by what was measured (:mod:`nautilus.tune.search.residual`).  A *change* is what the effects
measured so far, taken together, speak for near one of the best points (:mod:`nautilus.tune.search.mutations`).  Both
give a point once only, whatever becomes of it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from math import log
from typing import Any

import numpy as np

from nautilus.core.numerics import Array
from nautilus.tune.search.mutations import difference, effects, proposals, single_changes
from nautilus.tune.search.prefilter import Screen
from nautilus.tune.search.residual import Fields, corrections, errors_of
from nautilus.tune.search.stopping import GAIN
from nautilus.tune.search.study import Study
from nautilus.tune.space.choices import SearchSpace
from nautilus.tune.types import Candidate, Settings
from nautilus.tune.workers.pool import Pool

Values = Mapping[str, Any]
_PROPOSED = 48  # points that the effects suggest, of which the first new one is taken
_BASES = 3  # best points around which the effects are tried in turn: the best one may be a dead end
#: seconds in which the model ranks points before anything is measured, and their share of a time limit: more where
#: nothing is known
_SCREENING = {False: (20.0, 0.2), True: (40.0, 0.33)}
_CLIMB = 0.25  # of them, where nothing is known: for single changes of the best point
_GENETIC = 200  # points that the model likes best, of which the corrected model chooses the parents
_WIDER = 4  # times as many points are ranked where nothing is known
_GROWN = 4  # times the points screened at first that are screened in all
_RANKED, _KINDS = 400, 50  # screened points of which the next is chosen, and structures that have none among them


@dataclass
class Guide:
    """``base``: the point that changes are counted from, the rules' or the model's best; ``singles`` of it by hash."""

    space: SearchSpace
    study: Study
    screen: Screen
    base: Values
    singles: dict[str, Values] = field(default_factory=dict)
    fields: Fields = field(default_factory=Fields)
    given: set[str] = field(default_factory=set)
    parents: list[str] = field(default_factory=list)

    @staticmethod
    def of(space: SearchSpace, study: Study, builders: Pool[Candidate], order: random.Random) -> Guide:
        """With nothing screened yet."""
        return Guide(space, study, Screen(space, builders, order), space.defaults)

    def look_around(self, settings: Settings) -> None:
        """Have the model rank many points: near the rules' and single changes of it, or of no knowledge at all."""
        screen = self.screen
        most, share = _SCREENING[settings.scratch]
        seconds = min(most, share * settings.timeout or most)
        if settings.scratch:
            screen.run((), None, self._most(settings), (1.0 - _CLIMB) * seconds)
            screen.climb(_CLIMB * seconds)
            for own in screen.best(1):
                self.base = screen.found[own].values
        else:
            given = [self.base, *single_changes(self.space.choices, self.base)]
            screen.run(given, self.base, self._most(settings), seconds)
        for own, point in screen.found.items():
            if len(difference(point.values, self.base)) == 1:
                self.singles[own] = point.values

    @staticmethod
    def _most(settings: Settings) -> int:
        """Points to screen before anything is measured, if there is time."""
        return settings.screened * (_WIDER if settings.scratch else 1)

    def list_singles(self) -> None:
        """The single changes of the base, unranked."""
        for values in single_changes(self.space.choices, self.base):
            if (own := self.space.hash_of(values)) is not None:
                self.singles.setdefault(own, values)

    @property
    def best_singles(self) -> list[Values]:
        """Single changes of the base, those first that the model likes."""
        ranked = [h for h in self.screen.best() if h in self.singles] or list(self.singles)
        return [self.singles[h] for h in ranked]

    def hopes(self, seen: Set[str], best: float) -> list[Values]:
        """Screened points that the corrected model, at its most optimistic, puts before ``best`` seconds."""
        if not best:
            return []
        return [self.screen.found[h].values for h, least in self._hopeful(seen) if least < log((1.0 - GAIN) * best)]

    def favourite(self, seen: Set[str]) -> Values | None:
        """The screened point that may be the fastest by the corrected model."""
        for own, _ in self._hopeful(seen)[:1]:
            self.given.add(own)
            return self.screen.found[own].values
        return None

    def _hopeful(self, seen: Set[str]) -> list[tuple[str, float]]:
        """Screened points that nobody tried, and the logarithm of the seconds that each may take at the least."""
        new = [h for h in self.screen.best() if h not in seen and h not in self.given]
        left = self.screen.leaders(new, _RANKED, _KINDS)
        if not left:
            return []
        expected, doubt = self._expected(left)
        least = expected - doubt
        return [(left[n], float(least[n])) for n in np.argsort(least, kind="stable")]

    def change(self, seen: Set[str], turn: int) -> Values | None:
        """What the effects of single changes speak for, near one of the best."""
        best = self.study.best(_BASES)
        if not best:
            return None
        values = best[turn % len(best)][2]
        known = effects(values, self.base, self._estimates(), self.study.points())
        for near in proposals(values, known, _PROPOSED):
            own = self.space.hash_of(near)
            if own is not None and own not in seen and own not in self.given:
                self.given.add(own)
                return near
        return None

    def learn(self) -> None:
        """Choose the points that shall have children, by the model as measurements correct it by now."""
        wanted = self.screen.best(_GENETIC)
        if wanted:
            expected, _ = self._expected(wanted)
            self.parents = self.screen.mixed([wanted[n] for n in np.argsort(expected, kind="stable")])

    def child(self, settings: Settings) -> Candidate | None:
        """Another point to be screened, once something was measured."""
        if not self.parents or len(self.screen.found) > _GROWN * self._most(settings):
            return None
        return self.screen.child(self.parents)

    def _expected(self, wanted: list[str]) -> tuple[Array, Array]:
        """The logarithm of the corrected estimates of screened points, and how far to trust it."""
        outcomes = self.study.outcomes()
        for own, schedule, _, _ in outcomes:
            self.fields.add(own, schedule)
        for own in wanted:
            self.fields.add(own, self.screen.found[own].schedule)
        names, errors = [o[0] for o in outcomes], errors_of([(o[2], o[3]) for o in outcomes])
        between = self.fields.covariance
        mean, doubt = corrections(between(names, names), errors, between(wanted, names))
        return np.log([self.screen.found[h].estimate for h in wanted]) + mean, doubt

    def _estimates(self) -> list[tuple[Values, float]]:
        """Single changes of the base, and their time relative to it by the model."""
        found = self.screen.found
        standard = found.get(self.space.hash_of(self.base) or "")
        if standard is None:
            return []
        return [(v, found[h].estimate / standard.estimate) for h, v in self.singles.items() if h in found]
