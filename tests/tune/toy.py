"""A small space, a cost with a closed form, and a runner without a GPU: stand-ins for tests of the search.

The toy kernel's time is ``1 ms * (1 + |stages - 1| + [warps are not 1x4])``: rules have 4 ms, the best point 1 ms.
``FAULTS`` in the environment names what goes wrong in the runner: ``hang:4 die:2 wrong:3`` by number of stages.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nautilus.core.schedule import Schedule
from nautilus.planner.kernels import default_schedule
from nautilus.tune.search.trial_lowering import TrialLowering
from nautilus.tune.workers.build import Builder, BuildJob, Built
from nautilus.tune.workers.measure import FinalsJob, Machine, Measured, MeasureJob
from tests.core.schedule.engines import warp_of

MATMUL = """\
dim M = 128, N = 128, K = 64
input A: f16[M, K]
input B: f16[K, N]
output C: f16[M, N]
C[i, j] = sum[k](A[i, k] * B[k, j])
"""


@dataclass(frozen=True)
class Choice:
    name: str
    values: tuple[object, ...]


@dataclass(frozen=True)
class Refused:
    reason: str


def space_of(trials: TrialLowering) -> TrialLowering:
    return trials


def choices(space: TrialLowering) -> tuple[Choice, ...]:
    del space
    return (
        Choice("stages", (1, 2, 3, 4)),
        Choice("warps", ((2, 2), (4, 1), (1, 4))),
        Choice("group", (4, 8)),
    )


def defaults(space: TrialLowering) -> dict[str, object]:
    del space
    return {"stages": 3, "warps": (2, 2), "group": 8}


def schedule_of(space: TrialLowering, values: Mapping[str, Any]) -> Schedule | Refused:
    if values["stages"] == 4 and tuple(values["warps"]) == (1, 4):
        return Refused("four stages of that do not fit")
    plain = default_schedule(space.program, space.arch)
    (kernel,) = plain.kernels
    # group makes no difference: two values, one schedule
    memory = replace(warp_of(kernel), stages=values["stages"], warps=tuple(values["warps"]))
    assert space.origin is not None
    return replace(plain, kernels=(replace(kernel, mapping=memory),), inline=space.origin.inline)


def cost(schedule: Schedule) -> float:
    mapping = warp_of(schedule.kernels[0])
    return 1e-3 * (1.0 + abs(mapping.stages - 1) + (mapping.warps != (1, 4)))


@dataclass(frozen=True)
class Estimate:
    seconds: float


def estimate(module: Any, arch: str) -> Estimate:
    """Of the module's own text, as the real one: by its stages and warps."""
    del arch
    (kernel,) = module.kernels
    return Estimate(1e-3 * (1.0 + kernel.warps))


class ToyBuilder(Builder):
    """Compiles nothing: what a search needs of a build, at once."""

    def __call__(self, job: BuildJob) -> Built:
        log("build", job)
        schedule = job.schedule
        if schedule is None:
            from nautilus.tune.levels import before_scheduling

            before = before_scheduling(self.request)
            schedule = replace(default_schedule(before.program, self.request.arch), inline=before.inline)
        if os.environ.get("SLOW"):
            time.sleep(float(os.environ["SLOW"]))
        return Built(schedule, cost(schedule), b"cubin" if job.cubin else b"", None)


def builder(request: Any, model: str) -> ToyBuilder:
    return ToyBuilder(request, model)


def broken_builder(request: Any, model: str) -> Builder:
    """The compiler's own builder, with a bug in a pass; for workers, each of which has a process of its own."""
    plant_a_bug()
    return Builder(request, model)


def plant_a_bug() -> None:
    from nautilus.vr_tile.passes import cse

    class Cse(cse.Cse):
        __slots__ = ()

        def apply(self, module: Any) -> Any:
            raise AssertionError("planted")

    vars(cse)["Cse"] = Cse


class Runner:
    """Measures the toy cost; counts what it did in the file ``$TOY_LOG``."""

    def __init__(self, request: Any, scalars: Any, seed: int, ordinal: int) -> None:
        self.ordinal = ordinal

    def __call__(self, job: MeasureJob | FinalsJob | None) -> Any:
        if job is None:
            return Machine("toy", "sm_80", "1.0")
        if isinstance(job, FinalsJob):
            return {b.hash: Measured(True, 1e-4, finals(b.schedule)) for b in job.built}
        log("measure", job, self.ordinal)
        stages = str(job.built.schedule.kernels[0].mapping.stages)
        fault = dict(part.split(":")[::-1] for part in os.environ.get("FAULTS", "").split()).get(stages)
        if fault == "hang":
            time.sleep(1000.0)
        if fault == "die":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "wrong":
            return Measured(False, 1.0, (), "C: relative error 1.0e+00")
        return Measured(True, 1e-4, (cost(job.built.schedule),) * 3)


def finals(schedule: Schedule) -> tuple[float, ...]:
    """With ``NOISE``, a series in which schedules can be told apart only if one takes much longer."""
    noise = float(os.environ.get("NOISE", "1.0"))
    if os.environ.get("COSTS") == "equal":
        seconds = 1e-3 * (1.0 + 1e-3 * cost(schedule))
        return tuple(seconds * (1.0 + (noise - 1.0) * n) for n in range(3))
    return (0.99 * cost(schedule),) * 3


def log(what: str, job: Any, where: int = 0) -> None:
    if os.environ.get("TOY_LOG"):
        from nautilus.tune.database.rows import schedule_hash

        schedule = job.schedule if isinstance(job, BuildJob) else job.built.schedule
        name = schedule_hash(schedule) if schedule is not None else "rules"
        with Path(os.environ["TOY_LOG"]).open("a") as file:
            file.write(f"{what} {name} {where}\n")
