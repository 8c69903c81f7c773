"""The bounds of outputs that need a recurrence.

A recurrence may amplify the error of each step in all later ones, so no short evaluation gives the error of its last
step.  The program therefore runs at full length of its sums, and for up to :data:`_MOST` steps, at a few positions of
the independent axes.  The figure is the one of the first :data:`_FIRST` steps under all choices of errors, times the
growth of the error, relative to the values, under one choice over all steps.  Where a recurrence has more steps, the
growth between the last two measured numbers of steps continues: as a power of the steps, or exponentially where it is
above :data:`_POWER`.  What grows faster than the square root of the steps differs between inputs: a quarter of its
logarithm is added.

All evaluations together have at most about :data:`_POINTS` points.  A large step has fewer inputs, fewer choices of
errors and fewer measured steps, in this order.  Where two steps are more than that, no bound is stated.

A growth above :data:`LIMIT` makes a figure that would excuse wrong results.  The first of these takes its place:

* a bound of each step from the state that the result itself shows before it (:mod:`.stepwise`);
* a bound of the first steps, two thirds of those within the limit, of the whole recurrence or of its single steps;
* none.

So the stated figure says how results are judged, by ``check`` and by ``bench``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import exp, inf, isfinite, log
from typing import Any, Final

import numpy as np

from nautilus.check.bound.bound import Bound, Steps
from nautilus.check.bound.errors import Probe, roundings, run
from nautilus.check.bound.exactness import unit
from nautilus.check.bound.follows import Along, following
from nautilus.check.bound.probes import FEW, PROBES, kinds, margin
from nautilus.check.bound.recurrences.stepwise import stepwise
from nautilus.check.bound.sampling import INPUTS, RUNTIME, shortened, wide
from nautilus.check.bound.sums.admitted import lengths
from nautilus.check.bound.sums.orders import LARGEST
from nautilus.check.bound.sums.shorter import shorter_sums, volume, work
from nautilus.check.inputs import InputSet, generate
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Reduce, Var, children, rewrite
from nautilus.core.index.sizes import Extent
from nautilus.core.numerics import Array, distinct, round_to
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.frontend.fixed import at_sizes
from nautilus.frontend.interp import run_spec
from nautilus.frontend.promises import integer_ranges
from nautilus.frontend.restrict import Restricted
from nautilus.frontend.spec import Definition, Spec, Tensor

_FIRST: Final = 16  # steps under all choices of errors
_MOST: Final = 512  # steps under one choice
_LEAST: Final = 32
LIMIT: Final = 2.0**-6  # the largest figure that is useful, without the rounding of the output
_POWER: Final = 1.0  # power of the number of steps; faster growth is taken as exponential
_BUDGET: Final = 1 << 24  # points of an evaluation; above that, sums outside of recurrences are shortened
_WORK: Final = 1 << 22  # points of the steps of one evaluation
_POINTS: Final = 1 << 29  # operations at points in all evaluations: a few seconds
_MOST_POINTS: Final = 1 << 24  # points of one operation, whose values are in memory at the same time
_FEW_POINTS: Final = 1 << 19  # points of a step, up to which the time is that of the calls: all inputs run at once
_INPUT: Final = "%input"  # the axis of the inputs then
_ELEMENTS: Final = (64, 16, 4)  # elements of an output at each step: the first number whose work is within the limit


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
    only = replace(fixed, outputs=tuple(t for t in fixed.outputs if t.name in {w.name for w in wanted}))
    along = following(fixed)
    if not all(along[t.name].total for t in only.outputs):  # no step shows an error
        return {t.name: Bound(inf if volume(t.shape) else 0.0) for t in only.outputs}
    known = _Known(only, along, precision, schedule)
    if known.steps == 0:
        return {t.name: Bound(inf, too_large=True) for t in wanted}
    samples = _samples(known)
    runs = [r for x in samples for r in _runs(known, x, _Case(known.few.spec, {}, known.few.rows, {}))]
    whole = _figures(known, wanted, runs)
    out = {t.name: Bound(whole[t.name].relative) for t in wanted if whole[t.name].is_useful}
    rest = [t for t in wanted if t.name not in out]
    single = _single_steps(known, rest, samples) if rest else {}
    for t in rest:
        mine = single.get(t.name)
        if mine is not None and mine.is_useful:
            out[t.name] = Bound(mine.relative, stepwise=True)
        else:
            out[t.name] = _first_steps(known.along[t.name], whole[t.name], mine)
    return out


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
    known = _Known(only, along, precision, schedule)
    if known.steps == 0:
        return {}
    case = _Case(known.few.spec, {}, known.few.rows, {})
    runs = [r for x in _samples(known) for r in _runs(known, x, case)]
    out = {}
    for t in only.outputs:
        first, whole = (_together([r[t.name][n] for r in runs]) for n in range(2))
        worst = float(_relative(first.errors.max(axis=0), first.values).max())
        one = float(_relative(first.errors[0], first.values)[-1])
        later = float(_relative(whole.errors[0], whole.values).max()) * (worst / one if one > 0.0 else 1.0)
        out[t.name] = margin(min(volume(x.shape) for x in known.few.spec.outputs if x.name == t.name)) * max(
            worst, later
        )
    return out


def _single_steps(known: _Known, wanted: Sequence[Tensor], samples: Sequence[_Sample]) -> dict[str, _Figure]:
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
    cuts = (known.cut(own.spec, budget) for budget in (_BUDGET, 2 * work(known.few.spec)))
    cut = next((c for c in cuts if fits(c)), None)
    if cut is None:
        return {}
    types = {t.name: t.dtype for t in known.fixed.outputs}
    runs = []
    for x in samples:
        states = [own.inputs({n: round_to(v, types[n]) for n, v in one.items()}) for one in x.of_inputs(x.values)]
        runs += _runs(known, x, _Case(cut.spec, own.errors, cut.rows, x.joined(states)))
    return _figures(known, wanted, runs)


@dataclass(frozen=True, slots=True)
class _Figure:
    """The relative error over all steps, that of the first ``count`` steps, which is useful, and that of the store."""

    relative: float
    unit: float
    count: int = 0
    first: float = inf

    @property
    def is_useful(self) -> bool:
        return self.relative - self.unit <= LIMIT


def _first_steps(along: Along, whole: _Figure, single: _Figure | None) -> Bound:
    """The bound of the first steps, as many as possible; inf where the output has none."""
    of_steps = single is not None and single.count > whole.count
    best = single if single is not None and of_steps else whole
    if along.axis is None or best.count == 0:
        return Bound(inf)
    return Bound(best.first, stepwise=of_steps, steps=Steps(along.axis, best.count, along.total, along.reverse))


class _Known:
    """The data that all evaluations of the program ``fixed`` share; ``few``: the program at a few positions."""

    def __init__(self, fixed: Spec, along: Mapping[str, Along], precision: str, schedule: Schedule) -> None:
        self.fixed, self.along, self.precision, self.schedule = fixed, along, precision, schedule
        self.terms, self.ranges = lengths(fixed), integer_ranges(fixed)
        self.total = max(a.total for a in along.values())
        for elements in _ELEMENTS:
            self.chosen = {t.name: _positions(t, along[t.name], elements) for t in fixed.outputs}
            self.few = self.cut(fixed)
            if len(fixed.outputs) > 1:
                apart, self.chosen = self.chosen, _shared(fixed, self.chosen)
                fewer = self.cut(fixed)
                if 2 * work(fewer.spec) < work(self.few.spec):
                    self.few = fewer
                else:
                    self.chosen = apart
            members = tuple(d for d in self.few.spec.definitions if d.recurrence is not None)
            step = max(1, work(replace(self.few.spec, inputs=(), definitions=members)) // self.total)
            if step * self.total <= _WORK:
                break
        inputs = INPUTS if min(volume(t.shape) for t in self.few.spec.outputs) < FEW else 1
        steps = min(self.total, max(_LEAST, min(_MOST, _WORK // step)))
        self.inputs, self.probes, self.steps = self._affordable(members, inputs, steps)

    def _affordable(self, members: Sequence[Definition], inputs: int, steps: int) -> tuple[int, int, int]:
        """How many inputs, choices of errors and steps are evaluated, at most ``inputs`` and ``steps``.

        No steps: the recurrence is not evaluated.
        """
        sizes = [_points(d) for d in members]
        each = max(1, sum(total for _, total in sizes) // self.total)
        short = any(a.axis is None for a in self.along.values())

        def cost(inputs: int, probes: int, steps: int) -> int:
            first = min(steps, _FIRST)
            again = 2 * first if short and first < steps else 0
            return each * inputs * (2 * steps + (probes - 1) * first + again)

        probes = len(PROBES)
        while inputs > 1 and cost(inputs, probes, steps) > _POINTS:
            inputs -= 1
        while probes > 2 and cost(inputs, probes, steps) > _POINTS:
            probes -= 1
        while steps > 2 and cost(inputs, probes, steps) > _POINTS:
            steps -= 1
        self.joins = each * inputs <= _FEW_POINTS
        largest = max((most for most, _ in sizes), default=0) // self.total
        fits = cost(inputs, probes, steps) <= 2 * _POINTS and largest <= _MOST_POINTS
        return inputs, probes, steps if fits else 0

    def cut(self, spec: Spec, budget: int = _BUDGET) -> Restricted:
        """``spec`` at a few positions, with sums of its members at full length."""
        return shorter_sums(spec, self.chosen, budget)


def _points(d: Definition) -> tuple[int, int]:
    """The points of the largest operation of ``d`` over all its steps, and those of all its operations."""
    outer = volume([a.extent for a in d.axes])
    most, total = 0, 0

    def traverse(e: Expr, around: int) -> None:
        nonlocal most, total
        inside = around * volume([a.extent for a in e.axes]) if isinstance(e, Reduce) else around
        if isinstance(e, Op | Reduce):
            most, total = max(most, inside), total + inside
        for x in () if isinstance(e, Load) else children(e):
            traverse(x, inside)

    traverse(d.expr, outer)
    return most, total


def _positions(t: Tensor, along: Along, elements: int) -> dict[int, Array]:
    """A few indices along each independent axis of output ``t``, so that it has about this many ``elements``."""
    sizes = [n if isinstance(n, int) else 1 for n in t.shape]
    others = int(np.prod([n for p, n in enumerate(sizes) if p not in along.free and p != along.axis]))
    count = max(2, elements // max(others, 1))
    chosen: dict[int, Array] = {}
    for p in sorted(along.free, reverse=True):
        n = min(sizes[p], count)
        chosen[p] = distinct(np.linspace(0, sizes[p] - 1, n).astype(np.int64))
        count = max(2, count // n)
    return chosen


def _shared(fixed: Spec, chosen: Mapping[str, Mapping[int, Array]]) -> dict[str, dict[int, Array]]:
    """``chosen``, where axes of one extent have the same indices, those of the output with the most of them.

    What several outputs read is otherwise needed at all indices.
    """
    most: dict[Extent, Array] = {}
    for t in fixed.outputs:
        for p, x in chosen[t.name].items():
            n = t.shape[p]
            most[n] = max(most.get(n, x), x, key=len)
    return {t.name: {p: most[t.shape[p]] for p in chosen[t.name]} for t in fixed.outputs}


@dataclass(frozen=True)
class _Sample:
    """``count`` inputs of the program, and its values over the reals for the steps that run.

    More than one have an axis of their own, the first of each array.
    """

    count: int
    arrays: Mapping[str, Array]
    scalars: Mapping[str, Any]
    values: Mapping[str, Array]

    @staticmethod
    def of(known: _Known, given: Sequence[InputSet], small: Spec) -> _Sample:
        """The sample of ``small``, which is the program at a few positions, on the inputs ``given``."""
        rows, count = known.few.rows, len(given)
        arrays = _joined(count, [{n: x for n, x in g.arrays.items() if n not in rows} for g in given])
        program = _on_inputs(wide(small), count, rows)
        values = run_spec(program, {**arrays, **rows}, given[0].scalars, steps=known.steps)
        return _Sample(count, arrays, given[0].scalars, values)

    def joined(self, found: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Arrays of each input as those of all inputs."""
        return _joined(self.count, found)

    def of_inputs(self, arrays: Mapping[str, Array]) -> list[dict[str, Array]]:
        """The arrays of each input."""
        if self.count == 1:
            return [dict(arrays)]
        return [{name: x[i] for name, x in arrays.items()} for i in range(self.count)]


