"""The fuzzers of specs: each spec goes through every level, and each level is compared with the Spec in float64."""

from __future__ import annotations

from nautilus.core.errors import DiagnosticError, ScheduleError, UnsupportedError, first_line
from nautilus.targets.records import TARGETS
from tests.endtoend.support import complaints, travel
from tests.fuzz.case import OK, Fuzzer, Verdict
from tests.fuzz.minimise import smaller_spec
from tests.fuzz.specs import GENERATORS

_KINDS = ("random", "random", "random", "large-logits", "zeros", "equal", "one-hot", "ascending", "masked")
_PRECISIONS = ("fast", "fast", "fast", "strict")


def attempt(text: str, seed: int) -> Verdict:
    """The verdict on a spec; the seed chooses target, precision and inputs."""
    targets = sorted(TARGETS)
    arch = targets[seed % len(targets)]
    kind = _KINDS[seed // 7 % len(_KINDS)]
    try:
        made = travel(text, arch, precision=_PRECISIONS[seed // 3 % len(_PRECISIONS)])
    except DiagnosticError as error:
        return Verdict("invalid", error.diagnostics[0].code, first_line(error))
    except (UnsupportedError, ScheduleError) as error:
        return Verdict("refused", f"{type(error).__name__}", first_line(error))
    wrong = complaints(made, seed, kind)
    return Verdict("wrong", wrong[0].partition(":")[0], f"{arch}, {kind}: {wrong[0]}") if wrong else OK


def fuzzers() -> tuple[Fuzzer, ...]:
    """One fuzzer for each generator."""
    return tuple(Fuzzer(name, make, attempt, smaller_spec) for name, make in GENERATORS.items())
