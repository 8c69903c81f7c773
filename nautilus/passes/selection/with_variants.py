"""The CUDA text of a compilation with its variants, without those whose registers ptxas spills or wgmma serialises.

Where the blocks of some variant wait for each other (:mod:`nautilus.cuda.host.co_residency`), one more variant, under
the schedule of the compilation, needs no blocks at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from nautilus.core.errors import ScheduleError, TargetLimitError
from nautilus.core.schedule import Schedule, recomputes
from nautilus.cuda.host.co_residency import waiting
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.passes.attempts import Resources, spills
from nautilus.passes.compilation import Request, Result, Variant, Variants
from nautilus.passes.pipelines import CUDA, MA_TILE, SPEC

NONCOOPERATIVE = "noncooperative"  # name of the variant whose blocks do not wait for each other


def with_variants(
    request: Request, result: Result, compile_one: Callable[[Request], Result],
    assemble: Callable[[Result], Sequence[Resources]],
) -> Result | None:  # fmt: skip
    """``result`` with the variants that the launcher chooses from; None where there are none.

    ``assemble`` lets ptxas check their text.  A variant that it cannot make fast is dropped, with those of the same
    plan, and the others are chosen again.  Spilled registers are no reason to drop a variant with a kernel that
    computes a few tiles of another kernel again, nor the ones for unaligned tensors and for non-cooperative launches,
    which no other one serves: where ptxas refuses the former, it is planned again.
    """
    if not may_vary(request, result):
        return None
    from nautilus.cuda.variants import lower_variants
    from nautilus.passes.header import variants_later
    from nautilus.passes.selection.dispatch_tree import Predictions
    from nautilus.passes.selection.variants import GENERAL, Dropped, dropped_by, find

    dropped, candidates, predictions = list[Dropped](), _Candidates(compile_one), Predictions(request.arch)
    while True:
        asked = replace(request, verified_later=True)
        found = find(asked, result, candidates.compile, dropped, predictions)
        if not any(d.name == NONCOOPERATIVE for d in dropped):
            found = _with_noncooperative(asked, result, found, candidates.compile)
        if found is None:
            return None
        spec = result.modules[SPEC.name]
        about = variants_later(found, result.modules[MA_TILE.name], result.context, spec)
        text = lower_variants(replace(result, variants=found).choice, about, spec)
        made = replace(result, modules={**result.modules, CUDA.name: text}, variants=found)
        try:
            spilling = [r for r in assemble(made) if spills(r)]
        except ScheduleError as error:
            refused = [error.kernel]
        else:
            accepted = {name for v in found.all for name in accepting_spills(v)}
            if found.noncooperative is not None:  # without which some devices run nothing
                kept = result.context.fallbacks.spilling
                accepted |= {f"{v.module.name}.{name}" for v in found.all if v.name == GENERAL for name in kept}
            refused = [name for r in spilling if (name := text.kernels[r.kernel]) not in accepted]
        refused += [] if refused else candidates.over_limits(found)
        if not refused:
            return made
        bad = [d for v in found.all for name in refused for d in dropped_by(v, name)]
        if {d.name for d in bad} <= {GENERAL}:
            return None
        dropped += bad


def may_vary(request: Request, result: Result) -> bool:
    """Whether the text of ``result`` may have variants: by sizes, for strides that make no promise, or by devices."""
    spec = result.modules.get(SPEC.name)
    if request.variants < 2 or request.until != CUDA.name or spec is None:
        return False
    if MA_TILE.name in result.modules and waiting(result.modules[MA_TILE.name]):
        return True
    return request.schedule is None and bool(spec.launch_dims or spec.stride_params)


def _with_noncooperative(
    request: Request, result: Result, found: Variants | None, compile_one: Callable[[Request], Result]
) -> Variants | None:  # fmt: skip
    """``found`` with a variant whose blocks do not wait for each other, where those of some variant do.

    Tensors that it takes have any strides and addresses where one of ``found`` does.
    """
    from nautilus.passes.selection.variants import GENERAL, REFUSED

    def named(name: str, schedule: Schedule, module: MemModule) -> Variant:
        return Variant(name, schedule, replace(module, name=f"{whole.name}_{name}"))

    whole, schedule = result.modules[MA_TILE.name], result.context.schedule
    modules = [whole] if found is None else [v.module for v in found.all]
    if not any(map(waiting, modules)) or schedule is None:
        return found
    loose = request.unaligned or (found is not None and found.unaligned is not None)
    plain = replace(request, lookup=None, variants=1, until=MA_TILE.name, noncooperative=True, unaligned=loose)
    alike = replace(plain, schedule=schedule, fallbacks=result.context.fallbacks)
    made = None
    for asked in (plain,) if loose else (alike, plain):
        try:
            made = made or compile_one(asked)
        except REFUSED:  # a schedule may not fit to what the planner stores without teams
            continue
    if made is None:
        return found
    own = made.context.schedule or schedule
    if found is None:
        found = Variants((named(GENERAL, schedule, whole),), 0, ())
    return replace(found, noncooperative=named(NONCOOPERATIVE, own, made.modules[MA_TILE.name]))


def accepting_spills(v: Variant) -> Iterator[str]:
    """The kernels of ``v`` whose spilled registers are no reason to drop it."""
    from nautilus.passes.selection.variants import UNALIGNED

    for k in v.module.kernels:
        if v.name in (UNALIGNED, NONCOOPERATIVE) or recomputes(k.name, v.schedule):
            yield f"{v.module.name}.{k.name}"


class _Candidates:
    """Compilations of candidates, equal ones once: every choice begins with the same ones."""

    def __init__(self, compile_one: Callable[[Request], Result]) -> None:
        self.compile_one = compile_one
        self.known = list[tuple[Request, Result | Exception]]()

    def compile(self, request: Request) -> Result:
        """The result of ``request``. Raises what a plan may be refused with."""
        from nautilus.passes.selection.variants import REFUSED

        made = next((found for asked, found in self.known if asked == request), None)
        if made is None:
            try:
                made = self.compile_one(request)
            except REFUSED as error:
                made = error
            self.known.append((request, made))
        if isinstance(made, Exception):
            raise made
        return made

    def over_limits(self, found: Variants) -> list[str]:
        """Run the verifiers that wait on the variants ``found``; kernels that exceed a limit of the target on the way.

        Raises VerifyError for a module that breaks another rule.
        """
        bad = []
        waiting = [made for _, made in self.known if isinstance(made, Result) and made.later is not None]
        for v in found.all:
            for made in waiting:
                if made.later is not None and made.modules[MA_TILE.name].kernels is v.module.kernels:
                    try:
                        made.later.verify()
                    except TargetLimitError as error:
                        bad.append(f"{v.module.name}.{error.kernel}")
        return bad
