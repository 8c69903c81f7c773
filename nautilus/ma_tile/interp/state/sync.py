"""Barriers, mbarriers and the adversarial scheduler of the physical interpreter.

A consumer of a role is a coroutine that yields a :class:`Wait` at every synchronising operation.  The
scheduler resumes one that may run, chosen by a *policy* that a seed picks: always the first, always
the last, or at random.  The first two let a consumer or a producer run as far ahead as its waits allow,
which reveals a wrong parity.  Copies that arrive on an mbarrier arrive
only when no consumer can run; under the random policy also at any other time.

``mbar.arrive`` of a consumer with w warps counts 32 * w, or w ``each warp``; the arrival of its cp.async
32 * w; of one thread 1.  A phase completes when it has its arrivals and as many bytes have arrived
as were expected, in any order.  A phase that completes before a thread waited for the previous phase is an
error, because the parities of the two are ambiguous.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from nautilus.core.records import dataclass
from nautilus.ma_tile.interp.state.outstanding import Engines
from nautilus.ma_tile.interp.state.shared_memory import Clock, Flight, OpFault, SharedMemory
from nautilus.ma_tile.interp.state.values import Fault
from nautilus.ma_tile.ir.ops import Mbar, MemOp
from nautilus.targets.limits import NAMED_BARRIERS, WARP


@dataclass(slots=True)
class Actor:
    """A running consumer of a role: its warps, its clock, its asynchronous copies, oldest group first.

    ``rank``: rank of its block in the cluster; ``consumers``: number of consumers that run the same body;
    ``role_component``: component of the first of them; ``pipelines``: variables of the pipelines; ``engines``:
    outstanding MMAs and TMA stores.
    """

    name: str
    first_warp: int
    warps: int
    clock: Clock
    rank: int = 0
    consumer: int = 0
    consumers: int = 1
    single: bool = False
    role_component: int = 0
    groups: list[list[Flight]] = field(default_factory=list)
    open: list[Flight] = field(default_factory=list)
    pipelines: dict[str, int] = field(default_factory=dict)
    engines: Engines = field(default_factory=Engines)

    @property
    def threads(self) -> int:
        """The number of threads."""
        return 1 if self.single else 32 * self.warps


@dataclass(slots=True)
class Wait:
    """A consumer waits at ``op`` until ``ready()``; ``join``: it waits for the tasks that it started."""

    op: MemOp
    ready: Callable[[], bool]
    join: bool = False


Program = Generator[Wait, None, None]


class Deadlock(Exception):
    """No consumer can run; ``waits`` has each consumer and the op at which it waits."""

    def __init__(self, waits: list[tuple[Actor, Wait]]) -> None:
        super().__init__("deadlock")
        self.waits = waits


@dataclass(slots=True)
class _OpenBarrier:
    """Threads that have arrived at one barrier so far; ``passing``: clocks of threads that do not wait."""

    expected: int
    actors: list[Actor] = field(default_factory=list)
    passing: list[NDArray[np.int32]] = field(default_factory=list)
    components: list[int] = field(default_factory=list)
    count: int = 0
    done: bool = False


class Barriers:
    """``bar.sync`` and ``bar.arrive``: number 0 without a count is the whole block's.

    The lanes of one warp wait for each other without a barrier of the block, so the number of their barrier may be any.
    ``roles``: components of threads in a block; those of the cluster's blocks follow one another.
    """

    def __init__(self, memory: SharedMemory, threads: int, roles: int) -> None:
        self.memory, self.threads, self.roles = memory, threads, roles
        self.met: Callable[[], None] = lambda: None  # called when all threads of a block have met
        self._open: dict[tuple[int, int], _OpenBarrier] = {}
        self._last: dict[tuple[int, int], dict[int, int]] = {}

    def arrive(self, actor: Actor, number: int, threads: int | None, wait: bool = True) -> Callable[[], bool]:
        """``actor`` arrives; the result says when the barrier has completed. Raises Fault."""
        expected = self.threads if threads is None else threads
        if expected > WARP and not 0 <= number < NAMED_BARRIERS:
            raise Fault("barrier", f"barrier number {number} is not in 0..{NAMED_BARRIERS - 1}")
        key = (actor.rank, number)
        here = self._open.setdefault(key, _OpenBarrier(expected))
        self._check_free(actor, key)
        if here.expected != expected:
            raise Fault("barrier", f"barrier {number} is awaited with {expected} and {here.expected} threads")
        if actor.clock.component in here.components:
            raise Fault("barrier", f"threads arrive at barrier {number} a second time before it completes")
        here.count += actor.threads
        here.components.append(actor.clock.component)
        if here.count > expected:
            raise Fault("barrier", f"{here.count} threads arrive at a barrier of {expected}")
        if wait:
            here.actors.append(actor)
        else:
            here.passing.append(self._leave(actor))
        if here.count == expected:
            self.complete(here.actors, here.passing, everyone=expected == self.threads, rank=actor.rank)
            here.done = True
            del self._open[key]
            self._last[key] = {c: int(self.memory.time[c]) for c in here.components}
        return lambda: here.done

    def _check_free(self, actor: Actor, key: tuple[int, int]) -> None:
        """Check that the last use of a barrier by other threads is ordered before this one. Raises Fault."""
        last, vc = self._last.get(key, {}), actor.clock.vc
        if actor.clock.component not in last and any(vc[c] < stamp for c, stamp in last.items()):
            raise Fault("barrier", f"barrier {key[1]} may still be in use by other threads")

    def _leave(self, actor: Actor) -> NDArray[np.int32]:
        """A clock that releases everything that ``actor`` did so far."""
        time, c = self.memory.time, actor.clock.component
        time[c] += 1
        out = actor.clock.vc.copy()
        out[c] = time[c]
        return out

    def complete(
        self,
        actors: list[Actor],
        passing: Sequence[NDArray[np.int32]] = (),
        everyone: bool = False,
        rank: int = 0,
    ) -> None:
        """Order everything that the threads of ``actors`` did before everything that they do next."""
        if not actors:
            return
        whole = everyone and not passing
        released = range(rank * self.roles, (rank + 1) * self.roles) if whole else [a.clock.component for a in actors]
        time = self.memory.time
        merged: NDArray[np.int32] = np.max([*(a.clock.vc for a in actors), *passing], axis=0)
        for c in released:
            time[c] += 1
            merged[c] = time[c]
        for a in actors:
            a.clock.vc = merged.copy()
        if sum(a.threads for a in actors) == self.threads:
            self.met()


@dataclass(slots=True)
class Phase:
    """One mbarrier: ``phase`` counts completions; clocks of completed and of open phases.

    ``missing``: bytes expected and not yet arrived (negative: arrived and not yet expected).  ``last``: component of
    each role that arrived, and the time of its last arrival.
    """

    name: str
    arrivals: int
    component: int
    done_vc: NDArray[np.int32]
    open_vc: NDArray[np.int32]
    phase: int = 0
    count: int = 0
    missing: int = 0
    observed: bool = True
    last: dict[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        bytes_ = f", {self.missing} bytes missing" if self.missing else ""
        return f"{self.name} in phase {self.phase} has {self.count} of {self.arrivals} arrivals{bytes_}"


@dataclass(slots=True)
class Arrival:
    """A pending copy, and the arrivals and bytes that it counts on its mbarrier."""

    bar: Phase
    flight: Flight
    threads: int = 0
    bytes: int = 0


class Mbarriers:
    """All mbarriers of the blocks of a cluster, and the pending copies that will arrive on them."""

    def __init__(
        self, memory: SharedMemory, mbars: tuple[Mbar, ...], first_component: int, ranks: int = 1, ready: bool = True
    ) -> None:
        self.memory, self.ready = memory, ready
        self.initialised: dict[int, tuple[int, int]] = {}  # rank -> component and time of the thread that did it
        self.barriers: dict[tuple[str, int], list[Phase]] = {}
        n = len(memory.time)
        for rank in range(ranks):
            for m in mbars:
                phases = self.barriers[m.name, rank] = []
                for stage in range(m.stages):
                    clocks = (np.zeros(n, np.int32), np.zeros(n, np.int32))
                    phases.append(Phase(f"{m.name}[{stage}]", m.arrivals, first_component, *clocks))
                    first_component += 1
        self.outstanding: list[Arrival] = []

    def initialise(self, actor: Actor) -> None:
        """Thread 0 of the block of ``actor`` initialises its mbarriers; others see it after a barrier."""
        if actor.consumer == 0:
            c = actor.clock.component
            self.initialised[actor.rank] = c, int(self.memory.time[c])

    def _check_ready(self, actor: Actor, rank: int) -> None:
        """Check that ``actor`` sees the mbarriers of block ``rank`` initialised. Raises Fault."""
        if self.ready:
            return
        if rank not in self.initialised:
            raise Fault("uninitialised", "no thread has initialised the mbarriers")
        c, time = self.initialised[rank]
        if actor.clock.vc[c] <= time:
            raise Fault("uninitialised", "no barrier stands between the initialisation of the mbarriers and this use")

    def at(self, name: str, stage: int, actor: Actor, rank: int | None = None) -> Phase:
        """The mbarrier of ``stage`` of ``name`` in block ``rank`` (None: the actor's). Raises Fault."""
        rank = actor.rank if rank is None else rank
        self._check_ready(actor, rank)
        phases = self.barriers.get((name, rank))
        if phases is None:
            raise Fault("undefined-buffer", f"no mbarrier is called {name}")
        if not 0 <= stage < len(phases):
            raise Fault("out-of-bounds", f"stage {stage} is outside the {len(phases)} of {name}")
        return phases[stage]

    def arrive(self, actor: Actor, bar: Phase, count: int) -> None:
        """All threads of ``actor`` arrive, ``count`` arrivals in all, releasing what they did. Raises Fault."""
        time, c = self.memory.time, actor.clock.component
        np.maximum(bar.open_vc, actor.clock.vc, out=bar.open_vc)
        bar.last[c] = int(time[c])
        time[c] += 1
        bar.open_vc[c] = max(int(bar.open_vc[c]), int(time[c]))
        self._count(bar, count)

    def expect(self, actor: Actor, bar: Phase, count: int) -> None:
        """One thread expects ``count`` bytes and arrives; it does not release what other threads did. Raises Fault."""
        np.maximum(bar.open_vc, actor.clock.vc, out=bar.open_vc)
        bar.missing += count
        self._count(bar, 1)

    def deliver(self, rng: random.Random) -> bool:
        """Let one copy arrive; False if none is pending. Raises OpFault."""
        if not self.outstanding:
            return False
        one = self.outstanding.pop(rng.randrange(len(self.outstanding)))
        self.memory.land(one.flight, one.bar.component, engine=True)
        try:
            self.complete_copy(one.bar, one.threads, one.bytes)
        except Fault as f:
            raise OpFault(f.kind, f.message, one.flight.op, "issued by") from None
        return True

    def complete_copy(self, bar: Phase, threads: int, count: int) -> None:
        """A copy of ``count`` bytes, with the arrivals of ``threads``, is complete at ``bar``. Raises Fault."""
        bar.missing -= count
        self._count(bar, threads)

    def passed(self, bar: Phase, parity: int) -> bool:
        """Whether a wait on ``parity`` passes: the phase of that parity is not the open one."""
        return bar.phase % 2 != parity

    def observe(self, actor: Actor, bar: Phase) -> None:
        """``actor`` has waited for the barrier: it sees what completed phases released."""
        bar.observed = True
        actor.clock.vc = np.maximum(actor.clock.vc, bar.done_vc)

    def in_use(self, actor: Actor, own: range) -> Phase | None:
        """An mbarrier of the block of ``actor`` at which components other than its ``own`` may still arrive."""
        for (_, rank), phases in self.barriers.items():
            for bar in phases if rank == actor.rank else ():
                if any(stamp >= actor.clock.vc[c] for c, stamp in bar.last.items() if c not in own):
                    return bar
        return None

    def open(self) -> list[Phase]:
        """Barriers with an incomplete phase."""
        return [p for phases in self.barriers.values() for p in phases if p.count or p.missing]

    def _count(self, bar: Phase, threads: int) -> None:
        bar.count += threads
        if bar.count > bar.arrivals:
            raise Fault("over-arrival", f"{bar.count} arrivals in a phase that expects {bar.arrivals}")
        if bar.count < bar.arrivals or bar.missing:
            return
        if not bar.observed:
            raise Fault("over-arrival", f"phase {bar.phase} completes before a thread waited for the previous phase")
        time, c = self.memory.time, bar.component
        time[c] += 1
        bar.open_vc[c] = time[c]
        np.maximum(bar.done_vc, bar.open_vc, out=bar.done_vc)
        bar.phase, bar.count, bar.observed = bar.phase + 1, 0, False


@dataclass(slots=True)
class Task:
    """A coroutine under the scheduler."""

    actor: Actor
    program: Program
    wait: Wait | None = None
    done: bool = False


class Scheduler:
    """Runs tasks to their ends; ``seed`` picks the policy (module docstring)."""

    def __init__(self, seed: int, mbarriers: Mbarriers) -> None:
        self.rng = random.Random(seed)
        self.policy = seed % 3
        self.mbarriers = mbarriers
        self.tasks: list[Task] = []

    def start(self, actor: Actor, program: Program) -> Task:
        """A new task; tasks may start others."""
        task = Task(actor, program)
        self.tasks.append(task)
        return task

    def run(self) -> None:
        """Run every task to its end. Raises Deadlock, and whatever an operation raises."""
        while self.tasks:
            if self.policy == 2 and self.rng.random() < 0.3:
                self.mbarriers.deliver(self.rng)
            ready = [t for t in self.tasks if t.wait is None or t.wait.ready()]
            if not ready:
                if not self.mbarriers.deliver(self.rng):
                    raise Deadlock([(t.actor, t.wait) for t in self.tasks if t.wait is not None and not t.wait.join])
                continue
            task = (ready[0], ready[-1], self.rng.choice(ready))[self.policy]
            try:
                task.wait = next(task.program)
            except StopIteration:
                task.done = True
                self.tasks.remove(task)
