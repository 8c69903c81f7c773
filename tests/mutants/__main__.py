"""``python -m tests.mutants [WORD ...]``: every mutant of the kernels whose names contain a word, and what detects it.

Mutants that differ in names only and stand in the same context count once.  The exit status is the number of
survivors, at most 1.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from tests.mutants.judge import VERDICTS, judge
from tests.mutants.mutations import mutants
from tests.mutants.programs import Program, shipped, variants
from tests.shipped import SPECS

#: adversaries of a mutant; several blocks of a launch take one after the other
SEEDS = range(3)


def wanted(words: list[str]) -> Iterator[Program]:
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
            if verdict.by == "survives":
                print(f"  survives: {mutant.kind}: {' | '.join(mutant.key[2:])}", flush=True)
        print(f"{p.name}: {len(seen) - before} new mutants, {time.process_time() - start:.0f} s", flush=True)
    return counts


def main(words: list[str]) -> int:
    """Print the table of results."""
    counts = run(wanted(words))
    width = max(map(len, counts), default=0) + 2
    print(" " * width + "".join(f"{v:>14}" for v in VERDICTS))
    for kind, found in (*sorted(counts.items()), ("all", sum(counts.values(), Counter[str]()))):
        print(f"{kind:{width}}" + "".join(f"{found[v]:14}" for v in VERDICTS))
    return int(any(found["survives"] for found in counts.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
