"""The page to read first: from a file to CUDA text and a cubin.

    spec.naut --> Spec --> Scalar IR --> VR-tile IR --> MA-tile IR --> kernel.cu --> cubin

:mod:`nautilus.passes.pipelines` holds the stages and passes as data; this file runs them.  A compilation starts at
the stage whose suffix the input file has (``.naut .scalar .vr .ma``; a dump also says behind which pass) and ends
at ``until``.  Where a schedule fails, a more conservative one is compiled from the start (:func:`next_request`).
Everything that happened is in the :class:`Result`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nautilus.core.errors import ScheduleError, SpillError, TargetLimitError, UnsupportedError, first_line
from nautilus.core.schedule import Schedule, check_schedule
from nautilus.cost.registers import may_spill
from nautilus.cuda.module import CudaModule
from nautilus.ma_tile.analysis.code_size import check_code_size
from nautilus.passes.compilation import Request, Result
from nautilus.passes.inputs import read_input
from nautilus.passes.instruments import Verify
from nautilus.passes.manager import Context, Instrument, Pipeline, Record, Step, steps
from nautilus.passes.pipelines import CUDA, MA_TILE, SCALAR, SPEC, STAGE_NAMES, STAGES, Stage
from nautilus.passes.pipelines import stage as named
from nautilus.targets.limits import limits

if TYPE_CHECKING:
    from nautilus.frontend.spec import Spec
    from nautilus.runtime.nvrtc import Compiled, Resources

__all__ = ["Request", "Result", "build_cubin", "compile_checked", "compile_file", "next_request"]

_RECURSION = 20_000  # Python frames: printers and simplifiers recurse as deep as the checker lets a spec be
_SPILLED = (
    64  # bytes a thread that a kernel may spill without a smaller plan: they are few accesses, which the L1 cache has
)
_SMALLER = 1.5  # the least factor by which a plan shrinks because it spills
_PLANNED = SCALAR.decisions[-1]  # the pass before which the schedule is complete
Accept = Callable[[Result], None]  # raises ScheduleError for a result that must not be used


def compile_file(request: Request, instruments: Sequence[Instrument] = (), accept: Accept | None = None) -> Result:
    """Run the stages under the first schedule that none of them, nor ``accept``, rejects.

    Raises what the stages raise: DiagnosticError, ScheduleError, UnsupportedError, ...
    """
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION))
    lookup_failure = ""
    repeated = _Repeated()
    while True:
        result = Result(Context(request.arch, request.precision, dict(request.dims), request.schedule))
        result.context = replace(result.context, fallbacks=request.fallbacks)
        try:
            _run(request, result, Pipeline([Verify(), repeated, *instruments]))
            if MA_TILE.name in result.modules and not request.gives_kernels:
                check_code_size(result.modules[MA_TILE.name], request.fallbacks.last)
            if accept is not None:
                accept(result)
            result.lookup_failure = lookup_failure
            return result
        except (ScheduleError, UnsupportedError) as error:
            request = next_request(request, result.tuned, error, again=error is repeated.error)
            accepted = error.kernel in request.fallbacks.spilling
            repeated = _Repeated() if accepted else _Repeated(repeated.planned, error)
            lookup_failure = first_line(error) if result.tuned else lookup_failure


@dataclass
class _Repeated:
    """An instrument that ends an attempt whose schedule is the one that failed before, with the same failure."""

    schedule: Schedule | None = None
    error: ScheduleError | UnsupportedError | None = None
    planned: Schedule | None = None

    def after(self, record: Record) -> None:
        if record.base != _PLANNED:
            return
        self.planned = record.context.schedule
        if self.error is not None and self.planned == self.schedule:
            raise self.error


def next_request(
    request: Request, tuned: bool, error: ScheduleError | UnsupportedError, again: bool = False
) -> Request:
    """``request`` after its schedule failed with ``error``. Raises ``error`` where nothing else is to be tried.

    A schedule from the tuning database (``tuned``) is replaced by the default rules.  These have a ladder of
    conservative fallbacks for each kernel (:mod:`nautilus.core.fallbacks`).  What the user gave is kept.  ``again``:
    the last fallback has left the schedule as it was.
    """
    if tuned:
        return replace(request, lookup=None)
    kernel, known = error.kernel, request.fallbacks
    if isinstance(error, SpillError):
        return replace(request, fallbacks=known.after_spill(kernel, error.excess, again))
    if not kernel or request.gives_kernels or known.exhausted(kernel):
        raise error
    excess = error.excess if isinstance(error, ScheduleError) else 0.0
    return replace(request, fallbacks=known.after(kernel, excess, again))


def build_cubin(request: Request, instruments: Sequence[Instrument] = ()) -> tuple[Result, Compiled]:
    """:func:`compile_file`, then NVRTC; a kernel that ptxas cannot make fast fails like one that a pass refuses."""
    from nautilus.runtime.nvrtc import build

    built: list[Compiled] = []

    def accept(result: Result) -> None:
        built.append(build(result.cuda_module, result.context.arch))
        _note_spills(request, result, result.cuda_module, built[-1].resources)

    result = compile_file(request, instruments, accept)
    return result, built[-1]


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
                _note_spills(request, result, whole.cuda_module, resources)
        except ScheduleError as error:
            if not request.gives_kernels:
                raise
            result.ptxas_failure = str(error)

    return compile_file(request, instruments, accept)


def _note_spills(request: Request, result: Result, module: CudaModule, resources: Sequence[Resources]) -> None:
    """Put spilled registers into ``result``. Raises SpillError where a smaller plan of the rules may spill less."""
    spilling = [(module.kernels.get(r.kernel, r.kernel), r) for r in resources if r.spill_stores]
    result.spills = tuple((name, r.spill_stores) for name, r in spilling)
    for name, r in spilling:
        ours = not (request.gives_kernels or result.tuned or name in result.context.fallbacks.spilling)
        if ours and r.spill_stores > _SPILLED:
            excess = max(_SMALLER, 1 + r.spill_stores / (4 * max(r.registers, 1)))
            raise SpillError(f"{r.spill_stores} bytes of registers are spilled", kernel=name, excess=excess)


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


def _run(request: Request, result: Result, pipeline: Pipeline) -> None:
    """Fill ``result``: read the input, take its schedule from the tuning database if asked, run the stages."""
    if request.schedule is not None:
        check_schedule(request.schedule)
    start, after = read_input(request, result, pipeline)
    if start is SPEC and request.until == CUDA.name:
        _refuse_runtime_sizes(result.modules[SPEC.name])
    if request.lookup is not None and start is SPEC and request.schedule is None:
        found = request.lookup(result.modules[SPEC.name], result.context)
        if found is not None:
            result.context, result.tuned = replace(result.context, schedule=found), True
            check_schedule(found)
    _run_stages(result, start, after, request.until, pipeline)


def _refuse_runtime_sizes(spec: Spec) -> None:
    """Raise UnsupportedError for a size that is known only at launch, which no kernel has yet."""
    for d in spec.runtime_dims:
        raise UnsupportedError(f"a kernel for runtime size {d.name}", f"fix the size with --dim {d.name}=SIZE", d.span)


def _run_stages(result: Result, start: Stage, after: str | None, until: str, pipeline: Pipeline) -> None:
    """Run all steps behind pass ``after`` of ``start`` (None: behind its lowering), to the last one of ``until``."""
    module = result.modules[start.name]
    for stage, todo in _remaining(start, after, until):
        try:
            module, result.context = pipeline.run(todo, module, result.context)
        except TargetLimitError as error:
            raise error.schedule_error() from error
        result.modules[stage.name] = module


def _remaining(start: Stage, after: str | None, until: str) -> Iterator[tuple[Stage, tuple[Step, ...]]]:
    for stage in STAGES[STAGES.index(start) : STAGE_NAMES.index(until) + 1]:
        yield stage, steps(stage, after, lowered=True) if stage is start else steps(stage)
