"""Every registered pass has a test that bears its name and lies where the pass lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.passes.pipelines import STAGES
from nautilus.passes.registry import PASSES
from tests.ir_files import SUFFIXES, cases, passes_of
from tests.shipped import ROOT


def files_of(target: str) -> list[Path]:
    """The files that test the pass at ``target``: ``test_<pass>.py``, ``<pass>.<level>`` or ``<pass>/*.<level>``."""
    module = Path(*target.partition(":")[0].split(".")[1:])
    folder, name = ROOT / "tests" / module.parent, module.name
    found = [folder / f"test_{name}.py"]
    for suffix in SUFFIXES:
        found += [folder / f"{name}{suffix}", *(folder / name).glob(f"*{suffix}")]
    return [p for p in found if p.is_file()]


@pytest.mark.parametrize(("name", "target"), PASSES.items(), ids=list(PASSES))
def test_a_pass_its_file_and_its_test_share_a_name(name: str, target: str) -> None:
    assert target.partition(":")[0].rpartition(".")[2] == name.replace("-", "_")
    assert files_of(target), f"{name} has no test"


def test_a_pass_without_a_test_is_found() -> None:
    assert files_of("nautilus.scalar.passes.imaginary:Imaginary") == []


def test_every_registered_pass_stands_in_a_pipeline() -> None:
    assert {p.name for s in STAGES for p in s.passes} == set(PASSES)


def test_files_of_a_pass_run_it() -> None:
    """A file of IR text runs the pass whose name it has, in every case."""
    for name, target in PASSES.items():
        for path in files_of(target):
            if path.suffix in SUFFIXES:
                for case in cases(path.read_text(), SUFFIXES[path.suffix]):
                    assert name in [p.name for p in passes_of(case)], f"{path}: {case.title}"
