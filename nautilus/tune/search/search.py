"""The search for one spec at one set of sizes: ask, drop duplicates, build, check and time, tell.

In order: what rules and the database know already; single changes of the rules' schedule, those first that the cost
model likes; then in turn what the guide says (:mod:`nautilus.tune.search.proposer`) and Optuna's sampler, until the
trials or the
time are spent, the space has nothing new, or model and history agree that nothing better is left.  In the end the best
few are timed again in one shuffled series, beside the schedule of the rules, and that decides: what does not beat the
rules' by more than noise does not replace it.

Everything that takes long is in workers (:mod:`nautilus.tune.workers.pool`); every result is in the database
before the next step, so a search that is killed loses the candidates in flight and nothing else.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from statistics import median
from typing import Any

from nautilus.tune.database.rows import COMPILER, OK, Row, schedule_hash
from nautilus.tune.database.store import append
from nautilus.tune.search.prefilter import SCREEN
from nautilus.tune.search.proposer import Guide
from nautilus.tune.search.stopping import beats, hopeless, nothing_left
from nautilus.tune.search.study import Study
from nautilus.tune.space.choices import SearchSpace
from nautilus.tune.types import Candidate, Finished, Progress, Settings, Subject, Watcher
from nautilus.tune.workers import pool as workers
from nautilus.tune.workers.build import BuildJob, Built
from nautilus.tune.workers.measure import FinalsJob, Measured, MeasureJob
from nautilus.tune.workers.pool import DONE, Outcome, Pool, pause

RULES, DATABASE, SPACE = "rules", "database", "space"
_USELESS = 300  # samples in a row that are refused or known, after which the space counts as exhausted
_SMALL = 256  # points of a space that is gone through one by one when samples bring nothing new
_DULL = 16  # useless samples in a row before that
_AHEAD = 2  # built candidates that wait for each device
_FINALISTS = 4
_SAMPLED = 4  # every so many samples is the sampler's own, and every so many one that the effects suggest
_MODELLED = 0.25  # share of the trials before which neither is asked
_BREEDING = 4  # one of so many builders screens, and all that have nothing else to do


class Search:
    """One search; ``builders`` and ``meters`` are pools that outlive it (no ``meters``: the model measures).

    :meth:`prepare` needs no meter, which may start meanwhile; :meth:`run` does the rest.
    """

    def __init__(
        self, space: SearchSpace, study: Study, settings: Settings, builders: Pool[Candidate],
        meters: Pool[Candidate] | None, watcher: Watcher,
    ) -> None:  # fmt: skip
        self.space, self.study, self.settings = space, study, settings
        self.subject: Subject
        self.builders, self.meters, self.watcher = builders, meters, watcher
        self.progress = Progress(settings.trials)
        self.ready: list[tuple[Candidate, Built]] = []
        self.rows: dict[str, Row] = {}  # the latest of every schedule that was measured here
        self.built: dict[str, Built] = {}  # those that may get into the finals
        self.guide = Guide.of(space, study, builders, random.Random(settings.seed))
        self.queue: deque[Mapping[str, Any]] = deque()  # to be sampled first
        self.turn = 0
        self.troubles: Counter[str] = Counter()
        self.legal: dict[str, Mapping[str, Any]] | None = None  # all of a small space
        self.useless = 0
        self.rules_hash = ""
        self.coming: set[str] = set()  # hashes of what is built without being sampled
        self.started = time.monotonic()

    # -- the whole ------------------------------------------------------------------------------
    def prepare(self) -> None:
        """Rank single changes and other points by the model, unless that is what measures."""
        if self.meters is None:
            self.guide.list_singles()
            return
        self._phase("model")
        self.guide.look_around(self.settings)

    def run(self, subject: Subject) -> Finished:
        """Search; the workers are idle afterwards."""
        self.subject = subject
        startup = time.monotonic() - self.started
        self._plan()
        self._start()
        stopped = self._loop()
        best = self._final() if self.meters is not None else self._best_estimate()
        rules = self.rows.get(self.rules_hash)
        seconds = time.monotonic() - self.started
        return Finished(best, rules, stopped, self.progress, self.troubles, seconds, startup)

    def _plan(self) -> None:
        """What is sampled first: what is known, and single changes."""
        if self.settings.scratch:
            return
        known = [*self.subject.known[:1], *self.subject.neighbours]
        self.queue.extend(r.values for r in known if r.values)
        self.queue.extend(self.guide.best_singles[: self.settings.trials // 4])

    def _start(self) -> None:
        """What is built without being sampled."""
        self.progress.best = min(self.study.history(), default=None)
        if self.settings.scratch:
            return
        self.coming = {h for h in [self.space.hash_of(self.space.defaults)] if h is not None}
        self._build(Candidate(RULES, None, ""))
        for row in self.subject.known[:1]:
            schedule = row.read_schedule()
            self.coming.add(own := schedule_hash(schedule))
            self._drain(self.builders.free == 0)
            self._build(Candidate(DATABASE, schedule, own, row.values))

    def _loop(self) -> str:
        stopped = ""
        self._phase("search")
        while True:
            stopped = stopped or self._reason()
            if not stopped:
                self._breed(len(self.builders.workers) // _BREEDING)
            while not stopped and self.builders.free and len(self.ready) < self._room:
                candidate = self._next()
                if candidate is not None:
                    self._build(candidate)
                stopped = self._reason()
                if candidate is None:
                    break
            if not stopped and len(self.ready) >= self._room:
                self._breed(len(self.builders.workers))
            if stopped and not self.builders.busy and not self.ready and not self._measuring:
                return stopped
            self._advance()

    @property
    def _room(self) -> int:
        return _AHEAD * len(self.meters.workers) if self.meters is not None else 1

    @property
    def _measuring(self) -> bool:
        return self.meters is not None and bool(self.meters.busy)

    def _reason(self) -> str:
        """Why to stop; empty to go on."""
        if self.settings.timeout and time.monotonic() - self.started > self.settings.timeout:
            return "time is up"
        if self.study.spent >= self.settings.trials:
            return "all trials made"
        if self.useless >= _USELESS or (self.useless >= _DULL and self._exhausted()):
            return "the space has nothing new"
        history = self.study.history()
        known = self.meters is not None and not self.settings.scratch  # else nothing says that a good point was seen
        agreed = known and nothing_left(history, self.settings.trials)
        if agreed and not self.guide.hopes(self._seen(), min(history)):
            return "model and history agree that nothing better is left"
        return ""

    def _exhausted(self) -> bool:
        """A small space has no legal point that was not tried; those that it has are sampled next."""
        if self.space.size > _SMALL:
            return False
        if self.legal is None:
            self.legal = {}
            for point in self.space.points():
                if (own := self.space.hash_of(point)) is not None:
                    self.legal.setdefault(own, point)
        known = self._seen()
        left = [values for own, values in self.legal.items() if own not in known]
        for values in left[: _AHEAD * max(1, len(self.builders.workers))]:
            self.study.enqueue(values)
        return not left

    def _seen(self) -> set[str]:
        """Hashes of what was built, is being built, or was refused."""
        return self.study.tried() | self.rows.keys() | self.coming | self.guide.screen.refused.keys()

    def _phase(self, name: str) -> None:
        self.progress.phase = name
        self.watcher.update(self.progress)

    # -- samples --------------------------------------------------------------------------------
    def _next(self) -> Candidate | None:
        """A sample that is new and may be legal; None where there was none for a while."""
        until = time.monotonic() + 1.0
        limit = self.useless + _DULL
        while self.useless < limit and time.monotonic() < until:
            self._suggest()
            asked = self.study.ask()
            schedule, why = self.space.drafted(asked.values)
            self.useless += 1
            if schedule is None:
                self.study.refuse(asked, why)
                self.progress.refused += 1
                continue
            own = schedule_hash(schedule)
            self.study.refresh()
            known = self.study.measured()
            if own in self.rows:
                known.setdefault(own, _value(self.rows[own]))
            if known.get(own, 0.0) > 0.0:
                self.study.tell(asked, known[own])
                self.progress.duplicates += 1
            elif own in self.guide.screen.refused:
                self.study.refuse(asked, self.guide.screen.refused[own])
                self.progress.refused += 1
            elif own in self._seen():
                self.study.refuse(asked, "known, or being built")
                self.progress.duplicates += 1
            elif self.study.spend(asked, schedule, own):
                return Candidate(SPACE, schedule, own, asked.values, asked)
            else:
                self.progress.duplicates += 1
        return None

    def _suggest(self) -> None:
        """Have the next planned point sampled, or one that measurements speak for; now and then neither."""
        if self.queue:
            self.study.enqueue(self.queue.popleft())
            return
        self.turn += 1
        early = self.study.spent < _MODELLED * self.settings.trials
        kind = 1 if early else self.turn % _SAMPLED
        if kind == 0:
            return
        seen = self._seen()
        favourite = self.guide.favourite(seen) if kind != 2 else None
        near = self.guide.change(seen, self.turn // _SAMPLED) if favourite is None else favourite
        if near is not None:
            self.study.enqueue(near)

    def _breed(self, most: int) -> None:
        """Let up to ``most`` builders screen children of what is best by now."""
        now = sum(c.origin == SCREEN for c in self.builders.busy.values())
        for _ in range(min(self.builders.free, most - now) if self.meters is not None else 0):
            if (child := self.guide.child(self.settings)) is None:
                break
            self._build(child)

    # -- work -----------------------------------------------------------------------------------
    def _build(self, candidate: Candidate) -> None:
        cubin, limit = self.meters is not None and candidate.origin != SCREEN, 0.0
        if cubin and candidate.asked is not None:
            limit = hopeless(self.study.estimates(), min(self.study.history(), default=0.0))
        self.builders.begin(candidate, BuildJob(candidate.schedule, cubin, limit))

    def _drain(self, wanted: bool) -> None:
        """Finish everything that is under way, if ``wanted``."""
        while wanted and (self.builders.busy or self.ready or self._measuring):
            self._advance()

    def _advance(self) -> None:
        """Hand on what is built, wait a little, take in what is over."""
        while self.meters is not None and self.ready and self.meters.free:
            candidate, built = self.ready.pop(0)
            best = self.progress.best or float("inf")
            self.meters.begin(candidate, MeasureJob(built, self.settings.repeats, 1.1 * best))
        pause([p for p in (self.builders, self.meters) if p is not None], 0.5)
        for candidate, outcome in self.builders.finished():
            self._built(candidate, outcome)
        over = self.meters.finished() if self.meters is not None else []
        for candidate, built, outcome in [(c, self.built[c.hash], outcome) for c, outcome in over]:
            self._measured(candidate, built, outcome)
        building = sum(c.origin != SCREEN for c in self.builders.busy.values())
        self.progress.done = self.study.spent - building - len(self.ready)
        self.watcher.update(self.progress)

    def _built(self, candidate: Candidate, outcome: Outcome) -> None:
        if candidate.origin == SCREEN:
            self.guide.screen.take(candidate, outcome)
            return
        if outcome.kind != DONE:
            states = {workers.LATE: "compile-hang", workers.DIED: "compile-crash"}
            self._failed(candidate, None, states.get(outcome.kind, "compile-error"), outcome.reason)
            return
        built: Built = outcome.value
        if candidate.origin == RULES:
            candidate = replace(candidate, schedule=built.schedule, hash=built.hash, values=dict(self.space.defaults))
            self.rules_hash = built.hash
        if built.refused and candidate.asked is not None:
            self.study.withdraw(candidate.asked, built.trouble)
            self.progress.refused += 1
            return
        self.useless = 0
        if built.trouble:
            self._failed(candidate, built, "unfit", built.trouble)
        elif self.meters is None and not built.estimate:
            self._failed(candidate, built, "no-estimate", "the cost model has no figure for it")
        elif self.meters is None:
            self._record(candidate, built, Measured(False, 0.0, (built.estimate or 0.0,)), OK, "")
        elif candidate.asked is None and candidate.hash in self.rows:  # the database's is the rules'
            return
        else:
            self.built[candidate.hash] = built
            self.ready.append((candidate, built))

    def _measured(self, candidate: Candidate, built: Built, outcome: Outcome) -> None:
        if outcome.kind != DONE:
            states = {workers.LATE: "hang", workers.DIED: "fault"}
            self._failed(candidate, built, states.get(outcome.kind, "run-error"), outcome.reason)
        elif not outcome.value.ok:
            self._failed(candidate, built, "wrong", outcome.value.detail, outcome.value)
        else:
            self.built[candidate.hash] = built
            self._record(candidate, built, outcome.value, OK, "")

    def _failed(
        self, candidate: Candidate, built: Built | None, state: str, reason: str, found: Measured | None = None
    ) -> None:
        self.progress.failed += 1
        self.troubles[state] += 1
        self._record(candidate, built, found or Measured(False, 0.0), state, reason)

    def _record(self, candidate: Candidate, built: Built | None, found: Measured, state: str, reason: str) -> None:
        """Into the database first, then into the study."""
        row = self._row(candidate, built, found, state, reason)
        append(self.subject.database, [row])
        self.rows[row.schedule_hash] = row
        seconds = row.seconds if state == OK else None
        if candidate.asked is not None:
            if seconds is None:
                self.study.refuse(candidate.asked, f"{state}: {reason}")
            else:
                self.study.tell(candidate.asked, seconds, row.estimate)
        self.coming.discard(row.schedule_hash)
        if candidate.origin == RULES and not self.settings.scratch:
            self.queue.append(self.space.defaults)  # the sampler shall know
        if seconds is not None:
            self.progress.best = min(self.progress.best or seconds, seconds)
            if candidate.origin == RULES:
                self.progress.rules = seconds
        if self.meters is not None:
            self.guide.learn()
        self._trim()

    def _trim(self) -> None:
        """Keep cubins only of those that may get into the finals."""
        flying = {c.hash for c, _ in self.ready}
        flying |= {c.hash for c in self.meters.busy.values()} if self.meters is not None else set()
        good = sorted((r for r in self.rows.values() if r.state == OK), key=_value)[: 2 * _FINALISTS]
        wanted = flying | {r.schedule_hash for r in good} | {self.rules_hash}
        self.built = {h: b for h, b in self.built.items() if h in wanted}

    def _row(
        self, candidate: Candidate, built: Built | None, found: Measured, state: str, reason: str, final: bool = False
    ) -> Row:
        s, key = self.subject, self.subject.key
        schedule = candidate.schedule or (built.schedule if built is not None else None)
        return Row(
            key=key.hash, name=s.name, family=key.family, sizes=key.sizes, arch=key.arch, precision=key.precision,
            device=s.machine.device, driver=s.machine.driver, compiler=COMPILER, nvrtc=s.nvrtc,
            measure=self.settings.measure, state=state, checked=found.ok,
            schedule_hash=schedule_hash(schedule) if schedule is not None else "",
            schedule=asdict(schedule) if schedule is not None else None,
            samples=found.samples, final=final, rules=candidate.origin == RULES,
            values=json.loads(json.dumps(dict(candidate.values))),
            estimate=built.estimate if built is not None else None, error=found.error or None, reason=reason[:500],
            study=self.study.name, time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )  # fmt: skip

    # -- the end --------------------------------------------------------------------------------
    def _best_estimate(self) -> Row | None:
        """The best of this process and, where that is better, of the study."""
        good = [r for r in self.rows.values() if r.state == OK and r.samples]
        for seconds, schedule, values in self.study.best(1):
            candidate = Candidate(SPACE, schedule, schedule_hash(schedule), values)
            good.append(self._row(candidate, None, Measured(False, 0.0, (seconds,)), OK, ""))
        return min(good, key=lambda r: (_value(r), r.schedule_hash), default=None)

    def _final(self) -> Row | None:
        """Time the best few, by whatever process found them, again and together; the winner is a row of its own."""
        assert self.meters is not None
        if self.settings.scratch:
            self._build(Candidate(RULES, None, ""))
            self._drain(True)
        self._phase("finals")
        entrants = self._entrants()
        while entrants:
            self.meters.begin(entrants[0][0], FinalsJob(tuple(b for _, b in entrants), 3 * self.settings.repeats))
            while not (over := self.meters.finished()):
                pause([self.meters], 0.5)
            ((_, outcome),) = over
            if outcome.kind == DONE:
                return self._winner(entrants, outcome.value)
            self.troubles["finals"] += 1
            entrants = entrants[:-1] if len(entrants) > 1 else []
        return None

    def _entrants(self) -> list[tuple[Candidate, Built]]:
        found: dict[str, Candidate] = {}
        for _, schedule, values in self.study.best(_FINALISTS):
            own = schedule_hash(schedule)
            found[own] = Candidate(SPACE, schedule, own, values)
        own_best = sorted((r for r in self.rows.values() if r.state == OK), key=_value)[:_FINALISTS]
        for row in own_best:
            origin = RULES if row.rules else SPACE
            found[row.schedule_hash] = Candidate(origin, row.read_schedule(), row.schedule_hash, row.values)
        rules = self.rows.get(self.rules_hash)
        if rules is not None and rules.state == OK and self.rules_hash in self.built:
            found[self.rules_hash] = Candidate(RULES, rules.read_schedule(), self.rules_hash, rules.values)
        for candidate in [c for h, c in found.items() if h not in self.built]:
            self.builders.begin(candidate, BuildJob(candidate.schedule, True))
            while not (over := self.builders.finished()):
                pause([self.builders], 0.5)
            for c, outcome in over:
                if outcome.kind == DONE and not outcome.value.trouble:
                    self.built[c.hash] = outcome.value
        return [(c, self.built[h]) for h, c in found.items() if h in self.built]

    def _winner(self, entrants: Sequence[tuple[Candidate, Built]], found: Mapping[str, Measured]) -> Row | None:
        """The fastest, or the rules' where that is not beaten by more than noise."""
        rules = found.get(self.rules_hash)
        standard = rules if rules is not None and rules.ok else None
        rows = []
        for candidate, built in entrants:
            m = found[built.hash]
            row = self._row(candidate, built, m, OK if m.ok else "wrong", m.detail, final=True)
            rows.append(replace(row, rules_seconds=median(standard.samples) if standard is not None else None))
        good = [r for r in rows if r.usable]
        if self.settings.scratch:
            measured = self.study.measured()
            good = [r for r in good if r.schedule_hash in measured]
        elif standard is not None:
            good = [r for r in good if r.schedule_hash == self.rules_hash or beats(r.samples, standard.samples)]
        won = min(good, key=lambda r: (_value(r), r.schedule_hash), default=None)
        rows = [replace(r, chosen=won is not None and r.schedule_hash == won.schedule_hash) for r in rows]
        append(self.subject.database, rows)
        self.rows |= {r.schedule_hash: r for r in rows}
        if won is None:
            return None
        self.progress.best = _value(won)
        return self.rows[won.schedule_hash]


def _value(row: Row) -> float:
    return row.seconds if row.state == OK and row.seconds is not None else 0.0
