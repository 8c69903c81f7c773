"""Many cases in many processes: resumable, with a file for each kind of failure.

The folder of a campaign holds ``progress.jsonl``, one line for each finished run of seeds, and ``found/``, one file for
each kind of failure with the smallest case and how to repeat it.  A campaign that was killed goes on after the runs
that were finished.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from math import inf
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.fuzz.case import Fuzzer, Verdict, judged
from tests.fuzz.fuzzers import command_line, device, files, levels, printed, texts
from tests.fuzz.minimise import minimise

FUZZERS: Mapping[str, Fuzzer] = {
    f.name: f
    for f in (
        *levels.fuzzers(), *printed.fuzzers(), *device.fuzzers(), *texts.fuzzers(), *files.fuzzers(),
        *command_line.fuzzers(),
    )
}  # fmt: skip
_RUN = 20  # seeds that a process takes at a time
_LIFE = 100  # runs of a process, whose caches grow


@dataclass(frozen=True)
class Failure:
    """A case that failed. ``text`` is the case as it was made."""

    fuzzer: str
    seed: int
    verdict: Verdict
    text: str

    @property
    def slug(self) -> str:
        """A file name for this kind of failure."""
        return re.sub(r"[^\w.]+", "-", f"{self.fuzzer}-{self.verdict.status}-{self.verdict.kind}")[:100].strip("-")


def attempt(name: str, first: int, count: int) -> tuple[Counter[str], list[Failure]]:
    """The verdicts on ``count`` seeds from ``first``."""
    fuzzer, verdicts, failures = FUZZERS[name], Counter[str](), []
    for seed in range(first, first + count):
        text = fuzzer.make(seed)
        verdict = judged(fuzzer, text, seed)
        verdicts[verdict.status] += 1
        if verdict.status != "ok":
            failures.append(Failure(name, seed, verdict, text))
    return verdicts, failures


def _runs(names: Iterable[str], count: int, seed: int, done: set[tuple[str, int]]) -> Iterator[tuple[str, int, int]]:
    """Runs of seeds that are still to be tried, of all fuzzers alternately."""
    for at in range(seed, seed + count, _RUN):
        for name in names:
            if (name, at) not in done:
                yield name, at, min(_RUN, seed + count - at)


Verdicts = dict[str, Counter[str]]  # by fuzzer


def _tried(verdicts: Verdicts) -> int:
    return sum(found.total() for found in verdicts.values())


@dataclass
class Campaign:
    """``count`` seeds from ``seed`` for each fuzzer of ``names``, by ``workers`` processes, in ``folder``."""

    folder: Path
    names: tuple[str, ...]
    count: int
    seed: int = 0
    workers: int = 1
    seconds: float = inf

    def progress(self) -> tuple[set[tuple[str, int]], Verdicts]:
        """The finished runs and the verdicts of all of them; an incomplete line at the end is not finished."""
        done: set[tuple[str, int]] = set()
        verdicts: Verdicts = {name: Counter() for name in self.names}
        path = self.folder / "progress.jsonl"
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                row: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            if row["fuzzer"] in self.names and self.seed <= row["first"] < self.seed + self.count:
                done.add((row["fuzzer"], row["first"]))
                verdicts[row["fuzzer"]].update(row["verdicts"])
        return done, verdicts

    def run(self) -> Iterator[tuple[int, int, Verdicts]]:
        """Try what is left, in runs that begin within ``seconds``.

        Yields the numbers of tried and of all cases, and the verdicts so far.
        """
        (self.folder / "found").mkdir(parents=True, exist_ok=True)
        done, verdicts = self.progress()
        total, end = self.count * len(self.names), time.monotonic() + self.seconds
        todo = _runs(self.names, self.count, self.seed, done)
        yield _tried(verdicts), total, verdicts
        os.environ["OMP_NUM_THREADS"] = "1"  # read when a process imports numpy
        with ProcessPoolExecutor(self.workers, get_context("spawn"), max_tasks_per_child=_LIFE) as pool:
            pending = {pool.submit(attempt, *job): job for job in islice(todo, 2 * self.workers)}
            while pending:
                finished, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in finished:
                    name, first, _count = pending.pop(future)
                    found, failures = future.result()
                    for failure in failures:
                        self.keep(failure)
                    self.write({"fuzzer": name, "first": first, "verdicts": dict(found)})
                    verdicts[name].update(found)
                    for job in islice(todo, 1 if time.monotonic() < end else 0):
                        pending[pool.submit(attempt, *job)] = job
                yield _tried(verdicts), total, verdicts

    def write(self, row: Mapping[str, object]) -> None:
        with (self.folder / "progress.jsonl").open("a") as out:
            out.write(json.dumps(row) + "\n")

    def keep(self, failure: Failure) -> None:
        """Write the case, unless a smaller one of its kind is there."""
        path = self.folder / "found" / (failure.slug + FUZZERS[failure.fuzzer].suffix)
        if not path.exists() or len(path.read_text()) > len(failure.text):
            path.write_text(failure.text)
            record = {"fuzzer": failure.fuzzer, "seed": failure.seed, "message": failure.verdict.message}
            path.with_name(path.name + ".why").write_text(json.dumps(record, indent=1) + "\n")

    def found(self) -> Iterator[tuple[Path, str]]:
        """The file of every found case, and why it fails."""
        for path in sorted((self.folder / "found").glob("*.why")):
            yield path.with_suffix(""), json.loads(path.read_text())["message"]

    def minimised(self) -> Iterator[tuple[Path, str]]:
        """Make every found case smaller.  Yields its file and why it fails."""
        for path in sorted((self.folder / "found").glob("*.why")):
            record, case = json.loads(path.read_text()), path.with_suffix("")
            fuzzer, text = FUZZERS[record["fuzzer"]], case.read_text()
            verdict = judged(fuzzer, text, record["seed"])
            if verdict.status != "ok" and "smallest" not in record:
                case.write_text(minimise(fuzzer, text, record["seed"], verdict))
                path.write_text(json.dumps({**record, "smallest": True}, indent=1) + "\n")
            yield case, record["message"]
