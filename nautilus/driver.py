"""The page to read first: from a file to CUDA text and a cubin.

    spec.naut --> Spec --> Scalar IR --> VR-tile IR --> MA-tile IR --> kernel.cu --> cubin

:mod:`nautilus.passes.pipelines` holds the stages and passes as data; this file runs them.  A compilation starts at
the stage whose suffix the input file has (``.naut .scalar .vr .ma``; a dump also says behind which pass) and ends
at ``until``.  Where a schedule fails, a more conservative one is compiled from the start (:func:`next_request`).
Everything that happened is in the :class:`Result`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nautilus.core.errors import ScheduleError, TargetLimitError, UnsupportedError, first_line
from nautilus.core.schedule import check_schedule
from nautilus.cost.registers import may_spill
from nautilus.passes.attempts import SPILLED, Repeated, Resources, check_resources, next_request, note_spills
from nautilus.passes.compilation import Request, Result
from nautilus.passes.inputs import read_input
from nautilus.passes.instruments import Verify
from nautilus.passes.manager import Context, Instrument, Pipeline, steps
from nautilus.passes.pipelines import CUDA, MA_TILE, SPEC, STAGE_NAMES, STAGES, Stage
from nautilus.passes.pipelines import stage as named
from nautilus.targets.limits import limits

if TYPE_CHECKING:
    from nautilus.frontend.spec import Spec
    from nautilus.runtime.nvrtc import Compiled

__all__ = ["Request", "Result", "build_cubin", "compile_checked", "compile_file", "next_request"]

_RECURSION = 20_000  # Python frames: printers and simplifiers recurse as deep as the checker lets a spec be
Accept = Callable[[Result], None]  # raises ScheduleError for a result that must not be used


def compile_file(request: Request, instruments: Sequence[Instrument] = (), accept: Accept | None = None) -> Result:
    """Run the stages under the first schedule that none of them, nor ``accept``, rejects.

    Raises what the stages raise: DiagnosticError, ScheduleError, UnsupportedError, ...
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION))
    lookup_failure = ""
    repeated = Repeated()
    spec = None
    while True:
        result = Result(Context(request.arch, request.precision, dict(request.dims), request.schedule))
        result.context = replace(result.context, fallbacks=request.fallbacks, keep_runtime=request.keep_runtime)
        assumed = tuple(f.text for f in request.assumed)
        result.context = replace(result.context, unaligned=request.unaligned, assumed=assumed)
        try:
            checks = [Verify()] if request.verified else []
            _run(request, result, Pipeline([*checks, repeated, *instruments]), spec)
            if MA_TILE.name in result.modules and not request.gives_kernels:
                check_resources(result.modules[MA_TILE.name], result.context, result.tuned)
            if accept is not None:
                accept(result)
            result.lookup_failure = lookup_failure
            return result
        except (ScheduleError, UnsupportedError) as error:
            again = error is repeated.error  # before the result has a schedule
            schedule = repeated.planned if again else result.context.schedule
            request = next_request(request, result.tuned, error, again, schedule)
            spec = result.modules.get(SPEC.name)
            accepted = error.kernel in request.fallbacks.spilling
            repeated = Repeated() if accepted else Repeated(repeated.planned, error)
            lookup_failure = first_line(error) if result.tuned else lookup_failure


def build_cubin(request: Request, instruments: Sequence[Instrument] = ()) -> tuple[Result, Compiled]:
    """:func:`compile_file`, then NVRTC; a kernel that ptxas cannot make fast fails like one that a pass refuses."""
    from nautilus.runtime.nvrtc import build

    built: list[Compiled] = []

    def accept(result: Result) -> None:
        built.append(build(result.cuda_module, result.context.arch))
        note_spills(request, result, result.cuda_module, built[-1].resources)

    result = compile_file(request, instruments, accept)
    last: list[Compiled] = []

    def assemble(made: Result) -> Sequence[Resources]:
        last.append(build(made.cuda_module, made.context.arch))
        return last[-1].resources

    found = _with_variants(request, result, assemble)
    return (result, built[-1]) if found is None else (found, last[-1])


