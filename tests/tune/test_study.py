"""What lies between the space and Optuna."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from nautilus.core.errors import InputError
from nautilus.core.schedule import Schedule
from nautilus.tune.early import beats, best_in_top, nothing_left, promising, rank_correlation
from nautilus.tune.searchspace import SearchSpace
from nautilus.tune.study import Study, open_storage, study_name
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


def test_a_schedule_that_leaves_inlining_open_gets_the_rules() -> None:
    space = SearchSpace(CHOICES, {}, lambda v: Schedule(), ("P",))
    assert space.schedule({})[0] == Schedule(inline=("P",))
    assert SPACE.schedule({}) == (None, "never")
    broken = SearchSpace(CHOICES, {}, lambda v: v["nothing"])
    assert broken.schedule({}) == (None, "KeyError: 'nothing'")


def test_the_hash_follows_the_choices() -> None:
    other = SearchSpace((*CHOICES[:2], Choice("overlap", (True, False))), {}, lambda v: None)
    assert other.hash != SPACE.hash


def study(storage: object, name: str = "s") -> Study:
    return Study(storage, name, SPACE, seed=0, startup=4)


def test_what_was_enqueued_is_asked_first_and_told_once(tmp_path: Path) -> None:
    storage = open_storage(f"sqlite:///{tmp_path / 's.db'}")
    made = study(storage)
    made.enqueue(SPACE.defaults)
    asked = made.ask()
    assert asked.values == SPACE.defaults and made.spent == 0
    made.spend(asked, Schedule(inline=()), "h1")
    assert made.spent == 1 and made.tried() == {"h1"} and made.measured() == {}
    made.tell(asked, 2.0, estimate=1.0)
    twin = made.ask()
    made.tell(twin, 2.0)  # a duplicate: it has the value, but was not built
    refused = made.ask()
    made.refuse(refused, "no room")
    other = study(storage)
    assert other.spent == 1 and other.history() == [2.0] and other.estimates() == [(1.0, 2.0)]
    assert other.best(3) == [(2.0, Schedule(inline=()), {"stages": 2, "warps": [4, 1], "overlap": True})]


def test_a_trial_of_a_process_that_is_gone_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(f"journal:{tmp_path / 'j'}")
    made = study(storage)
    monkeypatch.setattr(made, "_owner", made._owner.rpartition(":")[0] + ":999999999")
    made.spend(made.ask(), Schedule(), "lost")
    assert made.tried() == {"lost"}
    assert study(storage).tried() == set()
    monkeypatch.setattr(made, "_owner", "elsewhere:1")
    made.spend(made.ask(), Schedule(), "far")
    assert study(storage).tried() == {"far"}


def test_names() -> None:
    storage = open_storage("memory")
    assert study_name(storage, "team", "x", False) == study_name(storage, "team", "x", True) == "team-x"
    assert study_name(storage, "", "x", True) == "tune-x-1"
    study(storage, "tune-x-1")
    assert study_name(storage, "", "x", True) == "tune-x-1"
    assert study_name(storage, "", "x", False) == "tune-x-2"


@pytest.mark.parametrize("url", ["nowhere", "oracle9://x/y", "sqlite:////no/such/folder/x.db"])
def test_a_storage_that_is_none(url: str) -> None:
    with pytest.raises(InputError, match="--storage"):
        open_storage(url)


def test_rank_correlation_and_top() -> None:
    rising = [(float(n), float(n * n)) for n in range(12)]
    assert rank_correlation(rising) == pytest.approx(1.0)
    assert rank_correlation([(a, -b) for a, b in rising]) == pytest.approx(-1.0)
    assert rank_correlation([(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]) is None
    assert rank_correlation([(1.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]) == pytest.approx(0.9487, abs=1e-4)
    assert rank_correlation(rising[:2]) is None
    assert best_in_top(rising) and not best_in_top([(a, -b) for a, b in rising])
    assert best_in_top(rising[:10]) is None


def test_noise_is_no_win() -> None:
    assert beats([1.0, 1.01, 1.02], [1.03, 1.04, 1.05])
    assert not beats([1.0, 1.01, 1.05], [1.02, 1.03, 1.04])
    assert not beats([1.0] * 3, [1.0] * 3)


def test_early_end() -> None:
    falling = [1.0 / (n + 1) for n in range(40)]
    assert not nothing_left(falling, 64)
    assert nothing_left([*falling, *([1.0] * 20)], 64)
    assert not nothing_left([1.0] * 20, 64)
    pairs = [(1.0, 1.0), (1.0, 2.0), (1.0, 1.5)]
    assert promising({"a": 0.5, "b": 2.0, "c": 0.4}, pairs, 1.0) == ["c", "a"]
    assert promising({"a": 0.5}, [], 1.0) == []
