"""Every pass has a file and a test in IR text that bear its name; the test lies where the pass lies."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from nautilus.passes.pipelines import STAGES
from tests.ir_files import SUFFIXES, cases, passes_of
from tests.shipped import ROOT

PASSES = sorted({p.name for s in STAGES for p in s.passes})
#: the first line of a module; ``{{`` is one of a template
_PROGRAM = re.compile(r"^\s*(program|module) \w+( .*)? \{$", re.MULTILINE)
MODULES = {p.stem: p for p in (ROOT / "nautilus").glob("*/passes/**/*.py") if p.stem != "__init__"}


def files_for(module: Path) -> list[Path]:
    """The files of IR text that test a pass: ``<pass>.<level>`` or ``<pass>/*.<level>``."""
    folder = ROOT / "tests" / module.relative_to(ROOT / "nautilus").parent
    found = []
    for suffix in SUFFIXES:
        found += [folder / f"{module.stem}{suffix}", *(folder / module.stem).glob(f"*{suffix}")]
    return [p for p in found if p.is_file()]


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_has_a_test_with_its_name(name: str) -> None:
    assert files_for(MODULES[name.replace("-", "_")]), f"{name} has no test"


def test_a_pass_without_a_test_is_found() -> None:
    assert files_for(ROOT / "nautilus" / "scalar" / "passes" / "imaginary.py") == []


def test_every_file_of_a_pass_stands_in_a_pipeline() -> None:
    assert sorted(MODULES) == sorted(p.replace("-", "_") for p in PASSES)


def test_files_of_a_pass_run_it() -> None:
    """A file of IR text runs the pass whose name it has, in every case."""
    for name in PASSES:
        for path in files_for(MODULES[name.replace("-", "_")]):
            for case in cases(path.read_text(), SUFFIXES[path.suffix]):
                assert name in [p.name for p in passes_of(case)], f"{path}: {case.title}"


def programs_in(text: str) -> list[int]:
    """The lines of Python text at which strings begin that hold a program of an IR."""
    constants = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Constant)]
    return [n.lineno for n in constants if isinstance(n.value, str) and _PROGRAM.search(n.value)]


def test_tests_of_passes_hold_no_program_in_a_string() -> None:
    folders = (ROOT / "tests").glob("*/passes")
    found = [f"{p}:{n}" for f in folders for p in sorted(f.rglob("*.py")) for n in programs_in(p.read_text())]
    assert found == []
    assert programs_in("x = 1\ny = 'module m target sm_80 {'") == [2] != programs_in("y = 'module m {{'")
