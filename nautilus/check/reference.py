"""The reference of a result on given inputs, and how far the result may be from it.

The result is compared with the Spec in float64.  The allowed error is the larger one of the stated bound and of the
effect of the roundings on these very inputs (:mod:`nautilus.check.bound`), so results that cancel are measured against
their terms.  Two interpreters over the reals may differ by the effect of roundings to f64, and to f32 where a tensor
of that type is read again, which "or better" leaves open.

To find that effect takes ten and more evaluations of the Spec, so it is found when it is first needed; a result
within the stated bound needs none.

Inputs are outside the stated range where an intermediate result leaves the range of its type, or where roundings decide
between a finite result and another one.

The result of a recurrence is compared with single steps from its own states (:meth:`Reference.against`) in two cases:
the stated bound is that of a step from the result of the step before, or the roundings have a larger effect on these
inputs than a useful bound allows.  Where the bound is that of the first steps, only these are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from math import isfinite, sqrt

import numpy as np

from nautilus.check import compare
from nautilus.check.bound.bound import Bound
from nautilus.check.bound.cancelling.each import of_each
from nautilus.check.bound.choices import Probe, roundings
from nautilus.check.bound.overflow import overflows
from nautilus.check.bound.probes import (
    DECIDING,
    MORE_PROBES,
    PROBES,
    Effect,
    errors,
    even,
    is_uneven,
    largest,
    margin,
    moves,
    probes,
)
from nautilus.check.bound.program import in_chunks, rounded
from nautilus.check.bound.recurrences.combined import combined, may_be_combined
from nautilus.check.bound.recurrences.growth import LIMIT
from nautilus.check.bound.recurrences.recurrent import following_outputs
from nautilus.check.bound.recurrences.stepwise import stepwise
from nautilus.check.bound.sampling import wide
from nautilus.check.bound.store import last_unit
from nautilus.check.compare import floor, norm
from nautilus.check.inputs import MOST_POINTS, InputSet, points
from nautilus.core.numerics import Array, eval_op
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.frontend.interp import run_spec
from nautilus.frontend.needed import needed
from nautilus.frontend.spec import Spec, Tensor

#: Errors of either sign, of which one moves a number that lies at a tie of a rounding across it, and common ones.
_REALS = (*(Probe(0, False, size, reals=True) for size in (8.0, -8.0)), Probe(1, True, 8.0, reals=True))

#: Errors of at most this share of an output are roundings: those of the coarsest type, f4e2m1, are smaller.
_LARGE = 0.25


@dataclass(frozen=True, slots=True)
class Compiled:
    """A Spec with the options of its compilation."""

    spec: Spec
    precision: str = "fast"
    schedule: Schedule | None = None

    @property
    def program(self) -> Spec:
        """The Spec with all roundings of the compilation, whose inputs are taken as they are."""
        made = rounded(self.spec, self.precision, self.schedule)
        return wide(in_chunks(made, self.spec, self.precision, self.schedule))


@dataclass(frozen=True, slots=True)
class Target:
    """``values``: the Spec in float64, unrounded; ``rounded``: in the output's type (f32 and f64: as they are);
    ``allowed``: absolute norm of the error; ``each``: where the largest errors are without a bound, instead the allowed
    error of each element, inf for any value."""

    values: Array
    rounded: Array
    allowed: float
    each: Array | None = None

    @property
    def truth(self) -> Array:
        """The values that errors are measured from; in the output's type where they are not finite in it."""
        return np.where(np.isfinite(self.rounded), self.values, self.rounded)

    def relative(self, got: Array, bound: Bound) -> tuple[float, float]:
        """The measured and the allowed error of ``got``, the part of a result for which ``bound`` holds."""
        truth = bound.cut(self.truth)
        if self.each is not None:
            found = compare.differences(got, truth), self.each
            measured, allowed = (compare.without_largest(e, truth, bound.left_out) for e in found)
            return measured, allowed
        terms = self.allowed / bound.relative if bound.relative else 0.0
        size = max(compare.norm(truth), terms)  # where terms cancel, it is larger than the result
        return compare.relative(got, truth, size), self.allowed / size if size > 0.0 else self.allowed


