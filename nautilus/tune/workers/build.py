"""The builder of a search: a worker process that compiles a schedule to a cubin."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

from nautilus.core.errors import MissingToolError, ScheduleError, ToolchainError, UnsupportedError, first_line
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.cost.registers import register_fault
from nautilus.driver import Request, Result, build_cubin, compile_file
from nautilus.passes.loading import load
from nautilus.runtime.launch import Plan
from nautilus.targets.limits import limits
from nautilus.tune.database.rows import schedule_hash
from nautilus.tune.levels import Before, before_scheduling


@dataclass(frozen=True, slots=True)
class BuildJob:
    """One schedule to compile; ``schedule`` None stands for the default schedule.

    Without ``cubin`` the builder lowers only as far as the cost model needs.  An estimate above ``prune_above`` seconds
    prunes the schedule before a cubin is made; 0 disables this.
    """

    schedule: Schedule | None
    cubin: bool
    prune_above: float = 0.0


@dataclass(frozen=True, slots=True)
class Built:
    """The result of a :class:`BuildJob`.

    ``estimate``: seconds by the cost model.  ``cubin`` is empty where none was requested or where it must not be used;
    ``failure`` then gives the reason.  ``refused``: a pass or the cost model rejected the schedule before compilation.
    ``registers``: registers a thread of each kernel.
    """

    schedule: Schedule
    estimate: float | None
    cubin: bytes = b""
    plan: Plan | None = None
    registers: tuple[int, ...] = ()
    failure: str = ""
    refused: bool = False

    @property
    def hash(self) -> str:
        """The hash of the schedule."""
        return schedule_hash(self.schedule)


@dataclass(frozen=True)
class Builder:
    """The service: compiles schedules for one request.

    ``estimate`` names the cost model's function, empty for none.
    """

    request: Request
    estimate: str

    def __call__(self, job: BuildJob) -> Built:
        """Compile ``job``; refusals, spills and serialised wgmma are reported as ``failure``.

        Raises the errors of the levels for the default schedule, and internal errors for every schedule.
        """
        request = replace(self.request, schedule=job.schedule, lookup=None)
        if job.schedule is None:
            # the default rules plan a kernel again where ptxas spills registers or serialises wgmma
            result, compiled = build_cubin(request) if job.cubin else (compile_file(request), None)
            assert result.context.schedule is not None
            built = Built(result.context.schedule, self._estimate(result))
            return self._assembled(built, result, compiled) if job.cubin else built
        if not job.cubin and self.estimate and job.schedule.inline == self._before.inline:
            return self._screened(job.schedule)
        try:
            result = compile_file(request)
        except (ScheduleError, UnsupportedError) as error:
            return Built(job.schedule, None, failure=first_line(error), refused=True)
        built = Built(job.schedule, self._estimate(result))
        if why := register_fault(result.modules["ma-tile"], limits(result.context.arch)):
            return replace(built, failure=why, refused=True)
        if job.cubin and built.estimate and 0.0 < job.prune_above < built.estimate:
            why = f"pruned: the estimate of {built.estimate:.3g} s exceeds the limit of {job.prune_above:.3g} s"
            return replace(built, failure=why, refused=True)
        return self._assembled(built, result, None) if job.cubin else built

    @cached_property
    def _before(self) -> Before:
        return before_scheduling(replace(self.request, schedule=None))

    def _screened(self, schedule: Schedule) -> Built:
        """Lower from the cached program before scheduling, which takes a third of the time of a full compilation."""
        done = self._before.trials.lower(schedule)
        if done.fault is not None or done.module is None:
            return Built(schedule, None, failure=done.fault or "", refused=True)
        return Built(schedule, float(load(self.estimate)(done.module, self.request.arch).seconds))

    def _estimate(self, result: Result) -> float | None:
        if not self.estimate:
            return None
        found = load(self.estimate)(result.modules["ma-tile"], result.context.arch)
        return float(found.seconds)

    def _assembled(self, built: Built, result: Result, compiled: Any) -> Built:
        from nautilus.runtime.execute import plan_of
        from nautilus.runtime.nvrtc import build

        try:
            compiled = compiled or build(result.cuda_module, result.context.arch)
        except ScheduleError as error:
            return replace(built, failure=f"ptxas: {error}")
        except ToolchainError as error:
            if not error.log or isinstance(error, MissingToolError):
                raise  # NVRTC itself is missing or fails
            return replace(built, failure=f"does not compile: {error.message}")
        spilled = sum(r.spill_stores + r.spill_loads for r in compiled.resources)
        registers = tuple(r.registers for r in compiled.resources)
        if spilled:
            return replace(built, registers=registers, failure=f"ptxas spills {spilled} bytes of registers")
        plan = plan_of(result.modules["ma-tile"])
        return replace(built, cubin=compiled.data, plan=plan, registers=registers)
