"""The page to read first: the whole road, from a file to CUDA text and a cubin.

    spec.naut --> Spec --> Scalar IR --> VR-tile IR --> MA-tile IR --> kernel.cu --> cubin

:mod:`nautilus.passes.pipelines` holds the stages and passes as data; this file walks along them.  A
compilation starts at the stage whose suffix the input file has (``.naut .scalar .vr .ma``; a dump also
says behind which pass) and ends at ``until``.  Everything that happened is in the :class:`Result`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nautilus.core.errors import (
    Diagnostic,
    DiagnosticError,
    ScheduleError,
    ToolchainError,
    UnsupportedError,
    VerifyError,
    first_line,
)
from nautilus.core.schedule import Schedule, check_schedule
from nautilus.core.source import Source, Span
from nautilus.passes.instruments import Verify, is_dump, read_header
from nautilus.passes.manager import Context, Instrument, Pipeline, Step, steps
from nautilus.passes.pipelines import CUDA, SPEC, STAGE_NAMES, STAGES, Stage
from nautilus.passes.pipelines import stage as named
from nautilus.passes.registry import bind, load
from nautilus.planner.fallbacks import NO_FALLBACKS, Fallbacks

if TYPE_CHECKING:
    from nautilus.runtime.nvrtc import Compiled

_Verdict = TypeVar("_Verdict")

_LIMITS = {"shared memory of a block", "threads of a block"}  # rules of the MA-tile level about the target
_RECURSION = 20_000  # Python frames: printers and simplifiers recurse as deep as the checker lets a spec be


@dataclass(frozen=True)
class Request:
    """What to compile, and how. ``until`` names the last stage.

    ``schedule`` None: the one that the tuning database knows if ``tuned``, else by rules.
    """

    path: Path
    arch: str = "sm_90a"
    dims: dict[str, int] = field(default_factory=dict)
    schedule: Schedule | None = None
    precision: str = "fast"
    until: str = "cuda"
    text: str | None = None  # instead of the file's
    fallbacks: Fallbacks = NO_FALLBACKS
    explicit: frozenset[str] = frozenset()  # of "arch", "precision": wins over what a dump says
    tuned: bool = False


@dataclass
class Result:
    """Modules by stage name (each after its last pass), and the context they were made in.

    ``tuned``: the schedule is from the tuning database; ``refused``: why one from there did not serve.
    ``unchecked``: why ptxas was not asked about warpgroup products; ``trouble``: what it says of those in a schedule
    or a dump that was given.
    """

    context: Context
    modules: dict[str, Any] = field(default_factory=dict)
    tuned: bool = False
    refused: str = ""
    unchecked: str = ""
    trouble: str = ""

    @property
    def cuda(self) -> str:
        """The CUDA C++ text. Raises KeyError where the compilation stopped earlier."""
        text: str = self.modules["cuda"]
        return text


def compile_file(request: Request, instruments: Sequence[Instrument] = ()) -> Result:
    """Walk the road. Raises what the stages raise: DiagnosticError, ScheduleError, UnsupportedError, ..."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION))
    while True:
        try:
            return _compile(request, instruments)
        except ScheduleError as error:
            request = plainer(request, error)


def build_cubin(request: Request, instruments: Sequence[Instrument] = ()) -> tuple[Result, Compiled]:
    """:func:`compile_file`, then NVRTC; what ptxas cannot make fast is planned again like what a level refuses."""
    from nautilus.runtime.nvrtc import compile_cuda

    return _accepted(request, instruments, lambda result: compile_cuda(result.cuda, result.context.arch))


