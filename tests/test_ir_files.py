"""The collector of files of IR text: the example of its page holds, and each of its checks can fail."""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from nautilus.passes.pipelines import MA_TILE, VR_TILE
from tests import ir_files
from tests.ir_files import Case, cases, check_case, input_of, planned
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
        ("; AGAIN", "; EDIT: %z => %q", "does not hold '%z'"),
        ("; AGAIN", "; EDIT: %r", "does not hold '%r'"),
        ("; AGAIN", "; PLAN: {", "not the name of a kernel"),
        ("; AGAIN", '; PLAN: other {"rescale_policy": "lazy"}', "no kernel other"),
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


def test_a_program_of_its_own_file_is_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, checks = "; CASE: a\n; INPUT: t.vr\n; RUN: hoist\n", "; CHECK: %t = mul %r, %r\n; CHECK-NEXT: %y = for\n"
    (tmp_path / "vr_tile" / "inputs").mkdir(parents=True)
    (tmp_path / "vr_tile" / "inputs" / "t.vr").write_text(EXAMPLE)
    monkeypatch.setattr(ir_files, "INPUTS", tmp_path)
    check_case(one(head + checks))
    check_case(one(f"{head}; EDIT: %t => %u\n{checks.replace('%t', '%u')}"))
    with pytest.raises(AssertionError, match="leave the module as it is"):
        check_case(one(f"{head.replace('RUN', 'FIRST')}; RUN: hoist\n{checks}"))


def test_the_plan_of_a_kernel_and_that_of_the_others() -> None:
    (case,) = cases(EXAMPLE, VR_TILE)
    m = input_of(case)
    two = replace(m, kernels=(m.kernels[0], replace(m.kernels[0], name="l")))
    found = planned(['k {"partition": false}', '{"rescale_policy": "lazy"}'], two)
    assert found is not None
    assert [(k.name, k.partition, k.rescale_policy) for k in found.kernels] == [
        ("k", False, "always"),
        ("l", True, "lazy"),
    ]


def test_a_printed_case_matches_the_text_of_the_stage() -> None:
    text = (ROOT / "tests" / "cuda" / "printed" / "wgmma.ma").read_text()
    case = next(cases(text, MA_TILE))
    check_case(case)
    with pytest.raises(AssertionError, match="Couldn't match"):
        check_case(replace(case, text=case.text.replace("CHECK: wgmma_fence", "CHECK: wgmma_fences")))
