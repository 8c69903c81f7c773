"""Trial lowering: a program under a schedule down to the MA-tile level, to learn whether the schedule is legal.

The passes alone decide: a candidate runs through all of them, which takes 20 to 150 ms, and their ScheduleError or
UnsupportedError is the failure reason.  Two further rules apply: an estimate of the registers
(``cost.registers``), and the limits of the target, which the verifier checks.  Every other error is a bug of the
compiler; it is raised and does not count as an illegal schedule.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import field, replace
from typing import Any

from nautilus.core.errors import ScheduleError, TargetLimitError, UnsupportedError, first_line
from nautilus.core.fallbacks import NO_FALLBACKS, Fallbacks
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, check_schedule
from nautilus.cost.registers import register_fault
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.analysis.code_size import check_code_size
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.verify.module import verify
from nautilus.passes.instruments import Verify
from nautilus.passes.manager import Context, Pipeline, Step, steps
from nautilus.passes.pipelines import CUDA, MA_TILE, SCALAR, STAGES
from nautilus.passes.selection.trial import planned
from nautilus.scalar.ir import Program
from nautilus.targets.limits import limits
from nautilus.tune.space.inlining import Origin

_KEPT = 64  # modules remembered


@dataclass(frozen=True)
class Lowered:
    """The result of a trial. ``module``: the last MA-tile module reached, also under some illegal schedules."""

    module: MemModule | None
    fault: str | None
    kernel: str = ""  # the kernel with the fault; empty where none is named
    scalar: Program | None = None  # after the passes of the Scalar level
    excess: float = 0.0  # the need of a resource over its limit; 0: not known

    @property
    def ok(self) -> bool:
        """Whether the schedule is legal."""
        return self.fault is None


@dataclass
class TrialLowering:
    """Lowers one program (after the pass ``dead``) for one target under any schedules; keeps the last few results.

    ``origin``: the source of the program; None if no other program is made from it.
    """

    program: Program
    arch: str
    precision: str = "fast"
    origin: Origin | None = None
    _kept: OrderedDict[str, Lowered] = field(default_factory=OrderedDict, repr=False)

    def lower(self, schedule: Schedule) -> Lowered:
        """Lower the program under ``schedule`` to the MA-tile level. Raises errors that the schedule does not cause."""
        key = _key(schedule)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        done = self._kept[key] = _lower(self.program, schedule, self._context(schedule))
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return done

    def remember(self, schedule: Schedule, module: MemModule) -> None:
        """Keep ``module``, which the driver made under ``schedule``, so that it is not made again."""
        self._kept[_key(schedule)] = Lowered(module, register_fault(module, limits(self.arch)))

    def plan(self, schedule: Schedule | None = None, fallbacks: Fallbacks = NO_FALLBACKS) -> Schedule:
        """``schedule`` with everything after the pass ``dead`` that it leaves open, by the default rules."""
        context = replace(self._context(schedule), fallbacks=fallbacks)
        return planned(self.program, context, "dead")[1]

    def split(self, schedule: Schedule) -> Program:
        """The program after the passes between ``dead`` and ``fuse``, which split axes as ``schedule`` says."""
        if not schedule.splits and not schedule.packs:
            return self.program
        program, context = self.program, self._context(schedule)
        for step in steps(SCALAR, "dead"):
            if step.name == "fuse":
                break
            program = step.run(program, context)
        return program

    def base_schedule(self, schedule: Schedule | None = None, fallbacks: Fallbacks = NO_FALLBACKS) -> Schedule:
        """The schedule of the default rules, with the driver's conservative fallbacks for kernels that fail later.

        Raises ScheduleError where even the last fallback fails.
        """
        while True:
            try:
                found = self.plan(schedule, fallbacks)
            except ScheduleError as error:  # a kernel has no plan at this rung
                if not error.kernel or fallbacks.exhausted(error.kernel):
                    raise
                fallbacks = fallbacks.after(error.kernel, error.excess)
                continue
            done = self.lower(found)
            if done.ok:
                return found
            if not done.kernel or fallbacks.exhausted(done.kernel):
                break
            fallbacks = fallbacks.after(done.kernel, done.excess)
        if done.module is None:
            raise ScheduleError(done.fault or "no legal schedule")
        return found

    def _context(self, schedule: Schedule | None) -> Context:
        return Context(self.arch, self.precision, schedule=schedule)


def _key(schedule: Schedule) -> str:
    """The part of ``schedule`` that decides the kernels of a program in which definitions are inlined already."""
    return replace(schedule, inline=None).to_json()


def _lower(program: Program, schedule: Schedule, context: Context) -> Lowered:
    module: Any = program
    scalar: Program | None = None
    reached: MemModule | None = None
    try:
        check_schedule(schedule)
        for step in pipeline_steps():
            try:
                module = step.run(module, context)
            except Exception as error:
                error.add_note(f"in pass {step.stage.name}/{step.name}")
                raise
            if step.stage is MA_TILE:
                reached = module
            elif step.stage is SCALAR:
                scalar = module
        assert reached is not None
        verify(reached)
        check_code_size(reached)
    except (ScheduleError, TargetLimitError) as error:
        found = error.schedule_error() if isinstance(error, TargetLimitError) else error
        return Lowered(reached, str(found), found.kernel, scalar, found.excess)
    except UnsupportedError as error:
        return Lowered(reached, first_line(error), error.kernel, scalar)
    return Lowered(reached, register_fault(reached, limits(context.arch)), scalar=scalar)


def pipeline_steps() -> tuple[Step, ...]:
    """The steps after the pass ``dead``, down to the last one of the MA-tile level."""
    between = [s for s in STAGES[STAGES.index(SCALAR) + 1 :] if s is not CUDA]
    return (*steps(SCALAR, "dead"), *(step for s in between for step in steps(s)))


def trials_of(request: Request) -> tuple[TrialLowering, Schedule]:
    """The Scalar program of the driver's ``request`` after the pass ``dead``, and the schedule so far.

    The schedule names what was inlined; its kernels are those of the request, if that has any.
    """
    raw: Any = compile_file(replace(request, until="spec", schedule=None, lookup=None)).modules["spec"]
    context = Context(request.arch, request.precision, dict(request.dims), request.schedule, spec=raw)
    pipeline = Pipeline([Verify()])
    todo = steps(SCALAR)
    names = [s.name for s in todo]
    cut, end = names.index("inline"), names.index("dead") + 1
    module, context = pipeline.run(todo[:cut], raw, context)
    program: Program
    program, context = pipeline.run(todo[cut:end], module, replace(context, schedule=request.schedule))
    assert context.schedule is not None
    origin = Origin(module, context.schedule.inline or (), context)
    return TrialLowering(program, request.arch, request.precision, origin), context.schedule
