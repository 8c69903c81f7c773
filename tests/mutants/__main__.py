"""``python -m tests.mutants [WORD ...]``: every mutant of the kernels whose names contain a word, and what detects it.

Mutants that differ in names only and stand in the same context count once.  The exit status is the number of
survivors, at most 1.  With ``--jobs`` all shipped specs are tried in as many processes (:mod:`tests.mutants.campaign`).
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from math import inf
from pathlib import Path

import click

from tests.mutants.campaign import SECONDS, campaign
from tests.mutants.judge import OPEN, VERDICTS, judge
from tests.mutants.mutations import mutants
from tests.mutants.programs import Program, shipped, variants
from tests.shipped import MORE, SPECS

#: adversaries of a mutant; several blocks of a launch take one after the other, and the last two have other inputs
SEEDS = range(4)


def wanted(words: tuple[str, ...]) -> Iterator[Program]:
    """All programs, or those whose names contain one of ``words``."""
    paths = [p for p in SPECS if not words or any(p.stem in w or w in p.stem for w in words)]
    for p in chain(shipped(paths), variants() if not words or "variants" in words else ()):
        if "variants" in words or not words or any(w in p.name for w in words):
            yield p


def run(programs: Iterable[Program]) -> dict[str, Counter[str]]:
    """Verdicts by kind of mutant; prints the survivors."""
    counts: dict[str, Counter[str]] = {}
    seen: set[tuple[str, ...]] = set()
    for p in programs:
        start, before = time.process_time(), len(seen)
        for mutant in mutants(p.module):
            if mutant.key in seen:
                continue
            seen.add(mutant.key)
            verdict = judge(p, mutant, SEEDS)
            counts.setdefault(mutant.kind, Counter())[verdict.by] += 1
            if verdict.by in OPEN:
                print(f"  {verdict.by}: {mutant.kind}: {' | '.join(mutant.key[2:])}", flush=True)
        print(f"{p.name}: {len(seen) - before} new mutants, {time.process_time() - start:.0f} s", flush=True)
    return counts


def in_processes(
    paths: Iterable[Path], out: Path, jobs: int, seconds: float, each: int
) -> dict[str, Counter[str]]:  # fmt: skip
    """Verdicts by kind of mutant, of all mutants with a line in ``out``; prints what is not detected."""
    os.environ["OMP_NUM_THREADS"] = "1"  # read when a process imports numpy
    counts: dict[str, Counter[str]] = {}
    for row in campaign(paths, out, jobs, SEEDS, seconds, each):
        counts.setdefault(row["kind"], Counter())[row["by"]] += 1
        if row["by"] not in VERDICTS or row["by"] in OPEN:
            print(f"  {row['by']}: {row['program']}: {row['kind']}: {row.get('text', row['reason'])}", flush=True)
    return counts


@click.command(context_settings={"show_default": True})
@click.argument("words", nargs=-1)
@click.option("--jobs", type=click.IntRange(min=0), default=0, help="Processes for all specs of the repository.")
@click.option("--spec", "more", multiple=True, type=click.Path(path_type=Path), help="With --jobs: a spec beside them.")
@click.option("--seconds", type=float, default=inf, help="With --jobs: begin nothing new after this time.")
@click.option("--each", type=click.IntRange(min=1), default=SECONDS, help="With --jobs: seconds of a mutant.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/mutants.jsonl"), help="With --jobs: results.")
def main(words: tuple[str, ...], jobs: int, more: tuple[Path, ...], seconds: float, each: int, out: Path) -> None:
    """Print the table of results."""
    if jobs:
        paths = [p for p in (*SPECS, *MORE) if not words or any(w in str(p) for w in words)]
        counts = in_processes([*paths, *more], out, jobs, seconds, each)
    else:
        counts = run(wanted(words))
    columns = [*VERDICTS, *sorted({v for found in counts.values() for v in found} - set(VERDICTS))]
    width = max(map(len, counts), default=0) + 2
    print(" " * width + "".join(f"{v:>14}" for v in columns))
    for kind, found in (*sorted(counts.items()), ("all", sum(counts.values(), Counter[str]()))):
        print(f"{kind:{width}}" + "".join(f"{found[v]:14}" for v in columns))
    sys.exit(int(any(found[v] for found in counts.values() for v in OPEN)))


if __name__ == "__main__":
    main()
