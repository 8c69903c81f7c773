"""Errors that are the same in all steps of a recurrence, which the steps add up.

A step rounds equal numbers alike: a coefficient that no step changes has one error in all steps, and so has a state
that stays.  The error of a rounding is therefore one of the number, whatever the step is.

A coefficient that is one number decides about all elements of the result, and its error grows with the number of
steps.  A random choice of it may be close to 0, so the error of a single number has the root mean square of random
ones, and a number of the spec has the error of the nearest one of its type, which is known.  What is divided by such a
number is multiplied by the nearest one to its reciprocal, or divided by the nearest one to itself.
"""

from __future__ import annotations

from dataclasses import field
from math import sqrt
from typing import TYPE_CHECKING, Final

import numpy as np

from nautilus.check.bound.roundings.alike import alike, of_values
from nautilus.core.expr.nodes import Const, Expr, Op, walk
from nautilus.core.numerics import Array, round_to
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity
from nautilus.core.types import DType

if TYPE_CHECKING:
    from nautilus.check.bound.errors import Rounding

_MEAN_SQUARE: Final = 1.0 / sqrt(3.0)  # its root, of numbers that are uniform in [-1, 1]
_KNOWN: Final = 1.25  # the error of a number of the spec, in units of that of the nearest number of its type
_ABOUT: Final = 0.25  # and in units of roundoff, because a kernel may fold it into another number
_SMALL: Final = 2.0**-100  # a magnitude far above the least one of f32
_STEPS: Final = 16  # steps whose roundings are looked at


@dataclass
class Rounded:
    """The numbers that each operation of a step rounds in the last steps, and how far their roundings are alike."""

    last: dict[tuple[str, int], list[Array]] = field(default_factory=dict)
    found: dict[tuple[str, int], tuple[int, float]] = field(default_factory=dict)

    def alike(self, operation: tuple[str, int], x: Array, bits: int) -> float:
        """The mean error of the roundings of ``operation``, of one element in several steps or of all in a step.

        It changes little from one step to the next, and is found when the number of steps has doubled.
        """
        seen, found = self.found.get(operation, (0, 1.0))
        before = self.last.get(operation, [])
        self.last[operation] = last = [*before[-_STEPS + 1 :], x]
        if (seen + 1) & seen == 0 or seen <= 2:
            found = alike(np.stack([y for y in last if y.shape == x.shape]), bits)
        self.found[operation] = seen + 1, found
        return found


def of_steps(x: Array, key: int) -> Array:
    """Errors of the numbers ``x`` in a step, in units of the largest one: equal for equal numbers of f32."""
    return of_single(of_values(np.asarray(x, np.float32), key))


def of_single(drawn: Array) -> Array:
    """The random errors ``drawn``; that of a single number has their root mean square."""
    return np.copysign(_MEAN_SQUARE, drawn) if drawn.size == 1 else drawn


def number(run: Rounding, e: Expr, x: Array) -> Array:
    """The number ``e`` of the spec, whose value is ``x``, with its error.

    A divisor may be the number nearest to its reciprocal instead.
    """
    u, value = run.unit(e.dtype), float(x.item())
    divides = id(e) in _divisors(run.d.expr)
    if not run.shared.recurs or run.probe.reals or (divides and not has_reciprocal(e)):
        return run.moved(x, u)
    nearest = _nearest(value, e.dtype)
    if divides:
        nearest = max(nearest, -_nearest(1.0 / value, e.dtype), key=abs)
    return np.asarray(x * (1.0 + _KNOWN * nearest + float(np.copysign(_ABOUT * u, nearest))))


def _nearest(x: float, dtype: DType) -> float:
    """The relative error of the number of ``dtype`` that is nearest to ``x``."""
    return float(round_to(np.asarray(x), dtype.compute).item()) / x - 1.0


def has_reciprocal(e: Expr) -> bool:
    """Whether ``e`` is a number, with a reciprocal far from the ends of the range of f32."""
    return isinstance(e, Const) and _SMALL < abs(float(e.value)) < 1.0 / _SMALL


@by_identity(1 << 8)
def _divisors(e: Expr) -> frozenset[int]:
    """By identity, the numbers in ``e`` that something is divided by."""
    quotients = (n for n in walk(e) if isinstance(n, Op) and n.op == "div")
    return frozenset(id(n.args[1]) for n in quotients if isinstance(n.args[1], Const))
