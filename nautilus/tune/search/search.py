"""The search for one spec at one set of sizes: ask, drop duplicates, build, check, time, tell.

The search first tries the default schedule, the schedules of the database, and single changes of the default schedule
in the order of the cost model.  It then alternates between the proposer (:mod:`nautilus.tune.search.proposer`) and
Optuna's sampler.  It stops when the trials or the time are used up, when the space has no untried point, or when
cost model and measurements agree that no better point is left.  Finally it times the best few and the default schedule
again in one shuffled series; a schedule that does not beat the default schedule by more than noise does not replace it.

All slow work runs in worker processes (:mod:`nautilus.tune.workers.pool`).  Every result is in the database before the
next step, so a killed search loses only the candidates of running jobs.
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
from nautilus.tune.search.prefilter import PREFILTER
from nautilus.tune.search.proposer import Proposer
from nautilus.tune.search.stopping import beats, nothing_left, pruning_limit
from nautilus.tune.search.study import Study
from nautilus.tune.space.choices import SearchSpace
from nautilus.tune.types import Candidate, Progress, ProgressListener, SearchResult, Settings, Task
from nautilus.tune.workers import pool as workers
from nautilus.tune.workers.build import BuildJob, Built
from nautilus.tune.workers.measure import FinalsJob, Measured, MeasureJob
from nautilus.tune.workers.pool import DONE, Outcome, Pool, pause

RULES, DATABASE, SPACE = "rules", "database", "space"
_USELESS = 300  # consecutive refused or known samples after which the space counts as exhausted
_SMALL = 256  # largest number of points of a space that is enumerated when samples bring no new point
_DULL = 16  # consecutive useless samples before the enumeration
_AHEAD = 2  # built candidates queued for each device
INTERNAL_ERROR = "internal-error"  # the state of a candidate that shows a bug of the compiler
_FINALISTS = 4
_SAMPLED = 4  # one of this many samples comes from Optuna's sampler alone, and one from the measured effects
_MODELLED = 0.25  # share of the trials at the start in which all samples follow the cost model
_PREFILTER_SHARE = 4  # one of this many builders evaluates pre-filter points; idle builders all do


class Search:
    """One search.  The caller owns the pools ``builders`` and ``runners``; without ``runners`` the cost model measures.

    :meth:`prepare` uses no runner, so runners may start at the same time.  :meth:`run` does the rest.
    """

    def __init__(
        self, space: SearchSpace, study: Study, settings: Settings, builders: Pool[Candidate],
        runners: Pool[Candidate] | None, listener: ProgressListener,
    ) -> None:  # fmt: skip
        self.space, self.study, self.settings = space, study, settings
        self.task: Task
        self.builders, self.runners, self.listener = builders, runners, listener
        self.progress = Progress(settings.trials)
        self.ready: list[tuple[Candidate, Built]] = []
        self.rows: dict[str, Row] = {}  # the latest of every schedule that was measured here
        self.built: dict[str, Built] = {}  # those that may get into the finals
        self.proposer = Proposer.of(space, study, builders, random.Random(settings.seed))
        self.queue: deque[Mapping[str, Any]] = deque()  # points to sample first
        self.draws = 0
        self.failures: Counter[str] = Counter()
        self.legal: dict[str, Mapping[str, Any]] | None = None  # all of a small space
        self.useless = 0
        self.rules_hash = ""
        self.coming: set[str] = set()  # hashes of candidates under way that are no samples
        self.started = time.monotonic()

    # -- control flow ---------------------------------------------------------------------------
    def prepare(self) -> None:
        """Rank single changes and other points by the cost model, except where the cost model also measures."""
        if self.runners is None:
            self.proposer.list_singles()
            return
        self._phase("model")
        self.proposer.rank_points(self.settings)

    def run(self, task: Task) -> SearchResult:
        """Search for the best schedule of ``task``.  All workers are idle when it returns."""
        self.task = task
        startup = time.monotonic() - self.started
        self._plan()
        self._start()
        stopped = self._loop()
        best = self._final() if self.runners is not None else self._best_estimate()
        rules = self.rows.get(self.rules_hash)
        seconds = time.monotonic() - self.started
        return SearchResult(best, rules, stopped, self.progress, self.failures, seconds, startup)

    def _plan(self) -> None:
        """Queue the points to sample first: known points, then single changes."""
        if self.settings.scratch:
            return
        known = [*self.task.known[:1], *self.task.neighbours]
        self.queue.extend(r.values for r in known if r.values)
        self.queue.extend(self.proposer.best_singles[: self.settings.trials // 4])

    def _start(self) -> None:
        """Build the default schedule and the best schedule of the database, which are no samples."""
        self.progress.best = min(self.study.history(), default=None)
        if self.settings.scratch:
            return
        self.coming = {h for h in [self.space.hash_of(self.space.defaults)] if h is not None}
        self._build(Candidate(RULES, None, ""))
        for row in self.task.known[:1]:
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
                self._submit_mutants(len(self.builders.workers) // _PREFILTER_SHARE)
            while not stopped and self.builders.free and len(self.ready) < self._room:
                candidate = self._next()
                if candidate is not None:
                    self._build(candidate)
                stopped = self._reason()
                if candidate is None:
                    break
            if not stopped and len(self.ready) >= self._room:
                self._submit_mutants(len(self.builders.workers))
            if stopped and not self.builders.busy and not self.ready and not self._measuring:
                return stopped
            self._advance()

    @property
    def _room(self) -> int:
        return _AHEAD * len(self.runners.workers) if self.runners is not None else 1

    @property
    def _measuring(self) -> bool:
        return self.runners is not None and bool(self.runners.busy)

    def _reason(self) -> str:
        """The reason to stop; empty to continue."""
        if self.settings.timeout and time.monotonic() - self.started > self.settings.timeout:
            return "time is up"
        if self.study.spent >= self.settings.trials:
            return "all trials are done"
        if self.useless >= _USELESS or (self.useless >= _DULL and self._exhausted()):
            return "the space has no untried schedule"
        history = self.study.history()
        known = self.runners is not None and not self.settings.scratch  # otherwise no good point is known to be seen
        agreed = known and nothing_left(history, self.settings.trials)
        if agreed and not self.proposer.promising(self._seen(), min(history)):
            return "by the cost model and the measurements, no better schedule is left"
        return ""

    def _exhausted(self) -> bool:
        """Whether a small space has no untried legal point; untried points are enqueued as the next samples."""
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
        """Hashes of all schedules that were built, are being built, or were refused."""
        return self.study.tried() | self.rows.keys() | self.coming | self.proposer.prefilter.refused.keys()

    def _phase(self, name: str) -> None:
        self.progress.phase = name
        self.listener.update(self.progress)

    # -- samples --------------------------------------------------------------------------------
    def _next(self) -> Candidate | None:
        """A new sample that the space accepts; None where a second or :data:`_DULL` samples brought none."""
        until = time.monotonic() + 1.0
        limit = self.useless + _DULL
        while self.useless < limit and time.monotonic() < until:
            self._suggest()
            sample = self.study.ask()
            schedule, why = self.space.drafted(sample.values)
            self.useless += 1
            if schedule is None:
                self.study.refuse(sample, why)
                if why in self.space.internal.reproducers:
                    self._count_failure(INTERNAL_ERROR)
                else:
                    self.progress.refused += 1
                continue
            own = schedule_hash(schedule)
            self.study.refresh()
            known = self.study.measured()
            if own in self.rows:
                known.setdefault(own, _value(self.rows[own]))
            if known.get(own, 0.0) > 0.0:
                self.study.tell(sample, known[own])
                self.progress.duplicates += 1
            elif own in self.proposer.prefilter.refused:
                self.study.refuse(sample, self.proposer.prefilter.refused[own])
                self.progress.refused += 1
            elif own in self._seen():
                self.study.refuse(sample, "tried before, or being built")
                self.progress.duplicates += 1
            elif self.study.claim(sample, schedule, own):
                return Candidate(SPACE, schedule, own, sample.values, sample)
            else:
                self.progress.duplicates += 1
        return None

    def _suggest(self) -> None:
        """Enqueue the next planned point or a point of the proposer; every :data:`_SAMPLED` samples enqueue none."""
        if self.queue:
            self.study.enqueue(self.queue.popleft())
            return
        self.draws += 1
        early = self.study.spent < _MODELLED * self.settings.trials
        kind = 1 if early else self.draws % _SAMPLED
        if kind == 0:
            return
        seen = self._seen()
        top = self.proposer.top_candidate(seen) if kind != 2 else None
        near = self.proposer.change(seen, self.draws // _SAMPLED) if top is None else top
        if near is not None:
            self.study.enqueue(near)

    def _submit_mutants(self, most: int) -> None:
        """Let up to ``most`` builders estimate mutants of the best points so far."""
        now = sum(c.origin == PREFILTER for c in self.builders.busy.values())
        for _ in range(min(self.builders.free, most - now) if self.runners is not None else 0):
            if (mutant := self.proposer.mutant(self.settings)) is None:
                break
            self._build(mutant)

    # -- work -----------------------------------------------------------------------------------
    def _build(self, candidate: Candidate) -> None:
        cubin, limit = self.runners is not None and candidate.origin != PREFILTER, 0.0
        if cubin and candidate.sample is not None:
            limit = pruning_limit(self.study.estimates(), min(self.study.history(), default=0.0))
        self.builders.begin(candidate, BuildJob(candidate.schedule, cubin, limit))

    def _drain(self, wanted: bool) -> None:
        """Finish all running jobs, if ``wanted``."""
        while wanted and (self.builders.busy or self.ready or self._measuring):
            self._advance()

    def _advance(self) -> None:
        """Pass built candidates to free runners, wait up to 0.5 s, and record finished jobs."""
        while self.runners is not None and self.ready and self.runners.free:
            candidate, built = self.ready.pop(0)
            best = self.progress.best or float("inf")
            self.runners.begin(candidate, MeasureJob(built, self.settings.repeats, 1.1 * best))
        pause([p for p in (self.builders, self.runners) if p is not None], 0.5)
        for candidate, outcome in self.builders.finished():
            self._built(candidate, outcome)
        over = self.runners.finished() if self.runners is not None else []
        for candidate, built, outcome in [(c, self.built[c.hash], outcome) for c, outcome in over]:
            self._measured(candidate, built, outcome)
        begun = [*self.builders.busy.values(), *(candidate for candidate, _ in self.ready)]
        self.progress.done = self.study.spent - sum(c.sample is not None for c in begun)  # the study counts no others
        self.listener.update(self.progress)

    def _built(self, candidate: Candidate, outcome: Outcome) -> None:
        if candidate.origin == PREFILTER:
            self.proposer.prefilter.record(candidate, outcome)
            return
        if outcome.kind != DONE:
            states = {workers.TIMEOUT: "compile-hang", workers.DIED: "compile-crash", workers.INTERNAL: INTERNAL_ERROR}
            self._failed(candidate, None, states.get(outcome.kind, "compile-error"), outcome.reason)
            return
        built: Built = outcome.value
        if candidate.origin == RULES:
            candidate = replace(candidate, schedule=built.schedule, hash=built.hash, values=dict(self.space.defaults))
            self.rules_hash = built.hash
        if built.refused and candidate.sample is not None:
            self.study.withdraw(candidate.sample, built.failure)
            self.progress.refused += 1
            return
        self.useless = 0
        if built.failure:
            self._failed(candidate, built, "unfit", built.failure)
        elif self.runners is None and not built.estimate:
            self._failed(candidate, built, "no-estimate", "the cost model has no estimate")
        elif self.runners is None:
            self._record(candidate, built, Measured(False, 0.0, (built.estimate or 0.0,)), OK, "")
        elif candidate.sample is None and candidate.hash in self.rows:  # database and rules give the same schedule
            return
        else:
            self.built[candidate.hash] = built
            self.ready.append((candidate, built))

    def _measured(self, candidate: Candidate, built: Built, outcome: Outcome) -> None:
        if outcome.kind != DONE:
            states = {workers.TIMEOUT: "hang", workers.DIED: "fault", workers.INTERNAL: INTERNAL_ERROR}
            self._failed(candidate, built, states.get(outcome.kind, "run-error"), outcome.reason)
        elif not outcome.value.ok:
            self._failed(candidate, built, "wrong", outcome.value.detail, outcome.value)
        else:
            self.built[candidate.hash] = built
            self._record(candidate, built, outcome.value, OK, "")

    def _failed(
        self, candidate: Candidate, built: Built | None, state: str, reason: str, found: Measured | None = None
    ) -> None:
        self._count_failure(state)
        if state == INTERNAL_ERROR:
            self.space.internal.record(reason, candidate.schedule, candidate.values)
        self._record(candidate, built, found or Measured(False, 0.0), state, reason)

    def _count_failure(self, state: str) -> None:
        self.progress.failed += 1
        self.failures[state] += 1

    def _record(self, candidate: Candidate, built: Built | None, found: Measured, state: str, reason: str) -> None:
        """Write the result to the database first, then to the study."""
        row = self._row(candidate, built, found, state, reason)
        append(self.task.database, [row])
        self.rows[row.schedule_hash] = row
        seconds = row.seconds if state == OK else None
        if candidate.sample is not None:
            if seconds is None:
                self.study.refuse(candidate.sample, f"{state}: {reason}")
            else:
                self.study.tell(candidate.sample, seconds, row.estimate)
        self.coming.discard(row.schedule_hash)
        if candidate.origin == RULES and not self.settings.scratch:
            self.queue.append(self.space.defaults)  # gives the sampler this result
        if seconds is not None:
            self.progress.best = min(self.progress.best or seconds, seconds)
            if candidate.origin == RULES:
                self.progress.rules = seconds
        if self.runners is not None:
            self.proposer.select_parents()
        self._trim()

    def _trim(self) -> None:
        """Keep cubins only of candidates that may become finalists."""
        flying = {c.hash for c, _ in self.ready}
        flying |= {c.hash for c in self.runners.busy.values()} if self.runners is not None else set()
        good = sorted((r for r in self.rows.values() if r.state == OK), key=_value)[: 2 * _FINALISTS]
        wanted = flying | {r.schedule_hash for r in good} | {self.rules_hash}
        self.built = {h: b for h, b in self.built.items() if h in wanted}

    def _row(
        self, candidate: Candidate, built: Built | None, found: Measured, state: str, reason: str, final: bool = False
    ) -> Row:
        s, key = self.task, self.task.key
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

    # -- final series ---------------------------------------------------------------------------
    def _best_estimate(self) -> Row | None:
        """The row with the least estimate of this process and of the study."""
        good = [r for r in self.rows.values() if r.state == OK and r.samples]
        for seconds, schedule, values in self.study.best(1):
            candidate = Candidate(SPACE, schedule, schedule_hash(schedule), values)
            good.append(self._row(candidate, None, Measured(False, 0.0, (seconds,)), OK, ""))
        return min(good, key=lambda r: (_value(r), r.schedule_hash), default=None)

    def _final(self) -> Row | None:
        """Time the best few of all processes again in one series; the winner gets a row of its own."""
        assert self.runners is not None
        if self.settings.scratch:
            self._build(Candidate(RULES, None, ""))
            self._drain(True)
        self._phase("finals")
        entrants = self._entrants()
        while entrants:
            self.runners.begin(entrants[0][0], FinalsJob(tuple(b for _, b in entrants), 3 * self.settings.repeats))
            while not (over := self.runners.finished()):
                pause([self.runners], 0.5)
            ((_, outcome),) = over
            if outcome.kind == DONE:
                return self._winner(entrants, outcome.value)
            self.failures["finals"] += 1
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
                if outcome.kind == DONE and not outcome.value.failure:
                    self.built[c.hash] = outcome.value
                elif outcome.kind == workers.INTERNAL:
                    self.space.internal.record(outcome.reason, c.schedule, c.values)
        return [(c, self.built[h]) for h, c in found.items() if h in self.built]

    def _winner(self, entrants: Sequence[tuple[Candidate, Built]], found: Mapping[str, Measured]) -> Row | None:
        """The row of the fastest finalist, or of the default schedule where none beats it by more than noise."""
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
        append(self.task.database, rows)
        self.rows |= {r.schedule_hash: r for r in rows}
        if won is None:
            return None
        self.progress.best = _value(won)
        return self.rows[won.schedule_hash]


def _value(row: Row) -> float:
    return row.seconds if row.state == OK and row.seconds is not None else 0.0
