"""The evaluation without a GPU: which cases there are, a run that goes on, the table, the plots, the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nautilus.bench.rows import Row, append
from nautilus.core.errors import ToolchainError
from nautilus.evaluation import __main__ as command
from nautilus.evaluation import run as running
from nautilus.evaluation.cases import Case, cases, chosen
from nautilus.evaluation.plots import limits, plot, speedups
from nautilus.evaluation.report import best, markdown, share
from nautilus.evaluation.rows import finished, limit, measured, read, started
from nautilus.evaluation.run import Plan, run
from nautilus.evaluation.services import Compiler
from nautilus.frontend.semantics.check import load_spec
from nautilus.tune.workers.pool import DIED, DONE, Outcome
from tests.shipped import ROOT

EVERY = list(cases(ROOT / "specs"))
FEW = chosen(EVERY, ["models/vit-80/f16/b1"])[:3]


def peer(us: float, ratio: float | None = None, refused: str | None = None) -> dict[str, Any]:
    return {"us": us, "ratio": ratio, "refused": refused}


def row(case: Case, us: float = 100.0, **peers: dict[str, Any]) -> Row:
    return started(case, "sm_90a") | {
        "kernels": 1, "predicted_us": 90.0, "limit_us": 50.0, "ok": True, "us": us, "spread": 0.01, "tflops": 600.0,
        "error": 1e-4, "detail": "", "peers": peers, "absent": {"flex": "not installed"}, "device": "a GPU",
        "torch": "2",
    }  # fmt: skip


class FakePool:
    """A pool that runs a job at once; ``finished`` gives its outcome."""

    def __init__(self, work: Callable[[Any], Outcome]) -> None:
        self.work, self.workers, self.busy = work, [None], list[tuple[Case, Outcome]]()

    @property
    def free(self) -> int:
        return 1 - len(self.busy)

    def begin(self, label: Case, job: Any) -> None:
        self.busy.append((label, self.work(job)))

    def finished(self) -> list[tuple[Case, Outcome]]:
        done, self.busy = self.busy, []
        return done


def evaluated(file: Path, work: Callable[[Any], Outcome], seconds: float = 0.0) -> list[Row]:
    compilers = FakePool(lambda case: Outcome(DONE, ({"predicted_us": 1.0, "limit_us": 1.0}, case)))
    return list(run(Plan(file, "sm_90a", seconds), FEW, compilers, FakePool(work)))  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "pause", lambda *_: None)


def test_cases_are_those_of_the_models_and_operators() -> None:
    assert len({c.key for c in EVERY}) == len(EVERY) == 8 * 2 * 2 * 6 + 10 * 2 * 8
    assert all((ROOT / "specs" / f"{c.spec}.naut").exists() for c in EVERY)
    for c in chosen(EVERY, ["*/b8/32768", "operators/*/256"]):
        spec = load_spec(ROOT / "specs" / f"{c.spec}.naut", dims=dict(c.dims))
        assert spec.inputs[0].dtype.bits == 8 if c.kind == "f8" and "qwen3" not in c.name else 16
        assert spec.outputs[0].shape[0] == c.batch


def test_patterns_choose_cases() -> None:
    assert {c.key for c in chosen(EVERY, ["models/vit-80/f16"])} == {
        f"models/vit-80/f16/b{b}/{1024 << n}" for b in (1, 8) for n in range(6)
    }
    assert len(chosen(EVERY, ["models/*/b8/4096", "operators/gqa_decode"])) == 16 + 16
    assert chosen(EVERY, []) != EVERY and sorted(chosen(EVERY, []), key=EVERY.index) == EVERY


def test_cases_of_an_earlier_pattern_come_first() -> None:
    wide, rest = "models/vit-128/f16", "models/*/f16/b1"
    found = [c.key for c in chosen(EVERY, [wide, rest])]
    ahead = {c.key for c in chosen(EVERY, [wide])}
    assert len(found) == len(set(found)) == 12 + 8 * 6 - 6 and set(found[:12]) == ahead


def test_a_run_keeps_rows_and_failures_are_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"

    def work(case: Case) -> Outcome:
        return Outcome(DIED, None, "illegal address") if case is FEW[1] else Outcome(DONE, {"us": 2.0, "peers": {}})

    rows = evaluated(file, work)
    assert [r["key"] for r in rows] == [c.key for c in FEW] and list(read(file).values()) == rows
    assert rows[1]["failure"] == "measurement: illegal address" and rows[0]["us"] == 2.0
    assert rows[0]["predicted_us"] == 1.0 and not finished(rows[1]) and finished(rows[0])


def test_no_case_begins_after_the_seconds(tmp_path: Path) -> None:
    assert evaluated(tmp_path / "rows.jsonl", lambda _: Outcome(DONE, {"us": 2.0, "peers": {}}), 1e-9) == []


def test_a_line_that_was_cut_off_is_left_out_and_the_last_line_counts(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    append(file, row(FEW[0], 10.0))
    with file.open("a") as out:
        out.write('{"key": "cut o')
    append(file, row(FEW[1], 20.0))
    append(file, row(FEW[0], 30.0))
    assert {k: r["us"] for k, r in read(file).items()} == {FEW[0].key: 30.0, FEW[1].key: 20.0}


def test_the_table_has_means_and_reasons(tmp_path: Path) -> None:
    disturbed = "the times of fa2 have a spread of 20%, above the limit of 10%"
    a = row(FEW[0], cudnn=peer(120.0, 1.2), fa2=peer(150.0, 1.5))
    b = row(FEW[1], cudnn=peer(180.0, 1.8), fa2=peer(1.0, None, disturbed))
    failed = started(FEW[2], "sm_90a") | {"failure": "compilation: too large"}
    wrong = row(EVERY[0]) | {"ok": False, "detail": "O: relative error 1"}
    rows = {r["key"]: r for r in (a, b, failed, wrong)}
    page = markdown(rows, EVERY).splitlines()
    assert (best(a), best(b), share(a), finished(b)) == (1.2, 1.8, 0.5, False)
    (line,) = [x for x in page if x.startswith("| models/vit-80/f16 |")]
    assert line == "| models/vit-80/f16 | 2 | 0.50 | 1.47 | 1.50 | 1.47 | 1.20 |"
    assert f"- fa2: {disturbed} (1: {FEW[1].key})" in page
    assert f"- {FEW[2].key}: compilation: too large" in page and any("WRONG" in x for x in page)
    assert any(x.startswith("- flex: not installed (3: ") for x in page)
    assert "Cases: 4 of" in page[2]


def test_plots_have_a_line_for_each_peer(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [row(c, 100.0, cudnn=peer(120.0, 1.2)) for c in FEW]
    assert set(speedups(rows)) == {"cudnn, batch 1"} and len(limits(rows)["batch 1"]) == 3
    made = plot(rows, tmp_path)
    assert [p.name for p in made] == ["speedup.svg", "limit.svg"]
    assert all(p.read_text().startswith("<?xml") for p in made)
    assert plot([], tmp_path) == []


def test_plots_need_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"no module {name}")

    monkeypatch.setattr("nautilus.evaluation.plots.importlib.import_module", missing)
    with pytest.raises(ToolchainError, match="nautilusc\\[plots\\]"):
        plot([], tmp_path)


def test_the_limit_is_operations_or_bytes() -> None:
    def us(name: str, **dims: int) -> float:
        return limit(load_spec(ROOT / "specs" / f"{name}.naut", dims=dims), "sm_90a") * 1e6

    f16, f8 = us("attention/gqa_prefill", Hq=32, Hkv=32), us("models/causal_f8")
    assert f16 == pytest.approx(2 * f8) and 100 < f16 < 140
    assert us("models/qk_norm_f8", Hq=32, Hkv=32) == pytest.approx(f8, rel=0.01)
    assert 27 < us("attention/gqa_decode") < 32  # 134 MB of keys and values


def test_the_compiler_service_predicts_and_makes_a_kernel() -> None:
    case = next(c for c in EVERY if c.key == "operators/global_prefill/f16/b1/256")
    found, (result, cubin) = Compiler(str(ROOT / "specs"), "sm_80")(case)
    assert found["kernels"] >= 1 and 0 < found["limit_us"] < found["predicted_us"]
    assert cubin.data and result.context.arch == "sm_80"


def test_a_report_of_a_benchmark_is_a_row() -> None:
    cool = {"us": 5.0, "spread": 0.01, "tflops": 1.0, "gbs": 2.0}
    ours = {"name": "ours", "ceiling": False, "cool": cool, "check": {"error": 1e-4, "detail": ""}}
    other = {"name": "fa2", "ceiling": False, "cool": None, "ratio_cool": None, "refused_cool": "fa2 was not timed"}
    top = {"name": "copy", "ceiling": True, "cool": cool}
    about = {"ok": True, "device": "a GPU", "torch": None, "compared_with": "rows"}
    made = measured({"contenders": [ours, other, top], "absent": [{"name": "flex", "reason": "none"}], **about})
    assert (made["us"], made["peers"]["fa2"]) == (5.0, {"us": None, "ratio": None, "refused": "fa2 was not timed"})
    assert made["absent"] == {"flex": "none"} and made["ceilings"] == {"copy": cool}


def test_the_command_lists_and_reports(tmp_path: Path) -> None:
    only = ["--specs", str(ROOT / "specs"), "--only", "models/vit-80/f16/b1"]
    done = CliRunner().invoke(command.main, [str(tmp_path / "x"), *only, "--list"])
    assert done.output.splitlines() == [c.key for c in chosen(EVERY, only[3:])] and not (tmp_path / "x").exists()
    (tmp_path / "rows.jsonl").write_text(json.dumps(row(FEW[0], cudnn=peer(120.0, 1.2))) + "\n")
    done = CliRunner().invoke(command.main, [str(tmp_path), *only, "--report"])
    assert done.exit_code == 0 and "1.20" in (tmp_path / "table.md").read_text()
    assert CliRunner().invoke(command.main, [str(tmp_path), *only[:3], "nothing"]).exit_code == 2
    elsewhere = CliRunner().invoke(command.main, [str(tmp_path), "--specs", str(tmp_path), "--list"])
    assert elsewhere.exit_code == 2 and "cannot read" in elsewhere.output
