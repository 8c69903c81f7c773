"""The fuzzers of printed texts, which run on the simulated GPU.

``printed``: each case takes the next one of the generators of specs, and its results are compared with the Spec in
float64.  Half of the cases are compiled as if their tensors were large.  ``full-sizes``: a spec at the sizes of real
models, of whose kernels some blocks run beside the MA-tile interpreter.  Without a C++ compiler there are no such
fuzzers.
"""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path

from nautilus.ma_tile.interp.module import InterpError
from tests.endtoend.ladder.full_sizes import program
from tests.endtoend.support import disagreements
from tests.fuzz.case import OK, Fuzzer, Verdict
from tests.fuzz.fuzzers.levels import any_spec, compilation, inputs, verdict
from tests.fuzz.minimise import smaller_spec
from tests.fuzz.specs import GENERATORS
from tests.fuzz.thresholds import lowered
from tests.simulation.full_sizes.blocks import found_differences
from tests.simulation.simulate import MISSING, Fault, HostError, build, execute

_ELEMENTS = 1 << 25  # of the largest tensor


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


def of_full_size(seed: int) -> str:
    """The text of a spec whose tensors are large and fit in memory."""
    return program(seed, elements=_ELEMENTS)


def attempt_full_sizes(text: str, seed: int) -> Verdict:
    """The verdict on some blocks of the kernels of a spec, those whose blocks take seconds."""
    made = compilation(text, seed, "ma-tile")
    if isinstance(made, Verdict):
        return made
    module = made.result.modules["ma-tile"]
    for kernel in module.kernels:
        try:
            differ = found_differences(module, kernel, {}, seed)
        except HostError as error:
            return Verdict("internal", "the printed text is no C++", str(error)[:600])
        except (Fault, InterpError) as error:
            return Verdict("wrong", "fault", f"{made.result.context.arch}: {str(error)[:600]}")
        if differ:
            return Verdict("wrong", "blocks", f"{made.result.context.arch}: {kernel.name}: {differ[0]}")
    return OK


def fuzzers() -> tuple[Fuzzer, ...]:
    if MISSING:
        return ()
    return (
        Fuzzer("printed", any_spec, attempt, smaller_spec),
        Fuzzer("full-sizes", of_full_size, attempt_full_sizes, smaller_spec),
    )
