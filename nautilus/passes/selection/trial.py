"""A trial: the rest of the pipeline under a schedule that is not complete yet, and the predicted time of its kernels.

A trial of what the rules say goes down the ladder of conservative fallbacks as the driver does, so that its time is
that of the kernels that the driver would emit.

A kernel of several definitions that was refused with its first plans has smaller tiles on the rung
:data:`~nautilus.core.fallbacks.SMALLER`.  These may take longer than kernels of its definitions, which have large tiles
and store what one kernel would keep, so that both are tried (:func:`apart`): before reductions are cut into chunks,
because kernels that are apart may have few blocks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nautilus.core.errors import ScheduleError, TargetLimitError, UnsupportedError
from nautilus.core.fallbacks import EPILOGUES, SMALLER, Fallbacks
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity
from nautilus.core.schedule import Schedule
from nautilus.cost.model import Estimate, KernelEstimate, estimate, together
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.verify.module import verify_kernels, verify_together
from nautilus.passes.attempts import check_resources, next_rung
from nautilus.passes.manager import Context, Step, divided, prepared, steps
from nautilus.passes.pipelines import CUDA, MA_TILE, PLANNED, SCALAR, STAGES
from nautilus.scalar.ir import Program
from nautilus.targets.limits import limits

ATTEMPTS = 9  # attempts of a trial of what the rules say; a candidate that fails once is dropped
MARGIN = 0.1  # relative gain by the cost model below which a kernel with smaller tiles stays
_ROUNDS = 3  # attempts to part kernels of what was apart


@dataclass(frozen=True, slots=True)
class Trial:
    """A complete schedule, the estimate of its kernels, and the rungs of the ladder that these stand on."""

    schedule: Schedule
    estimate: Estimate
    fallbacks: Fallbacks

    @property
    def seconds(self) -> float:
        """The predicted time of all kernels."""
        return self.estimate.seconds


def planned(program: Program, context: Context, after: str) -> tuple[Program, Schedule]:
    """The program from the result of pass ``after`` to where its schedule is complete, and that schedule.

    What ``context.schedule`` leaves open is decided by the rules. Raises what planner and passes raise.
    """
    module: Any = program
    for step in steps(SCALAR, after):
        context = prepared(step, module, context)
        if step.name == PLANNED:
            break
        module = step.tried(module, context)
    assert context.schedule is not None
    return module, context.schedule


def attempt(program: Program, context: Context, after: str, attempts: int = 1) -> Trial | None:
    """Lower ``program``, the result of pass ``after`` of Scalar IR, to MA-tile IR; None where that is refused.

    What ``context.schedule`` leaves open is decided by the rules.  ``attempts``: how often, each on the next rung of
    the ladder; a rung that changes nothing does not count.
    """
    todo = _steps(after)
    context = replace(context, trial=True)
    failed: tuple[Schedule, ScheduleError | UnsupportedError] | None = None
    while attempts:
        module: Any = program
        schedule, again, known = context.schedule, False, context
        try:
            for step in todo:
                if known.schedule is not schedule:  # few steps decide on one
                    known = replace(context, schedule=schedule)
                ready = prepared(step, module, known)
                schedule = ready.schedule
                if failed is not None and step.name == PLANNED and schedule == failed[0]:
                    again = True
                    raise failed[1]
                module = _tried(step, module, ready)
            return _priced(module, ready)
        except TargetLimitError as error:
            refusal: ScheduleError | UnsupportedError = error.schedule_error()
        except (ScheduleError, UnsupportedError) as error:
            refusal = error
        rung = next_rung(context.fallbacks, refusal, schedule, again)
        if rung is None or schedule is None:
            return None
        failed, attempts = (schedule, refusal), attempts - (not again)
        context = replace(context, fallbacks=rung)
    return None


def apart(program: Program, context: Context, together: Trial | None, after: str) -> Trial | None:
    """The trial of ``program``, the result of pass ``after``, with the kernels of :data:`SMALLER` plans apart.

    None where it is not clearly faster than ``together``, the trial of ``context``, or where that has no such plans.
    """
    fallbacks, best = context.fallbacks if together is None else together.fallbacks, together
    for _ in range(_ROUNDS):  # what reads a definition is first, and may have taken it into another kernel
        if not smaller(fallbacks):
            break
        parted = attempt(program, replace(context, fallbacks=_parted(fallbacks)), after, ATTEMPTS)
        if parted is None:
            break
        best = parted if best is None or parted.seconds < best.seconds else best
        fallbacks = parted.fallbacks
    if best is together or best is None:
        return None
    return best if together is None or best.seconds < (1 - MARGIN) * together.seconds else None


def smaller(fallbacks: Fallbacks) -> list[str]:
    """The kernels that have smaller plans."""
    return [name for name, step in fallbacks.taken if step == SMALLER]


def _parted(fallbacks: Fallbacks) -> Fallbacks:
    """``fallbacks`` with the kernels of :data:`SMALLER` plans on the next rung."""
    names = smaller(fallbacks)
    steps = {**dict(fallbacks.taken), **dict.fromkeys(names, EPILOGUES)}
    excesses = {k: x for k, x in fallbacks.excesses if k not in names}
    return replace(Fallbacks.of(steps, excesses, fallbacks.spilling), failures=fallbacks.failures)


def _tried(step: Step, module: Any, context: Context) -> Any:
    """The module after ``step``. An error that is no refusal has a note with the name of the step."""
    try:
        return step.tried(module, context)
    except (ScheduleError, UnsupportedError, TargetLimitError):
        raise
    except Exception as error:
        error.add_note(f"in pass {step.stage.name}/{step.name}")
        raise


def _priced(module: MemModule, context: Context) -> Trial:
    """The trial that ended with ``module``. Raises the errors of the verifier."""
    alone = divided(module).alone
    verify_together(module)
    for m in alone:
        _verified(m)
    check_resources(module, context)
    assert context.schedule is not None
    return Trial(context.schedule, together((_time(m) for m in alone), context.arch), context.fallbacks)


@by_identity(512)  # kernels that trials have in common
def _verified(alone: MemModule) -> None:
    verify_kernels(alone, limits(alone.target))


@by_identity(512)
def _time(alone: MemModule) -> KernelEstimate:
    return estimate(alone, alone.target).kernels[0]


def _steps(after: str) -> tuple[Step, ...]:
    """The steps after pass ``after`` of Scalar IR, down to the last one of MA-tile IR."""
    later = STAGES[STAGES.index(SCALAR) + 1 : STAGES.index(CUDA)]
    assert later[-1] is MA_TILE
    return (*steps(SCALAR, after), *(step for stage in later for step in steps(stage)))
