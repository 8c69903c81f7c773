"""The pass manager: runs steps in order and calls instruments after each one.

A pass (:mod:`nautilus.core.passes`) has its options as fields.  :class:`Context` gives the values of fields with the
names of its own fields (``schedule``, ``arch``, ``precision``, ...).  A *lowering* is a function ``f(module, ...)``
whose further arguments are filled in the same way.  Both become a :class:`Step`.  :func:`prepared` completes the
context before a step: it adds decisions of the planner and the header of the text.

A trial of a plan (:mod:`nautilus.passes.selection.trial`) runs steps that the compilation, or another trial, runs again
on the same module with the same options: the results of steps in trials, and in compilations of variants, are kept,
and taken wherever a step runs.
Below Scalar IR, trials differ in few kernels, and most steps change each kernel by itself: they run on each different
kernel once (:mod:`nautilus.passes.trials.divided`).

The manager only runs steps; verification, printing, dumping and timing are instruments.  After
every step each instrument gets a :class:`Record`.  An error in a step has a note with the name of the step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from math import inf
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from nautilus.core.certificate import Certificate
from nautilus.core.errors import NautilusError, ScheduleError, VerifyError
from nautilus.core.fallbacks import NO_FALLBACKS, Fallbacks
from nautilus.core.passes import certifies
from nautilus.core.records import dataclass
from nautilus.core.records.memo import Results, Same, first_equal
from nautilus.core.schedule import Schedule
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.ir.traverse import warpgroup_plan_of
from nautilus.passes.loading import ALWAYS, bind, has_option, load, load_pass
from nautilus.passes.pipelines import REGROUPING, Only, PassSpec, Stage
from nautilus.passes.recurrences import decide_between, derive_between, has_recurrences
from nautilus.passes.trials.divided import Divided, Divisions
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting.beside_params import beside_params
from nautilus.targets.records import DEFAULT_TARGET

_IN_TRIALS = Results(1 << 15)  # steps on modules, and on each of their kernels
_DIVISIONS = Divisions()
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Context:
    """The options of a compilation besides its input. Passes and lowerings take fields by name.

    ``spec``: the Spec, if the compilation starts from one.  ``trial``: the planner follows its rules alone.
    ``keep_runtime``, ``unaligned``, ``noncooperative``, ``unpriced``: as in a Request.  ``assumed``: facts about sizes,
    as text.
    ``integers``: ranges of integer inputs, where the compilation starts from a dump.
    """

    arch: str = DEFAULT_TARGET
    precision: str = "fast"
    dims: dict[str, int] = field(default_factory=dict)
    schedule: Schedule | None = None
    header: Callable[[], Sequence[str]] = tuple
    fallbacks: Fallbacks = NO_FALLBACKS
    spec: Any = None
    trial: bool = False
    keep_runtime: bool = False
    unaligned: bool = False
    noncooperative: bool = False
    assumed: tuple[str, ...] = ()
    unpriced: frozenset[str] = frozenset()
    integers: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """The architecture, under the name that passes use."""
        return self.arch

    @property
    def strict(self) -> bool:
        """Whether no rounding may be inserted."""
        return self.precision == "strict"

    @property
    def price(self) -> Price:
        """The predicted time of a module of MA-tile IR on which the passes after load-ahead have not run."""
        return Price(self)


@dataclass(frozen=True, slots=True)
class Price:
    """The time of modules that ``context`` finishes; infinite for one whose kernels need too many registers.

    Passes that look at several kernels are left out: a trial divides a module, and they refuse one that lacks a kernel.
    """

    context: Context

    def __call__(self, module: MemModule) -> float:
        """Seconds of all kernels of ``module``."""
        from nautilus.cost.model import estimate
        from nautilus.passes.attempts import check_resources
        from nautilus.passes.pipelines import MA_TILE

        try:
            for step in steps(MA_TILE, "load-ahead"):
                if step.spec is None or not step.spec.whole:
                    module = step.tried(module, self.context)
            check_resources(module, self.context)
        except ScheduleError:
            return inf
        return estimate(module, self.context.arch).seconds

    def of(self, kernel: str) -> Price:
        """The time of modules of ``kernel`` alone, which the plans and the rungs of other kernels leave as it is."""
        schedule, known = _DIVISIONS.plan_of(self.context.schedule, kernel), self.context.fallbacks
        own = Fallbacks.of({kernel: known.steps(kernel)}, spilling=known.spilling & {kernel})
        return Price(replace(self.context, schedule=schedule, fallbacks=own))

    @property
    def key(self) -> object:
        """What the time depends on besides the module."""
        context = self.context
        schedule = None if context.schedule is None else Same(first_equal(context.schedule))
        return context.arch, schedule, Same(first_equal(context.fallbacks))


@dataclass(frozen=True, slots=True)
class Record:
    """The result of a step. ``changed``: the module differs from the previous one (always true for a lowering)."""

    number: int  # 0 is the start of a compilation or of another attempt, which invalidates earlier records
    stage: Stage
    name: str  # the name of the step
    spec: PassSpec | None  # None for a lowering
    module: Any
    changed: bool
    seconds: float
    context: Context
    is_last: bool  # whether it is the last step of its stage
    certificates: tuple[Certificate, ...] = ()  # those of the rewrites of this run

    @property
    def base(self) -> str:
        """The name of the pass, which is the same for all of its runs; for a lowering, the name of the step."""
        return self.name if self.spec is None else self.spec.name


class Instrument(Protocol):
    """An observer of steps. It may raise an exception to stop the compilation."""

    def after(self, record: Record) -> None:
        """Observe the step ``record``, which has run."""
        ...


@runtime_checkable
class FailureInstrument(Protocol):
    """An instrument that observes failures too."""

    def failed(self, error: Exception) -> None:
        """Observe that a step has raised ``error``; it may raise what is the reason for that."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """A lowering (``spec`` None) to ``stage``, or a pass of ``stage``."""

    stage: Stage
    name: str
    spec: PassSpec | None
    is_last: bool

    def run(self, module: Any, context: Context) -> Any:
        """The module after this step."""
        return self.derive(module, context)[0]

    def tried(self, module: Any, context: Context) -> Any:
        """The module after this step in a trial, whose result is kept."""
        return self.derive(module, context, kept=True)[0]

    def derive(self, module: Any, context: Context, kept: bool = False) -> tuple[Any, tuple[Certificate, ...]]:
        """The module after this step, and the certificates of a pass that changes the maths; ``kept``: in a trial."""
        if self.spec is not None and not _may_change(self.spec, module, context.schedule):
            return module, ()
        made: Any
        if self.spec is None:
            made, given, skip = load(self.stage.lower), _NO_OPTIONS, 1
        else:
            made, given, skip = load_pass(self.spec.name, self.spec.target), self.spec.options, 0
            if self.spec.name in context.unpriced and has_option(made, ALWAYS):
                given = {**given, ALWAYS: True}

        def run(part: Any, schedule: Schedule | None) -> tuple[Any, tuple[Certificate, ...]]:
            return self._apply(made, part, bind(made, replace(context, schedule=schedule), given, skip))

        if self.spec is not None and has_recurrences(module) and not getattr(made, "sees_recurrences", False):
            return derive_between(run, module, context.schedule)
        options = bind(made, context, given, skip)
        if not (kept or _IN_TRIALS.found):
            return self._apply(made, module, options)
        return self._remembered(made, module, options, kept, self._changes_each(module))

    def _remembered(
        self, made: Any, module: Any, options: Options, kept: bool, each: bool = False
    ) -> tuple[Any, tuple[Certificate, ...]]:  # fmt: skip
        """The result on ``module``, from an earlier trial where one has it; ``each``: of each kernel by itself."""
        key = (made, Same(module), *((name, _identified(value)) for name, value in options.items()))
        found: tuple[Any, tuple[Certificate, ...]] | None = _IN_TRIALS.found.get(key)
        if found is None:
            found = (self._of_each if each else self._of_all)(made, module, options, kept)
            if kept:
                _IN_TRIALS.keep(key, found)
        return found

    def _changes_each(self, module: Any) -> bool:
        """Whether the step changes each kernel of ``module`` with a look at no other one.

        Initial values are stored in front of the first kernel that writes a buffer, and the arrivals of teams are
        cleared in front of theirs.
        """
        alone = self.stage.by_kernel and not (self.spec is not None and self.spec.whole)
        alone = alone and not (self.spec is None and any(k.team > 1 for k in module.kernels))
        return alone and bool(module.kernels) and all(b.initial is None for b in module.buffers)

    def _of_each(
        self, made: Any, module: Any, options: Options, kept: bool
    ) -> tuple[Any, tuple[Certificate, ...]]:  # fmt: skip
        """The result on the module of each kernel, as one module.

        Where kernels are refused, the step runs on the module of these, which raises what belongs to all of them.
        """
        divided, alone, refused = _DIVISIONS.of(module), list[Any](), list[Any]()
        for m in divided.alone:
            name = m.kernels[0].name
            own: dict[str, Any] = {n: x.of(name) if isinstance(x, Price) else x for n, x in options.items()}
            if "schedule" in own:
                own["schedule"] = _DIVISIONS.plan_of(own["schedule"], name)
            idle = self.spec is not None and not _may_change(self.spec, m, own.get("schedule"))
            try:
                alone.append(m if idle else self._remembered(made, m, own, kept)[0])
            except NautilusError:
                refused += m.kernels
        if refused:
            self._apply(made, replace(divided.frame, kernels=tuple(refused)), options)
            return self._apply(made, module, options)
        frame = divided.frame if self.spec is not None else self._apply(made, divided.frame, options)[0]
        found = Divided(frame, tuple(alone))
        whole = found.module(module)
        _DIVISIONS.keep(whole, found)
        return whole, ()

    def _of_all(
        self, made: Any, module: Any, options: Options, kept: bool
    ) -> tuple[Any, tuple[Certificate, ...]]:  # fmt: skip
        """The result on ``module``, whose division, if it has one, is that of the result, except for new kernels."""
        found = self._apply(made, module, options)
        if kept and self.stage.by_kernel:
            _DIVISIONS.after(module, found[0])
        return found

    def _apply(self, made: Any, module: Any, options: Mapping[str, Any]) -> tuple[Any, tuple[Certificate, ...]]:
        if self.spec is None:
            return made(module, **options), ()
        instance = made(**options)
        found = instance.derive(module) if certifies(made) else (instance.apply(module), ())
        return beside_params(*found) if isinstance(found[0], Program) else found


def _may_change(spec: PassSpec, module: Any, schedule: Schedule | None) -> bool:
    """Whether the pass may change ``module``; one that may not is not loaded."""
    match spec.only:
        case Only.RECURRENCES:
            return has_recurrences(module)
        case Only.WARPGROUPS:
            return any(warpgroup_plan_of(schedule, k) is not None for k in module.kernels)
    return True


_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


def _identified(option: Any) -> object:
    """An option of a step as a part of a key: text and numbers by value, schedules too, other objects by identity."""
    if option is None or isinstance(option, str | int):
        return option
    if isinstance(option, Price):
        return option.key
    return Same(first_equal(option) if isinstance(option, Schedule) else option)


def forget_trials() -> None:
    """Drop the results of trials, which a compilation of another input does not need."""
    _IN_TRIALS.found.clear()
    _DIVISIONS.clear()


def divided(module: Any) -> Divided:
    """``module``, the result of a trial, as one module for each of its kernels."""
    return _DIVISIONS.of(module)


def prepared(step: Step, module: Any, context: Context) -> Context:
    """``context`` completed for ``step``, which runs on ``module``.

    Only this function plans a schedule: the planner runs before the passes that its stage names.
    """
    stage = step.stage
    if step.name in stage.decisions:
        made = load(stage.planner)

        def decide(part: Any, given: Schedule | None, known: Fallbacks) -> tuple[Schedule, Fallbacks]:
            planner = made(**bind(made, replace(context, fallbacks=known), {}))
            found: tuple[Schedule, Fallbacks] = planner.decide(step.name, part, given)
            return found

        if has_recurrences(module):
            regroups = step.name in REGROUPING
            decided, fallbacks = decide_between(decide, module, context.schedule, context.fallbacks, regroups)
            planner = made(**bind(made, replace(context, fallbacks=fallbacks), {}))
            decided = planner.decide_steps(step.name, module, decided)
        else:
            decided, fallbacks = decide(module, context.schedule, context.fallbacks)
        return replace(context, schedule=decided, fallbacks=fallbacks)
    if step.spec is None and stage.header:
        function = load(stage.header)
        return replace(context, header=function(module, **bind(function, context, {}, skip=1)))
    return context


def steps(stage: Stage, after: str | None = None, lowered: bool = False) -> tuple[Step, ...]:
    """The lowering to ``stage`` (unless ``lowered``) and its passes, starting after pass ``after``.

    The second run of a pass has a name such as ``cse-2``.  Raises ValueError for an unknown step.
    """
    names = stage.step_names
    last = len(names) - 1
    out = tuple(Step(stage, n, p, i == last) for i, (n, p) in enumerate(zip(names, stage.passes, strict=True)))
    if after is not None:
        if after not in names:
            known = ", ".join(names) or "none"
            raise ValueError(f"{stage.name} has no pass {after!r}; its passes are {known}")
        return out[names.index(after) + 1 :]
    return out if lowered else (Step(stage, "lower", None, not names), *out)


@dataclass
class Pipeline:
    """Runs steps and passes every result to the instruments. ``count`` numbers the steps of all runs.

    ``kept``: results are kept as those of trials are, because compilations of the same input with other options follow.
    """

    instruments: Sequence[Instrument] = ()
    count: int = 0
    kept: bool = False

    def run(self, todo: Iterable[Step], module: Any, context: Context) -> tuple[Any, Context]:
        """The module and the context after all steps of ``todo``. Errors have a note with the name of the step."""
        for step in todo:
            try:
                context = prepared(step, module, context)
                started = time.perf_counter()
                new, certificates = step.derive(module, context, self.kept)
            except Exception as error:
                for instrument in self.instruments:
                    if isinstance(instrument, FailureInstrument):
                        instrument.failed(error)
                error.add_note(f"in pass {step.stage.name}/{step.name}")
                raise
            seconds = time.perf_counter() - started
            changed = step.spec is None or not (new is module or new == module)
            self.show(step, new, changed, seconds, context, certificates)
            module = new
        return module, context

    def show(
        self, step: Step, module: Any, changed: bool, seconds: float, context: Context,
        certificates: tuple[Certificate, ...] = (),
    ) -> None:  # fmt: skip
        """Pass ``module`` to every instrument as the result of ``step``."""
        record = Record(
            self.count, step.stage, step.name, step.spec, module, changed, seconds, context, step.is_last, certificates
        )
        self.count += 1
        for instrument in self.instruments:
            try:
                instrument.after(record)
            except VerifyError as error:
                if not hasattr(error, "__notes__"):  # else the step is named that the instrument has found
                    error.add_note(step_note(step.stage.name, step.name))
                raise


def step_note(stage: str, step: str) -> str:
    """The note that names the step whose result is illegal."""
    return f"after pass {stage}/{step}"
