"""Who notices a mutant: the verifier, the interpreter by an error, the interpreter by a wrong result, or nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nautilus.core.errors import NautilusError
from nautilus.cuda.emit import emit_module
from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.verify.module import verify
from tests.mutants.mutations import Mutant
from tests.mutants.programs import Program

VERDICTS = ("verifier", "interpreter", "wrong result", "survives")


@dataclass(frozen=True, slots=True)
class Verdict:
    """``by`` is one of :data:`VERDICTS`; ``reason`` is the rule."""

    by: str
    reason: str = ""


def outputs(p: Program, module: MemModule, seed: int) -> dict[str, Any]:
    """What the interpreter computes. Raises InterpError."""
    with np.errstate(all="ignore"):
        return run_module(module, p.inputs, p.scalars, seed)


def judge(p: Program, mutant: Mutant, seeds: range) -> Verdict:
    """The verdict on a mutant of ``p`` under the adversaries ``seeds``."""
    try:
        verify(mutant.module)
    except NautilusError as error:
        return Verdict("verifier", str(error).splitlines()[0][:120])
    for seed in seeds:
        try:
            found = outputs(p, mutant.module, seed)
        except InterpError as error:
            return Verdict("interpreter", f"{error.kind}: {error.message}"[:120])
        if any(not np.array_equal(found[name], x, equal_nan=x.dtype.kind == "f") for name, x in p.expected().items()):
            return Verdict("wrong result")
    try:
        emit_module(mutant.module)
    except NautilusError as error:
        return Verdict("verifier", str(error).splitlines()[0][:120])
    return Verdict("survives")
