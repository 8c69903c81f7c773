"""A mutant and the tests near it, in a forked process that imports the mutant instead of the file."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType

import pytest

from tests.mutation.reach import OPTIONS, file_of, silence
from tests.mutation.sites import ROOT

_MEMORY = 8 << 30  # bytes of address space of a trial
_FIRST = 60  # tests that are collected first: most mutants fail one of them
_SLACK, _SLOWER = 30.0, 3.0  # CPU seconds for imports, and how much longer tests may take with the mutant


@dataclass(frozen=True, slots=True)
class Outcome:
    """``verdict`` is ``killed``, ``survived`` or ``timeout`` (which is killed too); ``by`` is the test that failed."""

    verdict: str
    by: str = ""


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Gives the module of ``file`` the text ``text``."""

    def __init__(self, file: str, text: str) -> None:
        parts = file.removesuffix(".py").removesuffix("/__init__").split("/")
        self.name, self.path, self.text = ".".join(parts), str(ROOT / file), text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        return spec_from_file_location(fullname, self.path, loader=_Loader(fullname, self.path, self.text))


class _Chosen:
    """A pytest plugin: only the tests ``order``, in this order; ``failed`` is the first that fails."""

    def __init__(self, order: Sequence[str]) -> None:
        self.order, self.failed, self.ran = {test: n for n, test in enumerate(order)}, "", 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ran += report.when == "call"
        if report.failed and not self.failed:
            self.failed = report.nodeid


@dataclass(frozen=True, slots=True)
class Trial:
    """A process that runs; it writes what it finds to ``reader``, and ends at ``deadline`` of the monotonic clock."""

    child: int
    reader: int
    deadline: float

    def outcome(self) -> Outcome:
        """Waits for the end, if ``reader`` has something to read, and ends the process otherwise."""
        ready, _, _ = select.select([self.reader], [], [], 0)
        said = os.read(self.reader, 1 << 16) if ready else b""
        os.close(self.reader)
        if not ready:
            os.kill(self.child, signal.SIGKILL)
        _, status = os.waitpid(self.child, 0)
        if said:
            return Outcome(*json.loads(said))
        return Outcome("timeout" if not ready or os.WIFSIGNALED(status) else "killed", "the process ended")


def start(file: str, text: str, tests: Mapping[str, float]) -> Trial:
    """Run ``tests`` in order until one fails, with ``text`` instead of ``file``; the values are their CPU seconds."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            os.write(writer, json.dumps(_run(file, text, tests)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    return Trial(child, reader, time.monotonic() + 10 * (_SLACK + _SLOWER * sum(tests.values())))


def trial(file: str, text: str, tests: Mapping[str, float]) -> Outcome:
    """The outcome of one trial."""
    running = start(file, text, tests)
    select.select([running.reader], [], [], running.deadline - time.monotonic())
    return running.outcome()


def _run(file: str, text: str, tests: Mapping[str, float]) -> tuple[str, str]:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    silence()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    for name in [n for n in sys.modules if n.partition(".")[0] in ("nautilus", "tests") and "tests.mutation" not in n]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder(file, text))
    ran = 0
    order = [*tests]
    for part in (order[:_FIRST], order[_FIRST:]):
        limit = int(time.process_time() + _SLACK + _SLOWER * sum(tests[t] for t in part)) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        plugin = _Chosen(part)
        files = list(dict.fromkeys(str(ROOT / file_of(t)) for t in part))
        code = pytest.main(["-x", *OPTIONS, *files], plugins=[plugin]) if files else pytest.ExitCode.OK
        ran += plugin.ran
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return "killed", plugin.failed or "collection"
    return ("survived" if ran else "untested"), ""
