"""The fuzzers of specs: each spec goes through every level, and each level is compared with the Spec in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import numpy as np

from nautilus.check.bound.program import rounded
from nautilus.check.inputs import InputSet, generate, with_specials
from nautilus.check.levels import run
from nautilus.core.errors import DiagnosticError, ScheduleError, UnsupportedError, first_line
from nautilus.core.numerics import Array
from nautilus.cuda.emit import emit_module
from nautilus.frontend.interp import run_spec
from nautilus.frontend.spec import Dim, Spec
from nautilus.targets.limits import limits
from nautilus.targets.records import TARGETS
from tests.endtoend.support import Compilation, disagreements, travel
from tests.fuzz.case import OK, Fuzzer, Verdict
from tests.fuzz.groups import with_sums_of_groups
from tests.fuzz.minimise import smaller_spec
from tests.fuzz.specs import GENERATORS
from tests.fuzz.thresholds import lowered

_KINDS = ("random", "random", "random", "large-logits", "zeros", "equal", "one-hot", "ascending", "masked")
_ORDER = tuple(n for n in GENERATORS if n != "rearrangements")  # whose promises inf among the inputs would break
_IN_LOOPS = ("decisions", "forms", "rules", "rearrangements")
_PRECISIONS = ("fast", "fast", "fast", "strict")
#: The header of a CUDA text states the error bound, which takes longer to find than the spec to compile; so only one
#: of this many cases has a header.
_HEADERS = 5

_Made = TypeVar("_Made")


def target(text: str, seed: int) -> str:
    """A target with the types of the spec ``text``."""
    names = [n for n in sorted(TARGETS) if "f8e" not in text or limits(n).float8]
    return names[seed % len(names)]


def attempt(text: str, seed: int) -> Verdict:
    """The verdict on a spec; the seed chooses target, precision and inputs."""
    until = "cuda" if seed % _HEADERS == 0 else "ma-tile"
    made = compilation(text, seed, until)
    if isinstance(made, Verdict):
        return made
    if until == "ma-tile":
        emit_module(made.result.modules["ma-tile"])
    given = inputs(made, seed)
    return verdict(made, given.kind, disagreements(made, given, _results(made, given)))


def _results(made: Compilation, given: InputSet) -> Iterator[tuple[str, Mapping[str, Array]]]:
    for stage in ("scalar", "vr-tile", "ma-tile"):
        yield stage, run(made.last(stage), given, "typed")


def inputs(made: Compilation, seed: int) -> InputSet:
    """Inputs of a case: the seed chooses their kind, and sizes known at launch, which may be 0 or 1."""
    spec = made.result.modules["spec"]
    few = {d.name: seed // 11 % 5 for d in spec.dims if d.value is None and seed // 11 % 5 < 2 and _any_size(d, spec)}
    return generate(spec, kind(seed), seed, sizes=few)


def _any_size(dim: Dim, spec: Spec) -> bool:
    return not spec.facts and dim.least == 0 and dim.multiple == 1


def compilation(text: str, seed: int, until: str) -> Compilation | Verdict:
    """``text`` down to the stage ``until``, or the verdict where that fails; the seed chooses target and precision."""
    return or_verdict(lambda: travel(text, target(text, seed), until, precision(seed)))


def or_verdict(compiled: Callable[[], _Made]) -> _Made | Verdict:
    """What a compilation makes, or the verdict where it ends with an error of the spec or of its kernels."""
    try:
        return compiled()
    except DiagnosticError as error:
        return Verdict("invalid", error.diagnostics[0].code, first_line(error))
    except (UnsupportedError, ScheduleError) as error:
        return Verdict("refused", f"{type(error).__name__}", first_line(error))


def precision(seed: int) -> str:
    """The precision of a case."""
    return _PRECISIONS[seed // 3 % len(_PRECISIONS)]


def kind(seed: int) -> str:
    """The kind of inputs of a case."""
    return _KINDS[seed // 7 % len(_KINDS)]


def verdict(made: Compilation, inputs: str, wrong: list[str]) -> Verdict:
    """The verdict on a compilation with the messages ``wrong`` about its results on this kind of ``inputs``."""
    arch = made.result.context.arch
    return Verdict("wrong", wrong[0].partition(":")[0], f"{arch}, {inputs}: {wrong[0]}") if wrong else OK


def attempt_as_large(text: str, seed: int) -> Verdict:
    """The verdict on a spec that is compiled as if its tensors were large."""
    with lowered():
        return attempt(text, seed)


def attempt_in_loops(text: str, seed: int) -> Verdict:
    """The verdict on a spec that is compiled as if its tensors were large, with loops over short rows."""
    with lowered(loops=True):
        return attempt(text, seed)


def attempt_with_specials(text: str, seed: int) -> Verdict:
    """The verdict on a spec whose inputs hold zeros of both signs, inf and NaN."""
    made = compilation(text, seed, "ma-tile")
    if isinstance(made, Verdict):
        return made
    spec = made.result.modules["spec"]
    given = with_specials(spec, generate(spec, "random", seed))
    wrong = disagreements(made, given, _results(made, given))
    if wrong:
        wrong = disagreements(made, given, _without_infinite_factors(made, given))
    return verdict(made, given.kind, wrong)


def _without_infinite_factors(made: Compilation, given: InputSet) -> Iterator[tuple[str, Mapping[str, Array]]]:
    """The results, with NaN where an infinite factor that has left a sum makes an infinity of it, as documented."""
    spec, context = made.result.modules["spec"], made.result.context
    program = with_sums_of_groups(rounded(spec, context.precision, context.schedule))
    values = [run_spec(x, given.arrays, given.scalars, given.sizes) for x in (spec, program)]
    for stage, found in _results(made, given):
        same = dict(found)
        for t in (t for t in spec.outputs if t.dtype.is_float):
            want, factored = (x[t.name] for x in values)
            infinite = np.isnan(want) & np.isinf(factored) & (found[t.name] == factored)
            same[t.name] = np.where(infinite, np.nan, found[t.name])
        yield stage, same


def any_spec(seed: int) -> str:
    """A spec of the generator whose turn it is."""
    return GENERATORS[_ORDER[seed % len(_ORDER)]](seed)


def fuzzers() -> tuple[Fuzzer, ...]:
    """One fuzzer for each generator, and one for each of those whose specs have other plans at large sizes."""
    return (
        *(Fuzzer(name, make, attempt, smaller_spec) for name, make in GENERATORS.items()),
        *(Fuzzer(f"large-{n}", GENERATORS[n], attempt_as_large, smaller_spec) for n in ("structures", "products")),
        *(Fuzzer(f"large-{n}", GENERATORS[n], attempt_in_loops, smaller_spec) for n in _IN_LOOPS),
        Fuzzer("specials", any_spec, attempt_with_specials, smaller_spec),
    )
