"""The collector of files of IR text: the example of its page holds, and each of its demands can fail."""

from __future__ import annotations

import re
import textwrap

import pytest

from nautilus.passes.pipelines import VR_TILE
from tests.ir_files import Case, cases, check_case
from tests.shipped import ROOT

PAGE = (ROOT / "tests" / "README.md").read_text()
_INDENTED = re.compile(r"^ {4}.*$|^$", re.MULTILINE)
EXAMPLE = textwrap.dedent("\n".join(_INDENTED.findall(PAGE.split("## A test of a pass")[1].split("| directive")[0])))


def one(text: str) -> Case:
    (case,) = cases(text, VR_TILE)
    return case


def test_the_example_of_the_page_holds() -> None:
    check_case(one(EXAMPLE))


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("; RUN: hoist\n", "; RUN: dce\n", "leave the module as it is"),
        ("; AGAIN\n", "; UNCHANGED\n", "must leave as it is"),
        ("; AGAIN\n", "; ERROR: no such thing\n", "DID NOT RAISE"),
        ("CHECK-NEXT: %y = for", "CHECK-NEXT: %y = while", "Couldn't match"),
        ("; CHECK: %t = mul %r, %r\n; CHECK-NEXT: %y = for\n", "", "has CHECK lines"),
    ],
)
def test_a_case_fails(old: str, new: str, match: str) -> None:
    assert old in EXAMPLE
    with pytest.raises((AssertionError, pytest.fail.Exception), match=match):
        check_case(one(EXAMPLE.replace(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("; AGAIN", "; TWICE", "no directive"),
        ("; CASE: a product of loop invariants\n", "", "a title each"),
        ("; RUN: hoist", "; RUN: fuse", "vr-tile has no pass 'fuse'"),
        ("; RUN: hoist\n", "", "runs no pass"),
        ("; RUN: hoist", "; RUN: hoist {", "not the name of a pass"),
    ],
)
def test_a_malformed_file_is_refused(old: str, new: str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        check_case(one(EXAMPLE.replace(old, new)))


def test_a_pass_that_changes_results_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outputs before and after are compared."""
    from nautilus.vr_tile import text
    from nautilus.vr_tile.ir import TileModule
    from nautilus.vr_tile.passes.hoist import Hoist

    honest = Hoist.apply

    def planted(self: Hoist, module: TileModule) -> TileModule:
        return text.parse(text.format(honest(self, module)).replace("add %c, %t", "sub %c, %t"))

    monkeypatch.setattr(Hoist, "apply", planted)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_case(one(EXAMPLE.replace("; AGAIN\n", "")))
