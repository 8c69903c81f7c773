"""The pass manager: steps in order, and instruments that watch them.

A pass (:mod:`nautilus.core.passes`) has its options as fields.  Fields named like a field of :class:`Context`
(``schedule``, ``arch``, ``precision``, ...) are filled from it.  A *lowering* is a function ``f(module, ...)`` whose
further arguments are filled the same way.  Both become a :class:`Step`.  What a step needs of the context and the
context does not have yet, :func:`prepared` adds: a decision of the planner, or the header of the text.

The manager itself only runs steps; verifying, printing, dumping and timing are instruments.  After
every step each instrument sees a :class:`Record`.  An error that leaves a step says which step it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from nautilus.core.errors import VerifyError
from nautilus.core.fallbacks import NO_FALLBACKS, Fallbacks
from nautilus.core.schedule import Schedule
from nautilus.passes.loading import bind, load, load_pass
from nautilus.passes.pipelines import PassSpec, Stage
from nautilus.targets.records import DEFAULT_TARGET


@dataclass(frozen=True)
class Context:
    """What a compilation is told besides its input; passes and lowerings take fields by name.

    ``spec``: the Spec, if the compilation begins at one.
    """

    arch: str = DEFAULT_TARGET
    precision: str = "fast"
    dims: dict[str, int] = field(default_factory=dict)
    schedule: Schedule | None = None
    header: tuple[str, ...] = ()
    fallbacks: Fallbacks = NO_FALLBACKS
    spec: Any = None

    @property
    def fast(self) -> bool:
        return self.precision == "fast"

    @property
    def target(self) -> str:
        return self.arch

    @property
    def strict(self) -> bool:
        return self.precision == "strict"


@dataclass(frozen=True, slots=True)
class Record:
    """One step that ran. ``changed``: the module differs from the one before (a lowering always)."""

    number: int  # 0 begins a compilation, also one that is planned again: what was seen before it is void
    stage: Stage
    name: str  # of the step
    spec: PassSpec | None  # None for a lowering
    module: Any
    changed: bool
    seconds: float
    context: Context
    is_last: bool  # of its stage

    @property
    def base(self) -> str:
        """The name of the pass, the same for all of its runs; of the step for a lowering."""
        return self.name if self.spec is None else self.spec.name


class Instrument(Protocol):
    """Watches steps; may raise to stop the compilation."""

    def after(self, record: Record) -> None: ...


@dataclass(frozen=True, slots=True)
class Step:
    """A lowering (``spec`` None) into ``stage``, or a pass of it."""

    stage: Stage
    name: str
    spec: PassSpec | None
    is_last: bool

    def run(self, module: Any, context: Context) -> Any:
        """The module after this step."""
        if self.spec is None:
            function = load(self.stage.lower)
            return function(module, **bind(function, context, {}, skip=1))
        made = load_pass(self.spec.name, self.spec.target)
        return made(**bind(made, context, self.spec.options)).apply(module)


def prepared(step: Step, module: Any, context: Context) -> Context:
    """``context`` with what ``step`` needs of it, given the ``module`` that it runs on.

    This is the one place where a schedule is planned: the planner decides before the passes that its stage names.
    """
    stage = step.stage
    if step.name in stage.decisions:
        made = load(stage.planner)
        decided = made(**bind(made, context, {})).decide(step.name, module, context.schedule)
        return replace(context, schedule=decided)
    if step.spec is None and stage.header:
        function = load(stage.header)
        return replace(context, header=function(module, **bind(function, context, {}, skip=1)))
    return context


def steps(stage: Stage, after: str | None = None, lowered: bool = False) -> tuple[Step, ...]:
    """The lowering into ``stage`` (unless ``lowered``) and its passes, from behind pass ``after`` on.

    A pass that runs again is called ``cse-2``.  Raises ValueError where the stage has no such step.
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
    """Runs steps and shows every result to the instruments. ``count`` numbers steps over all runs."""

    instruments: Sequence[Instrument] = ()
    count: int = 0

    def run(self, todo: Iterable[Step], module: Any, context: Context) -> tuple[Any, Context]:
        """``module`` after all steps of ``todo``, and what the context then is. Errors name the step in a note."""
        for step in todo:
            try:
                context = prepared(step, module, context)
                started = time.perf_counter()
                new = step.run(module, context)
            except Exception as error:
                error.add_note(f"in pass {step.stage.name}/{step.name}")
                raise
            seconds = time.perf_counter() - started
            changed = step.spec is None or not (new is module or new == module)
            self.show(step, new, changed, seconds, context)
            module = new
        return module, context

    def show(self, step: Step, module: Any, changed: bool, seconds: float, context: Context) -> None:
        """Let every instrument see ``module`` as the result of ``step``."""
        record = Record(
            self.count, step.stage, step.name, step.spec, module, changed, seconds, context, step.is_last
        )  # fmt: skip
        self.count += 1
        for instrument in self.instruments:
            try:
                instrument.after(record)
            except VerifyError as error:
                error.add_note(f"after pass {step.stage.name}/{step.name}")
                raise
