"""Fixtures of all tests: GPU marker, golden files, FileCheck in process."""

from __future__ import annotations

import ctypes
import gc
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from functools import lru_cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# the database of the user of this machine is not read by tests
os.environ["NAUTILUS_CACHE"] = "0"
os.environ["NAUTILUS_DB"] = str(HERE / "no" / "database.jsonl")

# tests start many processes, each of which would compile all modules again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# more than the command line has: IRs have no cycles, and what a collection leaves is never looked through again
gc.set_threshold(2_000_000, 20, 1_000_000)
gc.callbacks.append(lambda phase, _: gc.freeze() if phase == "stop" else None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing")


def pytest_configure(config: pytest.Config) -> None:
    """Keep what NVRTC makes of a text; the first process of a run deletes what no run uses any more."""
    from nautilus.core.records.heap import keep_freed_memory
    from nautilus.runtime.nvrtc import keep_results
    from tests.runtime.kept import delete_unused, kept

    keep_freed_memory()  # as the command line does
    keep_results(kept)
    if not hasattr(config, "workerinput"):
        delete_unused()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Files of IR text inside a folder ``passes`` or ``printed`` hold tests; see :mod:`tests.ir_files`."""
    if file_path.suffix not in (".scalar", ".vr", ".ma") or not {"passes", "printed"} & {*file_path.parts}:
        return None
    from tests.ir_files import IRFile

    return IRFile.from_parent(parent, path=file_path)


@lru_cache(maxsize=1)
def gpu_problem() -> str:
    """Why there is no usable GPU here; empty if there is one."""
    from nautilus.core.errors import ToolchainError
    from nautilus.runtime.device import open_device

    try:
        open_device()
    except ToolchainError as error:
        return str(error).split("\n", 1)[0]
    return ""


def all_cases(config: pytest.Config) -> bool:
    """Whether the run has all cases of each test: where that is asked for, and where it names single tests."""
    from tests.cases import FULL

    return FULL or bool(config.getoption("--update-golden")) or any("::" in a for a in config.args)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    from tests.cases.choice import divide
    from tests.cases.table import TABLE

    if not all_cases(config):
        items[:], left = divide(items, TABLE)
        config.hook.pytest_deselected(items=left)
    marked = [i for i in items if i.get_closest_marker("gpu")]
    if marked and gpu_problem():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=gpu_problem()))


def pytest_collection_finish() -> None:
    gc.freeze()  # no collection visits modules and tests


def pytest_sessionfinish() -> None:
    gc.freeze()  # nor do those at the end of pytest visit what tests have kept


@pytest.fixture(autouse=True)
def fresh_plans(request: pytest.FixtureRequest) -> Iterator[None]:
    """The planner remembers a program's plans; a test that changes its constants neither finds nor leaves any."""
    if "monkeypatch" not in request.fixturenames:
        yield
        return
    from nautilus.planner.groups import forget_plans

    forget_plans()
    yield
    forget_plans()


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether files with expected texts are written instead of compared."""
    return bool(request.config.getoption("--update-golden"))


def run_filecheck(text: str, checks: str, prefix: str = "CHECK") -> str:
    """Match ``text`` against the CHECK lines in ``checks``; gives the complaint, empty on success."""
    from filecheck.finput import FInput
    from filecheck.matcher import Matcher
    from filecheck.options import Options
    from filecheck.parser import Parser, pattern_for_opts

    # The classes are not documented, so no other test uses them.
    options = Options(match_filename="<checks>", check_prefixes=[prefix])
    parser = Parser(options, io.StringIO(checks), *pattern_for_opts(options))
    with redirect_stderr(io.StringIO()) as said:
        matcher = Matcher(options, FInput("<text>", text), parser)
        code = matcher.run()
    return said.getvalue() if code else ""


@pytest.fixture
def filecheck() -> Callable[..., None]:
    """``filecheck(text, checks)`` fails the test where ``text`` does not match."""

    def check(text: str, checks: str, prefix: str = "CHECK") -> None:
        complaint = run_filecheck(text, checks, prefix)
        assert not complaint, complaint

    return check


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """A library in the place of libcuda, which writes its calls to standard output and has its memory on the host."""
    from tests.export.stand_in import stand_in_for_libcuda

    return stand_in_for_libcuda(tmp_path_factory.mktemp("driver"))
