"""The planner: the default rules choose everything that a schedule leaves open.

One object makes the decisions of a compilation.  Each decision needs the IR that results from the earlier ones:
packs group the definitions that remain after inlining, and kernels group the definitions that packs and splits create.
The pipeline therefore requests each decision directly before the pass that applies it (``Stage.decisions``), and no
pass runs twice.  The planner keeps the choices that the schedule already has.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.errors import InternalError
from nautilus.core.fallbacks import NO_FALLBACKS, Fallbacks
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.planner.cuts import plan_packs, plan_splits
from nautilus.planner.kernels import plan_kernels
from nautilus.planner.rowwise.scatters import plan_scatters
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.inline import default_inline


@dataclass(frozen=True, slots=True)
class Planner:
    """``fallbacks``: kernels that failed later with the warpgroup MMAs that the rules chose first.

    ``precision``: strict permits no parts of products of f32.
    """

    arch: str
    fallbacks: Fallbacks = NO_FALLBACKS
    precision: str = "fast"

    def decide(self, before: str, program: Program, schedule: Schedule | None) -> Schedule:
        """``schedule`` (None: one of defaults) with the choices that pass ``before`` needs for ``program``.

        Raises InternalError.
        """
        schedule = schedule or Schedule()
        match before:
            case "inline":
                return self.inline(program, schedule)
            case "scatter":
                return self.scatters(program, schedule)
            case "narrow" | "rematerialise":
                return schedule  # no copies by the rules, and 8 bits by the cost model
            case "pack":
                return self.packs(program, schedule)
            case "split-k-update":
                return self.splits(program, schedule)
            case "fuse":
                return self.kernels(program, schedule)
        raise InternalError(f"the planner decides nothing before the pass {before!r}")

    def inline(self, program: Program, schedule: Schedule) -> Schedule:
        """The definitions that are substituted into their readers."""
        return schedule if schedule.inline is not None else replace(schedule, inline=default_inline(program))

    def scatters(self, program: Program, schedule: Schedule) -> Schedule:
        """The reductions whose terms are combined into their elements one by one."""
        return plan_scatters(program, schedule, self.arch)

    def packs(self, program: Program, schedule: Schedule) -> Schedule:
        """Axes whose points share operands, in groups."""
        return plan_packs(program, schedule)

    def splits(self, program: Program, schedule: Schedule) -> Schedule:
        """Reductions in independent chunks."""
        return plan_splits(program, schedule, self.arch, self.fallbacks)

    def kernels(self, program: Program, schedule: Schedule) -> Schedule:
        """Which definitions become one kernel, with its tiles and its engine."""
        return plan_kernels(program, schedule, self.arch, self.fallbacks, self.precision)
