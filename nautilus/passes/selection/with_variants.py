"""The CUDA text of a compilation with its variants, without those whose registers ptxas spills or wgmma serialises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from nautilus.core.errors import ScheduleError
from nautilus.passes.attempts import SPILLED, Resources
from nautilus.passes.compilation import Request, Result
from nautilus.passes.pipelines import CUDA, MA_TILE, SPEC


def with_variants(
    request: Request, result: Result, compile_one: Callable[[Request], Result],
    assemble: Callable[[Result], Sequence[Resources]],
) -> Result | None:  # fmt: skip
    """``result`` with the variants that the launcher chooses from; None where there are none.

    ``assemble`` lets ptxas check their text.  A variant that it cannot make fast is dropped, with those of the same
    plan, and the others are chosen again.  The variant for unaligned tensors is kept with spilled registers: no other
    one serves them.
    """
    if not may_vary(request, result):
        return None
    from nautilus.cuda.variants import lower_variants
    from nautilus.passes.header import variants_header
    from nautilus.passes.selection.variants import GENERAL, UNALIGNED, Dropped, dropped_by, find

    dropped, compile_one = list[Dropped](), _once(compile_one)
    while True:
        found = find(request, result, compile_one, dropped)
        if found is None:
            return None
        spec = result.modules[SPEC.name]
        about = variants_header(found, result.modules[MA_TILE.name], result.context, spec)
        other = None if found.unaligned is None else found.unaligned.module
        text = lower_variants(replace(result, variants=found).choice, about, spec)
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
        bad = [d for v in found.all for name in refused for d in dropped_by(v, name)]
        if {d.name for d in bad} <= {GENERAL, UNALIGNED}:
            return None
        dropped += bad


def may_vary(request: Request, result: Result) -> bool:
    """Whether the text of ``result`` may have variants: by sizes, or for strides that make no promise."""
    spec = result.modules.get(SPEC.name)
    if request.variants < 2 or request.until != CUDA.name or request.schedule is not None or spec is None:
        return False
    return bool(spec.launch_dims or spec.stride_params)


def _once(compile_one: Callable[[Request], Result]) -> Callable[[Request], Result]:
    """``compile_one``, which compiles equal requests once: every choice begins with the same candidates."""
    from nautilus.passes.selection.variants import REFUSED

    known: list[tuple[Request, Result | Exception]] = []

    def compiled(request: Request) -> Result:
        made = next((found for asked, found in known if asked == request), None)
        if made is None:
            try:
                made = compile_one(request)
            except REFUSED as error:
                made = error
            known.append((request, made))
        if isinstance(made, Exception):
            raise made
        return made

    return compiled
