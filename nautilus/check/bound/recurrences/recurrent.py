"""The bounds of outputs that need a recurrence.

A recurrence may amplify the error of each step in all later ones, so no short evaluation gives the error of its last
step.  The program therefore runs at full length of its sums, for as many steps as are affordable, at a few positions of
the independent axes (:mod:`.excerpt`).  The figure is the one of the first steps under all choices of errors
(:mod:`.profiles`), times the growth of the error, relative to the values, under one choice over all steps.  Where a
recurrence has more steps, the growth between the last two measured numbers of steps continues: as a power of the steps,
or exponentially where it is faster than that (:mod:`.growth`), but no longer than the states remember an error
(:mod:`.memory`).  What grows faster than the square root of the steps differs between inputs: a quarter of its
logarithm is added.

A large step has fewer inputs, fewer choices of errors and fewer measured steps, in this order.  Where two steps are
more than what is affordable, no bound is stated.

Where few elements have most of the norm, the growth and the error are those of single inputs, of which the one with the
largest figure counts.

A growth above :data:`.growth.LIMIT` makes a figure that would excuse wrong results.  The first of these takes its
place:

* a bound of each step from the state that the result itself shows before it (:mod:`.stepwise`);
* a bound of the first steps, two thirds of those within the limit, of the whole recurrence or of its single steps;
* none.

So the stated figure says how results are judged, by ``check`` and by ``bench``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import inf
from typing import Final

import numpy as np

from nautilus.check.bound.bound import Bound, Steps
from nautilus.check.bound.probes import FEW, even, margin
from nautilus.check.bound.recurrences.combined import combined, may_be_combined
from nautilus.check.bound.recurrences.excerpt import BUDGET, Known
from nautilus.check.bound.recurrences.follows import Along, following
from nautilus.check.bound.recurrences.growth import Figure, figures, relative_errors, together
from nautilus.check.bound.recurrences.memory import Memory, memory
from nautilus.check.bound.recurrences.profiles import Case, Sample, profiles, samples_of
from nautilus.check.bound.recurrences.stepwise import stepwise
from nautilus.check.bound.sampling import NUMBERS, RUNTIME, wide
from nautilus.check.bound.sums.gathered import shortened
from nautilus.check.bound.sums.shorter import volume, work
from nautilus.core.numerics import Array, round_to
from nautilus.core.schedule import Schedule
from nautilus.frontend.fixed import at_sizes
from nautilus.frontend.restrict import Restricted
from nautilus.frontend.spec import Spec, Tensor

_EVEN: Final = 4.0  # fewer elements than that, of equal values, would have the norm of the sampled ones
_HEAVY: Final = 5.0  # the kurtosis of values from which on few elements have the norm; normal ones have 3
_SINGLE: Final = 1.5  # fewer elements than that, of equal values, are one number
_LEAST: Final = 3.0  # the same of few values


def following_outputs(program: Spec) -> dict[str, Along]:
    """The outputs of ``program`` that need a recurrence, and how they follow it."""
    if all(d.recurrence is None for d in program.definitions):
        return {}
    fixed = at_sizes(program, program.samples(RUNTIME))
    found = following(fixed)
    return {t.name: found[t.name] for t in program.outputs if t.name in found}


def recurrent_bounds(program: Spec, precision: str, wanted: Sequence[Tensor], schedule: Schedule) -> dict[str, Bound]:
    """The bounds of the outputs ``wanted``, which need recurrences, on standard normal inputs."""
    fixed = at_sizes(program, program.samples(RUNTIME))
    empty = {t.name for t in fixed.outputs if not volume(t.shape)}
    if any(t.name in empty for t in wanted):  # no element has an error
        rest = [t for t in wanted if t.name not in empty]
        none = {t.name: Bound(0.0) for t in wanted if t.name in empty}
        return none | (recurrent_bounds(program, precision, rest, schedule) if rest else {})
    only = replace(fixed, outputs=tuple(t for t in fixed.outputs if t.name in {w.name for w in wanted}))
    along = following(fixed)
    if not all(along[t.name].total for t in only.outputs):  # no step shows an error
        return {t.name: Bound(inf if volume(t.shape) else 0.0) for t in only.outputs}
    known = Known(only, along, precision, schedule)
    if known.steps == 0:
        return {t.name: Bound(inf, too_large=True) for t in wanted}
    samples = samples_of(known)
    moved = _combined(program, known, samples[0])
    whole = _figures(known, wanted, samples, moved)
    several = samples if known.several <= known.inputs else samples_of(known, known.several)
    uneven = [t for t in only.outputs if whole[t.name].is_useful and _is_uneven(known, t, several)]
    if uneven:
        most = Known(replace(only, outputs=tuple(uneven)), along, precision, schedule, more=True)
        is_more = most.more or work(most.few.spec) > work(known.few.spec)
        again = _of_each_input(most, uneven, moved) if is_more and most.steps >= known.steps else {}
        whole |= {n: x for n, x in again.items() if whole[n].relative < x.relative and x.is_useful}
    useful = [t for t in wanted if whole[t.name].is_useful]
    out = {t.name: Bound(whole[t.name].relative, rare_inputs=_rare(t, several)) for t in useful}
    rest = [t for t in wanted if t.name not in out]
    single = _single_steps(known, rest, samples, moved) if rest else {}
    for t in rest:
        mine = single.get(t.name)
        if mine is not None and mine.is_useful:
            out[t.name] = Bound(mine.relative, stepwise=True)
        else:
            out[t.name] = _first_steps(known.along[t.name], whole[t.name], mine)
    return out


def _figures(
    known: Known, wanted: Sequence[Tensor], samples: Sequence[Sample], moved: Mapping[str, float]
) -> dict[str, Figure]:
    """The figures of the outputs ``wanted`` over all steps; ``moved``: states whose steps may be combined."""
    runs = [r for x in samples for r in profiles(known, x, Case(known.few.spec, {}, known.few.rows, {}, moved))]
    return figures(known, wanted, runs, cache(lambda: _memory(known, samples[0])))


def _of_each_input(known: Known, wanted: Sequence[Tensor], moved: Mapping[str, float]) -> dict[str, Figure]:
    """The largest figure of each of the outputs ``wanted`` on a single input: that with the largest values would have
    most of the norm of all inputs."""
    samples = samples_of(known)
    runs = [r for x in samples for r in profiles(known, x, Case(known.few.spec, {}, known.few.rows, {}, moved))]
    remembered = cache(lambda: _memory(known, samples[0]))
    found = [figures(known, wanted, [one], remembered) for one in runs]
    return {t.name: max((x[t.name] for x in found), key=lambda f: f.relative) for t in wanted}


def _is_uneven(known: Known, t: Tensor, samples: Sequence[Sample]) -> bool:
    """Whether few of the sampled elements of ``t`` have most of its norm, on one input or on all of them.

    Others of all elements, or those on another input, may then have most of the norm, and other relative errors, as
    those of a state that has grown the most: the figure is that of more elements and inputs too, if it is larger.
    """
    axis = known.along[t.name].axis
    each = _values(t, samples)
    every = np.concatenate([np.ravel(x) for x in each])
    judged = [every, *(x for x in each if x.size >= FEW)] if len(each) > 1 else []  # one: others take too long
    if any(even(x) < max(_LEAST, x.size / _HEAVY) for x in judged):
        return True
    with np.errstate(all="ignore"):
        sizes = [np.abs(x) if axis is None else np.sqrt(np.sum(x * x, axis=axis)) for x in each]
    return min(x.size for x in sizes) >= FEW and min(map(even, sizes)) < _EVEN


def _rare(t: Tensor, samples: Sequence[Sample]) -> float:
    """The share of the inputs on which the few numbers that have the norm of ``t`` may all be close to 0, as the sum of
    terms of both signs is."""
    each = _values(t, samples)
    few = volume(t.shape)
    if few not in NUMBERS:
        few = 1 if np.median([even(x) for x in each]) < _SINGLE else 0
    largest = [x.flat[int(np.argmax(np.abs(x)))] for x in each if x.size]
    return NUMBERS[few] if few and min(largest) < 0.0 < max(largest) else 0.0


def _values(t: Tensor, samples: Sequence[Sample]) -> list[Array]:
    """The values of ``t`` on each input of ``samples``, 0 where they are no numbers."""
    each = [one[t.name] for x in samples for one in x.of_inputs(x.values)]
    return [np.where(np.isfinite(x), x, 0.0) for x in each]


def chunk_errors(program: Spec, precision: str, wanted: Sequence[Tensor], schedule: Schedule) -> dict[str, float]:
    """What the roundings of chunks of steps, which ``program`` has, add to the bounds of ``wanted``.

    Their errors do not grow with the number of steps, so the largest one of the measured steps stands for all.
    """
    follow = following_outputs(program)
    fixed = at_sizes(program, program.samples(RUNTIME))
    only = replace(fixed, outputs=tuple(t for t in fixed.outputs if t.name in follow and t in wanted))
    along = following(fixed)
    if not only.outputs or not all(along[t.name].total for t in only.outputs):
        return {}
    known = Known(only, along, precision, schedule)
    if known.steps == 0:
        return {}
    case = Case(known.few.spec, {}, known.few.rows, {})
    runs = [r for x in samples_of(known) for r in profiles(known, x, case)]
    out = {}
    for t in only.outputs:
        first, whole = (together([r[t.name][n] for r in runs]) for n in range(2))
        worst = float(relative_errors(first.errors.max(axis=0), first.values).max())
        one = float(relative_errors(first.errors[0], first.values)[-1])
        later = float(relative_errors(whole.errors[0], whole.values).max()) * (worst / one if one > 0.0 else 1.0)
        out[t.name] = margin(min(volume(x.shape) for x in known.few.spec.outputs if x.name == t.name)) * max(
            worst, later
        )
    return out


def _combined(program: Spec, known: Known, sample: Sample) -> dict[str, float]:
    """The errors of states of ``program`` whose steps may be combined, on one input."""
    states = may_be_combined(program)
    if not states:
        return {}
    small = wide(shortened(known.few.spec, known.ranges)[0])
    arrays = {**sample.of_inputs(sample.arrays)[0], **known.few.rows}
    return combined(states, small, arrays, sample.scalars, steps=known.steps)


def _memory(known: Known, sample: Sample) -> tuple[Memory, Memory] | None:
    """How long the states of the program remember an error, on one input."""
    small = wide(shortened(known.few.spec, known.ranges)[0])
    states = {d.name for d in small.definitions if d.recurrence is not None}
    arrays = {**sample.of_inputs(sample.arrays)[0], **known.few.rows}
    return memory(small, arrays, sample.scalars, known.steps, states)


def _single_steps(
    known: Known, wanted: Sequence[Tensor], samples: Sequence[Sample], moved: Mapping[str, float]
) -> dict[str, Figure]:
    """The figures of single steps from the states that the results ``samples`` show; none where they show none."""
    own = stepwise(known.fixed)
    if own is None:
        return {}
    sample = samples[0].of_inputs({**samples[0].arrays, **samples[0].values})[0]

    def fits(cut: Restricted) -> bool:
        """Whether the states of ``cut`` and the other values of its steps are at the positions of the sample."""
        inputs = (t for t in shortened(cut.spec, known.ranges)[0].inputs if t.name not in {*cut.rows, *own.outputs})
        states = all(sample[o].shape == _shape(cut.spec, n) for n, o in own.outputs.items())
        return states and all(sample[t.name].shape == t.shape for t in inputs if t.name in sample)

    # without a recurrence, longer sums of the steps would be shortened
    cuts = (known.cut(own.spec, budget) for budget in (BUDGET, 2 * work(known.few.spec)))
    cut = next((c for c in cuts if fits(c)), None)
    if cut is None:
        return {}
    types = {t.name: t.dtype for t in known.fixed.outputs}
    runs = []
    for x in samples:
        states = [own.inputs({n: round_to(v, types[n]) for n, v in one.items()}) for one in x.of_inputs(x.values)]
        runs += profiles(known, x, Case(cut.spec, own.shown(moved), cut.rows, x.joined(states)))
    return figures(known, wanted, runs)


def _first_steps(along: Along, whole: Figure, single: Figure | None) -> Bound:
    """The bound of the first steps, as many as possible; inf where the output has none."""
    of_steps = single is not None and single.count > whole.count
    best = single if single is not None and of_steps else whole
    if along.axis is None or best.count == 0:
        return Bound(inf)
    return Bound(best.first, stepwise=of_steps, steps=Steps(along.axis, best.count, along.total, along.reverse))


def _shape(spec: Spec, name: str) -> tuple[int, ...]:
    return tuple(n for t in spec.inputs if t.name == name for n in t.shape if isinstance(n, int))