@dataclass(frozen=True)
class Effects:
    """The reference on one input set for a result that is not within the stated bound.

    ``targets``: by output; those in ``single`` are compared with single steps from their own states.
    ``in_range``: the inputs are within the stated range.
    """

    targets: Mapping[str, Target]
    in_range: bool
    made: Compiled
    given: InputSet
    bounds: Mapping[str, Bound]
    single: frozenset[str] = frozenset()
    known: list[tuple[Mapping[str, Array], Mapping[str, Target]]] = field(default_factory=list)

    def against(self, name: str, got: Mapping[str, Array]) -> Target:
        """What output ``name`` of the result ``got`` is compared with."""
        if name not in self.single:
            return self.targets[name]
        for seen, targets in self.known:
            if seen is got:
                return targets[name]
        made = _single_steps(self.made, self.given, self.bounds, got)
        self.known.append((got, made))
        return made[name]


class OutOfRange(Exception):
    """The inputs are outside the stated range, for the reason that is the argument."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What a result on one input set is compared with.

    ``quick``: by output, with the error that the stated bound alone allows; ``effects``: finds the rest once.
    ``distances``: finds how far two interpreters over the reals may be apart.
    ``undecided``: finds the elements of integers and bools about which the roundings decide on these inputs.
    ``outside``: finds the tensors of which the Spec needs elements that are none, so that its result has no value.
    """

    quick: Mapping[str, Target]
    bounds: Mapping[str, Bound]
    effects: Callable[[], Effects]
    distances: Callable[[], Mapping[str, float]]
    undecided: Callable[[], Mapping[str, Array]]
    outside: Callable[[], frozenset[str]]

    def target(self, name: str, got: Mapping[str, Array]) -> Target:
        """What output ``name`` of the result ``got`` is compared with.

        Raises OutOfRange where the result is not within the stated bound, and these inputs are outside its range.
        """
        target, cut = self.quick[name], self.bounds[name].cut
        mine, want = cut(got[name]), cut(target.rounded)
        if mine.dtype.kind != "f":
            fits = np.array_equal(mine, want)
        else:
            fits = compare.within(mine, cut(target.truth), target.allowed) is None
        if fits:
            return target
        self.needs_range()
        return self.against(name, got)

    def needs_range(self) -> None:
        """Raise OutOfRange where nothing is stated about a result on these inputs."""
        if outside := self.outside():
            raise OutOfRange(f"the spec reads elements of {', '.join(sorted(outside))} that are outside of it")
        if not self.in_range:
            raise OutOfRange("an intermediate result leaves the range of its type")

    @property
    def allowed(self) -> dict[str, float]:
        """The allowed error of each output."""
        return {n: t.allowed for n, t in self.effects().targets.items()}

    @property
    def values(self) -> dict[str, Array]:
        """The Spec in float64, unrounded."""
        return {n: t.values for n, t in self.quick.items()}

    @property
    def rounded(self) -> dict[str, Array]:
        """The Spec in float64, in the types of the outputs."""
        return {n: t.rounded for n, t in self.quick.items()}

    @property
    def truth(self) -> dict[str, Array]:
        """The Spec in float64, from which errors are measured; integers in the types of the outputs.

        It is not rounded, because a result close to a tie may be rounded either way.
        """
        return {n: t.truth if t.rounded.dtype.kind == "f" else t.rounded for n, t in self.quick.items()}

    @property
    def noise(self) -> Mapping[str, float]:
        """How far two interpreters over the reals may be apart."""
        return self.distances()

    @property
    def in_range(self) -> bool:
        """Whether the inputs are within the stated range."""
        return self.effects().in_range

    @property
    def single(self) -> frozenset[str]:
        """The outputs that are compared with single steps from their own states."""
        return self.effects().single

    def against(self, name: str, got: Mapping[str, Array]) -> Target:
        """What output ``name`` of the result ``got`` is compared with."""
        return self.effects().against(name, got)


