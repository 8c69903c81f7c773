"""Where schedules come from, by level: ``-O0`` a plain one, ``-O1`` rules, ``-O2`` the database, ``-O3`` a search.

The schedule of ``-O0`` takes nothing for granted: nothing is inlined, factored or narrowed, every
definition is a kernel of its own, products are ``mma.sync`` ones at most, and no copy is ahead of its use.
It is slow, and what another level's result can be compared with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from nautilus.core.errors import ScheduleError
from nautilus.core.schedule import KernelPlan, Schedule, WarpPlan
from nautilus.driver import Request, compile_file
from nautilus.frontend.spec import Spec
from nautilus.passes.manager import Record
from nautilus.passes.pipelines import SCALAR
from nautilus.planner.kernel import one_by_one, plan_kernel
from nautilus.planner.tiles import size_kernel
from nautilus.scalar.analysis.axes import unify
from nautilus.scalar.analysis.definitions import read_defs
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.fuse import fuse_kernel
from nautilus.scalar.passes.reorder import reorder_kernel
from nautilus.scalar.passes.rolling_update import roll_kernel
from nautilus.scalar.passes.split import split_kernel
from nautilus.targets.limits import limits
from nautilus.tune.space.inlining import remember

_BEFORE_INLINE = SCALAR.step_names[SCALAR.step_names.index("inline") - 1]
UNFUSED = Schedule(inline=(), factor=False, narrow=False)


class _Reached(Exception):
    """The module that was asked for is there."""


class _Stop:
    """An instrument that ends the compilation behind pass ``name`` of the Scalar IR."""

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
            raise _Reached


@dataclass(frozen=True)
class Before:
    """What the scheduler plans: the Scalar IR behind pass ``dead``, what led to it, and what it inlined."""

    spec: Spec
    program: Program
    inline: tuple[str, ...] | None


def before_scheduling(request: Request) -> Before:
    """Compile ``request`` as far as the scheduler."""
    stop = _Stop("dead")
    try:
        compile_file(replace(request, tuned=False, until="scalar"), [stop])
    except _Reached:
        inline = stop.schedule.inline if stop.schedule is not None else None
        remember(stop.module, stop.inlined_from, inline or (), stop.context)
        return Before(stop.spec, stop.module, inline)
    raise AssertionError("the pipeline has no pass 'dead'")


def plain_schedule(request: Request) -> Schedule:
    """The schedule of ``-O0``."""
    program = before_scheduling(replace(request, schedule=UNFUSED)).program
    return replace(UNFUSED, kernels=tuple(_alone(program, name, request.arch) for name in read_defs(program)))


def _alone(program: Program, name: str, arch: str) -> KernelPlan:
    """A kernel for one definition, in tiles where it has such a plan."""
    unified = unify([read_defs(program)[name]], tuple(p.name for p in program.params))
    stored = frozenset({name})
    try:
        if unified.misaligned:
            return one_by_one(unified, name)
        plan = plan_kernel(unified, name, stored)
        kernel = fuse_kernel(program, plan, read_defs(program), stored)
        roll_kernel(reorder_kernel(split_kernel(kernel, plan), plan), plan, [])
    except ScheduleError:
        return one_by_one(unified, name)
    sized = size_kernel(plan, unified, limits(arch), warpgroup=False)
    assert isinstance(sized.mapping, WarpPlan)
    mapping = WarpPlan(warps=sized.mapping.warps, stages=1, prefetch_fragments=0)
    return replace(sized, partition=False, mapping=mapping)