def _samples(known: _Known) -> list[_Sample]:
    """The inputs, all in one sample where a step has few points."""
    small, ranges = shortened(known.few.spec, known.ranges)
    given = [generate(small, "random", seed, ranges=ranges) for seed in range(known.inputs)]
    if known.joins and all(g.scalars == given[0].scalars for g in given):
        return [_Sample.of(known, given, small)]
    return [_Sample.of(known, [g], small) for g in given]


def _joined(count: int, found: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    if count == 1:
        return dict(found[0])
    return {name: np.stack([one[name] for one in found]) for name in found[0]}


def _on_inputs(program: Spec, count: int, same: Collection[str]) -> Spec:
    """``program`` on ``count`` inputs at once; the tensors ``same`` do not differ between them."""
    if count == 1:
        return program
    each = {t.name for t in program.inputs} | {d.name for d in program.definitions}

    def tensors(found: Sequence[Tensor]) -> tuple[Tensor, ...]:
        more = (replace(t, shape=(count, *t.shape), strides=None) if t.name not in same else t for t in found)
        return tuple(more)

    def load(e: Expr) -> Expr | None:
        ours = isinstance(e, Load) and e.buffer in each and e.buffer not in same
        return replace(e, index=(Var(_INPUT), *e.index)) if isinstance(e, Load) and ours else None

    def definition(d: Definition) -> Definition:
        later = None if d.recurrence is None else replace(d.recurrence, axis=d.recurrence.axis + 1)
        return replace(d, axes=(Axis(_INPUT, count), *d.axes), expr=rewrite(d.expr, load), recurrence=later)

    definitions = tuple(map(definition, program.definitions))
    inputs, outputs = tensors(program.inputs), tensors(program.outputs)
    return replace(program, inputs=inputs, outputs=outputs, definitions=definitions, facts=())


@dataclass(frozen=True)
class _Case:
    """A program to evaluate.

    ``shown``: its inputs that show a state with an error.  ``rows``, ``more``: its inputs beside those of a sample,
    which are the same for all of these, or differ.
    """

    spec: Spec
    shown: Mapping[str, float]
    rows: Mapping[str, Array]
    more: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Profile:
    """Squared ``errors`` under each choice of errors and squared values, up to each step, and the largest value."""

    errors: Array
    values: Array
    largest: float


def _runs(known: _Known, sample: _Sample, case: _Case) -> list[dict[str, tuple[Profile, Profile]]]:
    """For each input and output, profiles over the first steps under all choices of errors, and over all under one."""
    small = wide(shortened(case.spec, known.ranges)[0])
    how = replace(roundings(small, known.precision, known.terms, known.schedule), shown=case.shown)
    program = _on_inputs(small, sample.count, case.rows)
    names = {t.name for t in small.inputs}
    arrays = {n: x for n, x in {**sample.arrays, **case.more, **case.rows}.items() if n in names}
    first = min(known.steps, _FIRST)

    def moved(probe: Probe, steps: int) -> dict[str, Array]:
        return run(program, arrays, sample.scalars, {}, how, probe, steps)

    values = sample.values if not case.shown else run_spec(program, arrays, sample.scalars, steps=known.steps)
    later = moved(PROBES[0], known.steps)
    start, ahead = values, later
    last_only = any(known.along[t.name].axis is None for t in small.outputs)  # its first steps are no part of these
    if first < known.steps and last_only:
        start, ahead = run_spec(program, arrays, sample.scalars, steps=first), moved(PROBES[0], first)
    others = [moved(p, first) for p in PROBES[1 : known.probes]]
    outputs = [t for t in small.outputs if t.dtype.is_float]
    found = []
    for one in zip(*map(sample.of_inputs, (values, later, start, ahead, *others)), strict=True):
        exact, last, begun, *probed = one
        out: dict[str, tuple[Profile, Profile]] = {}
        for t in outputs:
            along = known.along[t.name]
            early = _profile([m[t.name] for m in probed], begun[t.name], t.dtype, along, first)
            out[t.name] = early, _profile([last[t.name]], exact[t.name], t.dtype, along, known.steps)
        found.append(out)
    return found


def _profile(moved: Sequence[Array], values: Array, dtype: DType, along: Along, steps: int) -> Profile:
    def by_step(x: Array) -> Array:
        """Sums over the elements of each step, in the order of the steps; one sum without steps."""
        if along.axis is None:
            return np.asarray([x.sum()])
        rows = np.moveaxis(x, along.axis, 0).reshape(x.shape[along.axis], -1).sum(axis=1)
        return np.cumsum((rows[::-1] if along.reverse else rows)[:steps])

    known = kinds(values, dtype)
    usual = (known[0] == 0) & (known[1] == 0)
    errors = []
    with np.errstate(all="ignore"):
        for m in moved:
            same = (kinds(m, dtype) == known).all(axis=0)
            errors.append(by_step(np.where(same, np.where(usual, m - values, 0.0) ** 2, np.inf)))
        sizes = by_step(np.where(usual, values, 0.0) ** 2)
    return Profile(np.stack(errors), sizes, float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values))))