def compile_checked(request: Request, instruments: Sequence[Instrument] = ()) -> Result:
    """:func:`compile_file` with the schedule that :func:`build_cubin` ends at, so that every output is of one kernel.

    ptxas is asked only where there are warpgroup MMAs, or where so many fragments are live that registers may spill.  A
    schedule or a dump that was given is kept, with the failure in the result's ``ptxas_failure``; where NVRTC is not
    installed, its ``unchecked`` says so.
    """
    from nautilus.runtime.nvrtc import check, has_wgmma

    def accept(result: Result) -> None:
        whole = _to_cuda(result, request.until) if request.is_spec or CUDA.name in result.modules else None
        if whole is None:
            return
        serialised, arch = has_wgmma(whole.cuda), whole.context.arch
        try:
            if serialised or may_spill(whole.modules[MA_TILE.name], limits(arch)):
                reason, resources = check(whole.cuda_module, arch)
                result.unchecked = reason if serialised else ""
                note_spills(request, result, whole.cuda_module, resources)
        except ScheduleError as error:
            if not request.gives_kernels:
                raise
            result.ptxas_failure = str(error)

    def assemble(made: Result) -> Sequence[Resources]:
        return check(made.cuda_module, made.context.arch)[1] if has_wgmma(made.cuda) or _spills(made) else ()

    result = compile_file(request, instruments, accept)
    return _with_variants(request, result, assemble) or result


def _spills(made: Result) -> bool:
    """Whether a kernel of a variant may spill registers."""
    assert made.variants is not None
    return any(may_spill(v.module, limits(made.context.arch)) for v in made.variants.all)


def _with_variants(
    request: Request, result: Result, assemble: Callable[[Result], Sequence[Resources]]
) -> Result | None:  # fmt: skip
    """``result`` with the variants that the launcher chooses from; None where there are none.

    ``assemble`` lets ptxas check their text.  A variant that it cannot make fast is dropped, and the others are chosen
    again.  The variant for unaligned tensors is kept with spilled registers: no other one serves them.
    """
    if request.variants < 2 or request.until != CUDA.name:
        return None
    from nautilus.cuda.variants import lower_variants
    from nautilus.passes.header import variants_header
    from nautilus.passes.selection.variants import GENERAL, UNALIGNED, find

    dropped = set[str]()
    while True:
        found = find(request, result, compile_file, dropped)
        if found is None:
            return None
        spec = result.modules[SPEC.name]
        about = variants_header(found, result.modules[MA_TILE.name], result.context, spec)
        other = None if found.unaligned is None else found.unaligned.module
        text = lower_variants(
            [v.module for v in found.sized], found.dispatch, result.modules[MA_TILE.name], about, other, spec
        )
        made = replace(result, modules={**result.modules, CUDA.name: text}, variants=found)
        try:
            spilling = [r for r in assemble(made) if r.spill_stores > SPILLED]
        except ScheduleError as error:
            refused = [error.kernel]
        else:
            own = [] if other is None else [f"{other.name}.{k.name}" for k in other.kernels]
            refused = [name for r in spilling if (name := text.kernels[r.kernel]) not in own]
        if not refused:
            return made
        bad = {v.name for v in found.all if any(k.startswith(f"{v.module.name}.") for k in refused)}
        if bad <= {GENERAL, UNALIGNED}:
            return None
        dropped |= bad


def _to_cuda(result: Result, until: str) -> Result | None:
    """``result``, which ends at ``until``, with the modules down to CUDA; None where no lowering leads there."""
    if "cuda" in result.modules:
        return result
    whole, start = replace(result, modules=dict(result.modules)), named(until)
    try:
        _run_stages(whole, start, start.step_names[-1], CUDA.name, Pipeline([Verify()]))
    except UnsupportedError:
        return None  # no kernel, so none that is slow
    return whole


def _run(request: Request, result: Result, pipeline: Pipeline, spec: Spec | None = None) -> None:
    """Fill ``result``: read the input, take its schedule from the tuning database if asked, run the stages.

    ``spec``: the input, where an earlier attempt has read it.
    """
    if request.schedule is not None:
        check_schedule(request.schedule)
    start, after = read_input(request, result, pipeline, spec)
    if request.lookup is not None and start is SPEC and request.schedule is None:
        found = request.lookup(result.modules[SPEC.name], result.context)
        if found is not None:
            result.context, result.tuned = replace(result.context, schedule=found), True
            check_schedule(found)
    _run_stages(result, start, after, request.until, pipeline)


def _run_stages(result: Result, start: Stage, after: str | None, until: str, pipeline: Pipeline) -> None:
    """Run all steps behind pass ``after`` of ``start`` (None: behind its lowering), to the last one of ``until``."""
    module = result.modules[start.name]
    for stage in STAGES[STAGES.index(start) : STAGE_NAMES.index(until) + 1]:
        todo = steps(stage, after, lowered=True) if stage is start else steps(stage)
        try:
            module, result.context = pipeline.run(todo, module, result.context)
        except TargetLimitError as error:
            raise error.schedule_error() from error
        result.modules[stage.name] = module
