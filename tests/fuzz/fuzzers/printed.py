"""The fuzzer of printed texts: the text of a spec runs on the simulated GPU, and its results are compared with the Spec
in float64.

Each case takes the next one of the generators of specs.  Half of the cases are compiled as if their tensors were large.
Without a C++ compiler there is no such fuzzer.
"""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path

from tests.endtoend.support import disagreements
from tests.fuzz.case import Fuzzer, Verdict
from tests.fuzz.fuzzers.levels import any_spec, compilation, inputs, verdict
from tests.fuzz.minimise import smaller_spec
from tests.fuzz.specs import GENERATORS
from tests.fuzz.thresholds import lowered
from tests.simulation.simulate import MISSING, Fault, HostError, build, execute


def attempt(text: str, seed: int) -> Verdict:
    """The verdict on the printed text of a spec; the seed chooses the scheduler of the simulation too."""
    with lowered() if seed // len(GENERATORS) % 2 else nullcontext():
        made = compilation(text, seed, "cuda")
    if isinstance(made, Verdict):
        return made
    result = made.result
    given = inputs(made, seed)
    with tempfile.TemporaryDirectory() as folder:
        try:
            program = build(result.cuda_module.code, result.modules["ma-tile"], given, Path(folder))
            got = execute(program, given, [seed])[0]
        except HostError as error:
            return Verdict("internal", "the printed text is no C++", str(error)[:600])
        except Fault as error:
            return Verdict("wrong", "fault", f"{result.context.arch}: {str(error)[:600]}")
    return verdict(made, given.kind, disagreements(made, given, [("printed", got)]))


def fuzzers() -> tuple[Fuzzer, ...]:
    return () if MISSING else (Fuzzer("printed", any_spec, attempt, smaller_spec),)
