"""Whether values of a program come so close to a singular point of a function that single elements decide.

The distances of the sampled elements from the point, and their errors under roundings, are recorded where the function
is evaluated.  What counts is the least distance among all elements of the full size:

* Where sampled distances have both signs, the point lies inside of their distribution.
* Else the lower quantiles of the distances, over those of a normal distribution, are continued in a straight line, at
  half as much again of their slope, to the quantile of which one element of a hundred times all is expected.  Of few
  distances, the mean and the spread are those of a normal distribution.

A distance whose relative error is a few roundings, as that of ``x - y`` for inputs, has no effect however small it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from math import prod
from typing import Any, Final

import numpy as np

from nautilus.check.bound.cancelling.sites import Known, comparisons, distance, singular
from nautilus.check.bound.cancelling.tails import median
from nautilus.check.bound.choices import Probe, Roundings
from nautilus.check.bound.errors import Rounding
from nautilus.check.bound.exactness import Common, unit
from nautilus.check.bound.probes import FEW
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Expr, Op, Reduce, walk
from nautilus.core.numerics import Array, round_to
from nautilus.core.records import dataclass
from nautilus.frontend.interp import Evaluator, run_spec
from nautilus.frontend.spec import Definition, Spec
from nautilus.frontend.values import Value, line_up, union

_PROBE: Final = Probe(0, False, 2.0)
_RARE: Final = 0.01  # expected elements that are too few to be stated
_ROUNDINGS: Final = 16.0  # errors of a precise value in units of roundoff
_SAME: Final = 1.2  # relative errors in units of others, which are as large
#: The root mean square of relative errors in units of their median, of which few elements may differ by chance.
_AS_ELSEWHERE: Final = 3.0
_NEAREST: Final = 1 / 32  # the share of elements that count as close to the point
_CLOSE: Final = 1 / 16  # the share from which their density is found
_STEP: Final = 1 / 4  # share of the typical difference of two values; a smaller step at their border is none
_STEEPER: Final = 1.5
_LOW: Final = 0.02  # the quantile from which the lower ones are continued
_MOST: Final = 1 << 16  # recorded elements of a site
#: The power up to which the squares of errors have a mean: of greater ones, an element as close as its error decides.
_INTEGRABLE: Final = 0.5

_Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Site:
    """The distances of sampled elements from a singular point.

    ``power``: of the growth of errors (``Singular``), None for a jump.  ``one_sided``: no value on the other side.
    ``unit``: the unit roundoff.  ``total``: all elements at full size.  ``quotient``: the distances are precise,
    and the errors are those of the dividend.
    """

    distances: Array
    errors: Array
    power: float | None
    one_sided: bool
    unit: float
    total: int
    quotient: bool = False

    @property
    def decides(self) -> bool:
        """Whether single elements may decide about a norm over all of them."""
        real = np.isfinite(self.distances) & np.isfinite(self.errors) & ((self.distances != 0.0) | (self.errors != 0.0))
        s, e = self.distances[real], self.errors[real]
        size = np.abs(s)
        if not size.size:
            return False
        near = np.argsort(size)[: max(8, int(_NEAREST * size.size))]
        if not reaches_zero(s, self.total) or self._is_precise(s, e, near):
            return False
        if self.power is None or self.one_sided or self.power > _INTEGRABLE:
            width = float(np.quantile(size, _CLOSE))
            expected = self.total * _CLOSE * float(np.sqrt(np.mean(e[near] ** 2))) / width if width > 0.0 else np.inf
            if expected >= _RARE:
                return True
        return self.power is not None and self.power >= 1.0

    def _is_precise(self, s: Array, e: Array, near: Array) -> bool:
        """Whether the relative error of a distance is as small close to the point as elsewhere."""
        relative = e / np.maximum(np.abs(s), np.finfo(np.float64).tiny)
        if self.quotient:  # a dividend that is small by chance has a large relative error as well
            return median(relative[near]) <= _AS_ELSEWHERE * median(relative)
        close, typical = (float(np.sqrt(np.mean(x**2))) for x in (relative[near], relative))
        if _is_crossed(s):  # of few elements, none may be so close that its error alone is large
            usual = median(relative[relative > 0.0]) if np.any(relative > 0.0) else 0.0
            return bool(np.all(relative[near] <= _ROUNDINGS * self.unit)) and close <= _AS_ELSEWHERE * usual
        return close <= _SAME * typical and typical <= _ROUNDINGS * self.unit


def reaches_zero(x: Array, total: int) -> bool:
    """Whether one of ``total`` elements with the distribution of ``x`` may be at 0, or beyond it."""
    if _is_crossed(x):
        return True
    from statistics import NormalDist  # few compilations need it

    size, normal = np.abs(x), NormalDist()
    least = 0.5 / size.size
    end = normal.inv_cdf(min(least, _RARE / max(1, total)))
    if size.size < FEW:  # of which the spread is known, and no quantile
        spread = float(np.std(size, ddof=1)) * (1.0 + 4.0 / size.size) if size.size > 1 else np.inf
        return float(size.mean()) + _STEEPER * end * spread <= 0.0
    low = max(_LOW, 4 * least)
    first, second = (float(np.quantile(size, q)) for q in (least, low))
    a, b = normal.inv_cdf(least), normal.inv_cdf(low)
    return first - _STEEPER * (second - first) / (b - a) * (a - end) <= 0.0


def _is_crossed(x: Array) -> bool:
    return bool(x.min() <= 0.0 <= x.max())


@dataclass
class _Recorded:
    """The findings of one run at the sites of a program, by definition, node and comparison in it.

    ``results``: the quotients, where the divisors are precise.
    """

    known: Known
    results: dict[_Key, list[Array]] = field(default_factory=dict)
    found: dict[_Key, list[Array]] = field(default_factory=dict)
    facts: dict[_Key, tuple[float | None, bool, float, frozenset[str]]] = field(default_factory=dict)

    def add(self, key: _Key, value: Value, e: Expr, power: float | None, one_sided: bool) -> None:
        self.found.setdefault(key, []).append(np.ravel(value.array))
        names = self.facts[key][3] if key in self.facts else frozenset[str]()
        self.facts[key] = power, one_sided, unit(e.dtype.compute), names | set(value.names)


class _Recorder(Evaluator):
    """An evaluation that records the distances from the singular points that it meets."""

    shares = False

    to: _Recorded

    def compute(self, e: Expr) -> Value:
        value = super().compute(e)
        if isinstance(e, Op | Reduce) and id(e) in self.places:
            for n, distance, node, power, one_sided in self.distances(e, value):
                self.to.add((self.d.name, self.places[id(e)], n), distance, node, power, one_sided)
        return value

    @cached_property
    def places(self) -> dict[int, int]:
        """The numbers of the sites of the definition, in the order of its nodes."""
        return {id(e): n for n, e in enumerate(e for e in walk(self.d.expr) if self.to.known.is_site(e))}

    def distances(
        self, e: Op | Reduce, value: Value
    ) -> Iterator[tuple[int, Value, Expr, float | None, bool]]:  # fmt: skip
        """The distances at the site ``e`` of this ``value``: their number, the node of their type, the power, the side.

        Before each of them stands the number of its comparison, because others may be no steps in one of two runs.
        """
        if isinstance(e, Reduce) or e.op == "select":
            cond = e.cond if isinstance(e, Reduce) else e.args[0]
            assert cond is not None
            for n, c in enumerate(comparisons(cond)):
                difference = self.both(np.subtract, c.args[0], c.args[1])
                if self.is_step(e, difference):
                    yield n, difference, c.args[0], None, False
        elif (at := singular(e)) is not None:
            from_it = distance(at, e)
            if self.to.known.is_quotient(e):
                results = self.to.results.setdefault((self.d.name, self.places[id(e)], 0), [])
                results.append(np.ravel(value.array))
                yield 0, self.grown(from_it, value), e, 1.0, False
            elif from_it in e.args:
                one_sided = at.one_sided and not self.to.known.is_positive(from_it)
                yield 0, self.value(from_it), e, at.power, one_sided
            else:
                yield 0, self.evaluated(from_it, e.args), e, at.power, at.one_sided

    def grown(self, e: Expr, like: Value) -> Value:
        """The value of ``e`` at all elements of ``like``."""
        return Value(np.broadcast_to(line_up(self.value(e), like.names), like.array.shape), like.names)

    def both(self, how: Any, a: Expr, b: Expr) -> Value:
        values = self.value(a), self.value(b)
        names = union(values, self.order)
        return Value(np.asarray(how(*(line_up(v, names) for v in values))), names)

    def evaluated(self, e: Expr, args: tuple[Expr, ...]) -> Value:
        """``e``, in which x, y, ... stand for ``args``."""
        values = [self.value(a) for a in args]
        names = union(values, self.order)
        arrays = [line_up(v, names) for v in values]
        return Value(np.asarray(evaluate(e, dict(zip("xyz", arrays, strict=False)))), names)

    def is_step(self, e: Op | Reduce, distance: Value) -> bool:
        """Whether the two values of ``e`` differ at the border; one of a reduction is that without the term."""
        if isinstance(e, Reduce) and e.op != "sum":
            return True
        pair = [self.value(e.body)] if isinstance(e, Reduce) else [self.value(x) for x in e.args[1:]]
        names = union([distance, *pair], self.order)
        arrays = [line_up(v, names) for v in pair]
        size = np.abs(arrays[0] - arrays[1] if len(arrays) == 2 else arrays[0])
        far, size = np.broadcast_arrays(np.abs(line_up(distance, names)), size)
        far, size = np.ravel(far), np.where(np.isfinite(np.ravel(size)), np.ravel(size), 0.0)
        near = np.argsort(np.where(np.isnan(far), np.inf, far))[: max(1, int(_NEAREST * far.size))]
        return bool(np.mean(size[near]) > _STEP * np.mean(size)) if size.size else False


class _Moved(_Recorder, Rounding):
    """A recorder of an evaluation with roundings."""


@dataclass
class Sites:
    """The sites of a program that is evaluated on several inputs and at several choices of elements.

    ``sizes``: of its axes at full size, by definition.
    """

    sizes: Mapping[str, Mapping[str, int]]
    distances: dict[_Key, list[Array]] = field(default_factory=dict)
    errors: dict[_Key, list[Array]] = field(default_factory=dict)
    facts: dict[_Key, tuple[float | None, bool, float, frozenset[str]]] = field(default_factory=dict)
    quotients: set[_Key] = field(default_factory=set)

    def add(self, program: Spec, how: Roundings, arrays: Mapping[str, Any], scalars: Mapping[str, Any]) -> None:
        """Record one set of inputs of ``program``, which is the program at some elements."""
        exact, moved = (_run(program, how, arrays, scalars, p) for p in (None, _PROBE))
        self.facts |= exact.facts
        for key, parts in exact.found.items():
            s = np.concatenate(parts)
            if key not in moved.found:  # two values that differ at a border only by their roundings
                continue
            with np.errstate(all="ignore"):
                off = np.abs(np.concatenate(moved.found[key]) - s)
                if key in exact.results:
                    z, other = (np.concatenate(x.results[key]) for x in (exact, moved))
                    off = np.abs(other - z) * np.abs(s) / np.maximum(np.abs(z), median(np.abs(z)))
                    self.quotients.add(key)
            kept = slice(None, None, max(1, s.size // _MOST))
            self.distances.setdefault(key, []).append(s[kept])
            self.errors.setdefault(key, []).append(off[kept])

    @property
    def few(self) -> bool:
        """Whether there is a site of few recorded elements."""
        return any(sum(map(len, parts)) < FEW for parts in self.distances.values())

    @property
    def deciding(self) -> int:
        """The elements of the smallest of the sites at which single elements decide; 0 if they decide at none."""
        return min((s.total for s in self.all() if s.decides), default=0)

    def recorded(self, total: int) -> int:
        """The fewest distances that were recorded at a site of ``total`` elements."""
        return min((s.distances.size for s in self.all() if s.total == total), default=0)

    def all(self) -> Iterator[Site]:
        """Every site with what all runs recorded there."""
        for key, parts in self.distances.items():
            power, one_sided, unit, names = self.facts[key]
            total = prod(self.sizes[key[0]].get(n, 1) for n in names)
            errors = np.concatenate(self.errors[key])
            yield Site(np.concatenate(parts), errors, power, one_sided, unit, total, key in self.quotients)


def _run(
    program: Spec, how: Roundings, arrays: Mapping[str, Any], scalars: Mapping[str, Any], probe: Probe | None
) -> _Recorded:
    """What a run meets at its sites, without roundings where ``probe`` is None."""
    to, common = _Recorded(Known(program)), Common()

    def evaluate(d: Definition, buffers: Mapping[str, Array], params: Mapping[str, Any]) -> tuple[Array, Array]:
        if probe is None:
            exact = _Recorder(d, buffers, params)
            exact.to = to
            made = exact.run()
            return made, round_to(made, d.stored) if d.is_output else made
        moved = _Moved(d, buffers, params, how, probe, common)
        moved.to = to
        made = moved.run()
        return made, moved.stored(made) if d.is_output and d.stored.is_float else made

    with np.errstate(all="ignore"):
        run_spec(program, arrays, scalars, None, evaluate)
    return to


def axis_sizes(spec: Spec, reductions: Sequence[tuple[str, Reduce]]) -> dict[str, dict[str, int]]:
    """The sizes of the axes of all definitions and of their ``reductions``."""
    found = {d.name: {a.name: a.extent for a in d.axes if isinstance(a.extent, int)} for d in spec.definitions}
    for name, e in reductions:
        found[name] |= {a.name: a.extent for a in e.axes if isinstance(a.extent, int)}
    return found
