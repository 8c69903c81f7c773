"""The runner of a search: a worker process with one GPU that checks and times candidates one by one.

Inputs and reference (:mod:`nautilus.bench.verify`) are made once per process.  A candidate is checked first, on the
inputs used for timing and with its outputs filled with NaN; a wrong candidate is not timed.  Times follow the *cool*
protocol of :mod:`nautilus.bench.protocol`, so they compare with those of ``nautilusc bench``.  A kernel that faults
leaves the CUDA context unusable; the worker then raises :class:`WorkerUnusable` and is replaced.  All GPU work happens
under the lock of the device (:mod:`nautilus.runtime.exclusive`), so several searches may share a device.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from statistics import median
from typing import Any

from nautilus.bench.contenders import Verdict
from nautilus.bench.gpu_clock import GpuClock
from nautilus.bench.inputs import random_inputs
from nautilus.bench.protocol import SPIN, cool
from nautilus.bench.verify import References, judge, references
from nautilus.check.bound.stated import stated
from nautilus.core.errors import ToolchainError, first_line
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.driver import Request, compile_file
from nautilus.frontend.semantics.check import load_spec, load_text
from nautilus.frontend.spec import Spec
from nautilus.runtime.cuda_driver import SUCCESS
from nautilus.runtime.device import bindings, check, open_device
from nautilus.runtime.exclusive import exclusive, lock_path, visible
from nautilus.runtime.launch import Session
from nautilus.tune.workers.build import Built
from nautilus.tune.workers.pool import WorkerUnusable, waiting

QUICK = 3  # runs after which the timing of a clearly slower candidate stops


@dataclass(frozen=True, slots=True)
class Machine:
    """Device name, architecture and driver version that a row of the database records."""

    device: str
    arch: str
    driver: str


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """Check and time ``built`` with ``repeats`` runs, or :data:`QUICK` if their median exceeds ``cutoff`` seconds."""

    built: Built
    repeats: int
    cutoff: float


@dataclass(frozen=True, slots=True)
class FinalsJob:
    """Check and time all of ``built`` in one shuffled series of ``repeats`` runs each."""

    built: tuple[Built, ...]
    repeats: int


@dataclass(frozen=True, slots=True)
class Measured:
    """``ok``: the result is right; ``error``: its relative error; ``samples``: seconds of each run, none if wrong."""

    ok: bool
    error: float
    samples: tuple[float, ...] = ()
    detail: str = ""


class Runner:
    """The service.

    The job None returns the :class:`Machine`; others are :class:`MeasureJob` and :class:`FinalsJob`.
    """

    def __init__(self, request: Request, scalars: Mapping[str, float | int | bool], seed: int, ordinal: int) -> None:
        device = os.environ["CUDA_VISIBLE_DEVICES"] = visible(os.environ.get("CUDA_VISIBLE_DEVICES"), ordinal)
        self._lock = lock_path(device)
        self.arch, self.scalars, self.seed = request.arch, scalars, seed
        self.spec = _load(request)
        self.bounds = stated(self.spec, request.precision, _default_schedule(request, self.spec))
        self.driver = bindings()
        handle = check(self.driver, self.driver.cuDeviceGet(0), "opening the GPU")
        context = check(self.driver, self.driver.cuDevicePrimaryCtxRetain(handle), "opening a context")
        check(self.driver, self.driver.cuCtxSetCurrent(context), "opening a context")
        self._memory: dict[str, Any] = {}
        self._raw = random_inputs(self.spec, seed, {})
        _load_peers()  # takes seconds, so it runs before the process takes the lock of the GPU
        self._known, self._clock = self._prepared()

    def _alone(self) -> AbstractContextManager[None]:
        """The lock of the GPU; the time limit of the candidate does not include the wait."""
        return exclusive(self._lock, waiting)

    def __call__(self, job: MeasureJob | FinalsJob | None) -> Any:
        """Run ``job``.  Raises WorkerUnusable after a sticky CUDA error, ToolchainError if a candidate does not run."""
        try:
            if job is None:
                return self._machine()
            return self._final(job) if isinstance(job, FinalsJob) else self._measure(job)
        except ToolchainError as error:
            if self.driver.cuCtxSynchronize()[0] != SUCCESS:
                raise WorkerUnusable(first_line(error)) from error
            raise

    def _machine(self) -> Machine:
        device = open_device()
        version = int(check(self.driver, self.driver.cuDriverGetVersion()))
        return Machine(device.name, device.arch, f"{version // 1000}.{version % 1000 // 10}")

    def _prepared(self) -> tuple[References, GpuClock]:
        """The reference and the clock, with the inputs in device memory."""
        for name, array in self._raw.items():
            pointer = check(self.driver, self.driver.cuMemAlloc(max(array.nbytes, 16)), f"allocating {name}")
            self._memory[name] = pointer
        with self._alone():
            self._fill()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole = _whole(self.spec, self.scalars, self._memory, self._alone)
            known = references(self.spec, self._raw, self.scalars, self.bounds, self.seed, whole)
        return known, GpuClock(open_device().arch)

    def _fill(self) -> None:
        d = self.driver
        for name, array in self._raw.items():
            if array.nbytes:
                check(d, d.cuMemcpyHtoD(self._memory[name], array.ctypes.data, array.nbytes), f"copying {name}")

    @contextmanager
    def _opened(self, built: Built) -> Iterator[Session]:
        assert built.plan is not None
        with Session(built.cubin, built.plan, self.arch, shared=self._memory) as session:
            session.upload({}, self.scalars)
            yield session

    def _judged(self, session: Session) -> Verdict:
        with self._alone():
            session.poison()
            session.launch()
            found = session.download()
        verdict = judge(self._known, found, is_peer=False)
        if not verdict.ok:
            with self._alone():
                self._fill()  # a wrong kernel may have overwritten the inputs
        return verdict

    def _measure(self, job: MeasureJob) -> Measured:
        with ExitStack() as stack:
            with self._alone():
                session = stack.enter_context(self._opened(job.built))
            verdict = self._judged(session)
            if not verdict.ok:
                return Measured(False, verdict.error, (), verdict.detail)
            with self._alone():
                return Measured(True, verdict.error, self._timed(session, job))

    def _timed(self, session: Session, job: MeasureJob) -> tuple[float, ...]:
        samples: list[float] = []
        while len(samples) < job.repeats:
            if len(samples) == QUICK and median(samples) > job.cutoff:
                break
            samples.append(self._clock.one(session.launch, SPIN).gpu)
        return tuple(samples)

    def _final(self, job: FinalsJob) -> dict[str, Measured]:
        """Results by schedule hash.  Each candidate is checked before the series and after it.

        The second check finds launches whose side effects change the result of a later launch.
        """
        with ExitStack() as stack:
            with self._alone():
                sessions = {b.hash: stack.enter_context(self._opened(b)) for b in job.built}
            verdicts = {h: self._judged(s) for h, s in sessions.items()}
            good = {h: s.launch for h, s in sessions.items() if verdicts[h].ok}
            with self._alone():
                timed = cool(self._clock, good, job.repeats, self.seed).times if good else {}
            for h in good:
                verdicts[h] = max(verdicts[h], self._judged(sessions[h]), key=lambda v: (not v.ok, v.error))
        return {
            h: Measured(v.ok, v.error, timed[h].samples if v.ok else (), v.detail) for h, v in verdicts.items()
        }  # fmt: skip


def _load_peers() -> None:
    """Import PyTorch, which evaluates the reference, where it is installed."""
    from nautilus.bench.peers.torch_env import load_torch

    load_torch()


def _load(request: Request) -> Spec:
    if request.text is not None:
        return load_text(request.text, str(request.path), dims=request.dims, folder=request.path.parent)
    return load_spec(request.path, dims=request.dims)


def _default_schedule(request: Request, spec: Spec) -> Schedule | None:
    """The default schedule of ``spec``, where it may have factors of 8 bits, which the stated bound includes.

    It says nothing about cuts and kernels, which candidates have of their own.
    """
    if not any(t.dtype.is_float8 for t in spec.inputs):
        return None
    found = compile_file(replace(request, until="scalar")).context.schedule
    return None if found is None else replace(found, splits=None, kernels=())


def _whole(
    spec: Spec, scalars: Mapping[str, float | int | bool], memory: Mapping[str, Any],
    alone: Callable[[], AbstractContextManager[None]],
) -> Any:  # fmt: skip
    """A function that evaluates the whole spec in f32 on the GPU, under the lock ``alone()``; None without PyTorch."""
    from nautilus.bench.peers.torch_env import alias, load_torch, on_gpu
    from nautilus.frontend.restrict import shape_of

    torch = load_torch()
    if isinstance(torch, str) or on_gpu(torch):
        return None
    from nautilus.bench.peers.library import Setting, whole

    def evaluate() -> Any:
        with alone():
            tensors = {t.name: alias(torch, int(memory[t.name]), t.dtype, shape_of(t)) for t in spec.inputs}
            found = whole(Setting(torch, spec, scalars, tensors))
            torch.cuda.empty_cache()
            return found

    return evaluate
