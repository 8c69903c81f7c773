"""The page to read first: from a file to CUDA text and a cubin.

    spec.naut --> Spec --> Scalar IR --> VR-tile IR --> MA-tile IR --> kernel.cu --> cubin

:mod:`nautilus.passes.pipelines` holds the stages and passes as data; this file runs them.  A compilation starts at
the stage whose suffix the input file has (``.naut .scalar .vr .ma``; a dump also says after which pass) and ends
at ``until``.  Where a schedule fails, a more conservative one is compiled from the start (:func:`next_request`).
Everything that happened is in the :class:`Result`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nautilus.core.errors import ScheduleError, TargetLimitError, UnsupportedError, first_line
from nautilus.core.records.stack import with_large_stack
from nautilus.passes.attempts import Repeated, Resources, check_resources, next_attempt, next_request, note_spills
from nautilus.passes.compilation import Request, Result, verifiers
from nautilus.passes.inputs import forget_all, read_input
from nautilus.passes.instruments import Verify, VerifyLater
from nautilus.passes.manager import Instrument, Pipeline, steps
from nautilus.passes.pipelines import MA_TILE, STAGE_NAMES, STAGES, Stage
from nautilus.passes.pipelines import stage as named
from nautilus.passes.selection.assembly import Refused, refusal
from nautilus.passes.selection.checked import Checked
from nautilus.passes.selection.with_variants import may_vary, with_variants

if TYPE_CHECKING:
    from nautilus.runtime.nvrtc import Compiled

__all__ = ["Request", "Result", "build_cubin", "compile_checked", "compile_file", "compile_variant", "next_request"]

_RECURSION = 20_000  # Python frames: printers and simplifiers recurse as deep as the checker lets a spec be
_CHECK = "nautilus.runtime.nvrtc:check"
Accept = Callable[[Result], None]  # raises ScheduleError for a result that must not be used


def compile_file(
    request: Request, instruments: Sequence[Instrument] = (), accept: Accept | None = None, judge: Accept | None = None
) -> Result:  # fmt: skip
    """Run the stages under the first schedule that they, ``judge`` before the text, and ``accept`` take. Or raise."""
    forget_all()
    return compile_variant(request, instruments, accept, kept=False, judge=judge)


@with_large_stack
def compile_variant(
    request: Request, instruments: Sequence[Instrument] = (), accept: Accept | None = None, kept: bool = True,
    judge: Accept | None = None,
) -> Result:  # fmt: skip
    """:func:`compile_file` as a part of another compilation, such as a variant, whose results it knows and shares."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION))
    lookup_failure, repeated, refused = "", Repeated(), request.refused
    while True:
        result, checks = Result(request.context), verifiers(request)
        try:
            known = [Refused(refused)] if request.refused else []
            pipeline = Pipeline([*checks, repeated, *known, *instruments], kept=kept)
            start, after = read_input(request, result, pipeline)
            _run_stages(result, start, after, request.until, pipeline, not request.gives_kernels, judge)
            kept_plan = repeated.kept_plan(result, accept, _to_ma_tile)
            if kept_plan is None:
                result.lookup_failure, result.refused = lookup_failure, refused
                result.later = next((c for c in checks if isinstance(c, VerifyLater)), None)
                return result
            request, repeated = kept_plan, Repeated()
        except (ScheduleError, UnsupportedError) as error:
            refused += refusal(error, result.context.schedule)
            request, repeated = next_attempt(request, result, repeated, error, _to_ma_tile)
            lookup_failure = first_line(error) if result.tuned else lookup_failure


def build_cubin(request: Request, instruments: Sequence[Instrument] = ()) -> tuple[Result, Compiled]:
    """:func:`compile_file`, then NVRTC; a kernel that ptxas cannot make fast fails like one that a pass refuses.

    Where variants may follow, their text contains the kernels again, so only kernels in doubt are assembled before.
    """
    from nautilus.runtime.nvrtc import build

    built: list[Compiled] = []
    checked = Checked(request, _CHECK, _to_ma_tile)

    def assemble(made: Result) -> Sequence[Resources]:
        built.append(build(made.cuda_module, made.context.arch))
        return built[-1].resources

    def judge(result: Result) -> None:
        if may_vary(request, result):
            checked.accept(result)

    def accept(result: Result) -> None:
        if not may_vary(request, result):
            note_spills(request, result, result.cuda_module, assemble(result))

    result = compile_file(request, instruments, accept, judge)
    found = with_variants(request, result, compile_variant, assemble)
    if found is None and may_vary(request, result):
        assemble(result)
    return found or result, built[-1]


def compile_checked(request: Request, instruments: Sequence[Instrument] = ()) -> Result:
    """:func:`compile_file` with the schedule that :func:`build_cubin` ends at, so that every output is of one kernel.

    Only kernels with warpgroup MMAs, or with so many live fragments that registers may spill, are assembled.  A
    given schedule or dump is kept, with its failure in ``ptxas_failure``; ``unchecked`` says that there is no NVRTC.
    """
    checked = Checked(request, _CHECK, _to_ma_tile)
    result = compile_file(request, instruments, judge=checked.accept)
    return with_variants(request, result, compile_variant, checked.assemble) or result


def _to_ma_tile(result: Result, until: str) -> Result | None:
    """``result``, which ends at ``until``, with the modules down to MA-tile IR; None where no lowering leads there."""
    if MA_TILE.name in result.modules:
        return result
    whole, start = replace(result, modules=dict(result.modules)), named(until)
    try:
        _run_stages(whole, start, start.step_names[-1], MA_TILE.name, Pipeline([Verify()]))
    except UnsupportedError:
        return None  # no kernel, so none that is slow
    return whole


def _run_stages(
    result: Result, start: Stage, after: str | None, until: str, pipeline: Pipeline, checked: bool = False,
    judge: Accept | None = None,
) -> None:  # fmt: skip
    """Run all steps after pass ``after`` of ``start`` (None: after its lowering), to the last one of ``until``.

    ``checked``: the resources of MA-tile IR are.  ``judge`` rejects a result with MA-tile IR, or with an earlier stage
    that is the last one.  Both come before the text.
    """
    module, stages = result.modules[start.name], STAGES[STAGES.index(start) : STAGE_NAMES.index(until) + 1]
    for stage in stages:
        todo = steps(stage, after, lowered=True) if stage is start else steps(stage)
        try:
            module, result.context = pipeline.run(todo, module, result.context)
        except TargetLimitError as error:
            raise error.schedule_error() from error
        result.modules[stage.name] = module
        if checked and stage is MA_TILE:
            check_resources(module, result.context, result.tuned)
        if judge is not None and stage is (MA_TILE if MA_TILE in stages else stages[-1]):
            judge(result)
