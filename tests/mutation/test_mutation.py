"""The parts of mutation testing: a mutant is imported instead of its file, and a test that reaches it notices it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutation.campaign import Campaign, chosen_for
from tests.mutation.reach import FOLDERS
from tests.mutation.sites import ROOMS, ROOT, Mutant, function_lines, sources, statement_lines
from tests.mutation.trial import trial

TEST = "tests/vr_tile/passes/hoist.vr"
FILE = "nautilus/vr_tile/passes/hoist.py"
TITLES = [line[8:] for line in (ROOT / TEST).read_text().splitlines() if line.startswith("; CASE: ")]


def test_a_mutant_is_killed_and_the_file_itself_survives() -> None:
    text, tests = (ROOT / FILE).read_text(), [f"{TEST}::{title}" for title in TITLES]
    assert trial(FILE, text, tests, 60).verdict == "survived"
    broken = text.replace("def apply(", "def applied(")
    assert broken != text
    assert trial(FILE, broken, tests, 60).verdict == "killed"


def test_a_mutant_changes_its_lines_alone() -> None:
    text = (ROOT / FILE).read_text()
    lines = text.splitlines()
    mutant = Mutant(FILE, 3, "none", (lines[2],), ("x = 1",), (3, 4))
    assert mutant.text.splitlines() == [*lines[:2], "x = 1", *lines[3:]]
    assert replace(mutant, line=5).text == mutant.text, "the lines have moved"
    with pytest.raises(ValueError, match="has no lines"):
        _ = Mutant(FILE, 3, "none", ("y",), ("x",), (3, 4)).text


def test_tests_that_reach_the_statement_come_in_the_order_of_their_time() -> None:
    line = min(function_lines((ROOT / FILE).read_text()))
    near, far = {FILE: [line + 1]}, {FILE: [line + 2]}
    tests = {"tests/a.py::slow": (9.0, near), "tests/a.py::quick": (1.0, near), "tests/a.py::far": (0.1, far)}
    tests["tests/test_hoist.py::own"] = (2.0, near)
    mutant = Mutant(FILE, line, "none", ("",), ("",), (line, line + 2))
    chosen = [t for t, _ in chosen_for(mutant, {"tests/a.py": {"tests": tests}})]
    assert chosen == ["tests/test_hoist.py::own", "tests/a.py::quick", "tests/a.py::slow"]


def test_a_constant_of_a_module_has_all_tests_of_its_file() -> None:
    """The test in which a module is imported first seems to reach it alone."""
    first, other = {FILE: [6, 40]}, {FILE: [41]}
    tests = {"tests/a.py::first": (1.0, first), "tests/a.py::other": (2.0, other), "tests/a.py::far": (0.1, {})}
    tests["tests/test_hoist.py::own"] = (3.0, {})
    line = next(n for n, x in enumerate((ROOT / FILE).read_text().splitlines(), 1) if x.startswith("from "))
    mutant = Mutant(FILE, line, "none", ("",), ("",), (6, 7))
    chosen = [t for t, _ in chosen_for(mutant, {"tests/a.py": {"tests": tests}})]
    assert chosen == ["tests/test_hoist.py::own", "tests/a.py::first", "tests/a.py::other"]


def test_lines_of_functions() -> None:
    assert function_lines("X = 1\nclass A:\n    y = 2\n\n    def f(\n        a=3,\n    ):\n        return a\n") == {8}


def test_statements() -> None:
    found = statement_lines("if a:\n    f(\n        b)\nelse:\n    c\n")
    assert {n: (r.start, r.stop) for n, r in found.items()} == {1: (1, 2), 2: (2, 4), 3: (2, 4), 5: (5, 6)}


def test_a_sample_is_drawn_once(tmp_path: Path) -> None:
    pytest.importorskip("cosmic_ray")
    drawn = Campaign(tmp_path).draw(3, 0, ("passes/hoist",))
    assert len(drawn) == 3 and all(m.file == FILE and compile(m.text, FILE, "exec") for m in drawn)
    assert Campaign(tmp_path).draw(3, 0, ("passes/hoist",)) == drawn


def test_all_rooms_are_mutated() -> None:
    assert FILE in sources() and len(sources()) > 150
    assert "core" in ROOMS and {*ROOMS} < {*FOLDERS}
