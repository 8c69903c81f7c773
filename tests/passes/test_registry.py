"""Every pass has a file and a test that bear its name; the test lies where the pass lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.passes.pipelines import STAGES
from tests.ir_files import SUFFIXES, cases, passes_of
from tests.shipped import ROOT

PASSES = sorted({p.name for s in STAGES for p in s.passes})
MODULES = {p.stem: p for p in (ROOT / "nautilus").glob("*/passes/**/*.py") if p.stem != "__init__"}


def files_for(module: Path) -> list[Path]:
    """The files that test a pass: ``test_<pass>.py``, ``<pass>.<level>`` or ``<pass>/*.<level>``."""
    folder = ROOT / "tests" / module.relative_to(ROOT / "nautilus").parent
    found = [folder / f"test_{module.stem}.py"]
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
            if path.suffix in SUFFIXES:
                for case in cases(path.read_text(), SUFFIXES[path.suffix]):
                    assert name in [p.name for p in passes_of(case)], f"{path}: {case.title}"
