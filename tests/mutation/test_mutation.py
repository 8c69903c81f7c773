"""The parts of mutation testing: a mutant is imported instead of its file, and a test that reaches it notices it."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.mutation import campaign
from tests.mutation.campaign import Campaign, chosen_for
from tests.mutation.reach import FOLDERS, Reached, update, with_number
from tests.mutation.sites import (
    ROOMS,
    ROOT,
    Mutant,
    _only_elements,
    function_lines,
    imports,
    sources,
    statement_lines,
)
from tests.mutation.trial import Outcome, trial

TEST = "tests/vr_tile/passes/hoist.vr"
FILE = "nautilus/vr_tile/passes/hoist.py"
TITLES = [line[8:] for line in (ROOT / TEST).read_text().splitlines() if line.startswith("; CASE: ")]


def test_a_mutant_is_killed_and_the_file_itself_survives() -> None:
    text, tests = (ROOT / FILE).read_text(), {f"{TEST}::{title}": 2.0 for title in TITLES}
    assert trial(FILE, text, tests).verdict == "survived"
    broken = text.replace("def apply(", "def applied(")
    assert broken != text
    assert trial(FILE, broken, tests).verdict == "killed"


def test_a_mutant_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.mutation.trial._SLACK", 4.0)
    text = "while True:\n    pass\n"
    assert trial(FILE, text, {f"{TEST}::{TITLES[0]}": 0.1}).verdict == "timeout"


def test_a_mutant_changes_its_lines_alone() -> None:
    text = (ROOT / FILE).read_text()
    lines = text.splitlines()
    mutant = Mutant(FILE, 3, "none", (lines[2],), ("x = 1",), (3, 4))
    assert mutant.text.splitlines() == [*lines[:2], "x = 1", *lines[3:]]
    moved = replace(mutant, line=5, statement=(5, 6))
    assert moved.text == mutant.text and moved.placed == mutant, "the lines have moved"
    with pytest.raises(ValueError, match="has no lines"):
        _ = Mutant(FILE, 3, "none", ("y",), ("x",), (3, 4)).text


def reached(test: str, seconds: float, *lines: int) -> Reached:
    return Reached(test, seconds, {FILE: sum(1 << n for n in lines)} if lines else {})


def test_tests_that_reach_the_statement_come_from_one_file_after_another() -> None:
    line = min(function_lines((ROOT / FILE).read_text()))
    found = [
        reached("tests/a.py::slow", 9.0, line + 1),
        reached("tests/a.py::quick", 1.0, line + 1),
        reached("tests/b.py::other", 2.0, line),
        reached("tests/a.py::far", 0.1, line + 2),
        reached("tests/a.py::endless", 900.0, line),
        reached("tests/test_hoist.py::own", 4.0, line + 1),
        reached("tests/test_hoist.py::quick", 3.0, line + 1),
    ]
    mutant = Mutant(FILE, line, "none", ("",), ("",), (line, line + 2))
    assert [t.removeprefix("tests/") for t, _ in chosen_for(mutant, found)] == [
        "test_hoist.py::quick", "test_hoist.py::own", "a.py::quick", "b.py::other", "a.py::slow",
    ]  # fmt: skip


def test_tests_of_the_same_room_come_before_those_of_others() -> None:
    line = next(n for n, x in enumerate((ROOT / FILE).read_text().splitlines(), 1) if "def apply(" in x)
    mutant = Mutant(FILE, line, "none", ("",), ("",), (line, line + 2))
    names = [
        "vr_tile/passes/inner/a.vr",
        "vr_tile/passes/cse.vr",
        "vr_tile/test_fuzz.py",
        "scalar/a.scalar",
        "cli/a.py",
    ]
    found = [reached(f"tests/{x}", 9.0 - n, line) for n, x in enumerate(names)]
    expected = [
        "vr_tile/passes/cse.vr",
        "vr_tile/passes/inner/a.vr",
        "vr_tile/test_fuzz.py",
        "cli/a.py",
        "scalar/a.scalar",
    ]
    assert [t.removeprefix("tests/") for t, _ in chosen_for(mutant, found)] == expected


def test_a_constant_of_a_module_has_all_tests_of_its_file() -> None:
    """No test shows that it imports a module."""
    found = [
        reached("tests/a.py::first", 1.0, 40),
        reached("tests/a.py::other", 2.0, 41),
        reached("tests/a.py::far", 0.1),
        reached("tests/vr_tile/passes/test_cse.py::beside", 4.0),
        reached("tests/test_hoist.py::own", 3.0),
    ]
    line = next(n for n, x in enumerate((ROOT / FILE).read_text().splitlines(), 1) if x.startswith("from "))
    mutant = Mutant(FILE, line, "none", ("",), ("",), (6, 7))
    chosen = [t for t, _ in chosen_for(mutant, found)]
    beside = "tests/vr_tile/passes/test_cse.py::beside"
    assert chosen == ["tests/test_hoist.py::own", beside, "tests/a.py::first", "tests/a.py::other"]


def test_a_table_has_the_tests_of_what_imports_it() -> None:
    table = "nautilus/core/functions/elementary.py"
    user = next(f for f, names in imports().items() if "nautilus/core/functions/__init__.py" in names)
    found = [Reached("tests/a.py::user", 1.0, {user: 1 << 40}), Reached("tests/a.py::far", 1.0, {FILE: 1 << 40})]
    mutant = Mutant(table, 90, "none", ("",), ("",), (90, 91))
    assert ("tests/a.py::user", 1.0) in chosen_for(mutant, found)


def test_lines_of_a_test_are_recorded_once_for_each_state_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "reach.jsonl"
    found = update(path, 2, [TEST])
    assert {r.test for r in found} == {f"{TEST}::{title}" for title in TITLES}
    body = range(min(function_lines((ROOT / FILE).read_text())), 10_000)
    assert all(with_number(r.lines[FILE], body) for r in found)
    text = path.read_text()
    path.write_text(text + '{"test": "cut off')
    assert update(path, 2, [TEST]) == found and path.read_text().startswith(text)
    assert len(path.read_text().splitlines()) == len(TITLES) + 1, "nothing was recorded again"


def test_trials_run_beside_each_other_and_none_begins_after_the_limit(tmp_path: Path) -> None:
    text = (ROOT / FILE).read_text().splitlines()
    line = next(n for n, x in enumerate(text, 1) if "def apply(" in x)
    before = text[line - 1]
    broken = Mutant(FILE, line, "none", (before,), (before.replace("apply", "applied"),), (line, line + 1))
    two = Campaign(tmp_path, 2)
    invalid = replace(broken, after=("def",))
    assert {(m.after, o.verdict) for m, o in two.run([broken, invalid], (TEST,))} == {
        (broken.after, "killed"), (("def",), "invalid"),
    }  # fmt: skip
    assert {row["verdict"] for row in two.results().values()} == {"killed", "invalid"}
    assert not [*two.run([broken], (TEST,), limit=0.0)]


def test_a_test_that_depends_on_those_before_it_kills_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the trials, the first and that of the file as it is fail at one test."""
    verdicts = [
        Outcome("killed", "b"),
        Outcome("killed", "b"),
        Outcome("survived"),
        Outcome("killed", "a"),
        Outcome("survived"),
    ]
    started = list[tuple[str, list[str]]]()

    @dataclass(frozen=True)
    class Done:
        reader: int
        deadline: float = math.inf

        def outcome(self) -> Outcome:
            return verdicts[len(started) - 1]

    def start(file: str, text: str, tests: dict[str, float]) -> Done:
        started.append(("mutant" if "applied" in text else "file", [*tests]))
        return Done(os.open(os.devnull, os.O_RDONLY))

    line = (ROOT / FILE).read_text().splitlines().index('    name = "hoist"')
    mutant = Mutant(FILE, line + 1, "none", ('    name = "hoist"',), ('    name = "applied"',), (line + 1, line + 2))
    monkeypatch.setattr(campaign, "start", start)
    monkeypatch.setattr(campaign, "chosen_for", lambda *_: [("a", 1.0), ("b", 1.0), ("c", 1.0)])
    (first,) = campaign.attempts([mutant], [], 1, 40.0, math.inf)
    assert first == (mutant, Outcome("survived"), 2)
    assert started == [("mutant", ["a", "b", "c"]), ("file", ["a", "b"]), ("mutant", ["a", "c"])]
    (second,) = campaign.attempts([mutant], [], 1, 40.0, math.inf)
    assert second == (mutant, Outcome("killed", "a"), 3)
    assert started[3:] == [("mutant", ["a", "b", "c"]), ("file", ["a"])]


