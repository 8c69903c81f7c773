"""Runs of a printed text beside the MA-tile interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nautilus.check import compare
from nautilus.check.bound.stated import stated
from nautilus.check.inputs import InputSet, generate
from nautilus.check.levels import Level, Trace, run
from nautilus.core.numerics import Array
from nautilus.driver import Request, Result, compile_file
from tests.simulation.simulate import Program, build, execute


@dataclass(frozen=True)
class Case:
    """A compilation, and inputs, of which the MA-tile interpreter makes the same bits in any order if ``exact``."""

    result: Result
    given: InputSet
    exact: bool
    last: Level

    @cached_property
    def want(self) -> dict[str, Array]:
        """What the MA-tile interpreter makes of the inputs."""
        return run(self.last, self.given, "typed")

    @property
    def module(self) -> Any:
        """The MA-tile module that was printed."""
        return self.result.modules["ma-tile"]

    @property
    def text(self) -> str:
        """The printed text without its leading comment, which nothing reads here."""
        return self.result.cuda_module.code


def prepare(request: Request, *, integers: bool = False, seed: int = 0) -> Case:
    """Compile; with ``integers`` inputs whose sums of products have no rounding errors in f32.

    The verifiers run after each stage, because the text is what is tested.
    """
    trace = Trace()
    result = compile_file(replace(request, verified_stages=True), [trace])
    last = [x for x in trace.levels if x.stage == "ma-tile"][-1]
    return _case(result, last, integers, seed, {})


def at_sizes(case: Case, sizes: Mapping[str, int]) -> Case:
    """The same compilation at other runtime sizes."""
    return _case(case.result, case.last, case.exact, case.given.seed, sizes)


def _case(result: Result, last: Level, integers: bool, seed: int, sizes: Mapping[str, int]) -> Case:
    given = generate(result.modules["spec"], "random", seed, sizes=sizes)
    if integers:
        arrays = {n: np.clip(np.rint(2 * x), -7, 7) if x.dtype.kind == "f" else x for n, x in given.arrays.items()}
        given = replace(given, arrays=arrays)
    return Case(result, given, integers, last)


def compiled(case: Case, folder: Path, text: str | None = None) -> Program:
    """The printed text (or ``text``) for the host. Raises HostError."""
    return build(case.text if text is None else text, case.module, case.given, folder)


def differences(case: Case, seeds: Sequence[int], folder: Path, text: str | None = None) -> list[str]:
    """What differs between the printed text (or ``text``) and the interpreter.  Raises Fault, HostError."""
    return differing(case, seeds, compiled(case, folder, text))


def differing(case: Case, seeds: Sequence[int], program: Program) -> list[str]:
    """What differs between ``program`` and the interpreter.  Raises Fault.

    Integers, and floats of an ``exact`` case, have the same bits.  Otherwise the sums may have another order, and the
    approximations of functions another error: an element differs by at most twice the distance of neighbouring
    numbers and the stated relative error of the largest element.
    """
    bounds = cache(lambda: stated(case.result.modules["spec"], case.result.context.precision))
    found = []
    for seed, outputs in zip(seeds, execute(program, case.given, seeds), strict=True):
        for name, got in outputs.items():
            want, dtype = case.want[name], next(b.dtype for b in case.module.buffers if b.name == name)
            wrong = got != want
            if got.dtype.kind == "f" and not case.exact:
                with np.errstate(invalid="ignore"):
                    off, near = np.abs(got - want), 2 * compare.spacing(want, dtype)
                    wrong &= ~(off <= near)
                    if wrong.any():  # the stated error takes longer to find than the text to run
                        top = np.abs(want[np.isfinite(want)]).max(initial=0.0)
                        wrong &= ~(off <= near + bounds()[name].relative * top)
            if got.dtype.kind == "f":
                wrong &= ~(np.isnan(got) & np.isnan(want))
            if wrong.any():
                at = tuple(int(n) for n in np.argwhere(wrong)[0])
                much = f"{np.count_nonzero(wrong)} of {wrong.size} differ"
                found.append(f"seed {seed}: {name}{list(at)} is {got[at]!r}, not {want[at]!r}; {much}")
    return found
