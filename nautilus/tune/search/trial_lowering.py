"""Carrying a schedule out on a program: is it legal, and what does the last IR look like?

The passes are the only judges of legality.  A candidate goes through all of them, which takes some 20 to 150 ms;
what they refuse is refused with their words.  Two rules are added that no pass has: registers (an estimate,
``cost.registers``), and the verifier's limits of the target.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nautilus.core.errors import ScheduleError, TargetLimitError, UnsupportedError, first_line
from nautilus.core.fallbacks import NO_FALLBACKS, Fallbacks
from nautilus.core.schedule import Schedule, check_schedule
from nautilus.cost.registers import register_fault
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.verify.module import verify
from nautilus.passes.instruments import Verify
from nautilus.passes.manager import Context, Pipeline, Step, prepared, steps
from nautilus.passes.pipelines import CUDA, MA_TILE, SCALAR, STAGES
from nautilus.scalar.ir import Program
from nautilus.targets.limits import limits
from nautilus.tune.space.inlining import remember

_KEPT = 64  # modules remembered


@dataclass(frozen=True)
class Lowered:
    """What became of a schedule. ``module``: the last MA-tile module reached, also of some that were refused."""

    module: MemModule | None
    fault: str | None
    kernel: str = ""  # that the fault is about, where it names one
    scalar: Program | None = None  # after the passes of the Scalar level

    @property
    def ok(self) -> bool:
        """Whether the schedule is legal."""
        return self.fault is None


_memory: OrderedDict[tuple[int, str, str, str], tuple[Program, Lowered]] = OrderedDict()


def lower_program(program: Program, schedule: Schedule, arch: str, precision: str = "fast") -> Lowered:
    """``program`` (after the pass ``dead``) under ``schedule`` down to the MA-tile level; remembers the last few."""
    key = (id(program), schedule.to_json(), arch, precision)
    found = _memory.get(key)
    if found is not None and found[0] is program:
        _memory.move_to_end(key)
        return found[1]
    done = _lower(program, schedule, Context(arch, precision, schedule=schedule))
    _memory[key] = (program, done)
    while len(_memory) > _KEPT:
        _memory.popitem(last=False)
    return done


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
    except (ScheduleError, TargetLimitError) as error:
        found = error.schedule_error() if isinstance(error, TargetLimitError) else error
        return Lowered(reached, str(found), found.kernel, scalar)
    except UnsupportedError as error:
        return Lowered(reached, first_line(error), scalar=scalar)
    return Lowered(reached, register_fault(reached, limits(context.arch)), scalar=scalar)


def pipeline_steps() -> tuple[Step, ...]:
    """The steps behind the pass ``dead``, down to the last one of the MA-tile level."""
    between = [s for s in STAGES[STAGES.index(SCALAR) + 1 :] if s is not CUDA]
    return (*steps(SCALAR, "dead"), *(step for s in between for step in steps(s)))


def plan(
    program: Program, arch: str, schedule: Schedule | None = None, fallbacks: Fallbacks = NO_FALLBACKS
) -> Schedule:
    """``schedule`` with everything behind the pass ``dead`` that it leaves open, by the default rules."""
    context = Context(arch, schedule=schedule, fallbacks=fallbacks)
    module: Any = program
    for step in steps(SCALAR, "dead"):
        context = prepared(step, module, context)
        if step.name == SCALAR.decisions[-1]:
            break
        module = step.run(module, context)
    assert context.schedule is not None
    return context.schedule


def cut_program(program: Program, schedule: Schedule, arch: str) -> Program:
    """``program`` after the passes between ``dead`` and ``fuse``, which cut axes in two as ``schedule`` says."""
    if not schedule.splits and not schedule.packs:
        return program
    context = Context(arch, schedule=schedule)
    for step in steps(SCALAR, "dead"):
        if step.name == "fuse":
            break
        program = step.run(program, context)
    return program


def base_schedule(
    program: Program, arch: str, precision: str = "fast", schedule: Schedule | None = None,
    fallbacks: Fallbacks = NO_FALLBACKS,
) -> Schedule:  # fmt: skip
    """What the default rules end at: kernels that a later level refuses are planned plainer, as the driver does.

    Raises ScheduleError where even the plain plan is refused.
    """
    while True:
        found = plan(program, arch, schedule, fallbacks)
        done = lower_program(program, found, arch, precision)
        if done.ok:
            return found
        if not done.kernel or fallbacks.exhausted(done.kernel) or not limits(arch).warpgroup:
            break
        fallbacks = fallbacks.after(done.kernel)
    if done.module is None:
        raise ScheduleError(done.fault or "no legal schedule")
    return found


def program_of(request: Any, inline: Sequence[str] | None = None) -> tuple[Program, Schedule]:
    """The Scalar program of the driver's ``request`` after the pass ``dead``, and the schedule so far.

    The schedule names what was inlined; its kernels are those of the request, if that has any.  ``inline``: these
    definitions instead of the rule's.
    """
    from nautilus.driver import compile_file

    raw: Any = compile_file(replace(request, until="spec", schedule=None, lookup=None)).modules["spec"]
    context = Context(request.arch, request.precision, dict(request.dims), request.schedule)
    pipeline = Pipeline([Verify()])
    todo = steps(SCALAR)
    names = [s.name for s in todo]
    cut, end = names.index("inline"), names.index("dead") + 1
    module, context = pipeline.run(todo[:cut], raw, context)
    wanted = request.schedule
    if inline is not None:
        wanted = replace(wanted or Schedule(), inline=tuple(inline), kernels=())
    program: Program
    program, context = pipeline.run(todo[cut:end], module, replace(context, schedule=wanted))
    assert context.schedule is not None
    remember(program, module, context.schedule.inline or (), context)
    return program, context.schedule
