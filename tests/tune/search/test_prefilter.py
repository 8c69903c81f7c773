"""The pre-filter, the correction of the cost model by measurements, and the proposer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nautilus.core.schedule import AxisPlan, KernelPlan, Schedule
from nautilus.tune.search.prefilter import Prefilter, ScoredPoint
from nautilus.tune.search.proposer import Proposer
from nautilus.tune.search.residual import FAILED, PRIOR, Fields, corrections, errors_of
from nautilus.tune.search.stopping import pruning_limit
from nautilus.tune.space.choices import SearchSpace
from nautilus.tune.workers.pool import Limit, Pool, Service
from tests.core.schedule.engines import warp_of
from tests.tune.toy import Choice

NAMES = ("a", "b", "c", "d", "e", "f")
#: ``idle`` changes nothing: most choices of a real space are switched off by others
SPACE = SearchSpace(
    (*(Choice(n, tuple(range(8))) for n in NAMES), Choice("idle", (0, 1, 2))),
    dict.fromkeys((*NAMES, "idle"), 0),
    lambda values: Schedule(inline=tuple(str(values[n]) for n in NAMES)),
)


@pytest.fixture
def pool() -> Iterator[Pool[Any]]:
    made: Pool[Any] = Pool([Service("tests.tune.workers.services:bowl")] * 2, Limit(30.0, 30.0))
    yield made
    made.close()


def prefilter(pool: Pool[Any], seed: int = 1) -> Prefilter:
    return Prefilter(SPACE, pool, random.Random(seed))


def test_generations_beat_uniform_draws(pool: Pool[Any]) -> None:
    """Summed over eight seeds, the distance of the best point from the optimum is less than half of that of draws."""
    drawn = found = 0.0
    for seed in range(8):
        made = prefilter(pool, seed)
        made.run((), None, 240, 60.0)
        rng = random.Random(seed + 10)
        drawn += min(sum((SPACE.random(rng)[n] - 5) ** 2 for n in NAMES) for _ in range(240))
        found += made.found[made.best(1)[0]].estimate - 1.0
        assert [made.found[h].estimate for h in made.best()] == sorted(p.estimate for p in made.found.values())
    assert found < drawn / 2


def test_hill_climbing_continues_while_a_change_helps(pool: Pool[Any]) -> None:
    made = prefilter(pool)
    made.run([dict.fromkeys(SPACE.defaults, 3)], None, 0, 60.0)
    made.hill_climb(60.0)
    assert made.found[made.best(1)[0]].estimate == 1.0


def test_no_schedule_is_estimated_twice_and_refusals_are_kept(pool: Pool[Any]) -> None:
    made = prefilter(pool)
    given = [{**SPACE.defaults, "idle": n} for n in range(3)] + [{**SPACE.defaults, "a": 7}]
    made.run(given, None, 0, 60.0)
    assert len(made.found) == 1
    assert list(made.refused.values()) == ["seven comes first"]
    made.run((), SPACE.defaults, 60, 60.0)
    assert 45 <= len(made.found) + len(made.refused) <= 62
    assert not made.found.keys() & made.refused.keys()


def test_the_result_depends_on_the_seed_alone(pool: Pool[Any]) -> None:
    found = [prefilter(pool, 4) for _ in range(2)]
    for s in found:
        s.run((), None, 100, 60.0)
    assert found[0].best() == found[1].best()


def test_the_time_limit_ends_the_prefilter(pool: Pool[Any]) -> None:
    made = prefilter(pool)
    made.run(SPACE.points(), None, 1000, 0.0)
    assert len(made.found) == 1


def schedule(stages: int, *tiles: int) -> Schedule:
    axes = tuple(AxisPlan(f"x{n}", "loop", t) for n, t in enumerate(tiles))
    plan = KernelPlan("k", ("op",), axes, (("op",),))
    return Schedule(kernels=(replace(plan, mapping=replace(plan.mapping, stages=stages)),))


def test_the_distance_counts_fields() -> None:
    fields = Fields()
    for name, made in {"a": schedule(1, 8), "b": schedule(2, 16), "c": schedule(2, 16, 8)}.items():
        fields.add(name, made)
    found = fields.distances(["a", "b"], ["a", "b", "c"])
    assert found[0].tolist() == [0, 2, 2 + 3] and found[1].tolist() == [2, 0, 3]


def fields_with(**schedules: Schedule) -> Fields:
    found = Fields()
    for name, made in schedules.items():
        found.add(name, made)
    return found


def test_similar_schedules_have_similar_corrections() -> None:
    fields = fields_with(
        slow=schedule(1, 8), near=schedule(2, 8), other=schedule(4, 64, 64, 64), far=schedule(9, 9, 9, 9, 9)
    )
    names, errors = ["slow", "other"], np.array([0.2, 0.0])  # the first took 20 % more than the model said
    mean, doubt = corrections(
        fields.covariance(names, names), errors, fields.covariance(["slow", "near", "far", "other"], names)
    )
    assert mean[0] == pytest.approx(0.2, abs=0.02) and doubt[0] < 0.02
    assert mean[0] > mean[1] > mean[2] > mean[3]
    assert doubt[0] < doubt[1] < doubt[2]


def test_an_overrated_structure_is_not_preferred() -> None:
    odd = schedule(3, 16)
    odd = replace(
        odd, kernels=tuple(replace(k, mapping=replace(warp_of(k), combine_in_block=True)) for k in odd.kernels)
    )
    fields = fields_with(a=schedule(1, 8), b=schedule(2, 8), c=schedule(3, 8), odd=odd)
    names, errors = ["a", "b"], np.array([0.7, 0.7])  # twice what the model said
    mean, doubt = corrections(fields.covariance(names, names), errors, fields.covariance(["c", "odd"], names))
    bounds = mean - doubt
    assert bounds[1] < bounds[0] - 0.1


def test_failed_schedules_are_slow_and_running_ones_have_the_median_error() -> None:
    found = errors_of([(1.0, 1.1), (2.0, 2.2), (1.0, None), (None, None), (None, 0.0)])
    usual = float(np.log(1.1))
    assert found == pytest.approx([usual, usual, usual + FAILED, usual + FAILED, usual])
    assert errors_of([(None, 0.0), (None, None)]) == pytest.approx([0.0, FAILED])


def test_without_measurements_all_have_the_prior_deviation() -> None:
    mean, doubt = corrections(np.zeros((0, 0)), np.zeros(0), np.zeros((3, 0)))
    assert mean.tolist() == [0.0] * 3 and doubt == pytest.approx([PRIOR**0.5] * 3)


class Outcomes:
    """A study that has only outcomes."""

    def __init__(self, *outcomes: tuple[str, Schedule, float | None, float | None]) -> None:
        self.found = list(outcomes)

    def outcomes(self) -> list[tuple[str, Schedule, float | None, float | None]]:
        return self.found


def test_promising_points_have_a_lower_bound_below_the_best(pool: Pool[Any]) -> None:
    made = prefilter(pool)
    for name, seconds in {"a": 1.0, "b": 1.05, "c": 3.0}.items():
        made.found[name] = ScoredPoint(seconds, schedule(ord(name), 8), {"name": name})
    study: Any = Outcomes(("a", made.found["a"].schedule, 1.0, 1.0))
    proposer = Proposer(SPACE, study, made, SPACE.defaults)
    assert proposer.promising({"a"}, 1.0) == [{"name": "b"}]  # no error of the model so far makes c the best
    assert proposer.promising({"a", "b"}, 1.0) == []
    assert proposer.promising({"a"}, 0.5) == [] and proposer.promising({"a"}, 0.0) == []
    assert proposer.top_candidate({"a"}) == {"name": "b"}
    assert proposer.promising({"a"}, 1.0) == []  # the candidates that were proposed are being measured
    study.found.append(("b", made.found["b"].schedule, None, None))
    proposer.select_parents()
    assert set(proposer.parents) == {"a", "b", "c"} and proposer.parents[0] == "a"


def test_every_structure_has_a_parent(pool: Pool[Any]) -> None:
    made = prefilter(pool)
    for n in range(60):
        own = schedule(n, 8)
        rare = n in (40, 50, 55)
        mapping = replace(warp_of(own.kernels[0]), combine_in_block=rare, cluster=2 if n == 55 else 1)
        own = replace(own, kernels=(replace(own.kernels[0], mapping=mapping),))
        made.found[f"{n:02}"] = ScoredPoint(1.0 + n, own, {})
    chosen = made.parents(made.best())
    assert chosen == [f"{n:02}" for n in range(24)] + ["40", "55"]


def test_the_pruning_limit() -> None:
    pairs = [(1.0, 0.9 + 0.05 * n) for n in range(8)]
    assert pruning_limit(pairs[:7], 1.0) == 0.0
    assert pruning_limit(pairs, 0.0) == 0.0
    limit = pruning_limit(pairs, 1.0)
    assert 1.0 / 0.9 < limit < 2.0  # an estimate below the best optimistic one is not pruned
    assert pruning_limit(pairs, 2.0) == pytest.approx(2.0 * limit)
