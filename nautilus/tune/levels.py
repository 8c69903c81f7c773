"""Schedules by optimisation level: ``-O0`` unoptimised, ``-O1`` default rules, ``-O2`` database, ``-O3`` search.

The schedule of ``-O0`` inlines, factors and narrows nothing.  Every definition is a kernel of its own, contractions use
``mma.sync`` at most, and no copy is prefetched.  Its results serve as a baseline for those of other levels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nautilus.core.errors import ScheduleError
from nautilus.core.records import dataclass
from nautilus.core.schedule import KernelPlan, Schedule, WarpPlan
from nautilus.driver import Request, compile_file
from nautilus.frontend.spec import Spec
from nautilus.passes.manager import Record
from nautilus.passes.pipelines import SCALAR
from nautilus.planner.conservative import one_by_one
from nautilus.planner.kernel import plan_kernel
from nautilus.planner.tiles import size_kernel
from nautilus.scalar.analysis.axes import unify
from nautilus.scalar.analysis.definitions import read_defs
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.fuse import fuse_kernel
from nautilus.scalar.passes.reorder import reorder_kernel
from nautilus.scalar.passes.rolling_update import roll_kernel
from nautilus.scalar.passes.split import split_kernel
from nautilus.targets.limits import limits
from nautilus.tune.search.trial_lowering import TrialLowering
from nautilus.tune.space.inlining import Origin

_BEFORE_INLINE = SCALAR.before("inline")
UNFUSED = Schedule(inline=(), factor=False, narrow=False)


class _PassReached(Exception):
    """Raised by :class:`_StopAfter` when the requested module exists."""


class _StopAfter:
    """An instrument that ends the compilation after pass ``name`` of the Scalar IR."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.spec: Any = None
        self.module: Any = None
        self.schedule: Schedule | None = None
        self.inlined_from: Any = None  # the module before the pass ``inline``
        self.context: Any = None

    def after(self, record: Record) -> None:
        if record.stage.name == "spec":
            self.spec = record.module
        if (record.stage.name, record.name) == ("scalar", _BEFORE_INLINE):
            self.inlined_from = record.module
        if (record.stage.name, record.name) == ("scalar", self.name):
            self.module, self.schedule = record.module, record.context.schedule
            self.context = record.context
            raise _PassReached


@dataclass(frozen=True)
class Before:
    """The input of the planner: the spec, the Scalar IR after pass ``dead``, and the inlined definitions."""

    spec: Spec
    trials: TrialLowering
    inline: tuple[str, ...] | None

    @property
    def program(self) -> Program:
        """The Scalar IR after pass ``dead``."""
        return self.trials.program


def before_scheduling(request: Request) -> Before:
    """Compile ``request`` up to the planner."""
    stop = _StopAfter("dead")
    try:
        compile_file(replace(request, lookup=None, until="scalar"), [stop])
    except _PassReached:
        inline = stop.schedule.inline if stop.schedule is not None else None
        origin = Origin(stop.inlined_from, inline or (), stop.context)
        trials = TrialLowering(stop.module, request.arch, request.precision, origin)
        return Before(stop.spec, trials, inline)
    raise AssertionError("the pipeline has no pass 'dead'")


def plain_schedule(request: Request) -> Schedule:
    """The schedule of ``-O0``."""
    program = before_scheduling(replace(request, schedule=UNFUSED)).program
    return replace(
        UNFUSED, kernels=tuple(_single_definition(program, name, request.arch) for name in read_defs(program))
    )


def _single_definition(program: Program, name: str, arch: str) -> KernelPlan:
    """A kernel plan for one definition: tiled where such a plan is legal, else one element a thread."""
    unified = unify([read_defs(program)[name]], tuple(p.name for p in program.params))
    stored = frozenset({name})
    try:
        if unified.misaligned:
            return one_by_one(unified, name)
        plan = plan_kernel(unified, name, stored)
        kernel = fuse_kernel(program, plan, read_defs(program), stored)
        roll_kernel(reorder_kernel(split_kernel(program, kernel, plan), plan), plan, [])
    except ScheduleError:
        return one_by_one(unified, name)
    sized = size_kernel(plan, unified, limits(arch), warpgroup=False)
    assert isinstance(sized.mapping, WarpPlan)
    mapping = WarpPlan(warps=sized.mapping.warps, stages=1, prefetch_fragments=0)
    return replace(sized, partition=False, mapping=mapping)
