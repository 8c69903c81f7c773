"""One spec through the whole pipeline: every level against the Spec in float64, and the text through NVRTC."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from textwrap import dedent

import numpy as np

from nautilus.check import compare
from nautilus.check.bound.stated import stated
from nautilus.check.inputs import generate
from nautilus.check.levels import Level, Trace, run
from nautilus.check.reference import Compiled, reference
from nautilus.driver import Request, Result, compile_file
from nautilus.runtime.nvrtc import Resources, compile_cuda

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
    trace = Trace()
    request = Request(Path("given.naut"), arch, text=dedent(text).lstrip(), until=until, precision=precision)
    return Compilation(compile_file(request, [trace]), tuple(trace.levels))


def complaints(made: Compilation, seed: int = 0, kind: str = "random", stages: tuple[str, ...] = ()) -> list[str]:
    """A message for each level whose result exceeds the bound around the Spec's float64 result."""
    spec = made.result.modules["spec"]
    given = generate(spec, kind, seed)
    context = made.result.context
    bounds = stated(spec, context.precision, context.schedule)
    expected = reference(Compiled(spec, context.precision, context.schedule), given, bounds)
    types = {t.name: t.dtype for t in spec.outputs}
    found = []
    for stage in stages or ("scalar", "vr-tile", "ma-tile"):
        got = run(made.last(stage), given, "typed")
        for name, bound in bounds.items():
            want = expected.rounded[name]
            if got[name].dtype.kind != "f":
                wrong = compare.exact(got[name], want, TIES if bound.ties else 0.0)
            else:
                here = np.where(compare.overflown(got[name], want, types[name]), want, got[name])
                wrong = compare.within(here, want, expected.allowed[name] + FLOOR * sqrt(want.size))
            if wrong is not None:
                found.append(f"{stage}: {name}{wrong.text}, off by {wrong.measured:.2e}, bound {bound.relative:.1e}")
    return found


def compiled(made: Compilation) -> tuple[Resources, ...]:
    """Resources of the kernels for the compilation's own target."""
    return compile_cuda(made.result.cuda, made.result.context.arch).resources


def check(text: str, arch: str = "sm_80", *, physical: bool = True) -> Compilation:
    """All checks of a compilation. Raises AssertionError with all differences."""
    made = travel(text, arch)
    stages = ("scalar", "vr-tile", "ma-tile") if physical else ("scalar", "vr-tile")
    wrong = complaints(made, stages=stages)
    assert not wrong, "\n".join(wrong)
    for r in compiled(made):
        assert r.spill_stores == r.spill_loads == 0, f"{r.kernel} spills {r.spill_stores} bytes"
    return made
