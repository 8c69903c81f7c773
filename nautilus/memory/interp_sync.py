"""Barriers, mbarriers and the adversarial scheduler of the physical interpreter.

A role is a coroutine that yields a :class:`Wait` at every synchronising operation.  The scheduler
resumes one role that may run, chosen by a *policy* that a seed picks: always the first role, always
the last, or at random; greedy policies let a consumer run as far ahead as its waits allow, and a
producer likewise, which is where a wrong parity shows.  Copies that arrive on an mbarrier arrive
only when no role can run otherwise.

Every op is executed by all threads of its role, so ``mbar.arrive`` of a role with w warps, and the
arrival of its copy, count 32 * w.  A completed phase that nobody waited for before the next one
completes is an error: its parity would alias.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nautilus.memory.interp_smem import Clock, Flight, SharedMemory
from nautilus.memory.interp_values import Fault
from nautilus.memory.ops import Mbar, MemOp


@dataclass(slots=True)
class Actor:
    """A role at work: its warps, its clock, its asynchronous copies, oldest group first."""

    name: str
    first_warp: int
    warps: int
    clock: Clock
    groups: list[list[Flight]] = field(default_factory=list)
    open: list[Flight] = field(default_factory=list)

    @property
    def threads(self) -> int:
        return 32 * self.warps


@dataclass(slots=True)
class Wait:
    """A role stands at ``op`` until ``ready()``."""

    op: MemOp
    ready: Callable[[], bool]


Program = Generator[Wait, None, None]


class Deadlock(Exception):
    """No role can run; ``waits`` names each role and the op it stands at."""

    def __init__(self, waits: list[tuple[Actor, Wait]]) -> None:
        super().__init__("deadlock")
        self.waits = waits


@dataclass(slots=True)
class _Gathering:
    """Threads that have arrived at one barrier so far."""

    expected: int
    actors: list[Actor] = field(default_factory=list)
    done: bool = False


class Barriers:
    """``bar.sync``: number 0 without a count is the whole block's."""

    def __init__(self, memory: SharedMemory, threads: int, roles: int) -> None:
        self.memory, self.threads, self.roles = memory, threads, roles
        self._open: dict[int, _Gathering] = {}

    def arrive(self, actor: Actor, number: int, threads: int | None) -> Callable[[], bool]:
        """``actor`` arrives; the result tells when the barrier has completed. Raises Fault."""
        expected = self.threads if threads is None else threads
        if not 0 <= number < 16:
            raise Fault("barrier", f"barrier number {number} is not in 0..15")
        here = self._open.setdefault(number, _Gathering(expected))
        if here.expected != expected:
            raise Fault("barrier", f"barrier {number} is awaited with {expected} and {here.expected} threads")
        here.actors.append(actor)
        count = sum(a.threads for a in here.actors)
        if count > expected:
            raise Fault("barrier", f"{count} threads arrive at a barrier of {expected}")
        if count == expected:
            self.complete(here.actors)
            here.done = True
            del self._open[number]
        return lambda: here.done

    def complete(self, actors: list[Actor]) -> None:
        """Everything the threads of ``actors`` did is seen by all of them from now on."""
        everyone = sum(a.threads for a in actors) == self.threads
        released = range(self.roles) if everyone else [a.clock.component for a in actors]
        time = self.memory.time
        merged: NDArray[np.int32] = np.max([a.clock.vc for a in actors], axis=0)
        for c in released:
            time[c] += 1
            merged[c] = time[c]
        for a in actors:
            a.clock.vc = merged.copy()


@dataclass(slots=True)
class _Phase:
    """One mbarrier: ``phase`` counts completions; clocks of completed and of open phases."""

    arrivals: int
    component: int
    done_vc: NDArray[np.int32]
    open_vc: NDArray[np.int32]
    phase: int = 0
    count: int = 0
    observed: bool = True


