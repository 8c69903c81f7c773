"""The study: the space of schedules as distributions of Optuna, and trials in its storage."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from nautilus.core.errors import InputError, ToolchainError
from nautilus.core.schedule import Schedule
from nautilus.tune.search import study as module
from nautilus.tune.search.stopping import beats, nothing_left
from nautilus.tune.search.study import Sample, Study, open_storage, optuna, study_name
from nautilus.tune.space.choices import SearchSpace
from tests.tune.toy import Choice, Refused

CHOICES = (Choice("stages", (1, 2, 4)), Choice("warps", ((2, 2), (4, 1))), Choice("overlap", (False, True)))
SPACE = SearchSpace(CHOICES, {"stages": 2, "warps": (4, 1), "overlap": True}, lambda v: Refused("never"))


def test_values_survive_the_sampler() -> None:
    assert SPACE.ordered == {"stages"} and SPACE.size == 12
    for values in SPACE.points():
        assert SPACE.decode(SPACE.encode(values)) == values
    drawn = SPACE.random(random.Random(0))
    assert SPACE.decode(SPACE.encode(drawn)) == drawn


def test_points_near_others_share_most_values() -> None:
    order = random.Random(1)
    near = [SPACE.random(order, SPACE.defaults) for _ in range(200)]
    changed = [sum(v[c.name] != SPACE.defaults[c.name] for c in CHOICES) for v in near]
    assert 0.05 < sum(changed) / (3 * 200) < 0.25 and max(changed) >= 2


def test_values_of_another_space_become_the_nearest_or_the_default() -> None:
    foreign = {"stages": 7, "warps": [2, 2], "colour": "red"}
    assert SPACE.decode(SPACE.encode(foreign)) == {"stages": 4, "warps": (2, 2), "overlap": True}


def test_a_draft_is_a_schedule_or_a_reason() -> None:
    space = SearchSpace(CHOICES, {}, lambda v: Schedule(inline=("P",)))
    assert space.drafted({}) == (Schedule(inline=("P",)), "")
    assert SPACE.drafted({}) == (None, "never")
    broken = SearchSpace(CHOICES, {}, lambda v: v["nothing"])
    assert broken.drafted({}) == (None, "KeyError: 'nothing'") and "KeyError: 'nothing'" in broken.internal.reproducers
    assert not SPACE.internal.reproducers


def test_the_hash_follows_the_choices() -> None:
    other = SearchSpace((*CHOICES[:2], Choice("overlap", (True, False))), {}, lambda v: None)
    assert other.hash != SPACE.hash


def study(storage: object, name: str = "s") -> Study:
    return Study(storage, name, SPACE, seed=0, startup=4)


def test_enqueued_points_are_sampled_first_and_told_once(tmp_path: Path) -> None:
    storage = open_storage(f"sqlite:///{tmp_path / 's.db'}")
    made = study(storage)
    made.enqueue(SPACE.defaults)
    sample = made.ask()
    assert sample.values == SPACE.defaults and made.spent == 0
    made.claim(sample, Schedule(inline=()), "h1")
    assert made.spent == 1 and made.tried() == {"h1"} and made.measured() == {}
    made.tell(sample, 2.0, estimate=1.0)
    twin = made.ask()
    made.tell(twin, 2.0)  # a duplicate: it has the value, but was not built
    refused = made.ask()
    made.refuse(refused, "no room")
    other = study(storage)
    assert other.spent == 1 and other.history() == [2.0] and other.estimates() == [(1.0, 2.0)]
    assert other.best(3) == [(2.0, Schedule(inline=()), {"stages": 2, "warps": [4, 1], "overlap": True})]


def test_a_trial_of_a_dead_process_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(f"journal:{tmp_path / 'j'}")
    made = study(storage)
    monkeypatch.setattr(made, "_owner", made._owner.rpartition(":")[0] + ":999999999")
    made.claim(made.ask(), Schedule(), "lost")
    assert made.tried() == {"lost"}
    assert study(storage).tried() == set()
    monkeypatch.setattr(made, "_owner", "elsewhere:1")
    made.claim(made.ask(), Schedule(), "far")
    assert study(storage).tried() == {"far"}


def test_names() -> None:
    storage = open_storage("memory")
    assert study_name(storage, "team", "x", False) == study_name(storage, "team", "x", True) == "team-x"
    assert study_name(storage, "", "x", True) == "tune-x-1"
    study(storage, "tune-x-1")
    assert study_name(storage, "", "x", True) == "tune-x-1"
    assert study_name(storage, "", "x", False) == "tune-x-2"


@pytest.mark.parametrize("url", ["nowhere", "oracle9://x/y", "sqlite:////no/such/folder/x.db"])
def test_a_storage_that_is_none(url: str, ticks: list[float]) -> None:
    with pytest.raises(InputError, match="--storage"):
        open_storage(url)


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses, which take no time: each moves the clock instead."""
    passed: list[float] = []
    began = time.time()

    def sleep(seconds: float) -> None:
        passed.append(seconds)

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: sum(passed), time=lambda: began + sum(passed))
    monkeypatch.setattr(module, "time", clock)
    return passed


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://me:secret@db/x", r"//me:\*\*\*@db/x: .*pip install 'psycopg\[binary\]' or psycopg2-binary"),
        ("mysql://me:secret@db/x", "pip install pymysql or mysqlclient"),
        ("postgresql+psycopg2://me:secret@db/x", "pip install psycopg2-binary"),
        ("mysql+mysqldb://me:secret@db/x", "pip install mysqlclient"),
        ("postgresql://me:my@secret:0@db/x", "%40"),
    ],
)
def test_a_missing_driver_is_named_without_the_password(
    url: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("psycopg", "psycopg2", "pymysql", "MySQLdb"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=message) as caught:
        open_storage(url)
    assert "secret" not in str(caught.value)


def refusal(text: str) -> Exception:
    """What Optuna raises of a database server."""
    from sqlalchemy.exc import OperationalError

    error = optuna().exceptions.StorageInternalError("An exception is raised during the commit.")
    error.__cause__ = OperationalError("SELECT 1", {}, Exception(text))
    return error  # type: ignore[no-any-return]


class Flaky:
    """Fails for a number of seconds."""

    def __init__(self, ticks: list[float], seconds: float, error: Exception) -> None:
        self.ticks, self.seconds, self.error = ticks, seconds, error

    def __call__(self) -> str:
        if sum(self.ticks) < self.seconds:
            raise self.error
        return "done"


def test_a_lost_server_is_retried(ticks: list[float]) -> None:
    assert module._retry(Flaky(ticks, 40.0, refusal("the database system is starting up"))) == "done"
    ticks.clear()
    said = r"lost \(OperationalError: .*refused\); repeat the command with the same --study,"
    with pytest.raises(InputError, match=said) as caught:
        module._retry(Flaky(ticks, 1000.0, refusal("connection refused")))
    assert 60.0 < sum(ticks) < 70.0 and "\n" not in str(caught.value)


def test_other_errors_have_a_shorter_time_limit(ticks: list[float]) -> None:
    assert module._retry(Flaky(ticks, 1.0, ValueError("a race"))) == "done"
    with pytest.raises(ValueError, match="no race"):
        module._retry(Flaky(ticks, 1000.0, ValueError("no race")))
    assert sum(ticks) < 20.0


def test_one_of_two_equal_samples_is_built(ticks: list[float], tmp_path: Path) -> None:
    storage = open_storage(f"sqlite:///{tmp_path / 's.db'}")
    one, two = study(storage), study(storage)
    early, late = one.ask(), two.ask()
    assert one.claim(early, Schedule(), "h1") and not two.claim(late, Schedule(), "h1")
    early, late = one.ask(), two.ask()
    assert two.claim(late, Schedule(), "h2") and not one.claim(early, Schedule(), "h2")
    assert one.spent == two.spent == 2
    assert 1.0 < sum(ticks) < 5.0  # the earlier one waits: the later one may give way


def test_the_earlier_one_builds_it_where_the_later_one_gives_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = open_storage(f"sqlite:///{tmp_path / 's.db'}")
    one, two = study(storage), study(storage)
    early, late = one.ask(), two.ask()
    two._mark(late, module.CANDIDATE, {"hash": "h", "owner": "elsewhere:1", "began": time.time()})

    def sleep(seconds: float) -> None:
        two._study.tell(late.trial.number, state=optuna().trial.TrialState.FAIL)

    monkeypatch.setattr("nautilus.tune.search.study.time.sleep", sleep)
    assert one.claim(early, Schedule(), "h")


def test_time_zones_end_no_trial_of_another_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ticks: list[float]
) -> None:
    storage = open_storage(f"sqlite:///{tmp_path / 's.db'}")
    made = study(storage)
    monkeypatch.setattr(made, "_owner", "elsewhere:1")
    building, sample = made.ask(), made.ask()
    made.claim(building, Schedule(), "far")
    drawn = made._study.get_trials()[sample.trial.number]
    # Optuna's times are local times, so those of a host in a time zone to the west are hours older
    west = SimpleNamespace(user_attrs={}, datetime_start=datetime.now() - timedelta(hours=9))
    assert made._alive(drawn) and made._alive(west)
    assert study(storage).tried() == {"far"}
    ticks.append(2000.0)
    assert study(storage).tried() == set()


