"""A random sample of mutants, the tests for each, and the results, which are kept as they come.

``sample.jsonl`` holds the sample: the first sites of a shuffled list, with one variant each.  ``results.jsonl`` has a
line for each mutant that was tried; a later line about the same mutant replaces an earlier one.
"""

from __future__ import annotations

import json
import math
import random
import select
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from tests.mutation import reach
from tests.mutation.reach import file_of, with_number
from tests.mutation.sites import ROOT, Mutant, function_lines, imports, mutant, sites, sources
from tests.mutation.trial import Outcome, Trial, start

SECONDS = 40.0  # CPU seconds of tests for one mutant
_ALWAYS = 8  # tests near the mutant that run even where they take longer together


def sample(count: int, seed: int, words: tuple[str, ...] = ()) -> list[Mutant]:
    """``count`` sites of the files whose paths contain one of ``words``, drawn at random, with one variant each."""
    files = [f for f in sources() if not words or any(w in f for w in words)]
    found = [variants for file in files for variants in sites(file).values()]
    r = random.Random(seed)
    r.shuffle(found)
    return [mutant(r.choice(variants)) for variants in found[:count]]


def chosen_for(m: Mutant, found: Sequence[reach.Reached], most: float = SECONDS) -> list[tuple[str, float]]:
    """The tests to run and their times, ``most`` seconds together.

    Of those that reach the statement, the ones in the file of its name come first, then those in the folder that
    mirrors its own, then the others, those first whose folder has more of this path: one of each file after another,
    each time the one that takes the least.

    A statement outside of functions runs when its module is imported, which no test shows.  There, all tests that reach
    functions of the file count, or of the files that import it, and those of its name and of its folder.
    """
    name, folder = PurePath(m.file).stem, str(PurePath("tests", *PurePath(m.file).parts[1:-1]))
    near = [r for r in found if with_number(r.lines.get(m.file, 0), range(*m.statement))]
    if not near or m.line not in function_lines((ROOT / m.file).read_text("utf-8")):
        users = _users(m.file, frozenset(f for r in found for f in r.lines))
        near = [
            r for r in found
            if not users.isdisjoint(r.lines) or _subject(r.test) == name or file_of(r.test).startswith(folder + "/")
        ]  # fmt: skip
    taken, order = Counter[str](), list[tuple[tuple[int, int, float, str], reach.Reached]]()
    for r in sorted(near, key=lambda r: (r.seconds, r.test)):
        file = file_of(r.test)
        distance = 0 if _subject(file) == name else 1 + _apart(PurePath(file).parent, PurePath(folder))
        order.append(((distance, taken[file] if distance else 0, r.seconds, r.test), r))
        taken[file] += 1
    out, total = list[tuple[str, float]](), 0.0
    for _, r in sorted(order, key=lambda x: x[0]):
        if total + r.seconds <= most or (len(out) < _ALWAYS and r.seconds < most):
            out.append((r.test, r.seconds))
            total += r.seconds
    return out


def _apart(folder: PurePath, other: PurePath) -> int:
    """How many steps lead from ``other`` up to a folder that has ``folder``."""
    return next(n for n, x in enumerate([other, *other.parents]) if folder.is_relative_to(x))


def _users(file: str, reached: frozenset[str]) -> set[str]:
    """``file`` and the files that import it, and those that import these as far as tests reach none of them."""
    users, last = {file}, {file}
    while last and last.isdisjoint(reached):
        last = {f for f, names in imports().items() if not last.isdisjoint(names)} - users
        users |= last
    return users & reached


def _subject(test: str) -> str:
    """The name of the file that ``test`` is about."""
    return PurePath(file_of(test)).stem.removeprefix("test_")


