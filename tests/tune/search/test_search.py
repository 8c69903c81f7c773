"""The search, with a toy space and a runner that fails, hangs and gives wrong results as the test chooses."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from nautilus.driver import Request, compile_file
from nautilus.frontend.semantics.check import load_spec
from nautilus.tune.command import Options, Outcome, tune_one
from nautilus.tune.database.lookup import tuned_schedule
from nautilus.tune.database.rows import key_of, schedule_hash
from nautilus.tune.database.store import append, rows
from nautilus.tune.levels import before_scheduling
from nautilus.tune.search.study import open_storage, optuna
from nautilus.tune.types import Settings
from tests.core.schedule.engines import warp_of
from tests.shipped import ROOT
from tests.tune import toy
from tests.tune.made import damaged, row

SETTINGS = Settings(trials=20, prefiltered=6)


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the toy services did."""
    path = tmp_path / "log"
    monkeypatch.setenv("TOY_LOG", str(path))
    return path


def options(**changes: Any) -> Options:
    """With one process that builds, because each takes most of a second of processor time to start."""
    made = Options(
        SETTINGS, jobs=1, storage="memory", quiet=True, space="tests.tune.toy", model="tests.tune.toy:estimate",
        builder="tests.tune.toy:builder", runner="tests.tune.toy:Runner",
    )  # fmt: skip
    return replace(made, **changes)


def tune(spec: Path, **changes: Any) -> Outcome:
    return tune_one(Request(spec, "sm_80"), {}, options(**changes))


