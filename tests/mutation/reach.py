"""Which lines each test reaches, recorded by coverage.py once for each test and each state of its file.

``reach.jsonl`` has a line for each test: its node id, a hash of its file, its CPU seconds, whether it passes, and the
lines that it reaches: for each source file a number in hexadecimal, in which bit ``n`` stands for line ``n``.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.sites import ROOT

#: the tests of the rooms that are mutated, and those that run the compiler from end to end
FOLDERS = (
    "core", "scalar", "vr_tile", "ma_tile", "cuda", "check", "planner", "mutants",
    "cost", "passes", "endtoend", "simulation", "remarks", "frontend", "cli", "altered",
)  # fmt: skip
FILES = ("test_driver.py", "tune/database/test_shipped_kernels.py")
#: arguments of pytest: output is not captured, because processes that are forked would share its file
OPTIONS = ("-q", "-s", "-p", "no:cacheprovider", "-m", "not gpu")
_CHUNK = 8  # tests of one file that a process takes at a time
#: bytes of the number of a chunk in the queue
_NUMBER = 8


@dataclass(frozen=True, slots=True)
class Reached:
    """``lines``: of each source file that ``test`` reaches, bit ``n`` stands for line ``n``; ``seconds``: CPU time."""

    test: str
    seconds: float
    lines: Mapping[str, int]


@cache
def _hash(file: str) -> str:
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:16]


def file_of(test: str) -> str:
    """The path of the file that holds ``test``, relative to the root."""
    return test.partition("::")[0]


class _Recorder:
    """A pytest plugin that runs the tests which ``path`` does not know in ``workers`` forked processes."""

    def __init__(self, path: Path, workers: int, known: frozenset[tuple[str, str]], quick: bool) -> None:
        self.path, self.workers, self.known, self.quick = path, workers, known, quick
        self.passed = False

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        wanted = [i for i in session.items if not _measures_time(i)]
        wanted = [i for i in wanted if (i.nodeid, _hash(file_of(i.nodeid))) not in self.known]
        if self.quick:
            wanted = [i for i in wanted if i.get_closest_marker("slow") is None]
        wanted.sort(key=lambda i: i.get_closest_marker("slow") is None)  # a long one at the end would leave cores idle
        chunks = [*_chunks(wanted)]
        reader, writer = os.pipe()
        children = [self._forked(chunks, reader, writer) for _ in range(min(self.workers, len(chunks)))]
        os.close(reader)
        for n in range(len(chunks)):
            os.write(writer, n.to_bytes(_NUMBER, "little"))
        os.close(writer)
        for child in children:
            os.waitpid(child, 0)
        return True

    def _forked(self, chunks: Sequence[Sequence[pytest.Item]], reader: int, writer: int) -> int:
        if child := os.fork():
            return child
        try:
            os.close(writer)
            silence()
            while number := os.read(reader, _NUMBER):
                self._record(chunks[int.from_bytes(number, "little")])
        finally:
            os._exit(0)

    def _record(self, items: Sequence[pytest.Item]) -> None:
        coverage, out = _coverage(), []
        for item, after in zip(items, [*items[1:], None], strict=True):
            self.passed = True
            start = time.process_time()
            coverage.start()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            coverage.stop()
            seconds, data = round(time.process_time() - start, 3), coverage.get_data()
            masks = ((p, sum(1 << n for n in data.lines(p) or ())) for p in data.measured_files())
            lines = {str(Path(p).relative_to(ROOT)): f"{mask:x}" for p, mask in masks if mask}
            row = {"test": item.nodeid, "hash": _hash(file_of(item.nodeid)), "seconds": seconds}
            out.append(json.dumps({**row, "passed": self.passed, "lines": lines if self.passed else {}}) + "\n")
            coverage.erase()
        with self.path.open("a") as file:
            file.write("".join(out))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed &= report.passed


def _measures_time(item: pytest.Item) -> bool:
    """Whether the test may fail because the machine is busy."""
    code = getattr(getattr(item, "function", None), "__code__", None)
    return code is not None and "perf_counter" in code.co_names


@cache
def _coverage() -> Any:
    from coverage import Coverage

    os.environ.setdefault("COVERAGE_CORE", "sysmon" if sys.version_info >= (3, 12) else "ctrace")
    return Coverage(data_file=None, source=[str(ROOT / "nautilus")], config_file=False)


def _chunks(items: Sequence[pytest.Item]) -> Iterator[Sequence[pytest.Item]]:
    """Some tests of one file at a time; one alone where tests are slow."""
    chunk: list[pytest.Item] = []
    for item in items:
        slow = item.get_closest_marker("slow") is not None
        if chunk and (slow or len(chunk) == _CHUNK or file_of(chunk[-1].nodeid) != file_of(item.nodeid)):
            yield chunk
            chunk = []
        chunk.append(item)
    if chunk:
        yield chunk


def update(path: Path, workers: int = 1, words: Sequence[str] = (), quick: bool = False) -> list[Reached]:
    """What the tests near the rooms reach, or those whose paths contain one of ``words``; ``quick``: none that is slow.

    A test that fails is left out.  What ``path`` does not have yet is recorded by ``workers`` processes at a time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    known = frozenset((row["test"], row["hash"]) for row in _rows(path))
    child = os.fork()
    if child == 0:
        try:
            silence()
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
            files = [str(ROOT / f) for f in test_files() if not words or any(w in f for w in words)]
            pytest.main([*OPTIONS, *files], plugins=[_Recorder(path, workers, known, quick)])
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    found = {
        row["test"]: Reached(row["test"], row["seconds"], {file: int(mask, 16) for file, mask in row["lines"].items()})
        for row in _rows(path)
        if row["passed"] and (ROOT / file_of(row["test"])).exists() and row["hash"] == _hash(file_of(row["test"]))
    }
    return [r for r in found.values() if not words or any(w in file_of(r.test) for w in words)]


def test_files() -> list[str]:
    """Paths of all files of tests near the rooms, relative to the root."""
    found = [ROOT / "tests" / file for file in FILES]
    for folder in FOLDERS:
        for path in sorted((ROOT / "tests" / folder).rglob("*")):
            ir = path.suffix in (".scalar", ".vr", ".ma") and {"passes", "printed"} & {*path.parts}
            if ir or (path.name.startswith("test_") and path.suffix == ".py"):
                found.append(path)
    return [str(path.relative_to(ROOT)) for path in found]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The records in ``path``; a call that was stopped may have left a line without its end."""
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


def silence() -> None:
    """Send standard output and error of this process to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def with_number(mask: int, lines: range) -> bool:
    """Whether ``mask`` has a bit of one of ``lines``."""
    return bool(mask >> lines.start & (1 << len(lines)) - 1)
