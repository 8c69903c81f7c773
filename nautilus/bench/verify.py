"""The check of a contender's result, before any timing and on the inputs that are timed.

There are two references, because an output may have a hundred million elements:

* *rows*, always: sampled rows of every output, evaluated from the Spec in float64 by the reference interpreter.  First
  and last rows are included; the last axis is complete, or reduced to :data:`COLUMNS` indices where the other reference
  covers the rest.  This reference is exact, independent of any library, and cheap, because only the dependencies of
  these rows are computed (:mod:`nautilus.frontend.restrict`).
* *whole*, with PyTorch: every element of the outputs, evaluated from the Spec in float64 on the GPU, piece by piece.
  It finds errors outside sampled rows, such as a tile without a store.  Without PyTorch the rest of the output must be
  finite.

Narrow types overflow: an element that is inf on one side and close to the largest number on the other is a rounding
difference, not an error.  A definition whose values leave the range of f32 has inf there in the reference of rows as
well, and then the other reference, which keeps such values, is not compared.  Elements of rows that are another number
where the range ends a little earlier or later are not compared either: the order of a sum decides about them.

A recurrence may amplify errors until no reference of its own run is close to a right result.  Where the stated bound is
that of single steps, sampled rows are those of steps from the states that the contender's own result shows
(:mod:`nautilus.check.bound.recurrences.stepwise`), and where it is that of the first steps, these are compared.

Where few elements have most of the norm of sampled rows, as in energies of growing states, the norm of the errors is
that of few elements too, and the bound of the whole output says little about it.  Such rows may have the errors that
roundings on their inputs allow (:func:`nautilus.check.bound.cancelling.each.of_uneven`).

Outputs hold NaN before a contender writes them.  The error is a relative Frobenius norm.  Ours must be within the bound
that the compiler states for the kernel.  A peer must be within :data:`PEER_SLACK` times that bound, because a library
may round intermediates that the spec keeps in f32; its check only has to show that it computes the same function.
Integers are exact, but for those that computed floats decide about: a few elements may differ, or a few of the terms
that are counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from functools import cache
from math import inf, isfinite, sqrt
from typing import TypeVar

import numpy as np

from nautilus.bench.contenders import Verdict
from nautilus.bench.inputs import BLOCK
from nautilus.check.bound.bound import Bound, Steps
from nautilus.check.bound.cancelling.each import allowed, of_inputs, of_uneven
from nautilus.check.bound.choices import roundings
from nautilus.check.bound.exactness import unit
from nautilus.check.bound.overflow import Watch
from nautilus.check.bound.program import rounded
from nautilus.check.bound.recurrences.combined import combined, may_be_combined
from nautilus.check.bound.recurrences.growth import LIMIT
from nautilus.check.bound.recurrences.stepwise import Stepwise, stepwise
from nautilus.check.bound.sampling import wide
from nautilus.check.compare import differences, exact, norm, overflown, relative, within, without_largest
from nautilus.core.expr.nodes import Op, Reduce
from nautilus.core.numerics import Array, from_storage, round_to
from nautilus.core.records import dataclass
from nautilus.core.text.words import counted
from nautilus.core.types import DType
from nautilus.frontend.interp import Evaluate, run_spec
from nautilus.frontend.restrict import Chosen, Restricted, restrict, sampled
from nautilus.frontend.spec import Spec

PEER_SLACK = 4.0
COLUMNS = 512
_LARGEST = float(np.finfo(np.float32).max)
_MARGIN = 2.0**6  # how much earlier or later the range of f32 may end for partial sums
_TRIED = 4  # elements that are not finite and are evaluated from the Spec
_TIES = 1 / 200  # allowed share of elements that differ where computed floats decide about them
_MOVED = 1e-4  # allowed share of the terms of counts that computed floats put elsewhere
T = TypeVar("T")
#: evaluates every output of the spec in float64 (integers: int64); returns None where the spec cannot be translated
Whole = Callable[[], Mapping[str, Array] | None]


@dataclass(frozen=True)
class SingleSteps:
    """The Spec of single steps at sampled rows, ``cut``, and its inputs beside the states that a result shows."""

    steps: Stepwise
    cut: Restricted
    raw: Mapping[str, Array]
    scalars: Mapping[str, float | int | bool]

    def rows(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """The reference for raw storage ``outputs``."""
        types = {t.name: t.dtype for t in (*self.steps.spec.inputs, *self.steps.spec.outputs)}
        states = {n: from_storage(outputs[o], types[o]) for n, o in self.steps.outputs.items()}
        return _evaluated(self.cut, {**self.raw, **states}, self.scalars, types, frozenset(states))


@dataclass(frozen=True)
class References:
    """The references: sampled rows in float64, and all elements (``whole``) where PyTorch is installed.

    ``single``: the reference of outputs whose bound is that of single steps.  ``each``: the allowed errors of the
    elements of sampled rows, for outputs whose elements are judged alone.  ``overflow``: a definition
    has values beyond the range of f32.  ``undecided``: the elements of sampled rows that depend on where it ends.
    ``at``: evaluates one element of an output, by its index.  ``own``: the norms of the errors that roundings on the
    inputs allow, for outputs whose bound does not hold on all inputs.  ``uneven``: finds the same for outputs of which
    few elements have most of the norm of sampled rows.
    """

    spec: Spec
    cut: Restricted
    rows: Mapping[str, Array]
    whole: Mapping[str, Array] | None
    bounds: Mapping[str, Bound]
    single: SingleSteps | None = None
    each: Mapping[str, Array] = field(default_factory=dict)
    overflow: bool = False
    undecided: Mapping[str, Array] = field(default_factory=dict)
    at: Callable[[str, tuple[int, ...]], float] | None = None
    own: Mapping[str, float] = field(default_factory=dict)
    uneven: Callable[[], Mapping[str, float]] = dict


def references(
    spec: Spec,
    raw: Mapping[str, Array],
    scalars: Mapping[str, float | int | bool],
    bounds: Mapping[str, Bound],
    seed: int,
    whole: Whole | None = None,
) -> References:
    """Evaluate both references on raw storage ``raw``."""
    everything = whole() if whole is not None else None
    chosen = sampled(spec, seed, last=0 if everything is None else COLUMNS)
    cut, types = restrict(spec, chosen), {t.name: t.dtype for t in spec.inputs}
    rows, overflow, undecided = _in_range(cut, raw, scalars, types)
    steps = stepwise(spec) if any(b.stepwise for b in bounds.values()) else None
    single = None if steps is None else SingleSteps(steps, restrict(steps.spec, chosen), raw, scalars)
    each, own = _on_inputs(spec, chosen, raw, scalars, bounds)

    def at(name: str, index: tuple[int, ...]) -> float:
        ranks = {t.name: len(t.shape) for t in spec.outputs}
        one = {n: dict(enumerate(np.array([i]) for i in (index if n == name else (0,) * r))) for n, r in ranks.items()}
        return float(_evaluated(restrict(spec, one), raw, scalars, types)[name].item())

    uneven = cache(lambda: _of_uneven(spec, chosen, raw, scalars, bounds))
    return References(spec, cut, rows, everything, bounds, single, each, overflow, undecided, at, own, uneven)


def _in_range(
    cut: Restricted, raw: Mapping[str, Array], scalars: Mapping[str, float | int | bool], types: Mapping[str, DType]
) -> tuple[dict[str, Array], bool, dict[str, Array]]:
    """The rows of ``cut``, whether a definition has values beyond the range of f32, and the elements about which it is
    not decided whether they depend on such values."""

    def rows(most: float) -> tuple[dict[str, Array], bool]:
        watch = Watch(most)
        return _evaluated(cut, raw, scalars, types, evaluate=watch), watch.found

    early, near = rows(_LARGEST / _MARGIN)
    if not near:
        return early, False, {}
    found, left = rows(_LARGEST)
    late, _ = rows(_LARGEST * _MARGIN)
    return found, left, {n: ~(_alike(x, early[n]) & _alike(x, late[n])) for n, x in found.items()}


def _alike(a: Array, b: Array) -> Array:
    """Whether elements are both finite, both NaN, or the same inf."""
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)) | (np.isfinite(a) & np.isfinite(b)))


def _on_inputs(
    spec: Spec, chosen: Chosen, raw: Mapping[str, Array], scalars: Mapping[str, float | int | bool],
    bounds: Mapping[str, Bound],
) -> tuple[dict[str, Array], dict[str, float]]:  # fmt: skip
    """The allowed errors of the elements of sampled rows, for outputs whose elements are judged alone, and the norms
    of the allowed errors of outputs whose bound does not hold on all inputs."""
    if not any(b.by_element or b.rare_inputs for b in bounds.values()):
        return {}, {}
    cut, arrays = _rounded(spec, chosen, raw)
    given = (wide(cut.spec), arrays, scalars, bounds, roundings(cut.spec))
    return allowed(*given), of_inputs(*given)


def _of_uneven(
    spec: Spec, chosen: Chosen, raw: Mapping[str, Array], scalars: Mapping[str, float | int | bool],
    bounds: Mapping[str, Bound],
) -> dict[str, float]:  # fmt: skip
    """The norms of the errors that roundings on these inputs allow in sampled rows, for outputs of which few elements
    have most of the norm of these rows; but for those of which a step is compared."""
    cut, arrays = _rounded(spec, chosen, raw)
    program = wide(cut.spec)
    states = may_be_combined(program)
    moved = combined(states, program, arrays, scalars) if states else {}

    def part(name: str, x: Array) -> Array:
        steps = bounds[name].steps
        return x if steps is None else _first_steps(cut.outputs[name], steps, x)

    found = of_uneven(program, arrays, scalars, replace(roundings(cut.spec), combined=moved), part)
    return {n: x for n, x in found.items() if not bounds[n].stepwise}


def _rounded(spec: Spec, chosen: Chosen, raw: Mapping[str, Array]) -> tuple[Restricted, dict[str, Array]]:
    """The sampled rows of ``spec`` with the roundings of its compilation, and the inputs of these rows."""
    types = {t.name: t.dtype for t in spec.inputs}
    cut = restrict(rounded(spec), chosen)
    return cut, {n: x if n in cut.rows else from_storage(x, types[n]) for n, x in cut.arrays(raw).items()}


def _evaluated(
    cut: Restricted, raw: Mapping[str, Array], scalars: Mapping[str, float | int | bool], types: Mapping[str, DType],
    plain: frozenset[str] = frozenset(), evaluate: Evaluate | None = None,
) -> dict[str, Array]:  # fmt: skip
    """The outputs of ``cut`` on raw storage ``raw`` and on the ``plain`` arrays in it, rounded."""
    exact = plain | cut.rows.keys()
    arrays = {n: x if n in exact else from_storage(x, types[n]) for n, x in cut.arrays(raw).items()}
    found = run_spec(cut.spec, arrays, scalars, evaluate=evaluate)
    return {t.name: round_to(found[t.name], t.dtype) for t in cut.spec.outputs}


def judge(known: References, outputs: Mapping[str, Array], is_peer: bool) -> Verdict:
    """Compare raw storage ``outputs`` with both references."""
    worst = Verdict(True, 0.0, 0.0)
    slack = PEER_SLACK if is_peer else 1.0
    for t in known.spec.outputs:
        shape = tuple(outputs[t.name].shape)
        if shape != tuple(t.shape):
            return Verdict(False, float("inf"), 0.0, f"{t.name} has shape {shape}")
    single = known.single.rows(outputs) if known.single is not None else {}
    for t in known.spec.outputs:
        bound = known.bounds[t.name]
        rows = single[t.name] if bound.stepwise else known.rows[t.name]
        verdicts = [_rows(known, t.name, t.dtype, outputs[t.name], rows, slack)]
        if bound.grows or known.overflow or t.name in known.own:
            pass
        elif known.whole is not None:
            count = not t.dtype.is_float and _is_count(known.spec, t.name)
            verdicts.append(_everything(t.name, t.dtype, outputs[t.name], known.whole[t.name], bound, slack, count))
        elif t.dtype.is_float:
            verdicts.append(_finite(known, t.name, t.dtype, outputs[t.name]))
        for v in verdicts:
            if not v.ok:
                return v
            worst = max(worst, v, key=lambda x: x.error)
    return worst


def _rows(known: References, name: str, dtype: DType, raw: Array, want: Array, slack: float) -> Verdict:
    bound = known.bounds[name]
    cut = known.single.cut if bound.stepwise and known.single is not None else known.cut  # which has all steps
    got = from_storage(cut.cut(name, raw), dtype)
    if not isfinite(bound.relative):
        return Verdict(True, 0.0, 0.0, f"{name}: {bound.text}")
    if name in known.undecided and not bound.stepwise:
        got, want = (np.where(known.undecided[name], 0.0, x) for x in (got, want))
    if not dtype.is_float:
        wrong = exact(got, want, _TIES if bound.ties else 0.0, bound.step)
        if wrong is not None and bound.ties and _is_count(known.spec, name):
            wrong = None if _few_moved(got, want) else wrong
        return Verdict(wrong is None, 0.0, 0.0, f"{name}, sampled rows: {wrong.text}" if wrong else "")
    if bound.steps is not None:
        got, want = (_first_steps(cut.outputs[name], bound.steps, x) for x in (got, want))
    got = np.where(overflown(got, want, dtype), want, got)
    allowed = slack * bound.relative
    if name in known.each:
        rounding = unit(dtype) * np.abs(np.where(np.isfinite(want), want, 0.0))  # of the reference to the type
        wrong = within(got, want, 0.0, slack * known.each[name] + rounding)
        if wrong is not None or bound.decided:  # of which the norm says nothing where a number ties
            text = f"{name}, sampled rows: {wrong.text}" if wrong else ""
            return Verdict(wrong is None, wrong.measured if wrong else 0.0, allowed, text)
    error = _error(got, want, bound)
    size, own = max(norm(want), float(np.finfo(np.float64).tiny)), known.own.get(name)
    if own is None and allowed < error < inf and not bound.by_element:
        found = known.uneven().get(name, 0.0)
        own = found if found <= LIMIT * size else None
    if own is not None:
        allowed = max(allowed, slack * own / size)
    detail = "" if error <= allowed else f"{name}, sampled rows: relative error {error:.1e}, allowed {allowed:.1e}"
    return Verdict(error <= allowed, error, allowed, detail)


def _error(got: Array, want: Array, bound: Bound) -> float:
    """The relative error of which ``bound`` is one."""
    if bound.by_element:
        return without_largest(differences(got, want), want, max(bound.left_out, _TIES if bound.decided else 0.0))
    return relative(got, want)


def _first_steps(rows: Mapping[int, Array], steps: Steps, x: Array) -> Array:
    """The elements of ``x``, an output at ``rows``, that belong to ``steps``."""
    at = rows.get(steps.axis, np.arange(steps.total))
    kept = at >= steps.total - steps.count if steps.reverse else at < steps.count
    return np.compress(kept, x, axis=steps.axis)


@dataclass(frozen=True, slots=True)
class _Part:
    """Sums over a block: squared error, squared norm, elements inf or NaN on one side only, different integers."""

    off: float
    size: float
    misplaced: int
    differ: int


def _compare(raw: Array, want: Array, dtype: DType) -> _Part:
    a, b = from_storage(raw, dtype), np.asarray(want, np.float64)
    if not dtype.is_float:
        return _Part(0.0, 0.0, 0, int(np.count_nonzero(a != want)))
    with np.errstate(all="ignore"):
        delta = a - b
        good = np.isfinite(delta)
        if good.all():
            return _Part(float(np.dot(delta, delta)), float(np.dot(b, b)), 0, 0)
        bad = np.count_nonzero(~good & ~((a == b) | (np.isnan(a) & np.isnan(b)) | overflown(a, b, dtype)))
        delta, b = delta[good], b[good]
    return _Part(float(np.dot(delta, delta)), float(np.dot(b, b)), int(bad), 0)


def _is_count(spec: Spec, name: str) -> bool:
    """Whether output ``name`` is a sum, such as the number of elements in a bin of floats."""
    e = next(d.expr for d in spec.definitions if d.name == name)
    while isinstance(e, Op) and e.op == "cast":
        (e,) = e.args
    return isinstance(e, Reduce) and e.op == "sum"


def _few_moved(got: Array, want: Array) -> bool:
    """Whether few terms of the counts ``got`` are elsewhere than in ``want``."""
    moved = np.abs(np.asarray(got, np.float64) - np.asarray(want, np.float64)).sum()
    return bool(moved <= _MOVED * np.abs(want).sum(dtype=np.float64))


def _everything(
    name: str, dtype: DType, raw: Array, want: Array, bound: Bound, slack: float, count: bool = False
) -> Verdict:
    flat, ref = raw.reshape(-1), want.reshape(-1)
    if bound.by_element:
        error, allowed = _error(from_storage(flat, dtype), ref, bound), slack * bound.relative
        said = f"{name}: relative error {error:.1e} without the largest, allowed {allowed:.1e}"
        detail = "" if error <= allowed else said
        return Verdict(error <= allowed, error, allowed, detail)
    parts = _blocks(flat.size, lambda part: _compare(flat[part], ref[part], dtype))
    if not dtype.is_float:
        differ = sum(p.differ for p in parts)
        ok = differ <= (_TIES if bound.ties else 0.0) * flat.size
        if not ok and bound.ties and count:
            ok = _few_moved(from_storage(flat, dtype), ref)
        return Verdict(ok, 0.0, 0.0, "" if ok else f"{name}: {counted(differ, 'wrong element')}")
    if misplaced := sum(p.misplaced for p in parts):
        return Verdict(False, float("inf"), 0.0, f"{name}: {misplaced} elements are inf or NaN on one side only")
    off, size = (sqrt(sum(getattr(p, what) for p in parts)) for what in ("off", "size"))
    error, allowed = off / size if size else off, slack * bound.relative
    ok = error <= allowed
    detail = "" if ok else f"{name}: relative error {error:.1e} of all elements, allowed {allowed:.1e}"
    return Verdict(ok, error, allowed, detail)


def _blocks(size: int, work: Callable[[slice], T]) -> list[T]:
    """``work`` on each block of ``size`` elements in several threads (numpy releases the GIL)."""
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        return list(pool.map(work, [slice(start, start + BLOCK) for start in range(0, size, BLOCK)]))


def _finite(known: References, name: str, dtype: DType, raw: Array) -> Verdict:
    """Whether all elements are finite where the sampled ones are, but for those that the Spec makes inf or NaN.

    Some elements that are not finite, such as the extreme or the mean of no terms, are evaluated from the Spec.
    """
    if not np.isfinite(known.rows[name]).all():
        return Verdict(True, 0.0, 0.0)
    flat = raw.reshape(-1)

    def failing(part: slice) -> Array:
        found: Array = part.start + np.flatnonzero(~np.isfinite(from_storage(flat[part], dtype)))
        return found

    bad = np.concatenate(_blocks(flat.size, failing))
    if bad.size and known.at is not None:
        tried = bad[np.linspace(0, bad.size - 1, min(bad.size, _TRIED)).astype(np.int64)]
        where = [tuple(int(i) for i in np.unravel_index(n, raw.shape)) for n in tried]
        want = np.array([known.at(name, index) for index in where])
        if np.array_equal(want, from_storage(flat[tried], dtype), equal_nan=True):
            return Verdict(True, 0.0, 0.0)
    return Verdict(not bad.size, 0.0, 0.0, f"{name}: {bad.size} elements are not finite" if bad.size else "")
