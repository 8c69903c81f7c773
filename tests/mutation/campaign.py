"""A random sample of mutants, the tests for each, and the results, which are kept as they come.

``sample.jsonl`` holds the sample: the first sites of a shuffled list, with one variant each.  ``results.jsonl`` has a
line for each mutant that was tried; a later line about the same mutant replaces an earlier one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Any

from tests.mutation import reach
from tests.mutation.sites import ROOT, Mutant, function_lines, mutant, sites, sources
from tests.mutation.trial import Outcome, trial

#: CPU seconds of tests for one mutant, and their number
SECONDS, TESTS = 12.0, 60
_SLACK = 20.0  # CPU seconds for imports, and for what a mutant makes slower
_ALWAYS = 8  # tests near the mutant that run even where they take longer together


def sample(count: int, seed: int, words: tuple[str, ...] = ()) -> list[Mutant]:
    """``count`` sites of the files whose paths contain one of ``words``, drawn at random, with one variant each."""
    files = [f for f in sources() if not words or any(w in f for w in words)]
    found = [variants for file in files for variants in sites(file).values()]
    r = random.Random(seed)
    r.shuffle(found)
    return [mutant(r.choice(variants)) for variants in found[:count]]


def chosen_for(m: Mutant, records: Mapping[str, reach.Record]) -> list[tuple[str, float]]:
    """The tests to run: those that reach the statement, that of the same name first, then cheap ones first.

    A statement outside of functions runs when its module is imported, in whichever test comes first.  So all tests that
    reach the file count there, and those of its name, also where they use only what the file defines.
    """
    name = PurePath(m.file).stem
    found = [*reach.reaching(records, m.file, range(*m.statement))]
    near = [(test, s) for test, s, here in found if here]
    if not near or m.line not in function_lines((ROOT / m.file).read_text("utf-8")):
        own = (test for r in records.values() for test in r["tests"].items() if _subject(test[0]) == name)
        near = [*{**{test: s for test, s, _ in found}, **{test: s for test, (s, _) in own}}.items()]
    near.sort(key=lambda t: (_subject(t[0]) != name, t[1], t[0]))
    out, total = list[tuple[str, float]](), 0.0
    for test, seconds in near[:TESTS]:
        if total + seconds <= SECONDS or (len(out) < _ALWAYS and seconds < SECONDS):
            out.append((test, seconds))
            total += seconds
    return out


def _subject(test: str) -> str:
    """The name of the file that ``test`` is about."""
    return PurePath(test.partition("::")[0]).stem.removeprefix("test_")


def attempt(m: Mutant, records: Mapping[str, reach.Record]) -> Outcome:
    """The outcome for one mutant: ``unreached`` where no test reaches its file, ``invalid`` where it is no program."""
    tests = chosen_for(m, records)
    try:
        text = m.text
        compile(text, m.file, "exec")
    except (SyntaxError, ValueError):
        return Outcome("invalid")
    if not tests:
        return Outcome("unreached")
    return trial(m.file, text, [t for t, _ in tests], _SLACK + 2 * sum(s for _, s in tests))


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

    def run(self, wanted: list[Mutant], words: tuple[str, ...] = ()) -> Iterator[tuple[Mutant, Outcome]]:
        """Try ``wanted`` with the tests whose paths contain one of ``words``; each result is kept at once."""
        records = reach.update(self.folder / "reach", self.workers, words)
        with ThreadPoolExecutor(self.workers) as pool, (self.folder / "results.jsonl").open("a") as out:
            for m, outcome in zip(wanted, pool.map(lambda m: attempt(m, records), wanted), strict=True):
                out.write(json.dumps({"key": m.key, "verdict": outcome.verdict, "by": outcome.by}) + "\n")
                out.flush()
                yield m, outcome