def reference(made: Compiled, given: InputSet, bounds: Mapping[str, Bound]) -> Reference:
    """Evaluate the Spec of ``made`` on ``given``, and say what is allowed."""
    values = run_spec(made.spec, given.arrays, given.scalars, given.sizes)
    quick = {}
    for t in made.spec.outputs:
        target, bound = _target(made.spec, t, values[t.name], bounds[t.name], None), bounds[t.name]
        useful = not bound.left_out and _is_useful(target, bound)
        quick[t.name] = target if useful else replace(target, allowed=0.0)
    return Reference(
        quick,
        bounds,
        cache(lambda: _effects_of(made, given, bounds, values)),
        cache(lambda: _noise(made, given, bounds)),
        cache(lambda: _undecided(made, given, values)),
        cache(lambda: _outside(made.spec, given)),
    )


def _undecided(made: Compiled, given: InputSet, values: Mapping[str, Array]) -> Mapping[str, Array]:
    how = roundings(made.program, made.precision)
    return moves(made.program, given.arrays, given.scalars, given.sizes, how, values, DECIDING)


def _outside(spec: Spec, given: InputSet) -> frozenset[str]:
    if points(spec, given.sizes) > MOST_POINTS:
        return frozenset()
    with np.errstate(all="ignore"):
        return needed(spec, given.arrays, {**given.scalars, **given.sizes}).outside


def _effects_of(
    made: Compiled, given: InputSet, bounds: Mapping[str, Bound], values: Mapping[str, Array]
) -> Effects:  # fmt: skip
    spec = made.spec
    drawn = _drawn(spec, given, values, bounds)
    kernel = _effects(made, given, drawn, bounds, MORE_PROBES)
    targets = {
        t.name: _target(spec, t, values[t.name], bounds[t.name], kernel.get(t.name), given.regular)
        for t in spec.outputs
    }
    single: frozenset[str] = frozenset()
    wild = [n for n in targets if bounds[n].stepwise or not _is_useful(targets[n], bounds[n])]
    if wild and following_outputs(spec).keys() & set(wild) and stepwise(spec) is not None:
        own = _single_steps(made, given, bounds, {n: t.rounded for n, t in targets.items()})
        single = frozenset(n for n in wild if bounds[n].stepwise or _is_useful(own[n], bounds[n]))
        targets |= {n: replace(targets[n], allowed=own[n].allowed, each=own[n].each) for n in single}
    ok = all(isfinite(x.allowed) for x in targets.values()) and not any(_overflows(t, values) for t in spec.outputs)
    if ok and not all(np.isfinite(x).all() for x in values.values()):  # NaN may be that of another overflow
        ok = not overflows(spec, given.arrays, given.scalars, given.sizes)
    return Effects(targets, ok, made, given, bounds, single)


def _noise(made: Compiled, given: InputSet, bounds: Mapping[str, Bound]) -> Mapping[str, float]:
    """For each output the norm by which two interpreters over the reals may be apart."""
    reals = _effects(made, given, _REALS, bounds)
    return {t.name: 2.0 * reals[t.name].norm if t.dtype.is_float else 0.0 for t in made.spec.outputs}


def _overflows(t: Tensor, values: Mapping[str, Array]) -> bool:
    """Whether an element of output ``t`` is a number that its type does not have."""
    with np.errstate(over="ignore"):
        stored = eval_op("cast", [values[t.name]], t.dtype, "typed") if t.dtype.bits >= 32 else np.zeros(())
    return bool((np.isinf(stored) & np.isfinite(values[t.name])).any())


def _drawn(
    spec: Spec, given: InputSet, values: Mapping[str, Array], bounds: Mapping[str, Bound]
) -> tuple[Probe, ...]:  # fmt: skip
    fewest = min((values[t.name].size for t in spec.outputs if t.dtype.is_float), default=1)
    chosen = probes(fewest, bounds.values())
    if not given.regular:
        return chosen
    alone = (p for p in chosen if not p.coherent)  # neighbours of different signs are rounded apart from each other
    return (*(replace(p, regular=True) for p in chosen), *alone)


