"""The verdict on every pass and lowering of a compilation, for levels that the validator evaluates.

A step without a change is proved trivially and has no verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from nautilus.check.levels import Level
from nautilus.check.validate import index_sets
from nautilus.check.validate.refinement import Validator
from nautilus.check.validate.verdict import Verdict
from nautilus.core.numerics import Array

STAGES = ("scalar", "vr-tile")


def verdicts(
    levels: Sequence[Level],
    inputs: Sequence[Mapping[str, Array]],
    params: Mapping[str, int | float | bool],
    seed: int,
    approximated: Callable[[Level], Collection[str]] = lambda _: (),
) -> Iterator[tuple[Level, Verdict]]:
    """The level that each step made, and the verdict on that step; ``inputs`` as :class:`Validator` takes them.

    ``approximated``: the outputs that a step may change by a stated error.
    """
    validator = Validator(inputs, params, seed)
    known = [level for level in levels if level.stage in STAGES]
    for before, after in pairwise(known):
        yield after, validator.validate(before.module, after.module, approximated(after))


def index_verdicts(levels: Sequence[Level]) -> Iterator[tuple[Level, Verdict]]:
    """The level that each pass of Scalar IR made, and the verdict on the iterations of its updates."""
    for before, after in pairwise([level for level in levels if level.stage == "scalar"]):
        yield after, index_sets.validate(before.module, after.module)
