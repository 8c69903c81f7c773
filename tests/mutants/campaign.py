"""Mutants of many specs in many processes: resumable, with a line for each mutant.

A process compiles a kernel, names its mutants, and keeps the kernel in a file.  Mutants of all kernels that have the
same key count once.  Deletions come first.  A line of the file of results is ``{"key", "program", "kind", "by",
"reason"}``; a mutant that has one is not tried again.
"""

from __future__ import annotations

import json
import pickle
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from math import inf
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from nautilus.core.errors import NautilusError
from nautilus.driver import Request
from tests.fuzz.case import limit
from tests.mutants.judge import Verdict, judge
from tests.mutants.mutations import mutants
from tests.mutants.programs import ARCHES, Program, at_small_sizes

SECONDS = 60  # of a mutant
_COMPILE = 200  # seconds of a kernel
_TOGETHER = 4  # mutants that a process tries at a time
Named = tuple[str, str]  # key and kind of a mutant


@dataclass(frozen=True)
class Kept:
    """A kernel in ``file``, and its mutants in their order."""

    name: str
    file: str
    found: tuple[Named, ...]


def kept(path: str, arch: str, folder: str) -> Kept:
    """Compile the spec at ``path``. Raises what compiling raises."""
    name = f"{path} {arch}"
    with limit(_COMPILE):
        program = at_small_sizes(Request(Path(path), arch, until="ma-tile", keep_runtime=True), name)
    file = Path(folder) / f"{abs(hash(name)):x}.pickle"
    file.write_bytes(pickle.dumps(program.alone()))
    return Kept(name, str(file), tuple((" | ".join((arch[:5], *m.key)), m.kind) for m in mutants(program.module)))


def judged(file: str, chosen: Sequence[int], seeds: range, each: int) -> list[tuple[int, Verdict, str]]:
    """The verdicts on the mutants with the numbers ``chosen`` of a kept kernel, and the texts of the changed ops.

    One that takes more than ``each`` seconds is slow.
    """
    program: Program = pickle.loads(Path(file).read_bytes())  # written by `kept` in this run
    out = []
    for n, m in enumerate(mutants(program.module)):
        if n in chosen:
            try:
                with limit(each):
                    out.append((n, judge(program, m, seeds), m.text))
            except TimeoutError:
                out.append((n, Verdict("slow"), m.text))
    return out


def campaign(
    paths: Iterable[Path], out: Path, jobs: int, seeds: range, seconds: float = inf, each: int = SECONDS
) -> Iterator[Mapping[str, Any]]:
    """The line of each mutant of the specs at ``paths``, those of earlier calls first."""
    end = time.monotonic() + seconds
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    yield from rows
    known = {r["key"] for r in rows}
    out.parent.mkdir(parents=True, exist_ok=True)
    pool = ProcessPoolExecutor(jobs, get_context("spawn"))
    with tempfile.TemporaryDirectory() as folder, out.open("a") as lines, pool:
        made = {pool.submit(kept, str(p), a, folder): f"{p} {a}" for p in paths for a in ARCHES}
        todo: list[tuple[Kept, int]] = []
        pending: dict[Future[Any], tuple[Kept, tuple[int, ...]]] = {}
        while made or pending or todo:
            finished, _ = wait((*made, *pending), timeout=1.0, return_when=FIRST_COMPLETED)
            for future in finished:
                found: Iterable[Mapping[str, Any]] = ()
                if future in made:
                    found = _begun(future, made.pop(future), known, todo)
                else:
                    found = _ended(future, *pending.pop(future))
                for row in found:
                    lines.write(json.dumps(row) + "\n")
                    lines.flush()
                    yield row
            if time.monotonic() > end:
                break
            todo.sort(key=lambda x: "deleted" not in x[0].found[x[1]][1])
            while todo and len(pending) < 2 * jobs:
                (first, _), *_ = todo
                together = tuple(islice((n for k, n in todo if k is first), _TOGETHER))
                todo = [x for x in todo if x[0] is not first or x[1] not in together]
                pending[pool.submit(judged, first.file, together, seeds, each)] = (first, together)
        for future in (*made, *pending):
            future.cancel()
        running = list(pool._processes.values()) if made or pending else []  # a pool forgets them when it shuts down
        pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.kill()


def _begun(
    future: Future[Kept], name: str, known: set[str], todo: list[tuple[Kept, int]]
) -> Iterator[Mapping[str, Any]]:
    """Put the mutants of a kernel that are new into ``todo``."""
    try:
        kernel = future.result()
    except (NautilusError, TimeoutError) as error:
        yield {"key": name, "program": name, "kind": "compilation", "by": "refused", "reason": str(error)[:200]}
        return
    for n, (key, _) in enumerate(kernel.found):
        if key not in known:
            known.add(key)
            todo.append((kernel, n))


def _ended(future: Future[Any], kernel: Kept, together: Sequence[int]) -> Iterator[Mapping[str, Any]]:
    try:
        found = future.result()
    except Exception as error:  # a fault of the interpreter is no verdict
        found = [(n, Verdict("error", f"{type(error).__name__}: {error}"[:200]), "") for n in together]
    for n, verdict, text in found:
        key, kind = kernel.found[n]
        yield {
            "key": key,
            "program": kernel.name,
            "kind": kind,
            "by": verdict.by,
            "reason": verdict.reason,
            "text": text,
        }
