"""The benchmark of one spec: inputs, contenders, checks, times, report.

Every contender is checked before any is timed; the check also compiles it and warms it up.  A wrong contender is timed
but has no ratio.  A contender that fails during its check or warm-up is listed with the reason.  All contenders read
the same device memory, so the inputs of all are cached alike.  Of the processes
of this command, one at a time runs kernels on a GPU.
"""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field, replace
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

from nautilus.bench.contenders import OURS, Absent, Contender, Row, reason_of
from nautilus.bench.count import flops, total_bytes
from nautilus.bench.inputs import random_inputs
from nautilus.bench.peers.library import BUILDERS
from nautilus.bench.protocol import COOL_LIMIT, SPIN, SUSTAINED_LIMIT, Clock, Cool, cool, sustained
from nautilus.bench.table import Report
from nautilus.bench.verify import References, Whole, judge, references
from nautilus.core.buffers import extents
from nautilus.core.errors import InputError, ToolchainError
from nautilus.core.index.strides import pad
from nautilus.core.numerics import Array, storage_array
from nautilus.core.records import dataclass
from nautilus.cost.model import estimate
from nautilus.driver import Result
from nautilus.frontend import fixed
from nautilus.frontend.restrict import shape_of
from nautilus.frontend.spec import Spec
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.rewriting.at_sizes import at_sizes
from nautilus.runtime.exclusive import exclusive, lock_path, visible

if TYPE_CHECKING:
    from nautilus.bench.ceilings import Copy
    from nautilus.runtime.nvrtc import Compiled

LIBRARIES = tuple(BUILDERS)
FIXED = "fixed"  # our kernel for the sizes of the run, beside the one that serves all sizes
PEERS = (*LIBRARIES, FIXED)
Alone = Callable[[], AbstractContextManager[None]]
Build = Callable[[], "tuple[Result, Compiled | None]"]
Scalars = Mapping[str, float | int | bool]


@dataclass(frozen=True)
class Settings:
    """Peers, numbers of runs and rounds, seed, and the limit ``spread`` for cool ratios.

    ``elements``: compare all elements with an evaluation in float64 where PyTorch is installed, not sampled rows alone.
    ``checked``: compare results at all; without it no contender has a ratio.
    """

    against: tuple[str, ...] = LIBRARIES
    repeats: int = 9
    rounds: int = 5
    seed: int = 0
    spread: float = COOL_LIMIT
    elements: bool = True
    checked: bool = True

    @property
    def limits(self) -> tuple[float, float]:
        """The largest spreads of cool and of sustained ratios."""
        return self.spread, max(self.spread, SUSTAINED_LIMIT)


def require_gpu() -> None:
    """Check for a GPU.  Raises ToolchainError (exit code 3) without one."""
    from nautilus.runtime.device import open_device

    try:
        open_device()
    except ToolchainError as error:
        raise ToolchainError("bench", f"timing needs an NVIDIA GPU: {error}") from error


