"""``nautilusc tune``, ``nautilusc db`` and ``-O``, as a user runs them; no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nautilus.cli.main import main
from nautilus.core.schedule import Schedule
from nautilus.driver import Request, compile_file
from nautilus.tune.database.rows import key_of
from nautilus.tune.database.store import append, rows
from tests.conftest import gpu_problem
from tests.shipped import IDS, ROOT, SPECS
from tests.tune.made import row

SOFTMAX = "dim M = 512, N = 256\ninput X: f16[M, N]\noutput Y: f16[M, N]\nY[i, j] = softmax[j](X[i, j])\n"


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NAUTILUS_DB", str(tmp_path / "db.jsonl"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    path = tmp_path / "s.naut"
    path.write_text(SOFTMAX)
    return path


def schedule_of(spec: Path, *more: str) -> Schedule:
    out = spec.parent / "out.json"
    assert main([str(spec), "--arch", "sm_80", "-o", str(out), *more]) == 0
    return Schedule.from_json(out.read_text())


def remember(spec: Path, schedule: Schedule) -> None:
    found = compile_file(Request(spec, "sm_80", until="scalar")).modules["spec"]
    append(spec.parent / "db.jsonl", [row(key_of(found, "sm_80", "fast"), schedule, name="s")])


def test_tune_with_the_model(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", str(spec), "--arch", "sm_80", "--measure", "model", "--trials", "4", "--jobs", "1", "--json"]
    assert main([*command, "--storage", "memory", "--dim", "N=512"]) == 0
    out, err = capsys.readouterr()
    (line,) = out.splitlines()
    about = json.loads(line)
    assert about["sizes"] == {"M": 512, "N": 512} and about["trials"] == 4 and about["seconds"] > 0.0
    assert about["schedule_hash"] in {r.schedule_hash for r in rows(spec.parent / "db.jsonl")}
    assert err == ""


def test_progress_lines_go_to_standard_error(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", str(spec), "--arch", "sm_80", "--measure", "model", "--trials", "2", "--jobs", "1"]
    assert main([*command, "--storage", "memory"]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1 and "estimated" in out
    assert "search, " in err and "best " in err
    assert main([*command, "--storage", "memory", "-q"]) == 0
    assert capsys.readouterr() == ("", "")


def test_without_a_gpu_measuring_is_refused(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not gpu_problem():
        pytest.skip("there is one")
    assert main(["tune", str(spec), "--arch", "sm_80", "--trials", "1", "--storage", "memory"]) == 3
    assert "--measure model" in capsys.readouterr().err
    assert main([str(spec), "--arch", "sm_80", "-O3", "-q"]) == 3
    assert "-O2 needs no GPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "code"),
    [(["--storage", "nowhere"], 2), (["--devices", "0,x"], 2), (["--trials", "0"], 2), (["--dim", "Z=1"], 1)],
)
def test_wrong_arguments(spec: Path, more: list[str], code: int) -> None:
    assert main(["tune", str(spec), "--measure", "model", "--storage", "memory", "--trials", "1", *more]) == code


def test_the_levels(spec: Path) -> None:
    rules = schedule_of(spec, "-O1")
    assert schedule_of(spec) == schedule_of(spec, "-O2") == rules  # the database has no row
    plain = schedule_of(spec, "-O0")
    assert len(plain.kernels) > len(rules.kernels) and not plain.factor and plain.inline == ()
    remember(spec, plain)
    assert schedule_of(spec) == plain
    assert schedule_of(spec, "-O1") == rules
    assert schedule_of(spec, "--precision", "strict", "-O1") == schedule_of(spec, "--precision", "strict")
    (spec.parent / "given.json").write_text(rules.to_json())
    assert schedule_of(spec, "--schedule", str(spec.parent / "given.json")) == rules


def test_a_database_schedule_that_fails_is_told_with_v(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = schedule_of(spec, "-O1")
    bad = json.loads(rules.to_json())
    bad["kernels"][0]["ops"] = ["nobody"]
    remember(spec, Schedule.from_json(json.dumps(bad)))
    capsys.readouterr()
    assert schedule_of(spec) == rules
    assert capsys.readouterr().err == ""
    assert schedule_of(spec, "-v") == rules
    assert "schedule by rules; the schedule of the tuning database fails" in capsys.readouterr().err
    assert main(["check", str(spec), "--arch", "sm_80", "-O0", "--dim", "M=5,N=7", "-q", "--device", "cpu"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("path", SPECS, ids=IDS)
def test_every_shipped_spec_has_a_plain_schedule(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "k.ma"
    for arch in ("sm_80", "sm_90a"):
        assert main([str(path), "-O0", "--arch", arch, "-o", str(out)]) == 0
        assert out.stat().st_size > 0


def test_rows_of_an_older_format_are_reported(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, out = spec.parent / "db.jsonl", str(spec.parent / "s.ma")
    compiled = [str(spec), "-v", "--arch", "sm_80", "-o", out]
    assert main(compiled) == 0 and "older format" not in capsys.readouterr().err
    made = row()
    append(own, [replace(made, schedule={**(made.schedule or {}), "version": 1})])
    told = f"nautilusc: {own}: 1 row has a schedule of an older format; nautilusc db gc drops them\n"
    assert main(["db", "ls", "--db", str(own)]) == 0 and capsys.readouterr().err == told
    assert main(compiled) == 0 and told in capsys.readouterr().err
    assert main(["db", "gc"]) == 0 and own.read_text() == ""
    assert main(compiled) == 0 and "older format" not in capsys.readouterr().err


def test_db(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    remember(spec, schedule_of(spec, "-O1"))
    own = str(spec.parent / "db.jsonl")
    assert main(["db", "ls", "--db", own]) == 0
    assert "s [M=512,N=256] sm_80 fast: 2 ms, 1/1 rows" in capsys.readouterr().out
    assert main(["db", "ls", "nothing-like-it", "--db", own, "--json"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["db", "show", "s", "--db", own]) == 0
    shown = capsys.readouterr().out
    assert "checked" in shown and '"kernels"' in shown
    assert main(["db", "show", "absent", "--db", own]) == 2
    assert "no rows that match 'absent'" in capsys.readouterr().err
    copy = str(spec.parent / "copy.jsonl")
    assert main(["db", "export", "s", "--db", own, "-o", copy]) == 0
    assert main(["db", "merge", copy, "--db", own]) == 0
    assert "0 rows added" in capsys.readouterr().out
    other = str(spec.parent / "other.jsonl")
    assert main(["db", "merge", copy, "--db", other]) == 0
    assert "1 row added" in capsys.readouterr().out
    assert Path(other).read_text() == Path(copy).read_text()
    assert main(["db", "gc", "--db", other]) == 0
    assert "1 of 1 line kept" in capsys.readouterr().out
    assert main(["db"]) in (0, 2)


def test_tune_all_goes_over_a_list_and_resumes(spec: Path, tmp_path: Path) -> None:
    wanted = tmp_path / "list"
    wanted.write_text(f"# comment\n{spec}\n{spec} N=512\n\n{tmp_path}/missing.naut M=1\n")
    script, own = ROOT / "specs" / "tune_all.sh", tmp_path / "nautilusc"
    own.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nautilus "$@"\n')
    own.chmod(0o755)
    environment = {**os.environ, "NAUTILUSC": str(own), "PYTHONPATH": str(ROOT)}
    more = ["--measure", "model", "--trials", "2", "--jobs", "1", "--arch", "sm_80"]

    def run() -> tuple[int, list[dict[str, object]]]:
        command = ["sh", str(script), str(wanted), *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    code, results = run()
    assert code == 1 and [bool(r.get("error")) for r in results] == [False, False, True]
    assert [r["sizes_text"] for r in results[:2]] == ["M=512,N=256", "M=512,N=512"]
    wanted.write_text(f"{spec} N=512\n")
    code, again = run()
    assert code == 0 and [r["resumed"] for r in again] == [True]
    assert again[0]["schedule_hash"] == results[1]["schedule_hash"]


@pytest.mark.gpu
def test_a_short_tune_on_the_gpu(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tune", str(spec), "--trials", "6", "--storage", "memory", "--json", "--dim", "M=4096,N=4096"]
    assert main(command) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["measure"] == "gpu" and 0.0 < about["seconds"] <= 1.02 * about["rules_seconds"]
    kept = [r for r in rows(spec.parent / "db.jsonl") if r.final]
    assert kept and all(r.checked for r in kept)
    assert main([str(spec), "--dim", "M=4096,N=4096", "-v", "-o", str(spec.parent / "k.cu")]) == 0
    assert "schedule from the tuning database" in capsys.readouterr().err
