"""Worker processes that run one job at a time under a deadline and are replaced after a hang or a crash.

A worker is a spawned process around a *service*, a callable that the process makes from a target
``"module:attribute"`` and arguments.  Processes are never forked, because a CUDA context does not survive a fork.  The
result of a job, its exception, a crash and a timeout all return as an :class:`Outcome`; a process past its deadline is
killed.  Workers ignore Ctrl-C, which the parent handles, and end with their parent.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from nautilus.core.errors import NautilusError, first_line, is_internal
from nautilus.core.records import dataclass
from nautilus.passes.loading import load
from nautilus.tune.internal_errors import described

T = TypeVar("T")

DONE, ERROR, DIED, TIMEOUT = "done", "error", "died", "timeout"
INTERNAL = "internal"  # a bug of the compiler
_READY, _WAITING = "ready", "waiting"
STARTUP = 300.0  # time limit in seconds to make a service
_PR_SET_PDEATHSIG = 1  # prctl(2)


class WorkerUnusable(Exception):
    """Raised by a service whose process must not be used again, such as after a sticky CUDA error."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a job.  ``kind`` is done (with ``value``), or error, internal, died, timeout (with ``reason``)."""

    kind: str
    value: Any = None
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Service:
    """The service of a worker: ``target(*args)`` is called once, and its result is called with each job."""

    target: str
    args: tuple[Any, ...] = ()


@dataclass
class Limit:
    """An adaptive time limit in seconds: ``factor`` times the 90th percentile of finished jobs, within bounds.

    The first three jobs have the limit ``ceiling``, because a limit that is too short would lose good candidates.
    """

    floor: float
    ceiling: float
    factor: float = 4.0
    taken: list[float] = field(default_factory=list)

    def observe(self, seconds: float) -> None:
        """Note that a job took ``seconds``."""
        self.taken.append(seconds)

    @property
    def seconds(self) -> float:
        """The time limit of the next job."""
        if len(self.taken) < 3:
            return self.ceiling
        slow = sorted(self.taken)[int(0.9 * (len(self.taken) - 1))]
        return min(self.ceiling, max(self.floor, self.factor * slow))


class Worker:
    """One worker process, which starts with the first job and starts again after a failure."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection[Any, Any] | None = None
        self.started = 0.0
        self.deadline = 0.0
        self._limit = 0.0

    def begin(self, job: Any, limit: float) -> None:
        """Start ``job`` with a time limit of ``limit`` seconds, counted from when the service of the process exists."""
        self._limit, self.started = limit, time.monotonic()
        self.deadline = self.started + limit
        if self._process is None:
            self._spawn()
            self.deadline = self.started + STARTUP
        assert self._pipe is not None
        with suppress(OSError):  # finish reports a process that just died
            self._pipe.send(job)

    def _spawn(self) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, os.getpid(), self.service), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe = ours

    @property
    def handles(self) -> list[Any]:
        """Handles for :func:`multiprocessing.connection.wait`; one becomes ready when the job ends."""
        assert self._pipe is not None and self._process is not None
        return [self._pipe, self._process.sentinel]

    def finish(self) -> Outcome | None:
        """The outcome of the job, or None while it runs."""
        assert self._pipe is not None and self._process is not None
        while self._pipe.poll():
            try:
                kind, value, reason = self._pipe.recv()
            except (EOFError, OSError):
                return self._died(time.monotonic() - self.started)
            if kind in (_READY, _WAITING):
                self.started = time.monotonic()
                self.deadline = self.started + (self._limit if kind == _READY else STARTUP)
                continue
            took = time.monotonic() - self.started
            if kind == DIED:
                self.close()
            return Outcome(kind, value, reason, took)
        took = time.monotonic() - self.started
        if not self._process.is_alive():
            return self._died(took)
        if time.monotonic() > self.deadline:
            self.close()
            return Outcome(TIMEOUT, None, f"exceeded the time limit of {self.deadline - self.started:.0f} s", took)
        return None

    def _died(self, took: float) -> Outcome:
        assert self._process is not None
        self._process.join(5.0)
        code = self._process.exitcode or 0
        self.close()
        name = signal.Signals(-code).name if -code in signal.valid_signals() else f"exit code {code}"
        return Outcome(DIED, None, f"the worker process died ({name})", took)

    def close(self) -> None:
        """Kill the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.join(10.0)
            self._process = None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None


class Pool(Generic[T]):
    """Workers of one service each, and the labels (type ``T``) of their running jobs."""

    def __init__(self, services: Sequence[Service], limit: Limit) -> None:
        self.workers = [Worker(s) for s in services]
        self.limit = limit
        self.busy: dict[Worker, T] = {}

    @property
    def free(self) -> int:
        """The number of workers without a job."""
        return len(self.workers) - len(self.busy)

    def begin(self, label: T, job: Any) -> None:
        """Give ``job`` to a free worker."""
        worker = next(w for w in self.workers if w not in self.busy)
        worker.begin(job, self.limit.seconds)
        self.busy[worker] = label

    def finished(self) -> list[tuple[T, Outcome]]:
        """Labels and outcomes of the jobs that ended since the last call."""
        out = []
        for worker, label in list(self.busy.items()):
            outcome = worker.finish()
            if outcome is not None:
                del self.busy[worker]
                out.append((label, outcome))
                if outcome.kind == DONE:
                    self.limit.observe(outcome.seconds)
        return out

    def close(self) -> None:
        """Kill all workers and drop their jobs."""
        for worker in self.workers:
            worker.close()
        self.busy.clear()


def pause(pools: Sequence[Pool[Any]], longest: float) -> None:
    """Wait until a job of ``pools`` ends, a deadline passes, or ``longest`` seconds pass."""
    workers = [w for p in pools for w in p.busy]
    if not workers:
        return
    nearest = min(w.deadline for w in workers) - time.monotonic()
    wait([h for w in workers for h in w.handles], max(0.0, min(longest, nearest + 0.01)))


_served: list[Connection[Any, Any]] = []  # in a worker: the connection to its parent


@contextmanager
def waiting() -> Iterator[None]:
    """For a service that waits for other processes inside the block: the time limit of the job restarts after it."""
    _notify(_WAITING)
    yield
    _notify(_READY)


def _notify(kind: str) -> None:
    for pipe in _served:
        with suppress(OSError):
            pipe.send((kind, None, ""))


def _serve(pipe: Connection[Any, Any], parent: int, service: Service) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with(parent)
    made: Any = None
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            if made is None:
                made = load(service.target)(*service.args)
                pipe.send((_READY, None, ""))
                _served.append(pipe)  # after _READY, because waiting() must not change the limit STARTUP
            answer = (DONE, made(job), "")
        except WorkerUnusable as error:
            answer = (DIED, None, str(error))
        except Exception as error:
            answer = (INTERNAL, None, described(error)) if is_internal(error) else (ERROR, None, _summary(error))
        with suppress(OSError):
            pipe.send(answer)


def _die_with(parent: int) -> None:
    """Let the kernel send SIGKILL when the parent ends for any reason (Linux, prctl(2))."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _summary(error: Exception) -> str:
    first = first_line(error)
    return first if isinstance(error, NautilusError) and first else f"{type(error).__name__}: {first}"
