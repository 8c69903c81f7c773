"""A bug of the compiler is reported as one, by tune and by compile, and never counts as an illegal schedule."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from nautilus.cli.main import main
from nautilus.core.errors import (
    InternalError,
    ScheduleError,
    TargetLimitError,
    ToolchainError,
    UnsupportedError,
    VerifyError,
    is_internal,
)
from nautilus.core.schedule import Schedule
from nautilus.driver import Request
from nautilus.passes import loading
from nautilus.tune import command
from nautilus.tune.command import Options, tune_one
from nautilus.tune.levels import before_scheduling
from nautilus.tune.search.trial_lowering import TrialLowering
from nautilus.tune.types import Settings
from nautilus.tune.workers.build import Builder, BuildJob
from nautilus.vr_tile.passes import cse
from tests.tune import toy

OPTIONS = Options(
    Settings(trials=6, measure="model"), jobs=1, storage="memory", quiet=True, space="tests.tune.toy",
    model="tests.tune.toy:estimate", builder="tests.tune.toy:broken_builder",
)  # fmt: skip
PLANTED = "AssertionError: planted (in pass vr-tile/cse)"


@pytest.fixture
def bug(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The pass ``cse`` raises in this process."""
    monkeypatch.setattr(cse, "Cse", cse.Cse)  # put back in the end
    toy.plant_a_bug()
    _forget()
    yield
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    loading.load.cache_clear()
    loading.load_pass.cache_clear()


@pytest.mark.parametrize(
    ("error", "internal"),
    [
        (ScheduleError("no"), False),
        (UnsupportedError("no"), False),
        (ToolchainError("NVRTC", "no"), False),
        (TargetLimitError("ma-tile", "threads of a block", "k", "no"), False),
        (OSError("no"), False),
        (VerifyError("ma-tile", "a rule", "k"), True),
        (InternalError("no"), True),
        (KeyError("no"), True),
        (RecursionError("no"), True),
    ],
)
def test_what_is_internal(error: Exception, internal: bool) -> None:
    assert is_internal(error) is internal


def test_compile_reports_it(matmul: Path, bug: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(matmul), "--arch", "sm_80", "-o", str(matmul.with_suffix(".cu"))]) == 70
    said = capsys.readouterr().err
    assert "internal error: planted (in pass vr-tile/cse)" in said and "reproducer" in said


def test_a_builder_raises_it(matmul: Path, bug: None) -> None:
    request = Request(matmul, "sm_80")
    schedule = before_scheduling(request).trials.plan()
    with pytest.raises(AssertionError, match="planted"):
        Builder(request, "")(BuildJob(schedule, True))


def test_a_trial_lowering_raises_it(matmul: Path, bug: None) -> None:
    trials = before_scheduling(Request(matmul, "sm_80")).trials
    with pytest.raises(AssertionError, match="planted") as error:
        trials.lower(trials.plan())
    assert error.value.__notes__ == ["in pass vr-tile/cse"]


def test_tune_reports_what_its_workers_meet(matmul: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = tune_one(Request(matmul, "sm_80", {"M": 64}), {}, OPTIONS)
    assert outcome.code == 70
    (found,) = outcome.about["internal_errors"]
    assert (
        found["reason"] == PLANTED and outcome.about["refused"] == 0 and outcome.about["failed"]["internal-error"] > 0
    )
    words = shlex.split(found["reproducer"])
    assert words[:7] == ["nautilusc", "compile", str(matmul), "--arch", "sm_80", "--precision", "fast"]
    assert words[7:9] == ["--dim", "M=64"]
    command.report(outcome, as_json=False, quiet=True)
    assert f"nautilusc: internal error: {PLANTED}\nreproducer: nautilusc compile " in capsys.readouterr().err


def test_tune_reports_what_its_space_meets(matmul: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = toy.schedule_of

    def schedule_of(space: TrialLowering, values: Mapping[str, Any]) -> Schedule | toy.Refused:
        if values["stages"] == 3:
            raise KeyError("planted")
        return real(space, values)

    monkeypatch.setattr(toy, "schedule_of", schedule_of)
    _forget()
    settings = Settings(trials=20, measure="model")
    outcome = tune_one(Request(matmul, "sm_80"), {}, Options(
        settings, jobs=1, storage="memory", quiet=True, space="tests.tune.toy", model="tests.tune.toy:estimate",
        builder="tests.tune.toy:builder",
    ))  # fmt: skip
    _forget()
    assert outcome.code == 70 and outcome.about["seconds"] > 0.0  # the search went on
    (found,) = outcome.about["internal_errors"]
    assert found["reason"] == "KeyError: 'planted'" and '"stages": 3' in found["reproducer"]
