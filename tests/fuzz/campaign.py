"""Many cases in many processes: resumable, with a file for each kind of failure.

The folder of a campaign holds ``progress.jsonl``, one line for each finished run of seeds, and ``found/``, one file for
each kind of failure with the smallest case and how to repeat it.  A campaign that was killed goes on behind the runs
that were finished.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.fuzz import command_line, files, levels, texts
from tests.fuzz.case import Fuzzer, Verdict, judged
from tests.fuzz.minimise import minimise

FUZZERS: Mapping[str, Fuzzer] = {
    f.name: f
    for f in (*levels.fuzzers(), *texts.fuzzers(), *files.fuzzers(), *command_line.fuzzers())
}  # fmt: skip
_RUN = 50  # seeds that a process takes at a time


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
    """Runs of seeds that are still to be tried, the fuzzers in turn."""
    for at in range(seed, seed + count, _RUN):
        for name in names:
            if (name, at) not in done:
                yield name, at, min(_RUN, seed + count - at)


def _start() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"


@dataclass
class Campaign:
    """``count`` seeds from ``seed`` for each fuzzer of ``names``, by ``workers`` processes, in ``folder``."""

    folder: Path
    names: tuple[str, ...]
    count: int
    seed: int = 0
    workers: int = 1

    def progress(self) -> tuple[set[tuple[str, int]], Counter[str]]:
        """The finished runs and the verdicts of all of them; an incomplete line at the end is not finished."""
        done: set[tuple[str, int]] = set()
        verdicts = Counter[str]()
        path = self.folder / "progress.jsonl"
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                row: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            if row["fuzzer"] in self.names and self.seed <= row["first"] < self.seed + self.count:
                done.add((row["fuzzer"], row["first"]))
                verdicts.update(row["verdicts"])
        return done, verdicts

    def run(self) -> Iterator[tuple[int, int, Counter[str]]]:
        """Try what is left.  Yields the numbers of tried and of all cases, and the verdicts so far."""
        (self.folder / "found").mkdir(parents=True, exist_ok=True)
        done, verdicts = self.progress()
        total = self.count * len(self.names)
        todo = _runs(self.names, self.count, self.seed, done)
        yield sum(verdicts.values()), total, verdicts
        with ProcessPoolExecutor(self.workers, get_context("spawn"), _start, max_tasks_per_child=40) as pool:
            pending = {pool.submit(attempt, *job): job for job, _ in zip(todo, range(2 * self.workers), strict=False)}
            while pending:
                finished, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in finished:
                    name, first, _count = pending.pop(future)
                    found, failures = future.result()
                    for failure in failures:
                        self.keep(failure)
                    self.write({"fuzzer": name, "first": first, "verdicts": dict(found)})
                    verdicts.update(found)
                    for job in (j for j, _ in zip(todo, range(1), strict=False)):
                        pending[pool.submit(attempt, *job)] = job
                yield sum(verdicts.values()), total, verdicts

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
