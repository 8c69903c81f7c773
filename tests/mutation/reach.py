"""Which lines each test reaches, recorded by coverage.py once for each file of tests and each state of its text.

Tests marked slow take no part.
The record of a file is ``{"hash": ..., "tests": {node id: [CPU seconds, {source file: [lines]}]}}``.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.sites import ROOT

#: the tests of the rooms that are mutated
FOLDERS = ("core", "scalar", "vr_tile", "ma_tile", "cuda", "check", "planner", "mutants")
_GROUP = 8  # files
Record = dict[str, Any]


def test_files() -> list[str]:
    """Paths of all files of tests near the rooms, relative to the root."""
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / "tests" / folder).rglob("*")):
            ir = path.suffix in (".scalar", ".vr", ".ma") and {"passes", "printed"} & {*path.parts}
            if ir or (path.name.startswith("test_") and path.suffix == ".py"):
                found.append(str(path.relative_to(ROOT)))
    return found


def _hash(file: str) -> str:
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:16]


class _Recorder:
    """A pytest plugin: a coverage context and the CPU time of each test that passes."""

    def __init__(self, coverage: Any) -> None:
        self.coverage, self.seconds, self.failed = coverage, dict[str, float](), set[str]()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.coverage.switch_context(item.nodeid)
        start = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = round(time.process_time() - start, 3)
            self.coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)


def record(files: Sequence[str]) -> dict[str, Record]:
    """Run the tests of ``files`` here, which must be a process of its own."""
    from coverage import Coverage

    coverage = Coverage(data_file=None, source=[str(ROOT / "nautilus")], config_file=False)
    plugin = _Recorder(coverage)
    coverage.start()
    pytest.main(["-q", "-p", "no:cacheprovider", "-m", "not slow", *(str(ROOT / f) for f in files)], plugins=[plugin])
    coverage.stop()
    out: dict[str, Record] = {file: {"hash": _hash(file), "tests": {}} for file in files}
    for test, seconds in plugin.seconds.items():
        if test not in plugin.failed:
            out[test.partition("::")[0]]["tests"][test] = (seconds, {})
    data = coverage.get_data()
    for path in data.measured_files():
        source = str(Path(path).relative_to(ROOT))
        for line, contexts in data.contexts_by_lineno(path).items():
            for test in contexts:
                if test in plugin.seconds and test not in plugin.failed:
                    out[test.partition("::")[0]]["tests"][test][1].setdefault(source, []).append(line)
    return out


def update(folder: Path, workers: int = 1, words: Sequence[str] = ()) -> dict[str, Record]:
    """The records of all files of tests, or of those whose paths contain one of ``words``.

    Those that are missing or old are made by ``workers`` processes at a time and kept in ``folder``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = [f for f in test_files() if not words or any(w in f for w in words)]
    paths = {file: folder / (file.replace("/", ".") + ".json") for file in files}
    stale = [f for f, p in paths.items() if not _is_current(f, p)]
    with ThreadPoolExecutor(workers) as pool:
        for group in pool.map(lambda g: _in_a_process(g, paths), list(_groups(stale))):
            print(f"reach: {group[0]} and {len(group) - 1} more", file=sys.stderr, flush=True)
    return {file: json.loads(path.read_text()) for file, path in paths.items() if path.exists()}


def _groups(files: Sequence[str]) -> Iterator[Sequence[str]]:
    """A process takes some files of one folder, because it takes seconds to import the compiler under coverage.py."""
    for _, group in groupby(files, lambda f: f.rpartition("/")[0]):
        members = [*group]
        yield from (members[at : at + _GROUP] for at in range(0, len(members), _GROUP))


def _is_current(file: str, path: Path) -> bool:
    return path.exists() and bool(json.loads(path.read_text())["hash"] == _hash(file))


def _in_a_process(files: Sequence[str], paths: Mapping[str, Path]) -> Sequence[str]:
    child = os.fork()
    if child == 0:
        try:
            silence()
            for file, found in record(files).items():
                paths[file].write_text(json.dumps(found))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return files


def silence() -> None:
    """Send standard output and error of this process to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def reaching(records: Mapping[str, Record], source: str, lines: range) -> Iterator[tuple[str, float, bool]]:
    """The tests that reach ``source``: node id, CPU seconds, and whether they reach one of ``lines``."""
    for found in records.values():
        for test, (seconds, reached) in found["tests"].items():
            if source in reached:
                yield test, seconds, not {*lines}.isdisjoint(reached[source])