def attempts(
    wanted: Iterable[Mutant], found: Sequence[reach.Reached], workers: int, most: float, until: float
) -> Iterator[tuple[Mutant, Outcome, int]]:
    """Each mutant with its outcome and the number of its tests, as they come; none is begun after ``until`` on the
    monotonic clock.

    The outcome is ``unreached`` where no test reaches the file, and ``invalid`` where the mutant is no program.  A test
    that fails runs once more after the same tests without the mutant; where it fails there too, it depends on those
    before it, and the mutant is tried again without it.
    """
    running, queue = dict[int, _Running](), iter(wanted)
    left = True
    while left or running:
        while left and len(running) < workers:
            m = next(queue, None) if time.monotonic() < until else None
            if m is None:
                left = False
                break
            problem = _problem(m)
            tests = [] if problem else chosen_for(m.placed, found, most)
            if problem or not tests:
                yield m, Outcome(problem or "unreached"), 0
                continue
            trial = start(m.file, m.text, dict(tests))
            running[trial.reader] = _Running(m, trial, dict(tests))
        ready, _, _ = select.select([*running], [], [], 1.0)
        late = [r for r, x in running.items() if r not in ready and time.monotonic() > x.trial.deadline]
        for reader in (*ready, *late):
            x = running.pop(reader)
            outcome = x.trial.outcome()
            after = x.after(outcome)
            if after is None:
                yield x.mutant, x.killed or outcome, len(x.tests)
            else:
                running[after.trial.reader] = after


@dataclass(frozen=True, slots=True)
class _Running:
    """A trial of ``mutant``, or of the file as it is after the mutant was ``killed``."""

    mutant: Mutant
    trial: Trial
    tests: dict[str, float]
    killed: Outcome | None = None

    def after(self, outcome: Outcome) -> _Running | None:
        """The next trial of the mutant; None where ``outcome`` is the last one."""
        m = self.mutant
        if self.killed is None and outcome.verdict == "killed" and outcome.by in self.tests:
            names = [*self.tests]
            first = {t: self.tests[t] for t in names[: names.index(outcome.by) + 1]}
            return replace(self, trial=start(m.file, (ROOT / m.file).read_text("utf-8"), first), killed=outcome)
        if self.killed is not None and outcome.verdict == "killed" and outcome.by in self.tests:
            others = {t: s for t, s in self.tests.items() if t != outcome.by}
            return _Running(m, start(m.file, m.text, others), others)
        return None


def _problem(m: Mutant) -> str:
    """``invalid`` where ``m`` is no program, or its lines are gone."""
    try:
        compile(m.text, m.file, "exec")
    except (SyntaxError, ValueError):
        return "invalid"
    return ""


def _read(line: str) -> Mutant:
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(line).items()}
    return Mutant(**fields)


@dataclass(frozen=True, slots=True)
class Campaign:
    """A sample and its results in ``folder``; ``workers`` trials at a time."""

    folder: Path
    workers: int = 1

    def draw(self, count: int, seed: int, words: tuple[str, ...]) -> list[Mutant]:
        """The sample, as it was drawn by an earlier call with the same arguments or is drawn now."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path, head = self.folder / "sample.jsonl", json.dumps([count, seed, *words])
        lines = path.read_text().splitlines() if path.exists() else []
        if lines[:1] != [head]:
            lines = [head, *(json.dumps(asdict(m)) for m in sample(count, seed, words))]
            path.write_text("\n".join(lines) + "\n")
        return [_read(line) for line in lines[1:]]

    def results(self) -> dict[str, dict[str, str]]:
        """The last result of each mutant by its key."""
        path, out = self.folder / "results.jsonl", dict[str, dict[str, str]]()
        for line in path.read_text().splitlines() if path.exists() else ():
            row = json.loads(line)
            out[row["key"]] = row
        return out

    def run(
        self, wanted: list[Mutant], words: tuple[str, ...] = (), most: float = SECONDS, limit: float = math.inf,
        quick: bool = False,
    ) -> Iterator[tuple[Mutant, Outcome]]:  # fmt: skip
        """Try ``wanted`` with the tests whose paths contain one of ``words``; each result is kept at once.

        ``most``: CPU seconds of tests for one mutant; ``limit``: seconds from now, after which no trial is begun;
        ``quick``: no test that is marked slow takes part.
        """
        until = time.monotonic() + limit
        found = reach.update(self.folder / "reach.jsonl", self.workers, words, quick)
        with (self.folder / "results.jsonl").open("a") as out:
            for m, outcome, tests in attempts(wanted, found, self.workers, most, until):
                row = {"key": m.key, "verdict": outcome.verdict, "by": outcome.by, "tests": tests, **asdict(m)}
                out.write(json.dumps(row) + "\n")
                out.flush()
                yield m, outcome
