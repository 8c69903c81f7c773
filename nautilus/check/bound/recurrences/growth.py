"""The errors of all steps of a recurrence, from those of the evaluated ones; :mod:`.recurrent` says how they grow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, inf, isfinite, log
from typing import Final

import numpy as np

from nautilus.check.bound.exactness import unit
from nautilus.check.bound.probes import margin
from nautilus.check.bound.recurrences.excerpt import Known
from nautilus.check.bound.recurrences.follows import Along
from nautilus.check.bound.recurrences.memory import Memory
from nautilus.check.bound.recurrences.profiles import Profile
from nautilus.check.bound.sums.orders import LARGEST
from nautilus.check.bound.sums.shorter import volume
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.frontend.spec import Tensor

LIMIT: Final = 2.0**-6  # the largest figure that is useful, without the rounding of the output
#: Powers of the number of steps.  Faster growth than the first one is taken as exponential where it becomes faster: a
#: power of the steps grows as much whenever they double, and an exponential function the square of it.
_POWER: Final = 1.0
_MOST_POWER: Final = 3.0
_FASTER: Final = 1.3
#: The factor, at most, by which a growth with a power of the steps differs between inputs.
_REGULAR: Final = 2.0
#: The factor by which inputs differ in the error of an evaluation in which each result is the nearest number.  Its
#: errors are no random ones where a step adds a small term to a state: 200 steps of a diffusion have 3.5 times as much.
_NEAREST: Final = 1.5
_MUCH: Final = 1.5  # the growth after the evaluated steps from which on it counts how long states remember errors


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
    known: Known, wanted: Sequence[Tensor], runs: Sequence[Mapping[str, tuple[Profile, Profile]]],
    remembered: Callable[[], tuple[Memory, Memory] | None] = lambda: None,
) -> dict[str, Figure]:  # fmt: skip
    """The figures of the outputs ``wanted`` from the profiles of all ``runs``, over the first steps and over all.

    ``remembered``: how long the states remember an error, which takes as long as an evaluation to find.
    """
    out = {}
    for t in wanted:
        first, all_steps = (together([r[t.name][n] for r in runs]) for n in range(2))
        share = margin(min(volume(x.shape) for x in known.few.spec.outputs if x.name == t.name))
        out[t.name] = _figure(first, all_steps, known, known.along[t.name], unit(t.dtype), share, remembered)
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


def _figure(
    first: Profile, whole: Profile, known: Known, along: Along, unit: float, share: float,
    remembered: Callable[[], tuple[Memory, Memory] | None] = lambda: None,
) -> Figure:  # fmt: skip
    worst = relative_errors(first.errors.max(axis=0), first.values)
    one, later = relative_errors(first.errors[0], first.values), relative_errors(whole.errors[0], whole.values)
    if along.axis is None:
        grown = later[-1] / one[-1] if 0.0 < one[-1] < inf else 1.0
        points = [(0, 0.0), (known.first, worst[-1]), (known.steps, worst[-1] * max(1.0, grown))]
        count, factor = 0, _beside_nearest(np.asarray(points[-1][1:]), whole)
    else:
        n = len(worst)
        known_growth = isfinite(later[n - 1]) and later[n - 1] > 0.0
        tail = later[n:] * (worst[-1] / later[n - 1]) if known_growth else later[n:]
        raw = np.concatenate([worst, tail])
        factor = _beside_nearest(raw, whole)
        raw *= factor
        points = [(n, float(raw[max(n, 1) - 1])) for n in (len(raw) // 4, len(raw) // 2, len(raw))]
        doubt = inf if _growth(points)[2] else _REGULAR
        errors = _with_doubt(raw, raw[0], np.arange(1, len(raw) + 1), doubt)
        good = errors <= LIMIT
        count = len(good) if good.all() else int(np.argmin(good))
        count = count if count == along.total else count * 2 // 3
    relative = _continued(points, along.total) if _stays(whole, known.steps, along) else inf
    if points[-1][1] * _MUCH < relative < inf and (found := remembered()) is not None:
        relative = min(relative, points[-1][1] * found[along.axis is None].growth(along.total))
    if along.axis is None:
        return Figure(share * factor * float(relative) + unit, unit)
    relative = float(_with_doubt(np.asarray(relative), raw[0], np.asarray(along.total), doubt))
    return Figure(share * float(relative) + unit, unit, count, share * float(errors[max(0, count - 1)]) + unit)


def _beside_nearest(errors: Array, whole: Profile) -> float:
    """The factor by which the relative ``errors`` are too small beside those of nearest numbers, 1 at least."""
    own = relative_errors(np.max(whole.errors[1:], axis=0, initial=0.0), whole.values)[-len(errors) :]
    known = np.isfinite(own) & np.isfinite(errors) & (errors > 0.0)
    return float(np.max(_NEAREST * own[known] / errors[known], initial=1.0))


def _with_doubt(errors: Array, first: float, steps: Array, most: float) -> Array:
    """``errors`` after these ``steps``, larger where they have grown faster from ``first`` than the root of the steps,
    by the factor ``most`` at most."""
    with np.errstate(all="ignore"):
        growth = np.maximum(errors / max(float(first), 2.0**-24), 1.0)
        factor = np.clip(growth / (4.0 * np.sqrt(steps)), 1.0, np.minimum(growth**0.25, most))
        return np.where(np.isfinite(errors), errors * factor, errors)


def _growth(points: Sequence[tuple[int, float]]) -> tuple[float, float, bool]:
    """The logarithms of the growth between the first two of three ``points`` and the last two, which are numbers of
    steps and the errors after them, and whether it is exponential."""
    (r, first), (s, low), (t, high) = points
    if not isfinite(high) or max(s, 1) >= t or low <= 0.0:
        return 0.0, 0.0, not isfinite(high)
    before, grown = log(max(low / first, 1e-9)) if first > 0.0 < r else 0.0, log(max(high / low, 1e-9))
    power = grown / log(t / max(s, 1))
    return before, grown, power > _POWER and (power > _MOST_POWER or grown > _FASTER * before)


def _continued(points: Sequence[tuple[int, float]], total: int) -> float:
    """The error after ``total`` steps, where ``points`` are three numbers of steps and the errors after them.

    Of two powers of the steps the larger one counts, because the values of few rows may be small by chance.
    """
    _, (s, low), (t, high) = points
    if t >= total or not isfinite(high) or s >= t or low <= 0.0:
        return high
    before, grown, exponential = _growth(points)
    if exponential:
        return float(high * exp(min(grown / (t - s) * (total - t), 700.0)))
    return float(high * (total / t) ** max(grown / log(t / max(s, 1)), min(before / log(2.0), _MOST_POWER), 0.5))


def _stays(whole: Profile, steps: int, along: Along) -> bool:
    """Whether the values stay in the range of f32 over all steps, where they grow exponentially so far."""
    sizes, top = whole.values, whole.largest
    if along.axis is None or steps >= along.total or not sizes[len(sizes) // 2 - 1] > 0.0 or top == 0.0:
        return True
    grown = 0.5 * log(sizes[-1] / sizes[len(sizes) // 2 - 1])
    rate = grown / (len(sizes) - len(sizes) // 2)
    return grown < log(16.0) or log(top) + rate * (along.total - steps) < log(LARGEST)
