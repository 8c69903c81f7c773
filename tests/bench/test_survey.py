"""The table over many specs: rows of a run, of a run that goes on, and of specs without a figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nautilus.bench import survey
from nautilus.bench.survey import Survey, changes, modelled, read, run, table, timed
from nautilus.driver import Request

GOOD = "dim M = 64, N = 96\ninput X: f32[M, N]\noutput Y: f32[M]\nY[i] = sum[j](X[i, j])\n"


@pytest.fixture
def specs(tmp_path: Path) -> list[Path]:
    (tmp_path / "good.naut").write_text(GOOD)
    (tmp_path / "wrong.naut").write_text(GOOD.replace("X[i", "Z[i"))
    return [tmp_path / "good.naut", tmp_path / "wrong.naut"]


def test_a_row_has_prediction_and_floor(specs: list[Path]) -> None:
    row = modelled(Request(specs[0], "sm_80"))
    assert row["kernels"] == 1 and row["instructions"] == [] and row["spilled_bytes"] == 0
    assert row["bytes"] == 4 * (64 * 96 + 64) and row["predicted_us"] > row["floor_us"] > 0


def test_rows_are_kept_and_a_run_goes_on(specs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "table.jsonl"
    asked = Survey(file, "sm_80", "model", 60.0)
    rows = list(run(asked, specs))
    assert rows[0]["kernels"] == 1
    assert rows[1]["failure"].startswith("exit code 1: ") and "Z" in rows[1]["failure"]
    with file.open("a") as out:
        out.write('{"spec": "cut o')
    monkeypatch.setattr(survey, "_examined", lambda *_: pytest.fail("a finished spec is compiled again"))
    assert list(run(asked, specs)) == rows == read(file)
    monkeypatch.setattr(survey, "_examined", lambda *_: {"kernels": 2})
    assert [*rows, *run(asked, [tmp_path / "later.naut"])] == read(file)  # after the line that was cut off


def test_a_compilation_without_end_is_a_row(specs: list[Path], tmp_path: Path) -> None:
    (row,) = run(Survey(tmp_path / "table.jsonl", "sm_80", "model", 0.01), specs[:1])
    assert row["failure"] == "no result after 0.01 s"


def test_the_table_says_what_failed(specs: list[Path]) -> None:
    made = modelled(Request(specs[0], "sm_80")) | {"spec": "a/b.naut", "arch": "sm_80", "measure": "model"}
    failed = {"spec": "a/c.naut", "arch": "sm_80", "measure": "model", "failure": "exit code 4: too large"}
    lines = table([made, failed], "model").splitlines()
    assert lines[0].split()[0] == "spec" and lines[1].startswith("a/b.naut")
    assert lines[2].split()[0] == "a/c.naut" and lines[2].endswith("exit code 4: too large")
    assert lines[-1].startswith("  a: ") and lines[-1].endswith(", 1 specs")


def contender(name: str, us: float, ratio: float | None) -> dict[str, Any]:
    cool = {"us": us, "tflops": 1.0, "gbs": 2.0}
    return {"name": name, "ceiling": name == "copy", "cool": cool, "ratio_cool": ratio}


def test_the_best_peer_is_the_fastest_one_that_is_right() -> None:
    wrong, right, slow = contender("wrong", 5.0, None), contender("torch", 15.0, 1.5), contender("compile", 20.0, 2.0)
    report = {
        "ok": True,
        "predicted_us": 8.0,
        "cuda_sha256": "ab",
        "contenders": [contender("ours", 10.0, None), wrong, slow, right, contender("copy", 1.0, None)],
    }
    row = timed(report)
    assert (row["us"], row["peer"], row["peer_us"], row["ratio"]) == (10.0, "torch", 15.0, 1.5)
    assert "torch" in table([row | {"spec": "a/b.naut"}], "gpu")


def test_the_command_prints_the_table(specs: list[Path], tmp_path: Path) -> None:
    file = tmp_path / "table.jsonl"
    key = {"spec": str(specs[0]), "arch": "sm_80", "measure": "model"}
    file.write_text(json.dumps(key | modelled(Request(specs[0], "sm_80"))) + "\n")
    done = CliRunner().invoke(survey.main, [str(file), str(specs[0]), "--arch", "sm_80", "--measure", "model"])
    assert done.exit_code == 0 and "times the floor" in done.output


def test_a_spec_gives_the_sizes_that_it_leaves_open(tmp_path: Path) -> None:
    spec = tmp_path / "open.naut"
    spec.write_text("# bench: M=32, N=8\n" + GOOD.replace("M = 64, N = 96", "M = runtime, N = runtime"))
    (row,) = run(Survey(tmp_path / "table.jsonl", "sm_80", "model", 60.0), [spec])
    assert row["bytes"] == 4 * (32 * 8 + 32)


def test_changes_are_listed_slowest_first() -> None:
    def row(name: str, us: float | None, text: str = "a") -> dict[str, Any]:
        return {"spec": name, "us": us, "cuda_sha256": text} | ({} if us else {"failure": "exit code 4: no plan"})

    before = [row("x/a.naut", 10.0), row("x/b.naut", 10.0), row("x/c.naut", 10.0), row("x/d.naut", 10.0)]
    now = [row("y/a.naut", 10.4), row("y/b.naut", 5.0, "b"), row("y/c.naut", None), row("y/d.naut", 20.0)]
    assert changes([*now, row("y/new.naut", 1.0)], before, 0.05).splitlines() == [
        "y/c.naut: exit code 4: no plan, before 10.0 us",
        " 2.00  y/d.naut: 10.0 -> 20.0 us, the same text",
        " 0.50  y/b.naut: 10.0 -> 5.0 us, another text",
        "3 specs in both tables, geometric mean 1.01",
    ]