def test_the_search_finds_the_best_and_the_compiler_uses_it(
    matmul: Path, own_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = tune(matmul, quiet=False, jobs=2)
    assert outcome.code == 0, outcome.text
    done = [int(n) for n in re.findall(r"(-?\d+)/20 trials", capsys.readouterr().err)]
    assert done and min(done) >= 0 and done == sorted(done)  # the default schedule is no trial
    about = json.loads(outcome.line())
    assert (about["values"]["stages"], about["values"]["warps"]) == (1, [1, 4])
    assert about["speedup"] == pytest.approx(4.0)
    assert about["rank_correlation"] == pytest.approx(1.0)
    found = rows(own_database)
    assert sum(r.rules and not r.final for r in found) == 1
    assert [r for r in found if r.final and r.schedule_hash == about["schedule_hash"]]
    compiled = compile_file(Request(matmul, "sm_80", lookup=tuned_schedule, until="scalar"))
    assert compiled.tuned and compiled.context.schedule is not None
    assert warp_of(compiled.context.schedule.kernels[0]).warps == (1, 4)


def test_a_gain_within_noise_does_not_replace_the_default_schedule(
    matmul: Path, own_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOISE", "1.2")  # the final series multiplies times by 1, 1.2 and 1.4
    monkeypatch.setenv("COSTS", "equal")
    outcome = tune(matmul)
    assert outcome.code == 0, outcome.text
    assert outcome.about["speedup"] == 1.0
    assert outcome.about["seconds"] == outcome.about["rules_seconds"]
    (chosen,) = [r for r in rows(own_database) if r.chosen]
    assert chosen.rules and chosen.rules_seconds == chosen.seconds
    faster = [r for r in rows(own_database) if r.final and (r.seconds or 0.0) < (chosen.seconds or 0.0)]
    assert faster  # and the database keeps what was measured
    compiled = compile_file(Request(matmul, "sm_80", lookup=tuned_schedule, until="scalar"))
    assert compiled.context.schedule is not None and schedule_hash(compiled.context.schedule) == chosen.schedule_hash


def test_from_scratch_tries_neither_default_nor_database_schedules(
    matmul: Path, own_database: Path, journal: Path
) -> None:
    outcome = tune(matmul, settings=replace(SETTINGS, trials=4, scratch=True))
    assert outcome.code == 0, outcome.text
    lines = journal.read_text().splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("build rules"))
    assert sum(line.startswith("measure") for line in lines[:first]) == 4  # what was sampled, then the yardstick
    assert outcome.about["scratch"] and outcome.about["rules_seconds"] > 0.0
    assert tune(matmul, settings=replace(SETTINGS, scratch=True)).about["values"]["stages"] == 1


def test_nothing_is_built_or_measured_twice(matmul: Path, journal: Path) -> None:
    assert tune(matmul).code == 0
    lines = journal.read_text().splitlines()
    measured = [line for line in lines if line.startswith("measure")]
    assert len(measured) == len(set(measured)) == 11  # 4 x 3 points, the rules' among them, one refused


@pytest.mark.parametrize("fault", ["die", "wrong", "hang"])
def test_a_fault_loses_only_its_candidate(
    matmul: Path, own_database: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("FAULTS", f"{fault}:1")
    monkeypatch.setattr("nautilus.tune.command.MEASURE_LIMIT", (0.3, 1.0, 4.0))
    outcome = tune(matmul)
    assert outcome.code == 0, outcome.text
    assert outcome.about["values"]["stages"] == 2 and outcome.about["values"]["warps"] == [1, 4]
    state = {"die": "fault", "wrong": "wrong", "hang": "hang"}[fault]
    assert outcome.about["failed"] == {state: 3}
    bad = [
        r for r in rows(own_database) if r.schedule is not None and r.schedule["kernels"][0]["mapping"]["stages"] == 1
    ]
    assert len(bad) == 3 and not any(r.usable or r.checked for r in bad)
    assert {r.state for r in bad} == {state}


def test_two_devices_share_the_work(matmul: Path, monkeypatch: pytest.MonkeyPatch, journal: Path) -> None:
    monkeypatch.setenv("FAULTS", "die:4")
    outcome = tune(matmul, devices=(0, 1), jobs=3)
    assert outcome.code == 0 and outcome.about["values"]["stages"] == 1
    assert {line.split()[2] for line in journal.read_text().splitlines() if line.startswith("measure")} == {"0", "1"}


def test_without_a_usable_candidate_the_exit_code_is_5(matmul: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTS", "wrong:1 wrong:2 wrong:3 wrong:4")
    outcome = tune(matmul)
    assert outcome.code == 5
    assert "no usable schedule was found" in outcome.text


def test_the_cost_model_measures_without_a_gpu(matmul: Path, own_database: Path) -> None:
    settings = replace(SETTINGS, measure="model", trials=6)
    outcome = tune(matmul, settings=settings, builder="nautilus.tune.workers.build:Builder")
    assert outcome.code == 0 and outcome.about["measure"] == "model"
    assert not any(r.usable for r in rows(own_database))
    assert not compile_file(Request(matmul, "sm_80", lookup=tuned_schedule, until="scalar")).tuned


def test_one_seed_gives_one_result(matmul: Path) -> None:
    settings = replace(SETTINGS, measure="model", trials=5, seed=3)
    found = [tune(matmul, settings=settings, jobs=1).about for _ in range(2)]
    keep = ("schedule_hash", "trials", "refused", "known", "values")
    assert [found[0][k] for k in keep] == [found[1][k] for k in keep]


def test_resume_continues_and_a_finished_study_is_not_repeated(matmul: Path, tmp_path: Path, journal: Path) -> None:
    storage = f"sqlite:///{tmp_path / 's.db'}"
    first = tune(matmul, storage=storage, settings=replace(SETTINGS, trials=4))
    assert first.about["trials"] == 4
    second = tune(matmul, storage=storage, settings=replace(SETTINGS, trials=8), resume=True)
    assert second.about["trials"] == 8 and second.about["study"] == first.about["study"]
    before = journal.read_text()
    third = tune(matmul, storage=storage, settings=replace(SETTINGS, trials=8), resume=True)
    assert third.about["resumed"] and third.about["schedule_hash"] == second.about["schedule_hash"]
    assert journal.read_text() == before
    fresh = tune(matmul, storage=storage, settings=replace(SETTINGS, trials=4))
    assert fresh.about["study"] != first.about["study"]


def test_the_time_limit_holds(matmul: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOW", "0.5")
    outcome = tune(matmul, settings=replace(SETTINGS, timeout=3.0, prefiltered=0), jobs=1)
    assert outcome.about["stopped"] == "time is up" and outcome.about["took"] < 8.0


def test_schedules_of_the_database_are_tried_first(matmul: Path, own_database: Path, journal: Path) -> None:
    spec, trials = load_spec(matmul), before_scheduling(Request(matmul, "sm_80")).trials
    best = toy.schedule_of(trials, {"stages": 1, "warps": (1, 4)})
    assert not isinstance(best, toy.Refused)
    near = key_of(load_spec(matmul, dims={"M": 256}), "sm_80", "fast")
    values = {"stages": 1, "warps": [1, 4], "group": 4}
    append(own_database, [row(near, best, values=values, name="neighbour")])
    outcome = tune(matmul, settings=replace(SETTINGS, trials=2, prefiltered=0))
    assert outcome.about["values"] == {"stages": 1, "warps": [1, 4], "group": 4}
    known = key_of(spec, "sm_80", "fast")
    append(own_database, [row(known, replace(best, inline=()), samples=(1e-9,), final=True)])
    assert tune(matmul, settings=replace(SETTINGS, trials=1, prefiltered=0)).about["schedule_hash"]
    assert asdict(best)["version"] == 2


def test_an_invalid_spec_has_an_exit_code(tmp_path: Path) -> None:
    (tmp_path / "bad.naut").write_text("output C: f16[M]\n")
    assert tune(tmp_path / "bad.naut").code == 1
    assert tune(tmp_path / "none.naut").code == 1
    assert tune(tmp_path / "x.ma").code == 2


SCRIPT = """
import sys
from pathlib import Path
from dataclasses import replace
from nautilus.driver import Request
from tests.tune.search.test_search import SETTINGS, options
from nautilus.tune.command import tune_one
if __name__ == "__main__":
    spec, storage, study, resume, trials, seed = sys.argv[1:]
    settings = replace(SETTINGS, measure="model", trials=int(trials), seed=int(seed))
    made = options(storage=storage, study=study, resume=bool(resume), jobs=1, settings=settings)
    outcome = tune_one(Request(Path(spec), "sm_80"), {}, made)
    print(outcome.line())
    sys.exit(outcome.code)
"""


def process(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite:///{}", "journal:{}"])
def test_two_processes_share_a_study(matmul: Path, tmp_path: Path, journal: Path, kind: str,
                                     monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setenv("SLOW", "0.3")
    storage = kind.format(tmp_path / "shared")
    both = [process(tmp_path, str(matmul), storage, "team", "", "10", str(seed)) for seed in (1, 2)]
    found = []
    for p in both:
        out, _ = p.communicate(timeout=120)
        assert p.returncode == 0
        found.append(json.loads(out))
    assert found[0]["study"] == found[1]["study"] and found[0]["study"].startswith("team-")
    assert all(10 <= f["trials"] <= 11 for f in found)  # both may take the last one
    built = [line for line in journal.read_text().splitlines() if line.startswith("build") and "rules" not in line]
    assert len(built) - len(set(built)) <= 1  # the same sample drawn in the same instant
    o = optuna()
    study = o.load_study(study_name=found[0]["study"], storage=open_storage(storage))
    owners = {t.user_attrs["candidate"]["owner"] for t in study.trials if "candidate" in t.user_attrs}
    assert len(owners) == 2


@pytest.mark.slow
def test_a_killed_search_loses_only_the_trial_in_flight(
    matmul: Path, tmp_path: Path, own_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOW", "0.15")
    storage, chance = f"sqlite:///{tmp_path / 's.db'}", random.Random(5)
    arguments = (str(matmul), storage, "k", "1", "10", "0")
    kept: set[str] = set()
    for _ in range(2):
        p = process(tmp_path, *arguments)
        time.sleep(2.5 + 1.5 * chance.random())
        p.send_signal(signal.SIGKILL)
        p.wait()
        now = {r.schedule_hash for r in rows(own_database)}
        assert kept <= now and damaged(own_database) <= 1
        kept = now
    last = process(tmp_path, *arguments)
    out, _ = last.communicate(timeout=120)
    assert last.returncode == 0
    about = json.loads(out)
    assert about["trials"] == 10 and about["values"]["stages"] == 1
    everything = [r.schedule_hash for r in rows(own_database) if not r.rules]
    assert len(set(everything)) == 10
    assert len(everything) - len(set(everything)) <= 2  # one in flight a kill may be built again
