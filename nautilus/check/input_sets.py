"""The sets of inputs on which one compilation is compared, each with its reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from math import inf
from time import thread_time

from nautilus.check.bound.bound import Bound
from nautilus.check.inputs import InputSet, generate, kinds
from nautilus.check.reference import Compiled, Reference, in_range, reference
from nautilus.core.records import dataclass
from nautilus.frontend.spec import Spec

_HALVINGS = (0, 2, 4, 8, 12, 16, 24, 32, 48, 64, 80, 96, 112)  # tried halvings of the largest number
_MARGIN = 6  # further halvings once everything is finite


@dataclass(frozen=True, slots=True)
class Clock:
    """The time limit of a part of a check, in processor seconds of its own thread."""

    seconds: float = inf
    started: float = field(default_factory=thread_time)

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return max(0.0, self.seconds - (thread_time() - self.started))

    def part(self, share: float, most: float = inf) -> Clock:
        """The clock of a part that may take a ``share`` of what is left."""
        return Clock(min(share * self.left, most))


def input_sets(
    spec: Spec, made: Compiled | None, bounds: Mapping[str, Bound], seed: int, only: Sequence[str] | None = None
) -> Iterator[tuple[InputSet, Reference | None]]:
    """Each set and its reference, which is None without ``made``.  ``only`` restricts the kinds.

    Where no huge inputs are within the stated range, the set has some that are not.
    """
    wanted = [k for k in kinds(spec) if only is None or k in only]
    plans = [(k, seed) for k in wanted]
    if "random" in wanted:
        plans.insert(1, ("random", seed + 1))
    for kind, number in plans:
        if made is not None:
            given = _huge(made, number) if kind == "huge" else generate(spec, kind, number)
            yield given, reference(made, given, bounds)
        elif kind != "huge":
            yield generate(spec, kind, number), None


def _huge(made: Compiled, seed: int) -> InputSet:
    """The largest inputs within the stated range; the largest of all if there are none."""
    for halvings in _HALVINGS:
        given = generate(made.spec, "huge", seed, scale=2.0**-halvings)
        if in_range(made, given):
            # a margin for partial sums, whose overflow depends on the order of summation
            margin = _MARGIN if halvings else 0
            return generate(made.spec, "huge", seed, scale=2.0 ** -(halvings + margin))
    return generate(made.spec, "huge", seed)
