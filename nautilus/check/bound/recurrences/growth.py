"""The errors of all steps of a recurrence, from those of the evaluated ones; :mod:`.recurrent` says how they grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, inf, isfinite, log
from typing import Final

import numpy as np

from nautilus.check.bound.exactness import unit
from nautilus.check.bound.probes import margin
from nautilus.check.bound.recurrences.excerpt import FIRST, Known
from nautilus.check.bound.recurrences.follows import Along
from nautilus.check.bound.recurrences.profiles import Profile
from nautilus.check.bound.sums.orders import LARGEST
from nautilus.check.bound.sums.shorter import volume
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.frontend.spec import Tensor

LIMIT: Final = 2.0**-6  # the largest figure that is useful, without the rounding of the output
_POWER: Final = 1.0  # power of the number of steps; faster growth is taken as exponential


@dataclass(frozen=True, slots=True)
class Figure:
    """The relative error over all steps, that of the first ``count`` steps, which is useful, and that of the store."""

    relative: float
    unit: float
    count: int = 0
    first: float = inf

    @property
    def is_useful(self) -> bool:
        """Whether the figure excuses no wrong result."""
        return self.relative - self.unit <= LIMIT


def figures(
    known: Known, wanted: Sequence[Tensor], runs: Sequence[Mapping[str, tuple[Profile, Profile]]]
) -> dict[str, Figure]:
    """The figures of the outputs ``wanted`` from the profiles of all ``runs``, over the first steps and over all."""
    out = {}
    for t in wanted:
        first, all_steps = (together([r[t.name][n] for r in runs]) for n in range(2))
        share = margin(min(volume(x.shape) for x in known.few.spec.outputs if x.name == t.name))
        out[t.name] = _figure(first, all_steps, known, known.along[t.name], unit(t.dtype), share)
    return out


def together(found: Sequence[Profile]) -> Profile:
    """The profile of several inputs."""
    errors = np.sum([p.errors for p in found], axis=0)
    return Profile(errors, np.sum([p.values for p in found], axis=0), max(p.largest for p in found))


def relative_errors(squares: Array, sizes: Array) -> Array:
    """The relative errors of the squared errors ``squares`` beside the squared values ``sizes``."""
    with np.errstate(all="ignore"):
        made = np.sqrt(squares / np.where(sizes > 0.0, sizes, 1.0))
    return np.where((sizes > 0.0) | (squares == 0.0), made, np.inf)


def _figure(first: Profile, whole: Profile, known: Known, along: Along, unit: float, share: float) -> Figure:
    worst = relative_errors(first.errors.max(axis=0), first.values)
    one, later = relative_errors(first.errors[0], first.values), relative_errors(whole.errors[0], whole.values)
    if along.axis is None:
        grown = later[-1] / one[-1] if 0.0 < one[-1] < inf else 1.0
        points = [(min(FIRST, known.steps), worst[-1]), (known.steps, worst[-1] * max(1.0, grown))]
        count = 0
    else:
        n = len(worst)
        known_growth = isfinite(later[n - 1]) and later[n - 1] > 0.0
        tail = later[n:] * (worst[-1] / later[n - 1]) if known_growth else later[n:]
        errors = _with_doubt(np.concatenate([worst, tail]))
        good = errors <= LIMIT
        count = len(good) if good.all() else int(np.argmin(good))
        count = count if count == along.total else count * 2 // 3
        points = [(len(errors) // 2, errors[len(errors) // 2 - 1]), (len(errors), errors[-1])]
    relative = _continued(points, along.total) if _stays(whole, known.steps, along) else inf
    if along.axis is None:
        return Figure(share * float(relative) + unit, unit)
    return Figure(share * float(relative) + unit, unit, count, share * float(errors[max(0, count - 1)]) + unit)


def _with_doubt(errors: Array) -> Array:
    """``errors`` after each number of steps, larger where they grow faster than the square root of the steps."""
    growth = errors / max(float(errors[0]), 2.0**-24)
    fast = growth > 4.0 * np.sqrt(np.arange(1, len(errors) + 1))
    return np.where(fast, errors * np.maximum(growth, 1.0) ** 0.25, errors)


def _continued(points: Sequence[tuple[int, float]], total: int) -> float:
    """The error after ``total`` steps, where ``points`` are two numbers of steps and the errors after them."""
    (s, low), (t, high) = points
    if t >= total or not isfinite(high) or s >= t or low <= 0.0:
        return high
    grown = log(max(high / low, 1e-9))
    power = grown / log(t / max(s, 1))
    if power <= _POWER:
        return float(high * (total / t) ** max(power, 0.5))
    return float(high * exp(min(grown / (t - s) * (total - t), 700.0)))


def _stays(whole: Profile, steps: int, along: Along) -> bool:
    """Whether the values stay in the range of f32 over all steps, where they grow exponentially so far."""
    sizes, top = whole.values, whole.largest
    if along.axis is None or steps >= along.total or not sizes[len(sizes) // 2 - 1] > 0.0 or top == 0.0:
        return True
    grown = 0.5 * log(sizes[-1] / sizes[len(sizes) // 2 - 1])
    rate = grown / (len(sizes) - len(sizes) // 2)
    return grown < log(16.0) or log(top) + rate * (along.total - steps) < log(LARGEST)
