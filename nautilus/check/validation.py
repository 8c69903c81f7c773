"""The verdict on every pass and lowering of a compilation.

Down to VR-tile IR the validator decides (:mod:`nautilus.check.validate`).  The passes of MA-tile IR move data and order
instructions: each must keep every bit of the result, inf and NaN included, so the interpreter runs the modules before
and after on the same inputs.  A pass that says that it reorders a sum must keep the result within its bound instead.
That is a test and no proof, and its verdict is *tested*.  What a block of a launch computes is decided for all blocks
at the declared sizes (:mod:`nautilus.check.validate.sets.block_sets`).

A step without a change is proved trivially and has no verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from time import thread_time

import numpy as np

from nautilus.check import compare
from nautilus.check import levels as interpreters
from nautilus.check.inputs import InputSet
from nautilus.check.levels import STAGES, Level
from nautilus.check.validate.meanings import KNOWN
from nautilus.check.validate.refinement import Validator
from nautilus.check.validate.sets import block_sets, index_sets
from nautilus.check.validate.verdict import Verdict
from nautilus.core.errors import UnsupportedError
from nautilus.core.functions import FUNCTIONS
from nautilus.core.numerics import Array
from nautilus.ma_tile.interp.module import Launches

if FUNCTIONS.keys() != KNOWN:
    raise AssertionError(f"functions without a meaning of the validator: {sorted(FUNCTIONS.keys() ^ KNOWN)}")

Outputs = Mapping[str, Array]
Exactly = Callable[[str, Array, Array], "compare.Difference | None"]  # how an output differs from the second array


def verdicts(
    levels: Sequence[Level],
    inputs: Sequence[Mapping[str, Array]],
    params: Mapping[str, int | float | bool],
    seed: int,
    approximated: Callable[[Level], Collection[str]] = lambda _: (),
    seconds: float = inf,
    whole: bool = True,
    bounded: Collection[str] = (),
) -> Iterator[tuple[Level, Verdict]]:
    """The level that each step made, and the verdict on that step; ``inputs`` as :class:`Validator` takes them.

    ``approximated``: the outputs that a step may change by an error.  After ``seconds`` the remaining steps are
    not decided.  ``whole``: these are all steps, so inf and NaN that one of them moves are back in their places after
    the last one; the first of those steps is refuted, as a second verdict on it, where they are not.  ``bounded``: as
    :class:`Validator` takes them.
    """
    validator = Validator(inputs, params, seed, bounded)
    known = [level for level in levels if level.stage in STAGES]
    started = thread_time()
    moving: Level | None = None
    for before, after in pairwise(known):
        if thread_time() - started > seconds:
            yield after, Verdict("not decided", detail="the steps before it took the time of the validator")
            continue
        chunks = after.step == "chunk-matrix-states"
        yield after, validator.validate(before.module, after.module, approximated(after), chunks)
        moving = moving or after if validator.displaced else None
    if whole and moving is not None and validator.misplaced(known[-1].module):
        yield moving, Verdict("refuted", detail=validator.displaced)


def index_verdicts(levels: Sequence[Level]) -> Iterator[tuple[Level, Verdict]]:
    """The level that a pass made, and the verdict on the iterations of its updates, or on the tiles of its blocks."""
    for before, after in pairwise(levels):
        if before.stage == after.stage == "scalar":
            yield after, index_sets.validate(before.module, after.module)
        elif before.stage == after.stage == "ma-tile":
            found = block_sets.validate(before.module, after.module)
            if found is not None:
                yield after, found


def same_bits(
    levels: Sequence[Level], sets: Sequence[InputSet], allowed: Callable[[], Mapping[str, float]], exactly: Exactly,
    seconds: float,
) -> Iterator[tuple[Level, Verdict]]:  # fmt: skip
    """The level that each pass of MA-tile IR made, and whether it kept every bit of the outputs on ``sets``.

    ``allowed`` finds the error of each output that a pass may make on the first set where it reorders a sum, and
    ``exactly`` how integers or bools differ there.  After ``seconds`` the remaining passes are not decided.
    """
    known = [level for level in levels if level.stage == "ma-tile"]
    started = thread_time()
    before: list[Outputs | str] = []
    launches = [Launches() for _ in sets]
    for level in known:
        late = thread_time() - started > seconds
        after: list[Outputs | str] = (
            [_outputs(level, x, made) for x, made in zip(sets, launches, strict=True)]
            if not late
            else ["the interpreter is too slow"]
        )
        if before:
            pairs = list(zip(before, after, sets, strict=False))
            found = [_compared(a, b, x) for a, b, x in pairs]
            if level.reorders:
                found = [_close(*pairs[0], allowed, exactly, found[0])]
            yield level, _weighed(found)
        before = before if late else after


def _outputs(level: Level, given: InputSet, launches: Launches) -> Outputs | str:
    """The outputs of ``level``, or why there are none; most passes change few kernels, and the others run once."""
    try:
        return interpreters.run(level, given, "typed", launches)
    except UnsupportedError as error:
        return f"the interpreter: {error}"
    except Exception as error:
        return f"error: {type(error).__name__}: {error}"


def _compared(before: Outputs | str, after: Outputs | str, given: InputSet) -> Verdict:
    if isinstance(before, str) or isinstance(after, str):
        said = before if isinstance(before, str) else after
        broken = isinstance(after, str) and after.startswith("error: ") and not isinstance(before, str)
        return Verdict("refuted" if broken else "not decided", detail=str(said))
    for name, old in before.items():
        new = after[name]
        wrong = ~((old == new) & (np.signbit(old) == np.signbit(new)) if old.dtype.kind == "f" else old == new)
        if old.dtype.kind == "f":
            wrong &= ~(np.isnan(old) & np.isnan(new))
        if wrong.any():
            at = tuple(int(i[0]) for i in np.nonzero(wrong)) if wrong.ndim else ()
            where = f"{name}[{', '.join(map(str, at))}]"
            return Verdict("refuted", detail=f"{where} is {new[at]!r}, expected {old[at]!r}; inputs {given.name}")
    return Verdict("tested", sum(int(x.size) for x in before.values()), "every bit is the same")


def _close(
    before: Outputs | str, after: Outputs | str, given: InputSet, bounds: Callable[[], Mapping[str, float]],
    exactly: Exactly, found: Verdict,
) -> Verdict:  # fmt: skip
    """``found``, unless a different order of sums explains the difference."""
    if found.status != "refuted" or isinstance(before, str) or isinstance(after, str):
        return found
    allowed = bounds()
    if not before.keys() <= allowed.keys():
        return Verdict("not decided", detail=f"a sum has another order, and no bound is known; {found.detail}")
    for name, old in before.items():
        new = after[name]
        worst = compare.within(new, old, allowed[name]) if old.dtype.kind == "f" else exactly(name, new, old)
        if worst is not None:
            return Verdict("refuted", detail=f"{name}{worst.text}; inputs {given.name}")
    return Verdict("tested", sum(int(x.size) for x in before.values()), "within the bound, in another order of sums")


def _weighed(found: Sequence[Verdict]) -> Verdict:
    """The verdict on all inputs: a refutation, else the tests together, else what was not decided."""
    tested = [v for v in found if v.status == "tested"]
    for v in found:
        if v.status == "refuted":
            return v
    return Verdict("tested", sum(v.points for v in tested), tested[0].detail) if tested else found[0]