class Mbarriers:
    """All mbarriers of a block, and the copies in flight that will arrive on them."""

    def __init__(self, memory: SharedMemory, mbars: tuple[Mbar, ...], first_component: int) -> None:
        self.memory = memory
        self.rings: dict[str, list[_Phase]] = {}
        n = len(memory.time)
        for m in mbars:
            self.rings[m.name] = []
            for _ in range(m.stages):
                clocks = (np.zeros(n, np.int32), np.zeros(n, np.int32))
                self.rings[m.name].append(_Phase(m.arrivals, first_component, *clocks))
                first_component += 1
        self.flying: list[tuple[_Phase, Actor, list[Flight]]] = []

    def at(self, name: str, stage: int) -> _Phase:
        """The barrier in ``stage`` of ring ``name``. Raises Fault outside the ring."""
        ring = self.rings.get(name)
        if ring is None:
            raise Fault("undefined-buffer", f"no mbarrier is called {name}")
        if not 0 <= stage < len(ring):
            raise Fault("out-of-bounds", f"stage {stage} is outside the {len(ring)} of {name}")
        return ring[stage]

    def arrive(self, actor: Actor, bar: _Phase) -> None:
        """All threads of ``actor`` arrive, releasing what they did. Raises Fault."""
        time, c = self.memory.time, actor.clock.component
        np.maximum(bar.open_vc, actor.clock.vc, out=bar.open_vc)
        time[c] += 1
        bar.open_vc[c] = max(int(bar.open_vc[c]), int(time[c]))
        self._count(bar, actor.threads)

    def copy(self, actor: Actor, bar: _Phase, flight: Flight) -> None:
        """``flight`` will arrive on ``bar`` in place of the threads that issued it."""
        self.flying.append((bar, actor, [flight]))

    def deliver(self, rng: random.Random) -> bool:
        """Let one copy arrive; False when none is in flight. Raises Fault."""
        if not self.flying:
            return False
        bar, actor, flights = self.flying.pop(rng.randrange(len(self.flying)))
        for flight in flights:
            self.memory.land(flight, bar.component, engine=True)
        self._count(bar, actor.threads)
        return True

    def passed(self, bar: _Phase, parity: int) -> bool:
        """Whether a wait on ``parity`` passes: the phase of that parity is not the open one."""
        return bar.phase % 2 != parity

    def observe(self, actor: Actor, bar: _Phase) -> None:
        """``actor`` saw the barrier pass: it sees what completed phases released."""
        bar.observed = True
        actor.clock.vc = np.maximum(actor.clock.vc, bar.done_vc)

    def _count(self, bar: _Phase, threads: int) -> None:
        bar.count += threads
        if bar.count > bar.arrivals:
            raise Fault("over-arrival", f"{bar.count} arrivals in a phase that expects {bar.arrivals}")
        if bar.count < bar.arrivals:
            return
        if not bar.observed:
            raise Fault("over-arrival", f"phase {bar.phase} completes before anyone waited for the last one")
        time, c = self.memory.time, bar.component
        time[c] += 1
        bar.open_vc[c] = time[c]
        np.maximum(bar.done_vc, bar.open_vc, out=bar.done_vc)
        bar.phase, bar.count, bar.observed = bar.phase + 1, 0, False


class Scheduler:
    """Runs roles to their ends; ``seed`` picks the policy (module docstring)."""

    def __init__(self, seed: int, mbarriers: Mbarriers) -> None:
        self.rng = random.Random(seed)
        self.policy = seed % 3
        self.mbarriers = mbarriers

    def run(self, programs: Mapping[int, tuple[Actor, Program]]) -> None:
        """Run every program to its end. Raises Deadlock, and whatever an operation raises."""
        waits: dict[int, Wait | None] = dict.fromkeys(programs)
        while waits:
            ready = [i for i, w in waits.items() if w is None or w.ready()]
            if not ready:
                if not self.mbarriers.deliver(self.rng):
                    raise Deadlock([(programs[i][0], w) for i, w in waits.items() if w is not None])
                continue
            i = (ready[0], ready[-1], self.rng.choice(ready))[self.policy]
            try:
                waits[i] = next(programs[i][1])
            except StopIteration:
                del waits[i]
