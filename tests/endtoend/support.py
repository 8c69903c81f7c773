"""One spec through the whole pipeline: every level against the Spec in float64, and the text through NVRTC."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import sqrt
from pathlib import Path
from textwrap import dedent

import numpy as np

from nautilus.check import compare
from nautilus.check.bound.bound import Bound
from nautilus.check.bound.choices import roundings
from nautilus.check.bound.stated import stated
from nautilus.check.bound.store import last_unit
from nautilus.check.compare import norm
from nautilus.check.inputs import InputSet, generate
from nautilus.check.levels import Level, Trace, run
from nautilus.check.reference import Compiled, reference
from nautilus.core.numerics import Array, eval_op
from nautilus.core.types import DType
from nautilus.driver import Request, Result, compile_file
from nautilus.frontend.interp import run_spec
from nautilus.runtime.nvrtc import Resources, build

FLOOR = 1e-5  # absolute error of an element of any size, because sums may cancel
TIES = 1 / 50  # share of elements of an integer or bool output that may differ because computed floats are rounded


@dataclass(frozen=True)
class Compilation:
    """A compiled spec with the module of every level."""

    result: Result
    levels: tuple[Level, ...]

    def last(self, stage: str) -> Level:
        """The final module of ``stage``."""
        return [x for x in self.levels if x.stage == stage][-1]


def travel(text: str, arch: str = "sm_80", until: str = "cuda", precision: str = "fast") -> Compilation:
    """Compile ``text`` (without its indentation)."""
    return at_all_levels(
        Request(Path("given.naut"), arch, text=dedent(text).lstrip(), until=until, precision=precision)
    )


def at_all_levels(request: Request) -> Compilation:
    """What ``request`` gives, with every level."""
    trace = Trace()
    return Compilation(compile_file(request, [trace]), tuple(trace.levels))


def complaints(made: Compilation, seed: int = 0, kind: str = "random", stages: tuple[str, ...] = ()) -> list[str]:
    """A message for each level whose result exceeds the bound around the Spec's float64 result."""
    given = generate(made.result.modules["spec"], kind, seed)
    chosen = stages or ("scalar", "vr-tile", "ma-tile")
    return disagreements(made, given, ((stage, run(made.last(stage), given, "typed")) for stage in chosen))


def disagreements(
    made: Compilation, given: InputSet, results: Iterable[tuple[str, Mapping[str, Array]]]
) -> list[str]:  # fmt: skip
    """A message for each output of ``results`` that exceeds the bound around the Spec's float64 result; each result
    has a name.

    A result is compared with the limits of :func:`_limits` until one of them allows it: around the rounded result, and
    around the exact one, because a rounding at a tie moves the rounded one by a whole step.
    """
    spec = made.result.modules["spec"]
    context = made.result.context
    program = Compiled(spec, context.precision, context.schedule)
    values = run_spec(spec, given.arrays, given.scalars, given.sizes)
    rounded = {t.name: eval_op("cast", [values[t.name]], t.dtype) for t in spec.outputs}
    exact = {n: np.where(np.isfinite(x), values[n], x) if x.dtype.kind == "f" else x for n, x in rounded.items()}
    limits = _limits(program, given, rounded)
    found = []
    for where, got in results:
        for t in spec.outputs:
            for limit in limits:
                bound, allowed, each = limit()[t.name]
                both = [_difference(got[t.name], x[t.name], t.dtype, bound, allowed, each) for x in (rounded, exact)]
                wrong = None if None in both else both[0]
                if wrong is None:
                    break
            if wrong is not None:
                found.append(f"{where}: {t.name}{wrong.text}, off by {wrong.measured:.2e}, bound {bound.relative:.1e}")
    return found


_Limits = Mapping[str, tuple[Bound, float, Array | None]]


def _limits(program: Compiled, given: InputSet, want: Mapping[str, Array]) -> tuple[Callable[[], _Limits], ...]:
    """For each output its bound, the allowed error and that of each element: of a result without error, of one whose
    last operation is rounded, the stated one, and the effect of the roundings on these inputs.  Each takes longer to
    find than the one before it, and the last two take longer than all levels take to run."""
    spec = program.spec

    def last() -> _Limits:
        """A rounding of the result, which the two limits after this one allow too."""
        rounds = roundings(spec, program.precision).computed
        sizes = {t.name: last_unit(spec, t) if t.dtype.is_float and t.name in rounds else 0.0 for t in spec.outputs}
        return {n: (Bound(x), x * norm(want[n]), None) for n, x in sizes.items()}

    @cache
    def bounds() -> Mapping[str, Bound]:
        return stated(spec, program.precision, program.schedule)

    @cache
    def effects() -> _Limits:
        targets = reference(program, given, bounds()).effects().targets
        return {name: (bound, targets[name].allowed, targets[name].each) for name, bound in bounds().items()}

    def figures() -> _Limits:
        sizes = {n: 0.0 if b.left_out else b.relative * norm(want[n]) for n, b in bounds().items()}
        return {name: (bound, sizes[name], None) for name, bound in bounds().items()}

    return (
        lambda: dict.fromkeys(want, (Bound(0.0), 0.0, None)),
        last,
        figures,
        effects,
    )


def _difference(
    got: Array, want: Array, dtype: DType, bound: Bound, allowed: float, each: Array | None
) -> compare.Difference | None:  # fmt: skip
    """How ``got`` differs from ``want`` by more than ``allowed``, which is inf outside of the stated range."""
    if not dtype.is_float:
        return compare.exact(got, want, TIES if bound.ties else 0.0)
    if np.isinf(allowed) and got.shape == want.shape:
        return None
    here = np.where(compare.overflown(got, want, dtype), want, got)
    return compare.within(here, want, allowed + FLOOR * sqrt(want.size), None if each is None else each + FLOOR)


def compiled(made: Compilation) -> tuple[Resources, ...]:
    """Resources of the kernels for the compilation's own target."""
    return build(made.result.cuda_module, made.result.context.arch).resources


def check(text: str, arch: str = "sm_80", *, physical: bool = True, cubin: bool = True) -> Compilation:
    """All checks of a compilation. Raises AssertionError with all differences.

    Without ``cubin`` the text becomes PTX, which does not say whether registers are spilled and takes half the time.
    """
    made = travel(text, arch)
    stages = ("scalar", "vr-tile", "ma-tile") if physical else ("scalar", "vr-tile")
    wrong = complaints(made, stages=stages)
    assert not wrong, "\n".join(wrong)
    if not cubin:
        build(made.result.cuda_module, made.result.context.arch, "ptx")
        return made
    for r in compiled(made):
        assert r.spill_stores == r.spill_loads == 0, f"{r.kernel} spills {r.spill_stores} bytes"
    return made