def test_what_another_process_took_for_lost_can_still_be_told(tmp_path: Path, ticks: list[float]) -> None:
    storage = open_storage(f"sqlite:///{tmp_path / 's.db'}")
    made = study(storage)
    ends: tuple[Callable[[Sample], object], ...] = (
        lambda a: made.tell(a, 1.0, 2.0),
        lambda a: made.refuse(a, "why"),
        lambda a: made.withdraw(a, "why"),
    )
    for end in ends:
        sample = made.ask()
        made.claim(sample, Schedule(), "h")
        made._study.tell(sample.trial.number, state=optuna().trial.TrialState.FAIL)
        end(sample)
    assert made.history() == [] and not ticks


SERVER = os.environ.get("NAUTILUS_TEST_STORAGE", "")  # postgresql://..., mysql://...: a database to try it with
needs_server = pytest.mark.skipif(not SERVER, reason="NAUTILUS_TEST_STORAGE names no database server")


@needs_server
def test_a_database_server() -> None:
    name = f"test-{os.getpid()}-{time.time()}"
    storage = open_storage(SERVER)
    one, two = study(storage, name), study(open_storage(SERVER), name)
    try:
        one.enqueue(SPACE.defaults)
        sample = one.ask()
        assert sample.values == SPACE.defaults and one.claim(sample, Schedule(inline=()), "h")
        twin = two.ask()
        assert not two.claim(twin, Schedule(inline=()), "h")
        one.tell(sample, 2.0, estimate=1.0)
        two.refresh()
        assert two.spent == 1 and two.estimates() == [(1.0, 2.0)]
        storage.engine.dispose()  # connections that the server has closed
        one.set_attribute("result", {"a": 1})
        assert two.attribute("result") == {"a": 1}
    finally:
        optuna().delete_study(study_name=name, storage=storage)


@needs_server
def test_what_a_database_server_refuses_it_refuses_at_once() -> None:
    from sqlalchemy import make_url

    wrong = make_url(SERVER).set(password="not-this-one").render_as_string(hide_password=False)
    began = time.monotonic()
    with pytest.raises(InputError, match="--storage") as caught:
        open_storage(wrong)
    assert "not-this-one" not in str(caught.value) and time.monotonic() - began < 10.0


def test_noise_is_no_win() -> None:
    assert beats([1.0, 1.01, 1.02], [1.03, 1.04, 1.05])
    assert not beats([1.0, 1.01, 1.05], [1.02, 1.03, 1.04])
    assert not beats([1.0] * 3, [1.0] * 3)


def test_early_end() -> None:
    falling = [1.0 / (n + 1) for n in range(40)]
    assert not nothing_left(falling, 64)
    assert nothing_left([*falling, *([1.0] * 20)], 64)
    assert not nothing_left([1.0] * 20, 64)


def test_a_missing_optuna_is_a_missing_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ToolchainError, match=r"tune: .*optuna.*pip install 'nautilusc\[tune\]'"):
        open_storage("memory")
