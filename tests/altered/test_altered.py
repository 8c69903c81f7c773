"""Passes on programs that differ in one place from those of their tests.

``recorded.json`` says for some of these programs whether the passes of the test leave them as they are: one that just
misses a precondition ``stays``.  What changes has as many lines as recorded, and computes the same outputs.  ``pytest
--update-golden``, in one process, records them again, for a change of a pass that means to move them.
"""

from __future__ import annotations

import json
import re
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.core.errors import NautilusError
from tests.altered.edits import applied, edits
from tests.ir_files import (
    SUFFIXES,
    Case,
    cases_in,
    compare_runs,
    constants_of,
    context_of,
    input_of,
    load,
    passes_of,
    run_passes,
)

TESTS = Path(__file__).parents[1]
RECORDED = Path(__file__).parent / "recorded.json"
FILES = sorted(str(p.relative_to(TESTS)) for s in SUFFIXES for p in TESTS.glob(f"*/passes/**/*{s}"))
#: programs of a file with another outcome than the one they are made from, with the same one, and those that are tried
_OTHER, _SAME, _TRIED = 4, 2, 40
_SECONDS = 0.1  # CPU time of a program
#: what a program promises, so that an edit may make it untrue
_PROMISES = re.compile(r" over .* where |zero unless|assume|implied")


def start_of(case: Case) -> str:
    """The text of the program that ``case`` starts from."""
    return str(load(case.stage.format)(input_of(case)))


def altered(case: Case, text: str, edit: str) -> Any:
    """The program ``text``, from which ``case`` starts, after ``edit``; None where it is no program."""
    stage = case.stage
    try:
        made = load(stage.parse)(applied(text, edit), "<case>")
        load(stage.verify)(made)
    except (NautilusError, ValueError, ArithmeticError):
        return None
    return made


def outcome(case: Case, module: Any) -> str:
    """What the passes of ``case`` make of ``module``."""
    context, write = context_of(case, module), load(case.stage.format)
    try:
        after = run_passes(passes_of(case), module, case.stage, context)
    except NautilusError as error:
        place, _, reason = str(error).splitlines()[0].partition(": ")
        return f"refused: {(reason or place)[:60]}"
    text = write(after)
    if text == write(module):
        return "stays"
    if _compares(case):
        with np.errstate(all="ignore"):
            compare_runs(case, module, after, context)
    return f"changes to {len(text.splitlines())} lines"


def _compares(case: Case) -> bool:
    return case.has("COMPLETE") or not (case.stage.name == "ma-tile" or case.has("PRINT"))


def _runs(case: Case, module: Any) -> bool:
    """Whether the interpreter of the level runs ``module``."""
    try:
        with np.errstate(all="ignore"):
            if _compares(case):
                compare_runs(case, module, module, context_of(case, module))
    except Exception:  # of numpy too
        return False
    return True


def _found(file: str) -> dict[str, dict[str, str]]:
    """Outcomes of a few altered programs of ``file``, each by the title of its case and its edit."""
    found: dict[str, dict[str, str]] = {}
    left, tried, slow = {True: _OTHER, False: _SAME}, 0, set[str]()
    for case, text, edit in _drawn(file):
        if not any(left.values()) or tried == _TRIED:
            break
        start = time.process_time()
        with constants_of(case):
            module = altered(case, text, edit) if case.title not in slow else None
            if module is None or not _runs(case, module):
                continue
            tried, said = tried + 1, outcome(case, module)
        other = (said == "stays") != case.has("UNCHANGED")
        if time.process_time() - start > _SECONDS:
            slow.add(case.title)
        elif left[other]:
            left[other] -= 1
            found.setdefault(case.title, {})[edit] = said
    return found


def _drawn(file: str) -> Iterator[tuple[Case, str, str]]:
    """Edits of the cases of ``file`` that promise nothing and end without an error, in an order of no meaning."""
    every: list[tuple[Case, str, str]] = []
    for case in cases_in(TESTS / file).values():
        if not case.has("ERROR"):
            with constants_of(case):
                text = start_of(case)
            every += [(case, text, e) for e in (() if _PROMISES.search(text) else edits(text))]
    every.sort(key=lambda x: zlib.crc32(f"{file} {x[0].title} {x[2]}".encode()))
    return iter(every[: 4 * _TRIED])


@pytest.mark.parametrize("file", FILES)
def test_an_altered_program_stays_or_computes_the_same(file: str, update_golden: bool) -> None:
    recorded: dict[str, dict[str, dict[str, str]]] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    if update_golden:
        recorded[file] = _found(file)
        RECORDED.write_text(json.dumps({f: recorded[f] for f in FILES if f in recorded}, indent=1) + "\n")
    cases = cases_in(TESTS / file)
    for title, changes in recorded.get(file, {}).items():
        case = cases[title]
        with constants_of(case):
            text = start_of(case)
            for edit, said in changes.items():
                module = altered(case, text, edit)
                assert module is not None, f"{title}: no program after {edit}"
                assert outcome(case, module) == said, f"{title}: {edit}"


def test_no_other_file_is_recorded() -> None:
    recorded = json.loads(RECORDED.read_text())
    assert recorded.keys() <= {*FILES}
    assert sum(len(changes) for cases in recorded.values() for changes in cases.values()) > 400
