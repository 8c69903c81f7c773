"""A program at some elements of its outputs, small enough to be evaluated many times, and the figures there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import hypot, inf, isfinite, isinf, isnan, log, nan, sqrt
from typing import Final

import numpy as np

from nautilus.check.bound.bound import Bound
from nautilus.check.bound.cancelling import left_out, tails
from nautilus.check.bound.cancelling.positions import marked_orders
from nautilus.check.bound.cancelling.reach import Sites, axis_sizes
from nautilus.check.bound.cancelling.sites import may_cancel
from nautilus.check.bound.choices import roundings
from nautilus.check.bound.exactness import computed, is_rounded
from nautilus.check.bound.operands import in_lanes, without_matrices
from nautilus.check.bound.probes import FEW, PROBES, Effect, errors, even, largest, margin
from nautilus.check.bound.store import last_rounding, last_unit
from nautilus.check.bound.sums.admitted import Lengths, averages, chains, lengths, names, without
from nautilus.check.bound.sums.gathered import shortened
from nautilus.check.bound.sums.short_sums import at_full_size
from nautilus.check.bound.sums.shorter import (
    ELEMENTS,
    FAR,
    TERMS,
    at_elements,
    longest,
    reductions,
    shorter_sums,
    volume,
    work,
)
from nautilus.check.compare import norm
from nautilus.check.inputs import generate
from nautilus.core.expr.nodes import Load, Op, walk
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.core.records.memo import by_identity
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.frontend.fixed import at_sizes
from nautilus.frontend.interp import run_spec
from nautilus.frontend.promises import integer_ranges
from nautilus.frontend.restrict import sampled
from nautilus.frontend.spec import Spec, Tensor

_BUDGET: Final = 1 << 18  # points of the sampled evaluation
_ROWS: Final = 16  # sets of inputs for rows without conditions, which all have the same terms
_SHORT_ROW: Final = 64  # least number of terms of a row without conditions
_SHORTER: Final = 4  # the part of the budget with which shorter sums are compared
_AMPLIFIED: Final = 0.05  # the error from which on a chain of shortened sums is evaluated with more terms
#: The powers of the number of terms above which values count as falling with its root, and with it.
_GROWS: Final = 0.2
_FALLS: Final = 0.85
_FEW_TERMS: Final = 8  # terms of an element of which a part says nothing about the size of all
RUNTIME: Final = 1024  # the size of a dim that is known only at launch and has no smaller bound
_LEAST: Final = 8  # elements of an output, on all inputs together
_RARE: Final = 3  # sets of inputs where few elements are rounded another way, or one of each row ties
INPUTS: Final = 6  # sets of inputs for an output of few elements
#: The share of inputs on which an output of so few elements is so small by chance that its error, which does not fall
#: with it, is above the figure: six standard deviations of the error and one of a value, both of normal distributions.
NUMBERS: Final[Mapping[int, float]] = {1: 1 / 8, 2: 1 / 16, 3: 1 / 64}
#: Where terms may cancel: more elements, for which sums that cancel belong to rows, and to columns.
_MORE: Final = (((1024, 4), (256, 4), (64, 4)), ((4, 1024), (4, 256), (4, 64)))
_MORE_ELEMENTS: Final = 4096
_MORE_BUDGET: Final = 1 << 20
_MORE_INPUTS: Final = 32
_EVEN: Final = 4.0  # fewer elements than that, of equal errors, would have the norm of the sampled errors
_MORE_ROWS: Final = (64, 32, 16)  # rows and columns where errors are uneven; fewer for sums over pairs of all rows
_SITE_INPUTS: Final = 4  # where few elements of a value that may cancel are found on one


@dataclass(frozen=True)
class _Task:
    """A program at sizes that are numbers, of which the errors of some outputs are wanted.

    ``chains``: the additions of each sum.  ``sizes``: the terms of which it has the size.  ``most``: the terms along an
    axis, at most, that are evaluated.  ``inputs``: the sets of inputs, at least.
    """

    program: Spec
    precision: str
    schedule: Schedule
    chains: Lengths
    sizes: Lengths
    most: int | None = None
    inputs: int = 1

    def alone(self, names: Collection[str]) -> _Task:
        """The task of the outputs ``names`` alone."""
        program = _alone(self.program)(frozenset(names))
        return self if program is self.program else replace(self, program=program)

    def cut(
        self, budget: int, elements: Sequence[tuple[int, int]] = ELEMENTS
    ) -> tuple[Spec, Mapping[str, Array]]:  # fmt: skip
        """The program at sampled elements (:func:`~.sums.shorter.at_elements`)."""
        return at_elements(self.program, budget, elements, self.most)

    @property
    def longest(self) -> int:
        """The number of indices of the longest axis of a reduction, of which all would be evaluated."""
        terms = longest(self.program)
        return terms if self.most is None else min(self.most, terms)


@by_identity(8)  # what is known of a program at sampled elements is found by its identity
def _alone(program: Spec) -> Callable[[frozenset[str]], Spec]:
    """``program`` with some of its outputs; itself with all."""

    @cache
    def alone(names: frozenset[str]) -> Spec:
        outputs = tuple(t for t in program.outputs if t.name in names)
        return program if len(outputs) == len(program.outputs) else replace(program, outputs=outputs)

    return alone


def figures(program: Spec, precision: str, wanted: Sequence[Tensor], schedule: Schedule) -> dict[str, Bound]:
    """Bounds of the outputs ``wanted`` on standard normal inputs, from their errors at sampled elements.

    None of them needs a recurrence (:mod:`nautilus.check.bound.recurrences.recurrent`).  Where sums are shortened, a
    condition may admit none of their terms: the bound is then that of rows without it, if that is larger.
    """
    fixed, _ = marked_orders(at_sizes(program, program.samples(RUNTIME)))
    task = _Task(fixed, precision, schedule, chains(fixed), lengths(fixed))
    out = _bounds(task, wanted)
    for every in (False, True):
        empty = [t for t in wanted if isnan(out[t.name].relative)]
        dense = without(fixed, every)
        if dense is not fixed and (empty if every else _is_shortened(task)):
            own = lengths(dense)  # those of sums in which an index is chosen too
            means = averages(fixed)
            most, counts = max([_SHORT_ROW, *means.values()]), {**own, **task.chains}
            rows = replace(task, program=dense, chains=counts, sizes={**own, **means}, most=most, inputs=_ROWS)
            more = _bounds(rows.alone([t.name for t in (empty if every else wanted)]), empty if every else wanted)
            out |= {n: _weaker(out[n], b) for n, b in more.items()}
    none = {t.name: replace(out[t.name], relative=last_unit(program, t)) for t in wanted if isnan(out[t.name].relative)}
    return out | none


def _is_shortened(task: _Task) -> bool:
    return longest(task.cut(_BUDGET)[0]) < task.longest


def _weaker(a: Bound, b: Bound) -> Bound:
    """What ``a`` and ``b`` both imply; ``a`` alone where ``b`` says nothing."""
    if isnan(a.relative) or not isfinite(b.relative):
        return a if not isfinite(b.relative) else b
    left, rare = max(a.left_out, b.left_out), max(a.rare_inputs, b.rare_inputs)
    return replace(a, relative=max(a.relative, b.relative), left_out=left, rare_inputs=rare)


def _bounds(task: _Task, wanted: Sequence[Tensor]) -> dict[str, Bound]:
    """Bounds of ``task``; NaN where all sampled elements are 0."""
    found = _figures(task, wanted)
    out = {n: Bound(x.relative, rare_inputs=1.0 if isinf(x.relative) else 0.0) for n, x in found.items()}
    if may_cancel(task.program):
        return out | _of_cancelling(task, wanted)
    if growing := [t for t in wanted if found[t.name].grows and not _jumps(task) and _is_short(task, t)]:
        out |= _of_cancelling(task, growing, has_sites=False)
    whole = [t for t in wanted if isfinite(out[t.name].relative) and not out[t.name].left_out]
    small = [t for t in whole if _may_be_zero(task, t)]
    return out | {t.name: replace(out[t.name], rare_inputs=NUMBERS[volume(t.shape)]) for t in small}


def _jumps(task: _Task) -> bool:
    """Whether numbers that are rounded another way have errors that are larger than all others."""
    ties = roundings(task.program, task.precision).ties
    read = {e.buffer for d in task.program.definitions for e in walk(d.expr) if isinstance(e, Load)}
    short = any(t.dtype.bits <= 16 and t.name in read for t in task.program.outputs)
    return bool(ties) or _has_ties(task.program) or short


def _is_short(task: _Task, t: Tensor) -> bool:
    """Whether many elements of ``t`` take no longer than the few of other outputs."""
    return work(task.alone([t.name]).cut(_BUDGET, _chosen(t)[0])[0]) <= _BUDGET


def _chosen(t: Tensor) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The numbers of elements of ``t`` at which terms may cancel."""
    return _MORE if len(t.shape) > 1 else (((64, 64), (32, 32), (16, 16)),)