def test_lines_of_functions() -> None:
    assert function_lines("X = 1\nclass A:\n    y = 2\n\n    def f(\n        a=3,\n    ):\n        return a\n") == {8}


def test_statements() -> None:
    found = statement_lines("if a:\n    f(\n        b)\nelse:\n    c\n")
    assert {n: (r.start, r.stop) for n, r in found.items()} == {1: (1, 2), 2: (2, 4), 3: (2, 4), 5: (5, 6)}


def test_the_first_element_of_one_is_the_last() -> None:
    text = "def f(x, y):\n    if len(x) != 1 or len(y) > 1:\n        return y[0]\n    return x[0] + x[1]\n"
    assert _only_elements(text) == {(4, 13)}


def test_a_sample_is_drawn_once(tmp_path: Path) -> None:
    pytest.importorskip("cosmic_ray")
    drawn = Campaign(tmp_path).draw(3, 0, ("passes/hoist",))
    assert len(drawn) == 3 and all(m.file == FILE and compile(m.text, FILE, "exec") for m in drawn)
    assert Campaign(tmp_path).draw(3, 0, ("passes/hoist",)) == drawn


def test_all_rooms_are_mutated() -> None:
    assert FILE in sources() and len(sources()) > 150
    assert "core" in ROOMS and {*ROOMS} < {*FOLDERS}
