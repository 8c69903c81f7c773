"""The errors of a recurrence after each of its steps, under choices of errors on random inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

import numpy as np

from nautilus.check.bound.choices import Probe, roundings
from nautilus.check.bound.errors import run
from nautilus.check.bound.probes import PROBES, kinds
from nautilus.check.bound.recurrences.dominant import without_dominant
from nautilus.check.bound.recurrences.excerpt import Known
from nautilus.check.bound.recurrences.follows import Along
from nautilus.check.bound.roundings.nearest import run_nearest
from nautilus.check.bound.sampling import INPUTS, wide
from nautilus.check.bound.sums.gathered import shortened
from nautilus.check.inputs import InputSet, generate
from nautilus.core.expr.nodes import Axis, Expr, Load, Var, rewrite
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.frontend.interp import run_spec
from nautilus.frontend.spec import Definition, Spec, Tensor

_INPUT: Final = "%input"  # the axis of the inputs then


@dataclass(frozen=True)
class Sample:
    """``count`` inputs of the program, and its values over the reals for the steps that run.

    More than one have an axis of their own, the first of each array.
    """

    count: int
    arrays: Mapping[str, Array]
    scalars: Mapping[str, Any]
    values: Mapping[str, Array]

    @staticmethod
    def of(known: Known, given: Sequence[InputSet], small: Spec) -> Sample:
        """The sample of ``small``, which is the program at a few positions, on the inputs ``given``."""
        rows, count = known.few.rows, len(given)
        arrays = _joined(count, [{n: x for n, x in g.arrays.items() if n not in rows} for g in given])
        program = _on_inputs(wide(small), count, rows)
        values = run_spec(program, {**arrays, **rows}, given[0].scalars, steps=known.steps)
        return Sample(count, arrays, given[0].scalars, values)

    def joined(self, found: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Arrays of each input as those of all inputs."""
        return _joined(self.count, found)

    def of_inputs(self, arrays: Mapping[str, Array]) -> list[dict[str, Array]]:
        """The arrays of each input."""
        if self.count == 1:
            return [dict(arrays)]
        return [{name: x[i] for name, x in arrays.items()} for i in range(self.count)]


def samples_of(known: Known, inputs: int | None = None) -> list[Sample]:
    """The inputs, all in one sample where a step has few points; ``inputs``: another number of them."""
    small, ranges = shortened(known.few.spec, known.ranges)
    given = [generate(small, "random", seed, ranges=ranges) for seed in range(inputs or known.inputs)]
    if known.joins and all(g.scalars == given[0].scalars for g in given):
        return [Sample.of(known, given, small)]
    return [Sample.of(known, [g], small) for g in given]


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
class Case:
    """A program to evaluate.

    ``shown``: its inputs that show a state with an error.  ``rows``, ``more``: its inputs beside those of a sample,
    which are the same for all of these, or differ.  ``combined``: its states that are combined, with their errors.
    """

    spec: Spec
    shown: Mapping[str, float]
    rows: Mapping[str, Array]
    more: Mapping[str, Array]
    combined: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Profile:
    """Squared ``errors`` under each choice of errors and squared values, up to each step, and the largest value."""

    errors: Array
    values: Array
    largest: float


def profiles(known: Known, sample: Sample, case: Case) -> list[dict[str, tuple[Profile, Profile]]]:
    """For each input and output, profiles over the first steps under all choices of errors, and over all steps.

    Those have errors under the first choice, and of an evaluation in which each result is the nearest number, but for
    single steps.
    """
    small = wide(shortened(case.spec, known.ranges)[0])
    how = roundings(small, known.precision, known.terms, known.schedule)
    how = replace(how, shown=case.shown, combined=case.combined)
    program = _on_inputs(small, sample.count, case.rows)
    names = {t.name for t in small.inputs}
    arrays = {n: x for n, x in {**sample.arrays, **case.more, **case.rows}.items() if n in names}
    first = known.first

    def moved(probe: Probe, steps: int) -> dict[str, Array]:
        return run(program, arrays, sample.scalars, {}, how, probe, steps)

    values = sample.values if not case.shown else run_spec(program, arrays, sample.scalars, steps=known.steps)
    later = moved(PROBES[0], known.steps)
    # a single step adds no roundings of one direction to those of the steps before it
    nearest = [] if case.shown else [run_nearest(program, arrays, sample.scalars, known.steps)]
    start, ahead = values, later
    last_only = any(known.along[t.name].axis is None for t in small.outputs)  # its first steps are no part of these
    if first < known.steps and last_only:
        start, ahead = run_spec(program, arrays, sample.scalars, steps=first), moved(PROBES[0], first)
    chosen = [p for p in PROBES[1 : known.probes] if not (p.coherent and known.more)]
    others = [moved(p, first) for p in chosen]
    outputs = [t for t in small.outputs if t.dtype.is_float]
    found = []
    for one in zip(*map(sample.of_inputs, (values, start, later, *nearest, ahead, *others)), strict=True):
        exact, begun, *rest = one
        over, probed = rest[: 1 + len(nearest)], rest[1 + len(nearest) :]
        out: dict[str, tuple[Profile, Profile]] = {}
        for t in outputs:
            along = known.along[t.name]
            counts = None  # several inputs have several dominant slices
            if not known.more or known.inputs < INPUTS:
                counts = _counted(probed[0][t.name], begun[t.name], t.dtype, along, first)
            early = _profile([m[t.name] for m in probed], begun[t.name], t.dtype, along, first, counts)
            whole = _profile([m[t.name] for m in over], exact[t.name], t.dtype, along, known.steps, counts)
            out[t.name] = early, whole
        found.append(out)
    return found


def _counted(moved: Array, values: Array, dtype: DType, along: Along, steps: int) -> Array | None:
    """The elements that count, where others have most of the norm of the first ``steps``; None where all do."""
    if along.axis is not None:
        moved, values = (np.moveaxis(x, along.axis, 0)[:: -1 if along.reverse else 1][:steps] for x in (moved, values))
    known = kinds(values, dtype)
    usual = (known[0] == 0) & (known[1] == 0)
    with np.errstate(all="ignore"):
        errors, squares = (np.where(usual, x, 0.0) ** 2 for x in (moved - values, values))
    if along.axis is not None:  # an overflow later says nothing about the steps before it
        finite = np.isfinite(errors + squares).reshape(len(errors), -1).all(axis=1)
        errors, squares = (x[: len(x) if finite.all() else int(np.argmin(finite))] for x in (errors, squares))
    counts = without_dominant(errors, squares, None if along.axis is None else 0)
    return counts if counts is None or along.axis is None else np.moveaxis(counts, 0, along.axis)


def _profile(
    moved: Sequence[Array], values: Array, dtype: DType, along: Along, steps: int, counts: Array | None
) -> Profile:
    """``counts``: factors of the elements, 0 or 1; None where all of them count.  An infinite error always counts."""

    def by_step(x: Array) -> Array:
        """Sums over the elements of each step, in the order of the steps; one sum without steps."""
        x = x if counts is None else np.where((counts != 0) | ~np.isfinite(x), x, 0.0)
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
