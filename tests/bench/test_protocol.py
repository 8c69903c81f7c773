"""The protocols under a clock without a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

import pytest

from nautilus.bench.protocol import BURST, HEAT, SPIN, WARM_UP, Burst, Cool, Run, Sample, Timing, cool, sustained


@dataclass
class FakeClock:
    """A clock that takes the seconds of each contender from a list, and records the calls."""

    times: dict[str, list[float]]
    host: dict[str, float] = field(default_factory=dict)
    calls: list[tuple[str, float]] = field(default_factory=list)
    plans: list[Sequence[Burst]] = field(default_factory=list)
    now: str = ""

    def runs(self) -> dict[str, Run]:
        def run_of(name: str) -> Run:
            def run() -> None:
                self.now = name

            return run

        return {name: run_of(name) for name in self.times}

    def one(self, run: Run, spin: float) -> Sample:
        run()
        self.calls.append((self.now, spin))
        times = self.times[self.now]
        return Sample(times.pop(0) if len(times) > 1 else times[0], self.host.get(self.now, 0.0))

    def bursts(self, plan: Sequence[Burst]) -> list[float]:
        self.plans.append(plan)
        return [self.times[b.name][0] for b in plan]


def test_timing() -> None:
    t = Timing((1.0, 1.2, 1.1))
    assert t.median == 1.1
    assert t.spread == pytest.approx(0.2 / 1.1)


def test_cool_times_everyone_as_often_in_mixed_order_after_a_spin() -> None:
    clock = FakeClock({"a": [1e-3], "b": [2e-3]})
    found = cool(clock, clock.runs(), 9)
    assert {n: len(t.samples) for n, t in found.times.items()} == {"a": 9, "b": 9}
    assert found.times["b"].median == 2e-3 and found.passes == 1
    timed = [name for name, _ in clock.calls[2 * WARM_UP :]]
    assert Counter(timed) == {"a": 9, "b": 9}
    assert timed not in (["a"] * 9 + ["b"] * 9, ["b"] * 9 + ["a"] * 9)
    assert min(spin for _, spin in clock.calls) >= SPIN >= 5e-3


def test_a_slow_host_is_hidden_by_a_longer_spin() -> None:
    clock = FakeClock({"a": [1e-3]}, host={"a": 20e-3})
    cool(clock, clock.runs(), 3)
    assert clock.calls[-1][1] >= 20e-3


def test_a_wide_pass_is_repeated_once_and_the_calmer_one_counts() -> None:
    wild = [1.0] * WARM_UP + [1.0, 2.0, 1.0] + [1.0]
    clock = FakeClock({"a": wild})
    found = cool(clock, clock.runs(), 3)
    assert found.passes == 2 and found.times["a"].spread == 0.0
    always = FakeClock({"a": [1.0] * WARM_UP + [1.0, 2.0, 1.0, 1.0, 3.0, 1.0]})
    found = cool(always, always.runs(), 3)
    assert found.passes == 2 and found.times["a"].spread == 1.0


def test_bursts_last_about_as_long_for_each_and_the_first_rounds_are_dropped() -> None:
    clock = FakeClock({"a": [1e-3], "b": [50e-6]})
    first = Cool({"a": Timing((1e-3,)), "b": Timing((50e-6,))}, {"a": 10e-6, "b": 100e-6}, 1)
    found = sustained(clock, clock.runs(), first, 4)
    assert {n: len(t.samples) for n, t in found.items()} == {"a": 4, "b": 4}
    (plan,) = clock.plans  # one plan: nothing waits between bursts
    heat = ceil(HEAT / (2 * BURST))
    assert len(plan) == 2 * (heat + 4) and heat > 1
    assert Counter(b.name for b in plan) == {"a": heat + 4, "b": heat + 4}
    assert len({tuple(b.name for b in plan[i : i + 2]) for i in range(0, len(plan), 2)}) == 2  # shuffled
    a, b = (next(x for x in plan if x.name == n) for n in "ab")
    assert (a.count, b.count) == (round(BURST / 1e-3), round(BURST / 50e-6))
    assert a.lead == 0.0  # the host is quick enough
    assert b.lead == pytest.approx(b.count * (1.2 * 100e-6 - 50e-6))


def test_no_rounds_no_bursts() -> None:
    clock = FakeClock({"a": [1.0]})
    assert sustained(clock, clock.runs(), Cool({"a": Timing((1.0,))}, {"a": 0.0}, 1), 0) == {}
    assert clock.plans == []
