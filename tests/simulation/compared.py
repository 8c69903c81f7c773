"""Runs of a printed text beside the MA-tile interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nautilus.check import compare
from nautilus.check.bound.stated import stated
from nautilus.check.inputs import InputSet, generate
from nautilus.check.levels import Trace, run
from nautilus.core.numerics import Array
from nautilus.driver import Request, Result, compile_file
from tests.simulation.simulate import build, execute


@dataclass(frozen=True)
class Case:
    """A compilation, inputs, and what the MA-tile interpreter makes of them; ``exact``: in any order of operations."""

    result: Result
    given: InputSet
    want: dict[str, Array]
    exact: bool

    @property
    def module(self) -> Any:
        """The MA-tile module that was printed."""
        return self.result.modules["ma-tile"]


def prepare(request: Request, *, integers: bool = False, seed: int = 0) -> Case:
    """Compile and interpret; with ``integers`` inputs whose sums of products have no rounding errors in f32."""
    trace = Trace()
    result = compile_file(request, [trace])
    given = generate(result.modules["spec"], "random", seed)
    if integers:
        arrays = {n: np.clip(np.rint(2 * x), -7, 7) if x.dtype.kind == "f" else x for n, x in given.arrays.items()}
        given = replace(given, arrays=arrays)
    last = [x for x in trace.levels if x.stage == "ma-tile"][-1]
    return Case(result, given, run(last, given, "typed"), integers)


def differences(case: Case, seeds: Sequence[int], folder: Path, text: str | None = None) -> list[str]:
    """What differs between the printed text (or ``text``) and the interpreter.  Raises Fault, HostError.

    Integers, and floats of an ``exact`` case, have the same bits.  Otherwise the sums may have another order, and the
    approximations of functions another error: an element differs by at most twice the distance of neighbouring
    numbers and the stated relative error of the largest element.
    """
    text = case.result.cuda if text is None else text
    program = build(text, case.module, case.given, folder)
    bounds = stated(case.result.modules["spec"], case.result.context.precision)
    found = []
    for seed, outputs in zip(seeds, execute(program, case.given, seeds), strict=True):
        for name, got in outputs.items():
            want, dtype = case.want[name], next(b.dtype for b in case.module.buffers if b.name == name)
            wrong = got != want
            if got.dtype.kind == "f" and not case.exact:
                with np.errstate(invalid="ignore"):
                    top = np.abs(want[np.isfinite(want)]).max(initial=0.0)
                    wrong &= ~(np.abs(got - want) <= 2 * compare.spacing(want, dtype) + bounds[name].relative * top)
            if got.dtype.kind == "f":
                wrong &= ~(np.isnan(got) & np.isnan(want))
            if wrong.any():
                at = tuple(int(n) for n in np.argwhere(wrong)[0])
                much = f"{np.count_nonzero(wrong)} of {wrong.size} differ"
                found.append(f"seed {seed}: {name}{list(at)} is {got[at]!r}, not {want[at]!r}; {much}")
    return found
