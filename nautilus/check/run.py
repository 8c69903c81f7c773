"""The entry points of ``nautilusc check``: one compilation, and one with all of its variants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nautilus.check.check import Check
from nautilus.check.coverage import enlarged, missing, with_all, with_scatters
from nautilus.check.input_sets import Clock
from nautilus.check.levels import Level
from nautilus.check.report import Outcome, Report
from nautilus.check.sizes import Variant, spec_at, variants
from nautilus.core.errors import NautilusError
from nautilus.driver import Request, compile_checked, compile_file
from nautilus.passes.dumps import stage_of
from nautilus.passes.selection.variants import GENERAL, UNALIGNED
from nautilus.passes.selection.with_variants import NONCOOPERATIVE

_SECONDS = 30.0  # time of a check; outcomes of what is left out then are "skip"
_OF_VARIANTS = 0.4  # the share of that for all variants together, where there are some


def check_spec(
    request: Request,
    *,
    seed: int = 0,
    device: str = "auto",
    full_size: bool = False,
    only: Sequence[str] | None = None,
    steps: bool = True,
    seconds: float = _SECONDS,
) -> Report:
    """Check the compilation that ``request`` describes.

    ``device``: cpu, cuda (a missing GPU is a failure) or auto.  ``full_size`` keeps the declared sizes.  ``only``
    restricts the kinds of inputs.  Without ``steps`` only the result of the GPU is checked.  A runtime dim in
    ``request.dims`` stays one, and the check is at that value.  ``seconds``: what random inputs at the first sizes
    leave of this time of the processor is for the other sizes and inputs.  Raises DiagnosticError for an invalid spec.
    """
    report, clock = Report(str(request.path), request.arch), Clock(seconds)
    if stage_of(request.path).name != "spec":
        Check(report, request, None, seed, device, only, steps).run()
        return report
    request = replace(request, keep_runtime=True)
    found = variants(lambda dims: spec_at(request, dims), request.dims, full_size)
    if steps:
        declared = Check(report, request, None, seed, device, only)  # the requested compilation at its own sizes
        declared.compile()
        declared.certificates()
        declared.index_sets()
        request = with_scatters(request, declared.trace.levels)
    made = []
    for n, v in enumerate(found):
        if n and not clock.left:
            report.add(Outcome("compile", "sizes", "skip", f"the time of the check is over; {v.text}"))
            continue
        sized, part = replace(request, dims={**request.dims, **v.dims}), clock.part(max(0.5, 1 / (len(found) - n)))
        twin = declared if steps and not v.dims else None  # its compilation is at these sizes
        validates = steps and n == 0
        made.append(Check(report, sized, v, seed, device, only, steps, validates, clock=part, twin=twin))
        made[-1].run()
    if steps and not full_size:
        checked = [c.trace.levels for c in made]
        checked += _check_without_prices(declared, found, checked, clock)
        _check_larger(declared, found, checked, clock)
    return report


def _check_without_prices(
    declared: Check, found: Sequence[Variant], checked: Sequence[list[Level]], clock: Clock
) -> list[list[Level]]:
    """Check passes that only the ``declared`` sizes use at those that were ``found``, where no prediction keeps them
    from it; the modules of these checks."""
    made: list[list[Level]] = []
    for v in found:
        lacking = missing(declared.trace.levels, [*checked, *made])
        request = with_all(declared.request, lacking)
        if request is None or not clock.left:
            break
        sized = replace(request, dims={**request.dims, **v.dims})
        at = replace(v, label=f"without prices, {v.label}")
        small = Check(declared.report, sized, at, declared.seed, "cpu", ("random",))
        try:
            compile_file(sized, [small.trace])
        except NautilusError:
            continue  # such plans are made for no other sizes
        if lacking != missing(declared.trace.levels, [*checked, *made, small.trace.levels]):
            replace(small, clock=clock.part(0.5), twin=small).run()
            made.append(small.trace.levels)
    return made


def _check_larger(declared: Check, found: Sequence[Variant], checked: list[list[Level]], clock: Clock) -> None:
    """Check larger sizes while they reach passes that only the ``declared`` sizes use, and name those that are left.

    None is begun when the time of ``clock`` is over.
    """
    request, report = declared.request, declared.report
    lacking = missing(declared.trace.levels, checked)
    for v in enlarged(lambda dims: spec_at(request, dims), request.dims, found, lacking):
        if not clock.left:
            break
        sized = replace(request, dims={**request.dims, **v.dims})
        larger = Check(report, sized, v, declared.seed, "cpu", ("random",), validates=False, clock=clock.part(1.0))
        larger.compile()
        if lacking != (left := missing(declared.trace.levels, [*checked, larger.trace.levels])):
            larger.run()
            checked, lacking = [*checked, larger.trace.levels], left
    for subject in lacking:
        declared.add("pass", subject, "skip", "it acts at the declared sizes and at none of the checked ones")


def check(request: Request, *, seed: int = 0, device: str = "auto") -> Report:
    """Check one compilation, and every variant of it; see :func:`check_spec`."""
    whole, one = Clock(_SECONDS), replace(request, variants=1)
    found = compile_checked(replace(request, keep_runtime=True)).variants if request.variants > 1 else None
    every = [v for v in found.all if v.name != GENERAL] if found is not None else []
    left = whole.left  # the variants have taken a part of the time
    first = (1.0 - _OF_VARIANTS if every else 1.0) * left
    report = check_spec(one, seed=seed, device=device, seconds=first)
    clock = Clock(_OF_VARIANTS * left)
    for n, v in enumerate(every):
        if n and not clock.left:
            report.add(Outcome("compile", f"variant {v.name}", "skip", "the time of the check is over"))
            continue
        own = replace(one, schedule=v.schedule, assumed=v.assumed)
        changed = replace(one, unaligned=True) if v.name == UNALIGNED else own
        if v.name == NONCOOPERATIVE:
            changed = replace(own, noncooperative=True, unaligned=found is not None and found.unaligned is not None)
        seconds = clock.left / (len(every) - n)
        checked = check_spec(changed, seed=seed, device=device, seconds=seconds)
        report.outcomes += (replace(o, subject=f"{o.subject} of variant {v.name}") for o in checked.outcomes)
    return report
