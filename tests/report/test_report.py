"""The structure of a report: one file, whose lines are linked with the statements of the spec."""

from __future__ import annotations

import json
import re
from functools import cache
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from nautilus.cli.main import main
from nautilus.core.errors import InputError
from nautilus.driver import Request, compile_file
from nautilus.passes.pipelines import STAGE_NAMES
from nautilus.remarks.remarks import Watch, remarks
from nautilus.report.history import History
from nautilus.report.links import linked
from nautilus.report.report import report
from nautilus.report.tuning import tuning
from nautilus.tune.database.rows import Row

TEXT = """
dim M = 128, N = 128, K = 256
input A: f16[M, K], B: f16[K, N]
output C: f16[M, N], R: f32[M]
C[i, j] = sum[k](A[i, k] * B[k, j])
R[i] = max[j](if A[i, 0] < 1 then f32(C[i, j]) else 0)
""".replace("if A[i, 0] < 1 then f32(C[i, j]) else 0", "f32(C[i, j]) if A[i, 0] < 1 else 0")
_VOID = frozenset({"meta", "input"})


@cache
def made() -> str:
    history, watch = History(), Watch()
    result = compile_file(Request(Path("x.naut"), "sm_80", text=TEXT), [history, watch])
    return report(result, history, watch, remarks(result, watch))


class Tags(HTMLParser):
    """Collects tags that are closed in another order than they are opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def test_the_page_is_one_file_of_balanced_tags() -> None:
    tags = Tags()
    tags.feed(made())
    assert not tags.wrong and not tags.open
    assert len(made().encode()) < 2_000_000
    assert not re.search(r"https?://|\bsrc=|\bhref=|@import", made())


def panes() -> dict[str, str]:
    found = re.findall(r"<div class=pane id=stage-([\w-]+)>(.*?)(?=<div class=pane |<h2>)", made(), re.S)
    return dict(found)


def test_every_stage_has_lines_of_every_statement() -> None:
    assert tuple(panes()) == STAGE_NAMES
    for stage, pane in panes().items():
        assert set(re.findall(r"data-d=(\d)", pane)) == {"0", "1"}, stage


def test_a_line_belongs_to_the_statement_that_it_computes() -> None:
    dots = re.findall(r"<div data-d=(\d)>([^<]*= dot [^<]*)</div>", panes()["vr-tile"])
    assert dots and {number for number, _ in dots} == {"0"}
    stores = re.findall(r"<div data-d=(\d)>\s*store R\[", panes()["vr-tile"])
    assert stores == ["1"]


def test_the_texts_are_whole() -> None:
    result = compile_file(Request(Path("x.naut"), "sm_80", text=TEXT))
    cuda = next(t for t in linked(result.modules) if t.stage == "cuda")
    assert "\n".join(cuda.lines) + "\n" == result.cuda
    shown = re.findall(r"<div(?: data-d=\d)?>([^<]*)</div>", panes()["cuda"])
    assert [unescape(line) for line in shown] == list(cuda.lines)


def test_passes_times_and_shared_memory() -> None:
    passes = re.findall(r"<details class=change><summary>([\w-]+)/([\w-]+): (\d+) lines", made())
    assert ("scalar", "fuse") in {(stage, name) for stage, name, _ in passes}
    assert all(int(lines) > 0 for _, _, lines in passes)
    assert "Binding unit: " in made() and "<table id=times>" in made()
    assert re.search(r"title='s_a_tile[^']*: bytes 0 to \d+, f16", made())


def test_the_command_line_writes_it_and_refuses_a_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, page = tmp_path / "x.naut", tmp_path / "x.html"
    spec.write_text(TEXT)
    assert main([str(spec), "-o", str(tmp_path / "k.cu"), "--arch", "sm_80", "-q", "--report", str(page)]) == 0
    assert page.read_text().startswith("<!doctype html>")
    assert (tmp_path / "k.cu").exists()
    result = compile_file(Request(spec, "sm_80", until="ma-tile"))
    with pytest.raises(InputError, match="a report needs a spec"):
        report(result, History(), Watch(), ())


def test_timelines_are_data_that_the_page_draws() -> None:
    texts = re.findall(r"<script type='application/json'>(.*?)</script>", made())
    assert texts and "<h2>Timeline</h2>" in made() and "<h2>Tuning</h2>" not in made()
    for text in texts:
        data = json.loads(text)
        for track, start, cycles, kind, name, owner in data["slices"]:
            assert 0 <= track < len(data["tracks"]) and 0 <= kind < len(data["kinds"])
            assert 0 <= start < start + cycles <= data["cycles"] + 1
            assert name < len(data["names"]) and owner in (-1, 0, 1)
    owners = {s[5] for text in texts for s in json.loads(text)["slices"]}
    assert {0, 1} <= owners


def row(seconds: float, tile: int, time: str, chosen: bool = False) -> Row:
    return Row("k", "x", "f", {"N": 8}, "sm_90a", "fast", "H200", "13", "c", "13", "gpu", "ok", True, "s", None,
               (seconds,), chosen, False, chosen, 3e-6, {"Y.tile": tile, "Y.warps": 4}, 2e-6, time=time)  # fmt: skip


def test_the_tuning_history() -> None:
    rows = [row(4e-6, 1, "1"), row(1e-6, 2, "2", True), row(2e-6, 4, "3")]
    text = tuning(rows)
    assert "3 of 3 stored schedules" in text and "The best: 1 us on H200, by rules 3 us, predicted 2 us" in text
    assert text.count("<circle") == 3 and "<td>Y.tile</td><td>2</td><td>1, 2, 4</td>" in text
    assert "Y.warps" not in text and tuning([]) == ""
    tags = Tags()
    tags.feed(text)
    assert not tags.wrong and not tags.open