def _target(spec: Spec, t: Tensor, values: Array, bound: Bound, effect: Effect | None, regular: bool = False) -> Target:
    """What ``values`` are compared with; ``regular``: elements may have one error, as where all columns are equal."""
    want = eval_op("cast", [values], t.dtype)
    if not t.dtype.is_float:
        return Target(values, want, 0.0)
    if bound.by_element and effect is not None:
        return _target_of_each(t, values, want, bound, effect.each)
    part = bound.cut(want)
    least = floor(t.dtype) * sqrt(max(1, part.size))
    size = 0.0 if effect is None else effect.norm
    few = 1.0 if regular or effect is None else even(effect.each)  # of all elements, most of the error
    moved = margin(few) * size + last_unit(spec, t) * norm(part) if bound.relative else 0.0
    stated = bound.relative * norm(part) if isfinite(bound.relative) else 0.0
    return Target(values, want, max(stated, moved) + least)


def _target_of_each(t: Tensor, values: Array, want: Array, bound: Bound, effect: Array) -> Target:
    """The largest errors would hide all others in a norm, so each element has an allowed error of its own."""
    each = of_each(want, t.dtype, bound, effect)
    free = np.count_nonzero(np.isinf(each)) > bound.left_out * each.size + 1
    return Target(values, want, float("inf") if free else norm(each), each)


def _is_useful(target: Target, bound: Bound) -> bool:
    """Whether the allowed error excludes wrong results."""
    return target.allowed <= LIMIT * norm(bound.cut(target.rounded))


def _single_steps(
    made: Compiled, given: InputSet, bounds: Mapping[str, Bound], got: Mapping[str, Array]
) -> dict[str, Target]:
    """What the outputs are compared with where each step starts from the state that the result ``got`` shows."""
    exact, kernel = stepwise(made.spec), stepwise(made.program)
    assert exact is not None and kernel is not None
    values = run_spec(exact.spec, {**given.arrays, **exact.inputs(got)}, given.scalars, given.sizes)
    more = replace(given, arrays={**given.arrays, **kernel.inputs(got)})
    shown = kernel.shown(_combined(made, given))
    how = replace(roundings(kernel.spec, made.precision), shown=shown)
    drawn = _drawn(made.spec, given, values, bounds)
    without = run_spec(kernel.spec, more.arrays, given.scalars, given.sizes)
    moved = largest(errors(kernel.spec, more.arrays, given.scalars, given.sizes, how, without, drawn, bounds))
    return {
        t.name: _target(made.spec, t, values[t.name], bounds[t.name], moved.get(t.name), given.regular)
        for t in made.spec.outputs
    }


def in_range(made: Compiled, given: InputSet) -> bool:
    """Whether ``given`` is within the stated range by a single choice of errors, and every output is finite.

    An overflow may leave a finite result: a wrong one as in ``x * rsqrt(x * x)``, or a right one as in ``1 / exp(x)``.
    """
    values = run_spec(made.spec, given.arrays, given.scalars, given.sizes)
    with np.errstate(all="ignore"):
        stored = {t.name: eval_op("cast", [values[t.name]], t.dtype, "typed") for t in made.spec.outputs}
    if not all(np.isfinite(x).all() for x in stored.values()):
        return False
    effects = _effects(made, given, PROBES[:1], {})
    if all(x.norm <= _LARGE * norm(stored[n]) for n, x in effects.items()):
        return True
    finite = all(isfinite(x.norm) for x in effects.values())
    return finite and not overflows(made.spec, given.arrays, given.scalars, given.sizes)


def _effects(
    made: Compiled, given: InputSet, drawn: tuple[Probe, ...], bounds: Mapping[str, Bound], more: Sequence[Probe] = ()
) -> dict[str, Effect]:
    """The effects of the choices ``drawn``, and of ``more`` where few elements have most of the error."""
    program = made.program
    values = run_spec(program, given.arrays, given.scalars, given.sizes)
    how = replace(roundings(program, made.precision), combined=_combined(made, given))
    inputs = given.arrays, given.scalars, given.sizes
    found = [*errors(program, *inputs, how, values, drawn, bounds)]
    effects, missing = largest(found), [p for p in more if p not in drawn]
    if not missing or not is_uneven(effects):
        return effects
    return largest([*found, *errors(program, *inputs, how, values, missing, bounds)])


def _combined(made: Compiled, given: InputSet) -> dict[str, float]:
    """The errors of states of recurrences whose steps may be combined."""
    states = may_be_combined(made.spec)
    return combined(states, made.program, given.arrays, given.scalars, given.sizes) if states else {}