def bench(
    result: Result, settings: Settings, given: Mapping[str, Array], scalars: Scalars, cubin: Compiled | None = None,
    fixed_sizes: Build | None = None,
) -> Report:  # fmt: skip
    """Time ``result``.  ``cubin`` None compiles it first; ``given`` is raw storage of inputs instead of random numbers.

    ``fixed_sizes`` compiles the peer :data:`FIXED`, the kernel for the runtime sizes of this run alone.
    A runtime dim has the value that ``--dim`` gives; the references and the peers see a spec of that size.
    Raises InputError where ``result`` does not come from a spec, and for a runtime dim without a value.
    """
    from nautilus.check.bound.stated import stated

    spec = result.modules.get("spec")
    if spec is None:
        raise InputError("bench expects a spec (.naut), from which it derives the peers and the reference")
    scalars, spec = {**scalars, **runtime_sizes(spec)}, fixed.at_sizes(spec, runtime_sizes(spec))
    raw = random_inputs(spec, settings.seed, {}) | dict(given)
    watch = Stopwatch()

    def known(whole: Whole | None = None) -> References:
        bounds = stated(spec, result.context.precision, result.context.schedule)
        numbers = {s.name: scalars[s.name] for s in spec.scalars}
        return references(spec, raw, numbers, bounds, settings.seed, whole)

    libraries = [n for n in settings.against if n in LIBRARIES]
    varies = bool(result.modules["spec"].runtime_dims)
    alone = partial(exclusive, lock_path(visible(os.environ.get("CUDA_VISIBLE_DEVICES"), 0)))
    with (
        _opened(result, raw, scalars, cubin) as (session, built),
        _beside(session, spec, scalars, fixed_sizes if varies and FIXED in settings.against else None) as own,
        _tools(session) as (clock, copy),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # backends of torch warn at length about calls that they refuse
        watch.lap("opening the GPU")
        with alone():
            torch, others, whole = _peers(spec, session, libraries, scalars)
        watch.lap("finding peers")
        everything = _locked(alone, whole) if whole is not None and settings.elements else None
        reference = known(everything) if settings.checked else None
        watch.lap("references")
        peers = [c for c in others if isinstance(c, Contender)]
        present = [_contender(OURS, session), *own, *peers, *_ceilings(torch, copy)]
        work = (flops(spec, {}), float(total_bytes(spec, {})))
        rows = [examine(c, reference, clock, work, alone) for c in present]
        watch.lap("checking")
        with alone():
            rows = time_all(rows, present, clock, settings)
        watch.lap("timing")
        absent = [c for c in others if isinstance(c, Absent)]
        if FIXED in settings.against and not varies:
            absent.append(Absent(FIXED, "not applicable: the spec gives all sizes"))
        about = _about(result, spec, session, built, settings, torch, reference, scalars)
    return Report(spec.name, rows, absent, settings.limits, about | {"seconds": watch.laps})


def _locked(alone: Alone, whole: Whole) -> Whole:
    """``whole``, evaluated in ``alone()``."""

    def evaluate() -> Mapping[str, Array] | None:
        with alone():
            return whole()

    return evaluate


@contextmanager
def _tools(session: Any) -> Iterator[tuple[Clock, Copy]]:
    """The clock, and the copy that is timed with the contenders."""
    from nautilus.bench.ceilings import Copy
    from nautilus.bench.gpu_clock import GpuClock

    clock, copy = GpuClock(session.device.arch), Copy(session.driver)
    try:
        yield clock, copy
    finally:
        clock.close()
        copy.close()


def arguments(
    result: Result, files: Mapping[str, str], values: Mapping[str, str], seed: int
) -> tuple[dict[str, Array], dict[str, float | int | bool]]:
    """Raw storage of the inputs read from ``files``, and all scalar values.

    Raises InputError for a scalar without value and for a file that does not fit its input.
    """
    from nautilus.runtime import execute

    signature = execute.interface(result, "spec")
    spec = result.modules["spec"]
    numbers = {**execute.numbers(signature, values), **runtime_sizes(spec)}
    for t in spec.tensors.values():
        if t.strides is not None:
            pad(t.shape, t.strides, numbers)
    for name, _, _ in signature.scalars:
        if name not in numbers:
            raise InputError(f"scalar {name!r} has no value and no default; give one with --set {name}=VALUE")
    if not files:
        return {}, numbers
    arrays, numbers = execute.arguments(signature, files, seed, numbers)
    types = {s.name: s.dtype for s in signature.inputs}
    return {n: storage_array(arrays[n], types[n]) for n in files}, numbers


def runtime_sizes(spec: Spec) -> dict[str, int]:
    """The values of the runtime dims.  Raises InputError for one that is not given."""
    for d in spec.runtime_dims:
        if d.device:
            why = "the size of {0!r} is in device memory, which bench does not support; write 'dim {0} = runtime'"
            raise InputError(why.format(d.name))
        if d.sample is None:
            raise InputError(f"the size of {d.name!r} is known only at launch; give it with --dim {d.name}=SIZE")
    return spec.samples(0)


@contextmanager
def _opened(
    result: Result, raw: Mapping[str, Array], scalars: Scalars, cubin: Compiled | None
) -> Iterator[tuple[Any, Any]]:
    """The loaded kernel with its inputs on the device, and the compiler's report."""
    from nautilus.runtime.execute import launched_here, plan_of
    from nautilus.runtime.launch import Session
    from nautilus.runtime.nvrtc import build

    built = cubin or build(result.cuda_module, result.context.arch)
    plan = plan_of(launched_here(result, scalars, built), scalars)
    with Session(built.data, plan, result.context.arch) as session:
        session.upload(raw, scalars)
        yield session, built


@dataclass
class Stopwatch:
    """Wall-clock seconds of the phases of a run."""

    laps: dict[str, float] = field(default_factory=dict)
    last: float = field(default_factory=time.perf_counter)

    def lap(self, name: str) -> None:
        """Record the seconds since the last lap as phase ``name``."""
        now = time.perf_counter()
        self.laps[name], self.last = round(now - self.last, 3), now


@contextmanager
def _beside(session: Any, spec: Spec, scalars: Scalars, build: Build | None) -> Iterator[list[Contender]]:
    """The kernel that ``build`` compiles, as a contender that reads the inputs of ``session``; none without it."""
    if build is None:
        yield []
        return
    from nautilus.runtime.execute import launched_here, plan_of
    from nautilus.runtime.launch import Session

    result, built = build()
    if built is None:
        raise InputError("the kernel of fixed sizes was not built")
    shared = {t.name: session.address(t.name) for t in spec.inputs}
    plan = plan_of(launched_here(result, scalars, built), scalars)
    with Session(built.data, plan, result.context.arch, shared=shared) as other:
        other.upload({}, scalars)
        yield [_contender(FIXED, other)]


def _contender(name: str, session: Any) -> Contender:
    def result() -> Mapping[str, Array]:
        session.poison()
        session.launch()
        found: Mapping[str, Array] = session.download()
        return found

    return Contender(name, session.launch, result)


def _peers(
    spec: Spec, session: Any, names: Sequence[str], scalars: Scalars
) -> tuple[Any, list[Contender | Absent], Any]:
    """The module torch (None if unusable), the requested peers, and the function that evaluates the reference.

    ``scalars`` has the strides that are known only at launch too.
    """
    if not names:
        return None, [], None
    from nautilus.bench.peers.torch_env import alias, load_torch, on_gpu

    torch = load_torch()
    reason = torch if isinstance(torch, str) else on_gpu(torch)
    if reason:
        return None, [Absent(n, reason) for n in names], None
    from nautilus.bench.peers.library import Setting, contenders, whole

    tensors = {}
    for t in spec.inputs:
        strides = None if t.strides is None else extents(t.strides, scalars)
        tensors[t.name] = alias(torch, session.address(t.name), t.dtype, shape_of(t), strides)
    setting = Setting(torch, spec, scalars, tensors)
    return torch, contenders(setting, names), lambda: whole(setting)


def _ceilings(torch: Any, copy: Any) -> list[Contender]:
    from nautilus.bench.ceilings import gemm

    return [*([gemm(torch)] if torch is not None else []), copy.contender()]


def examine(
    c: Contender, known: References | None, clock: Clock, work: tuple[float, float], alone: Alone = nullcontext
) -> Row:  # fmt: skip
    """Check ``c`` and run it once under the clock; a peer that fails gets a ``failure`` and is not timed.

    The kernels run in ``alone()``, the comparison outside of it.  ``known`` None: there is no check.
    """
    is_ceiling = c.result is None
    ops, moved = (c.flops or 0.0, c.bytes or 0.0) if is_ceiling else work
    row = Row(c.name, c.note, flops=ops, bytes=moved, is_ceiling=is_ceiling)
    try:
        if c.result is not None and known is not None:
            with alone():
                found = c.result()
            row = replace(row, verdict=judge(known, found, is_peer=c.name != OURS))
        with alone():
            clock.one(c.run, SPIN)
    except Exception as error:
        if c.name == OURS:
            raise
        return replace(row, verdict=None, failure=f"failed: {reason_of(error)}")
    return row


def time_all(rows: Sequence[Row], present: Sequence[Contender], clock: Clock, settings: Settings) -> list[Row]:
    """``rows`` with the times of both protocols."""
    fine = {r.name for r in rows if not r.failure}
    runs = {c.name: c.run for c in present if c.name in fine}
    cold: Cool = cool(clock, runs, settings.repeats, settings.seed, settings.spread)
    hot = sustained(clock, runs, cold, settings.rounds, settings.seed)
    return [replace(r, cool=cold.times.get(r.name), sustained=hot.get(r.name)) for r in rows]


def _compared(known: References | None) -> str | None:
    if known is None:
        return None
    return "sampled rows in float64" + ("" if known.whole is None else ", all elements in float64")


def _at(result: Result, scalars: Scalars, built: Compiled) -> MemModule:
    """The MA-tile IR that runs, at its runtime sizes and strides."""
    from nautilus.runtime.execute import launched_here

    module = launched_here(result, scalars, built)
    sizes = {p.name: int(scalars[p.name]) for p in module.params if p.name in scalars and not p.dtype.is_float}
    return at_sizes(module, sizes)


def _about(
    result: Result,
    spec: Spec,
    session: Any,
    built: Any,
    settings: Settings,
    torch: Any,
    known: References | None,
    scalars: Scalars,
) -> dict[str, Any]:
    import json

    schedule = result.context.schedule
    sizes = ", ".join(f"{d.name}={d.value}" for d in spec.dims if d.value is not None)
    return {
        "sizes": sizes,
        "scalars": dict(scalars),
        "arch": result.context.arch,
        "precision": result.context.precision,
        "device": session.device.name,
        "torch": None if torch is None else str(torch.__version__),
        "seed": settings.seed,
        "repeats": settings.repeats,
        "rounds": settings.rounds,
        "compared_with": _compared(known),
        "stated_bounds": {
            n: b.relative if isfinite(b.relative) else None for n, b in ({} if known is None else known.bounds).items()
        },
        "cuda_sha256": hashlib.sha256(result.cuda.encode()).hexdigest(),
        "predicted_us": round(estimate(_at(result, scalars, built), result.context.arch).seconds * 1e6, 2),
        "resources": [r.as_dict() for r in built.resources],
        "schedule": json.loads(schedule.to_json()) if schedule is not None else None,
        "conventions": "flop: 2 for each needed multiply-add of a sum of products; bytes: inputs and outputs once",
    }
