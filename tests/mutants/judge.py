"""What detects a mutant: the verifier, an error of the interpreter, a wrong result, or nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nautilus.core.errors import NautilusError
from nautilus.cuda.emit import emit_module
from nautilus.ma_tile.interp.module import InterpError
from nautilus.ma_tile.verify.module import verify
from tests.mutants.mutations import Mutant
from tests.mutants.programs import Program

VERDICTS = ("verifier", "interpreter", "wrong result", "not run", "survives")
#: what no check detects
OPEN = frozenset({"not run", "survives"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """``by`` is one of :data:`VERDICTS`; ``reason`` is the rule.

    An op that is not run at the sizes of its program says nothing.
    """

    by: str
    reason: str = ""


def judge(p: Program, mutant: Mutant, seeds: range) -> Verdict:
    """The verdict on a mutant of ``p`` under the adversaries ``seeds``."""
    try:
        verify(mutant.module)
    except NautilusError as error:
        return Verdict("verifier", str(error).splitlines()[0][:120])
    for seed in seeds:
        try:
            found = p.run(mutant.module, mutant.kernel, seed)
        except InterpError as error:
            return Verdict("interpreter", f"{error.kind}: {error.message}"[:120])
        expected = p.expected(mutant.kernel, seed).items()
        if any(not np.array_equal(found[name], x, equal_nan=x.dtype.kind == "f") for name, x in expected):
            return Verdict("wrong result")
    try:
        emit_module(mutant.module)
    except NautilusError as error:
        return Verdict("verifier", str(error).splitlines()[0][:120])
    never = mutant.op is not None and id(mutant.op) not in p.executed(mutant.kernel)
    return Verdict("not run" if never else "survives")