# -- from profiles to figures ---------------------------------------------------------------------


def _figures(
    known: _Known, wanted: Sequence[Tensor], runs: Sequence[Mapping[str, tuple[Profile, Profile]]]
) -> dict[str, _Figure]:
    out = {}
    for t in wanted:
        first, all_steps = (_together([r[t.name][n] for r in runs]) for n in range(2))
        share = margin(min(volume(x.shape) for x in known.few.spec.outputs if x.name == t.name))
        out[t.name] = _figure(first, all_steps, known, known.along[t.name], unit(t.dtype), share)
    return out


def _together(found: Sequence[Profile]) -> Profile:
    errors = np.sum([p.errors for p in found], axis=0)
    return Profile(errors, np.sum([p.values for p in found], axis=0), max(p.largest for p in found))


def _relative(squares: Array, sizes: Array) -> Array:
    with np.errstate(all="ignore"):
        made = np.sqrt(squares / np.where(sizes > 0.0, sizes, 1.0))
    return np.where((sizes > 0.0) | (squares == 0.0), made, np.inf)


def _figure(first: Profile, whole: Profile, known: _Known, along: Along, unit: float, share: float) -> _Figure:
    worst = _relative(first.errors.max(axis=0), first.values)
    one, later = _relative(first.errors[0], first.values), _relative(whole.errors[0], whole.values)
    if along.axis is None:
        grown = later[-1] / one[-1] if 0.0 < one[-1] < inf else 1.0
        points = [(min(_FIRST, known.steps), worst[-1]), (known.steps, worst[-1] * max(1.0, grown))]
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
        return _Figure(share * float(relative) + unit, unit)
    return _Figure(share * float(relative) + unit, unit, count, share * float(errors[max(0, count - 1)]) + unit)


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


def _shape(spec: Spec, name: str) -> tuple[int, ...]:
    return tuple(n for t in spec.inputs if t.name == name for n in t.shape if isinstance(n, int))