def compile_checked(request: Request, instruments: Sequence[Instrument] = ()) -> Result:
    """:func:`compile_file` with the schedule that :func:`build_cubin` ends at, so that every output is of one kernel.

    ptxas is asked only where there are warpgroup products. A schedule or a dump that was given is kept, with what is
    wrong in the result's ``trouble``; where NVRTC is not here, its ``unchecked`` says so.
    """

    def ask(result: Result) -> None:
        from nautilus.runtime.nvrtc import compile_cuda, has_products

        try:
            text = _kernel_text(request, result)
            if has_products(text):
                compile_cuda(text, result.context.arch)
        except ScheduleError as error:
            if not is_given(request):
                raise
            result.trouble = str(error)
        except ToolchainError as error:
            if error.log:
                raise
            result.unchecked = str(error)

    return _accepted(request, instruments, ask)[0]


def _kernel_text(request: Request, result: Result) -> str:
    """The CUDA text that ``result`` leads to, nobody watching; empty where it has no products or no way down there."""
    schedule = result.context.schedule
    if "cuda" in result.modules:
        return result.cuda
    if stage_of(request.path) is not SPEC or schedule is None:
        return ""
    if all(k.mapping.engine != "warpgroup" for k in schedule.kernels):
        return ""
    start, more = named(request.until), replace(result, modules=dict(result.modules))
    try:
        whole = replace(request, until=CUDA.name)
        return _walk(whole, start, start.step_names[-1], more, Pipeline([Verify()]), result.context).cuda
    except (UnsupportedError, VerifyError):
        return ""  # no kernel, so none that is slow


def _accepted(
    request: Request, instruments: Sequence[Instrument], judge: Callable[[Result], _Verdict]
) -> tuple[Result, _Verdict]:
    """What ``judge`` accepts, and its verdict; what it raises ScheduleError for is planned again while that helps."""
    refused = ""
    while True:
        result = compile_file(request, instruments)
        result.refused = refused or result.refused
        try:
            return result, judge(result)
        except ScheduleError as error:
            if result.tuned:
                request, refused = replace(request, tuned=False), first_line(error)
            else:
                request = plainer(replace(request, fallbacks=result.context.fallbacks), error)


def plainer(request: Request, error: ScheduleError) -> Request:
    """``request`` with lighter warpgroup products in the kernel that ``error`` names, if the default rules chose
    them, or without units of single warps; without any of these where that failed too.

    Raises ``error`` otherwise.
    """
    kernel = error.where.removeprefix("kernel ")
    if is_given(request) or kernel == error.where or request.fallbacks.exhausted(kernel):
        raise error
    return replace(request, fallbacks=request.fallbacks.after(kernel))


def is_given(request: Request) -> bool:
    """Whether the kernels' plans are the user's own: in a schedule, or in a dump."""
    return stage_of(request.path) is not SPEC or (request.schedule is not None and bool(request.schedule.kernels))


def _compile(request: Request, instruments: Sequence[Instrument]) -> Result:
    context = Context(
        request.arch, request.precision, dict(request.dims), request.schedule, fallbacks=request.fallbacks
    )
    pipeline = Pipeline([Verify(), *instruments])
    result = Result(context)
    start = stage_of(request.path)
    if request.schedule is not None:
        check_schedule(request.schedule)
    if start is SPEC:
        module, after = _read_spec(request, pipeline, context), None
    else:
        module, context, after = _read_dump(request, start, context)
        pipeline.show(Step(start, "parse", None, is_last=False), module, True, 0.0, context)
    result.modules[start.name] = module
    found = None
    if request.tuned and start is SPEC and request.schedule is None:
        found = load("nautilus.tune.database.lookup:tuned_schedule")(module, context)
    if found is not None:
        try:
            check_schedule(found)
            result.tuned = True
            return _walk(request, start, after, result, pipeline, replace(context, schedule=found))
        except (ScheduleError, UnsupportedError, VerifyError) as error:
            again = _compile(replace(request, tuned=False), instruments)  # from the start, for those who watch
            again.refused = first_line(error)
            return again
    return _walk(request, start, after, result, pipeline, context)


