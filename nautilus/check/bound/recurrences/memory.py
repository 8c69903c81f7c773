"""How long the states of a recurrence remember an error, for the steps that are not evaluated.

The error of a step is multiplied by the steps after it.  Where it fades, as in ``h = 0.999 * h' + x``, errors grow with
the number of steps only until those of the first steps have faded.  So the error after ``T`` steps is at most that
after ``t`` steps times ``S(T) / S(t)``, where ``S`` is the sum of what is left of the error of one step after each
number of steps; that is so where all errors of steps have one sign, and others grow less.

That holds for the error of all steps together, by Young's inequality for convolutions, whatever the sizes of the values
are.  For the error of the last step alone, what is left is relative to the values, where these fall.

What is left is measured: all states of the first step are moved by a part of themselves, and the recurrence follows
from there over the reals.  Each element fades on its own; the one that remembers longest counts.  After the evaluated
steps it goes on to fade as between their third and their last quarter.  A sum over steps, as the mean of all states,
adds errors that have faded, so nothing is known of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import exp, inf, isfinite
from typing import Any

import numpy as np

from nautilus.check.bound.recurrences.combined import states_of
from nautilus.core.expr.nodes import Load, free_vars, walk
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.frontend.spec import Spec

_QUARTERS = 4
_LEAST = 32  # evaluated steps that show how states fade
_SMOOTH = 8  # values are averaged over the steps of this part
_MOST = 700.0  # an exponent
_DOUBT = 1.5  # errors of later steps have more of one sign, where states have grown until then


@dataclass(frozen=True, slots=True)
class Memory:
    """For each element of the states: the sum of what is left of an error over ``steps``, what is left after them, and
    the rate at which that fades."""

    steps: int
    sums: Array
    left: Array
    rates: Array

    def growth(self, total: int) -> float:
        """How many times larger errors are after ``total`` steps than after those evaluated, at most."""
        more = total - self.steps
        if more <= 0 or not self.sums.size:
            return 1.0
        each = zip(self.sums, self.left, self.rates, strict=True)
        found = [_later(left, rate, more) / have if isfinite(have) else inf for have, left, rate in each if have != 0.0]
        return 1.0 + _DOUBT * max(found, default=0.0)


def _later(left: float, rate: float, steps: int) -> float:
    """The sum of what is left of an error in the ``steps`` after the evaluated ones."""
    if left == 0.0:
        return 0.0
    if not (isfinite(left) and isfinite(rate)) or rate * steps < -_MOST:
        return inf
    return left * steps if abs(rate) * steps < 1e-6 else left * (1.0 - exp(-min(rate * steps, _MOST))) / rate


def memory(
    program: Spec, arrays: Mapping[str, Array], scalars: Mapping[str, Any], steps: int, states: Collection[str]
) -> tuple[Memory, Memory] | None:
    """How the ``states`` of ``program`` remember an error of the first of ``steps``: for errors of all steps, and for
    that of the last one.  None where few steps show it.
    """
    if steps < _LEAST or _adds_steps(program):
        return None
    exact, moved = (states_of(program, arrays, scalars, None, steps, states, at) for at in (None, 0))
    pairs = [(np.stack(x), np.stack(moved[n])) for n, x in exact.items() if len(x) >= steps]
    if not pairs:
        return None
    whole, last = ([_faded(*pair, falls) for pair in pairs] for falls in (False, True))
    return _of(steps, whole), _of(steps, last)


def _adds_steps(program: Spec) -> bool:
    """Whether a reduction of ``program`` is over steps of a recurrence.

    ``along``: the axes of the steps of each tensor that follows one.
    """
    along = {d.name: {d.recurrence.axis} for d in program.definitions if d.recurrence is not None}
    known = 0
    while known < (known := sum(map(len, along.values()))):  # definitions may stand in any order
        for d in program.definitions:
            names = [a.name for a in d.axes]
            found = [ld for ld in walk(d.expr) if isinstance(ld, Load) and ld.buffer in along]
            moved = {v for ld in found for p in along[ld.buffer] for v in free_vars(ld.index[p])}
            if not moved <= {*names}:
                return True
            if moved:
                along.setdefault(d.name, set()).update(map(names.index, moved))
    return False


def _of(steps: int, parts: Sequence[tuple[Array, Array, Array]]) -> Memory:
    sums, left, rates = (np.concatenate([p[k] for p in parts]) for k in range(3))
    return Memory(steps, sums, left, rates)


def _faded(exact: Array, moved: Array, falls: bool) -> tuple[Array, Array, Array]:
    """The three numbers of :class:`Memory` for each element of a state, whose steps are along the first axis.

    ``falls``: what is left is relative to the values.
    """
    steps = len(exact)
    exact, moved = (x.reshape(steps, -1) for x in (exact, moved))
    with np.errstate(all="ignore"):
        rest = np.abs(moved - exact) / np.sqrt(np.mean(np.square(moved[0] - exact[0])))
        rest = rest / _fall(exact)[:, None] if falls else rest
        part = steps // _QUARTERS
        third, last = (np.sqrt(np.mean(np.square(x), axis=0)) for x in (rest[-2 * part : -part], rest[-part:]))
        rates = np.where(last > 0.0, np.log(third / last) / part, inf)
        left = np.where(last > 0.0, last * np.exp(-0.5 * rates * part), 0.0)
    return rest.sum(axis=0), left, np.where(np.isnan(rates), -inf, rates)


def _fall(values: Array) -> Array:
    """How large the values of each step are beside the largest ones before, 1 where they grow."""
    length = max(1, len(values) // _SMOOTH)
    squares = np.cumsum(np.mean(np.square(values), axis=1))
    before = np.concatenate([np.zeros(min(length, len(squares))), squares[:-length]])[: len(squares)]
    sizes = np.sqrt((squares - before) / np.minimum(np.arange(1, len(squares) + 1), length))
    return np.asarray(sizes / np.maximum.accumulate(sizes))
