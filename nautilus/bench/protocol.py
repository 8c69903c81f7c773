"""The two timing protocols, each over all contenders in shuffled order.

``cool`` is the median of single runs.  A spin kernel keeps the GPU at low power for at least :data:`SPIN` seconds
before each run, so every run starts at the same clock and the work of the host is hidden.  A power-limited GPU lowers
its clock within milliseconds under load; back-to-back times therefore depend on previous work, and cool times do not.

``sustained`` times shuffled rounds of bursts of about :data:`BURST` seconds of each contender, enqueued back to back,
so the GPU stays at its power limit.  The rounds of the first :data:`HEAT` seconds, at least one, are dropped.  A
contender whose host work is slower than its kernels gets a spin before each burst that lets the host run ahead, so only
GPU work is compared.

The spread of a series is (max - min) / median.  If one spread of a cool pass exceeds the limit, the whole pass is
repeated once, and the pass with the smaller widest spread counts for all contenders.

Times come from a :class:`Clock`; tests use one without a GPU.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from statistics import median
from typing import Protocol, TypeAlias, TypeVar

from nautilus.core.records import dataclass

SPIN = 5e-3
BURST = 12e-3
HEAT = 0.4
WARM_UP = 3
COOL_LIMIT = 0.10  # largest spread of cool times with a ratio
SUSTAINED_LIMIT = 0.30  # the same limit for bursts, which is larger because the clock of a hot GPU varies

Run: TypeAlias = Callable[[], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one run on the GPU, and seconds of the host to enqueue it."""

    gpu: float
    host: float = 0.0


@dataclass(frozen=True, slots=True)
class Burst:
    """``count`` runs of ``run`` after a spin of ``lead`` seconds (0: no spin)."""

    name: str
    run: Run
    count: int
    lead: float = 0.0


class Clock(Protocol):
    """Times runs on a GPU."""

    def one(self, run: Run, spin: float) -> Sample:
        """The time of one run after a spin of ``spin`` seconds."""

    def bursts(self, plan: Sequence[Burst]) -> list[float]:
        """Seconds of a run in each burst of ``plan``; bursts run back to back."""


@dataclass(frozen=True, slots=True)
class Timing:
    """A series of times of one contender, in seconds."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median time in seconds."""
        return float(median(self.samples))

    @property
    def spread(self) -> float:
        """The difference of the largest and the least time, relative to the median."""
        return (max(self.samples) - min(self.samples)) / self.median


@dataclass(frozen=True, slots=True)
class Cool:
    """Cool times and host seconds of a run, by contender, and the number of passes."""

    times: Mapping[str, Timing]
    host: Mapping[str, float]
    passes: int


def cool(clock: Clock, runs: Mapping[str, Run], repeats: int, seed: int = 0, limit: float = COOL_LIMIT) -> Cool:
    """Time ``runs`` by the cool protocol."""
    order = random.Random(seed)
    host = {}
    for name, run in runs.items():
        host[name] = median(clock.one(run, SPIN).host for _ in range(WARM_UP))
    best = _pass(clock, runs, host, repeats, order)
    if _widest(best) <= limit:
        return Cool(best, host, 1)
    again = _pass(clock, runs, host, repeats, order)
    return Cool(min((best, again), key=_widest), host, 2)


def _pass(
    clock: Clock, runs: Mapping[str, Run], host: Mapping[str, float], repeats: int, order: random.Random
) -> dict[str, Timing]:
    found: dict[str, list[float]] = {name: [] for name in runs}
    for name in _shuffled(list(runs) * repeats, order):
        found[name].append(clock.one(runs[name], max(SPIN, 2.0 * host[name])).gpu)
    return {name: Timing(tuple(times)) for name, times in found.items()}


def _shuffled(items: Sequence[T], order: random.Random) -> list[T]:
    mixed = list(items)
    order.shuffle(mixed)
    return mixed


def _widest(times: Mapping[str, Timing]) -> float:
    return max((t.spread for t in times.values()), default=0.0)


def sustained(clock: Clock, runs: Mapping[str, Run], first: Cool, rounds: int, seed: int = 0) -> dict[str, Timing]:
    """Time ``runs`` by ``rounds`` rounds of bursts; ``first`` gives the duration of one run."""
    if not rounds:
        return {}
    each = [_burst(name, run, first) for name, run in runs.items()]
    round_seconds = sum(b.count * first.times[b.name].median for b in each)
    dropped = max(1, ceil(HEAT / round_seconds))
    order = random.Random(seed)
    plan = [b for _ in range(dropped + rounds) for b in _shuffled(each, order)]
    seconds = clock.bursts(plan)
    found: dict[str, list[float]] = {name: [] for name in runs}
    for b, taken in list(zip(plan, seconds, strict=True))[dropped * len(each) :]:
        found[b.name].append(taken)
    return {name: Timing(tuple(times)) for name, times in found.items()}


def _burst(name: str, run: Run, first: Cool) -> Burst:
    one = first.times[name].median
    count = max(1, round(BURST / one))
    return Burst(name, run, count, count * max(0.0, 1.2 * first.host[name] - one))