def _walk(
    request: Request, start: Stage, after: str | None, result: Result, pipeline: Pipeline, context: Context
) -> Result:
    """``result``, which holds the module of ``start``, with those of the stages up to ``until``."""
    module = result.modules[start.name]
    for stage in STAGES[STAGES.index(start) : STAGE_NAMES.index(request.until) + 1]:
        if stage is not SPEC:
            try:
                module, context = _run_stage(stage, stage is start, after, result, module, pipeline, context)
            except VerifyError as error:
                if error.rule in _LIMITS:
                    raise _too_large(error) from error
                raise
        result.modules[stage.name] = module
    result.context = context
    return result


def _too_large(error: VerifyError) -> ScheduleError:
    """A kernel that the target cannot hold is the schedule's fault, not a broken IR."""
    refused = ScheduleError(f"{error.node}: {error.rule}: {error.detail}")
    for note in getattr(error, "__notes__", ()):
        refused.add_note(note)
    return refused


def _run_stage(
    stage: Stage, is_start: bool, after: str | None, result: Result, module: Any, pipeline: Pipeline, context: Context
) -> tuple[Any, Context]:
    """Lower into ``stage`` and run its passes; a stage that plans makes the schedule in between."""
    todo = steps(stage, after if is_start else None, lowered=is_start)
    if stage is CUDA:
        context = replace(context, header=load(stage.header)(context, module, result.modules.get("spec")))
    for before, target in stage.plans:
        names = [step.name for step in todo]
        if before in names:
            cut = names.index(before)
            module, todo = pipeline.run(todo[:cut], module, context), todo[cut:]
            planner = load(target)
            context = replace(context, schedule=planner(module, **bind(planner, context, {}, skip=1)))
    return pipeline.run(todo, module, context), context


def _read_spec(request: Request, pipeline: Pipeline, context: Context) -> Any:
    function = load(SPEC.lower)
    source: Any = request.path if request.text is None else request.text
    started = time.perf_counter()
    spec = function(source, **bind(function, context, {}, skip=1))
    pipeline.show(Step(SPEC, "check", None, is_last=True), spec, True, time.perf_counter() - started, context)
    return spec


def _read_dump(request: Request, stage: Stage, context: Context) -> tuple[Any, Context, str | None]:
    name = str(request.path)
    try:
        text = request.path.read_text(encoding="utf-8") if request.text is None else request.text
        context, after = read_header(text, context, request.explicit)
        if after is None and stage.plain_is_final and not is_dump(text):
            after = steps(stage)[-1].name
        todo = steps(stage, after)  # the pass must exist
    except OSError as error:
        raise _bad_input(name, f"cannot read this {stage.name} file: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise _bad_input(name, f"cannot read this {stage.name} file: {error}") from error
    if context.schedule is None and stage.plans and stage.plans[-1][0] not in [step.name for step in todo]:
        raise ScheduleError(f"{name} was dumped after {after}, but has no schedule line; give --schedule")
    if request.dims:
        raise _bad_input(name, "sizes are fixed in a dump; --dim belongs to a spec")
    module = load(stage.parse)(text, name)
    target = getattr(module, "target", context.arch)
    if target != context.arch and "arch" in request.explicit:
        raise ScheduleError(f"{name} is for {target}, not {request.arch}; compile an earlier level")
    return module, replace(context, arch=target), after


def stage_of(path: Path) -> Stage:
    """The stage whose suffix ``path`` has. Raises DiagnosticError."""
    for stage in STAGES:
        if path.suffix == stage.suffix and stage is not CUDA:
            return stage
    known = " ".join(s.suffix for s in STAGES if s is not CUDA)
    raise _bad_input(str(path), f"the suffix {path.suffix!r} is none of {known}")


def _bad_input(name: str, message: str) -> DiagnosticError:
    return DiagnosticError([Diagnostic("N0902", message, Span(Source(name, ""), 0, 0, 0, 0))])


def as_text(text: str) -> str:
    """The text form of the last stage, which is text already."""
    return text