def _may_be_zero(task: _Task, t: Tensor) -> bool:
    """Whether ``t`` has so few numbers that all may be close to 0, as the sum of terms of both signs is."""
    if volume(t.shape) not in NUMBERS:
        return False
    whole, rows = task.alone([t.name]).cut(_BUDGET // INPUTS)
    cut, ranges = shortened(whole, integer_ranges(task.program), rows)
    given = (generate(cut, "random", seed, ranges=ranges) for seed in range(INPUTS))
    values = [run_spec(wide(cut), {**x.arrays, **rows}, x.scalars)[t.name] for x in given]
    sizes = [norm(x) for x in values]
    return min(sizes) < hypot(*sizes) / sqrt(INPUTS) / 2 or any(np.any(values[0] * x < 0) for x in values)


def _of_cancelling(task: _Task, wanted: Sequence[Tensor], has_sites: bool = True) -> dict[str, Bound]:
    """The bounds of those outputs of ``wanted`` whose largest errors are without a bound.

    ``has_sites``: the program may meet a singular point; else the distribution of errors alone decides.
    """
    out = {}
    for t in wanted:
        alone = task.alone([t.name])
        chosen = _chosen(t)
        sites = Sites(axis_sizes(alone.program, list(reductions(alone.program))))
        size = volume(t.shape)
        found = [_sample(alone, t.name, x, sites, size) for x in chosen]
        groups = sites.deciding
        if 0 < groups < size:  # all elements of a row have the divisor of the row
            found = [_with_most(groups, [_of_groups(alone, t.name, x, groups) for x in chosen])]
        grows = not groups and any(s.grows for s in found) and not _jumps(alone)
        if not (has_sites or grows):
            continue
        bound = left_out.bound(found, last_unit(task.program, t), groups > 0 or grows)
        if bound is not None:
            out[t.name] = bound
    return out


def _of_groups(
    alone: _Task, name: str, elements: Sequence[tuple[int, int]], groups: int
) -> tuple[Sites, left_out.Sample]:
    """The errors of ``name``, whose elements cancel in this many ``groups``, and the sites of this sample alone."""
    sites = Sites(axis_sizes(alone.program, list(reductions(alone.program))))
    return sites, _sample(alone, name, elements, sites, groups)


def _with_most(groups: int, found: Sequence[tuple[Sites, left_out.Sample]]) -> left_out.Sample:
    """The sample that has the most of all ``groups``: a few of them say little about the largest errors."""
    return max(found, key=lambda x: x[0].recorded(groups))[1]


def _sample(alone: _Task, name: str, elements: Sequence[tuple[int, int]], sites: Sites, size: int) -> left_out.Sample:
    """The errors of ``name``, the only output, at more elements, whose distances are added to ``sites``.

    ``size``: how many elements it has, or groups of elements that cancel together.
    """
    count = max(1, min(_MORE_INPUTS, _MORE_ELEMENTS // max(1, size)))
    whole, rows = alone.cut(_MORE_BUDGET // count, elements)
    count = min(count, max(_SITE_INPUTS, FAR * _MORE_BUDGET // max(1, work(whole))))  # windows of windows are long
    cut, ranges = shortened(whole, integer_ranges(alone.program), rows)
    how = roundings(cut, alone.precision, alone.chains, alone.schedule)
    how = replace(how, elements=_elements(alone.program))
    values, found = [], []
    for seed in range(count):
        given = generate(cut, "random", seed, ranges=ranges)
        arrays = {**given.arrays, **rows}
        exact = run_spec(wide(cut), arrays, given.scalars)
        values.append(exact[name])
        found.append([e[name] for e in errors(wide(cut), arrays, given.scalars, {}, how, exact)])
        sites.add(wide(cut), how, arrays, given.scalars)
    for seed in range(count, _SITE_INPUTS if sites.few and sites.deciding else 0):
        given = generate(cut, "random", seed, ranges=ranges)
        sites.add(wide(cut), how, {**given.arrays, **rows}, given.scalars)
    return left_out.Sample(list(zip(*found, strict=True)), values, size)


def _figures(task: _Task, wanted: Sequence[Tensor]) -> dict[str, _Found]:
    """Relative errors of the outputs ``wanted``, with the largest ones; NaN where all sampled elements are 0.

    Outputs of different shapes may read a tensor at different indices, which keeps all of it: each is then alone.
    """
    few = [t for t in wanted if volume(t.shape) < FEW]
    if 0 < len(few) < len(wanted):
        parts = (few, [t for t in wanted if t not in few])
        return {n: x for part in parts for n, x in _figures(task.alone([t.name for t in part]), part).items()}
    count = max(INPUTS if few else 1, task.inputs)
    found = first = _within(task, wanted, count, _BUDGET)
    if any(_AMPLIFIED < x.relative < inf for x in first.values()) and _is_shortened(task):
        found = _within(task, wanted, count, _SHORTER * _BUDGET)
    out = dict(found)
    for t in wanted:
        mine = found[t.name]
        if min(first[t.name].equal, mine.equal) < _EVEN:
            more, known = _of_more(task, t)
            out[t.name] = replace(mine, relative=more if known else max(mine.relative, mine.growth * more))
    return out


@dataclass(frozen=True, slots=True)
class _Found:
    """The error of an output, how often it is that of the evaluated terms, and what else is known of the sample."""

    relative: float
    growth: float
    equal: float
    grows: bool


def _within(task: _Task, wanted: Sequence[Tensor], count: int, budget: int) -> dict[str, _Found]:
    """The errors on ``count`` inputs that are evaluated within ``budget``."""
    whole, rows = task.cut(budget // count)
    if len(task.program.outputs) > 1 and work(whole) > FAR * budget // count:
        alone = [(t, task.alone([t.name])) for t in wanted]
        cuts = [([t], *one.cut(budget // count)) for t, one in alone]
        if sum(work(cut) for _, cut, _ in cuts) < work(whole):
            found = (_extrapolated(task, *c, count, budget) for c in cuts)
            return {name: x for one in found for name, x in one.items()}
    return _extrapolated(task, wanted, whole, rows, count, budget)


def _extrapolated(
    task: _Task, wanted: Sequence[Tensor], whole: Spec, rows: Mapping[str, Array], count: int, budget: int
) -> dict[str, _Found]:
    """The errors on ``count`` inputs of ``whole``, ``task`` at sampled elements, maybe with shorter sums.

    A result that cancels, such as the excess of a kurtosis over 3, is as small as the deviation of a mean from its
    expectation, which falls with the number of terms.
    """
    found = _sampled(task, wanted, whole, rows, count)
    out = {n: _Found(x.relative, 1.0, x.equal, x.grows) for n, x in found.items()}
    full, kept = task.longest, longest(whole)
    if kept >= full:
        return out
    fewer, others = task.cut(budget // count // _SHORTER)
    if longest(fewer) >= kept:
        fewer, others = replace(task, most=max(TERMS // 2, kept // _SHORTER)).cut(budget // count // _SHORTER)
    if 2 * (least := longest(fewer)) > kept or _is_sparse(task.program, kept / full):
        return out
    before = _sampled(task, wanted, fewer, others, count)
    for t in wanted:
        growth = (full / kept) ** _power(found[t.name], before[t.name], kept / least)
        out[t.name] = replace(out[t.name], relative=growth * found[t.name].relative, growth=growth)
    return out


def _is_sparse(program: Spec, part: float) -> bool:
    """Whether conditions leave few terms of an element of a sum of floats, where a ``part`` of all is evaluated."""
    whole, average = lengths(program), averages(program)
    floats = {(name, names(e)) for name, e in reductions(program) if e.dtype.is_float}
    return any(average[x] < whole[x] and part * average[x] < _FEW_TERMS for x in floats)


def _power(now: _Sampled, then: _Sampled, terms: float) -> float:
    """The power of the number of terms with which the relative error of an output grows as its values fall.

    It has the errors ``then``, and ``now`` with ``terms`` times as many terms.  Sums of random signs have a half, and
    differences of distributions, which are quadratic in those of their counts, have 1.
    """
    if not (0.0 < now.relative < inf and 0.0 < then.relative < inf and 0.0 < now.size < then.size):
        return 0.0
    power = min(log(then.size / now.size), log(now.relative / then.relative)) / log(terms)
    return 1.0 if power > _FALLS else 0.5 if power > _GROWS else 0.0


def _of_more(task: _Task, t: Tensor) -> tuple[float, bool]:
    """The relative error of ``t`` at more elements, or on more inputs, where a few elements have most of the error.

    In a softmax of large logits, the rows whose two largest logits are close have all of it, and a few rows may have
    none of these.  Where the output itself has few rows, they may all be on one input: the largest error counts.
    Where all terms are evaluated, and no few elements have most of this error, the error of fewer elements says less.
    """
    alone = task.alone([t.name])
    count = max(1, min(_MORE_INPUTS, _MORE_ROWS[0] ** 2 // max(1, volume(t.shape))))
    budget = max(_BUDGET // count, _BUDGET // 2)  # terms that are left out may be those of the few elements
    for n in _MORE_ROWS:
        cut = shorter_sums(alone.program, sampled(alone.program, 0, n, n), budget, alone.most)
        if work(cut.spec) <= FAR * _BUDGET:
            break
    count = max(1, min(count, _SHORTER * _BUDGET // max(1, work(cut.spec))))
    found = _sampled(alone, [t], cut.spec, cut.rows, count)[t.name]
    return found.worst, found.equal >= _EVEN and longest(cut.spec) >= alone.longest


@dataclass(frozen=True)
class _Sampled:
    """The root mean square of the values, and the error that is allowed relative to them.

    ``worst``: the largest allowed error on one of the inputs.  ``equal``: how many elements, all with the same error,
    have the norm of the errors and that of their squares.  ``grows``: the largest errors may be without a bound,
    or are not known.
    """

    size: float
    relative: float
    worst: float
    equal: float
    grows: bool = False


def _sampled(
    task: _Task, wanted: Sequence[Tensor], whole: Spec, rows: Mapping[str, Array], count: int
) -> dict[str, _Sampled]:
    """The errors on ``count`` inputs of ``whole``, which is ``fixed`` at sampled elements, with the inputs ``rows``."""
    elements = {t.name: volume(t.shape) for t in task.program.outputs}
    cut, ranges = shortened(whole, integer_ranges(task.program), rows)
    sizes = [min(elements[t.name], volume(t.shape)) for t in cut.outputs if t.name in elements]
    rare = longest(cut) < task.longest and _has_ties(cut)
    count = max(count, -(-min(_LEAST, *elements.values()) // max(1, min(sizes))))
    first = generate(cut, "random", 0, ranges=ranges)
    cut, resized = at_full_size(cut, task.sizes, {**first.arrays, **rows}, first.scalars)
    how = roundings(cut, task.precision, task.chains, task.schedule)
    lanes, shared = without_matrices(task.program), in_lanes(task.program)  # not of ``cut``, which gathers its rows
    how = replace(how, resized=resized, lanes=lanes, in_lanes=shared, elements=_elements(task.program))
    rare = rare or bool(how.ties.orders)
    count = max(count, _RARE if rare else 1)
    found: dict[str, list[tuple[Array, Effect, Effect]]] = {t.name: [] for t in wanted}  # for each input
    for seed in range(count):
        given = generate(cut, "random", seed, ranges=ranges) if seed else first
        arrays = {**given.arrays, **rows}
        values = run_spec(wide(cut), arrays, given.scalars)
        moved = list(errors(wide(cut), arrays, given.scalars, {}, how, values))
        apart, alike = (
            largest(x for x, p in zip(moved, PROBES, strict=True) if p.coherent == c) for c in (False, True)
        )
        for t in wanted:
            found[t.name].append((values[t.name], apart[t.name], alike[t.name]))
    stores = {t.name: last_rounding(task.program, t, [x for x, _, _ in found[t.name]]) for t in wanted}
    made = {t.name: _judged(elements[t.name], found[t.name], stores[t.name]) for t in wanted}
    return {n: replace(x, relative=x.worst) if rare else x for n, x in made.items()}


def _elements(program: Spec) -> dict[str, int]:
    return {d.name: volume(d.shape) for d in program.definitions}


def _has_ties(program: Spec) -> bool:
    """Whether a cast of the spec rounds computed numbers, of which those close to a tie may go either way."""
    made = computed(program)
    casts = (e for d in program.definitions for e in walk(d.expr) if isinstance(e, Op) and e.op == "cast")
    return any(e.dtype.is_float and e.dtype.bits <= 16 and is_rounded(e.args[0], made) for e in casts)


def _judged(elements: int, found: Sequence[tuple[Array, Effect, Effect]], store: float) -> _Sampled:
    """The figures of an output of this many ``elements`` from its values, their errors that are independent and those
    that are alike on each input, and from the relative error ``store`` of its last rounding.

    Only the sum of independent errors of few elements may exceed its expectation.
    """
    sizes = [norm(x) for x, _, _ in found]
    size = hypot(*sizes)
    each = np.stack([np.maximum(a.each, b.each) for _, a, b in found])
    known = np.stack([x for x, _, _ in found])
    equal, grows = even(each), each.size < tails.LEAST <= elements or tails.grows(each, known, tails.SUSPECT)
    factor = margin(min(elements, sum(x.size for x, _, _ in found)))
    norms = [max(factor * a.norm, b.norm) for _, a, b in found]
    error = max(factor * hypot(*(a.norm for _, a, _ in found)), hypot(*(b.norm for _, _, b in found)))
    allowed = [_ratio(*x) + store for x in ((error, size), *zip(norms, sizes, strict=True))]
    root = sqrt(max(1.0, sum(x.size for x, _, _ in found)))
    return _Sampled(size / root, allowed[0], max((x for x in allowed if not isnan(x)), default=nan), equal, grows)


def _ratio(error: float, size: float) -> float:
    """``error`` relative to ``size``, which is 0 where the terms of all sums cancel; NaN where there are none."""
    if size > 0.0:
        return error / size
    return inf if error > 0.0 else nan


def wide(program: Spec) -> Spec:
    """``program`` with float inputs taken as they are, because rounding what is rounded takes time."""
    inputs = tuple(replace(t, dtype=DType.F64) if t.dtype.is_float else t for t in program.inputs)
    return replace(program, inputs=inputs)
