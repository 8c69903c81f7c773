"""The change of a program's outputs under choices of errors; the docstring of the package has the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, sqrt
from typing import Final

import numpy as np

from nautilus.check.bound.bound import Bound
from nautilus.check.bound.cancelling.arguments import Arguments, arguments
from nautilus.check.bound.choices import Probe, Roundings
from nautilus.check.bound.errors import run
from nautilus.check.compare import norm
from nautilus.core.numerics import Array, round_to
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.frontend.spec import Spec
from nautilus.frontend.values import Unchanged

#: Every bound is of three choices of independent errors of up to 2 units of roundoff, and of two of common errors of
#: up to 1.25 units, of which one has errors that cancel least.
PROBES: Final = (*(Probe(n, False, 2.0) for n in range(3)), *(Probe(n, True, 1.25, opposed=n == 1) for n in range(2)))
#: Those on given inputs where few elements have most of the error: three errors of one number may be small by chance.
MORE_PROBES: Final = tuple(Probe(n, False, 2.0) for n in range(3, 12))
#: Errors that move a computed number across a value at which a decision changes, if it is close to it.
DECIDING: Final = tuple(Probe(n, False, 4.0) for n in range(10))
_VARIES: Final = 1.25  # the effect of ties on all elements, at most, in units of that on those that are sampled
_ROWS: Final = 16  # rows of sampled elements of which a few may have most of the error
FEW: Final = 64  # outputs of fewer elements are sampled on several inputs
EVEN: Final = 16.0  # fewer elements than that, of equal errors, have most of an error


def probes(elements: int, bounds: Iterable[Bound] = ()) -> tuple[Probe, ...]:
    """The choices of errors for given inputs, where the smallest output has this many elements, and such ``bounds``."""
    known = list(bounds)
    more = MORE_PROBES if elements < FEW or any(b.by_element for b in known) else ()
    return PROBES + more + (DECIDING if any(b.decided for b in known) else ())


def margin(elements: float) -> float:
    """The factor by which the error of so few elements may exceed its expectation: one number has a normal error."""
    return 1.0 + 1.0 / sqrt(max(1, elements))


def errors(
    program: Spec, arrays: Mapping[str, Array], scalars: Mapping[str, int | float | bool], sizes: Mapping[str, int],
    how: Roundings, values: Mapping[str, Array], probes: Sequence[Probe] = PROBES,
    bounds: Mapping[str, Bound] | None = None,
) -> Iterator[dict[str, Array]]:  # fmt: skip
    """For each of ``probes``, the errors of the elements of each output, where its type has its values as numbers.

    An error is inf where an element is a number, inf, -inf or NaN on one side only.  ``bounds``: for parts of outputs.
    """
    parts = bounds or {}
    values = {n: parts[n].cut(x) if n in parts else x for n, x in values.items() if x.dtype.kind == "f"}
    types = {t.name: t.dtype for t in program.outputs}
    known = {n: kinds(x, types[n]) for n, x in values.items()}

    def cut(name: str, x: Array) -> Array:
        return parts[name].cut(x) if name in parts else x

    exact = arguments(program, how.ties, arrays, scalars, sizes) if how.ties else None
    shared: dict[int, Unchanged] = {}
    for probe in probes:
        if exact is not None:
            exact.parts.clear()
        moved, *sides = _runs(program, arrays, scalars, sizes, how, probe, exact, shared)
        found = {}
        for name, x in values.items():
            got = cut(name, moved[name])
            other = np.any(kinds(got, types[name]) != known[name], axis=0)
            with np.errstate(all="ignore"):
                error = np.where(known[name][1] == 0, np.abs(got - x), 0.0)
                if sides:
                    above, below = (cut(name, side[name]) for side in sides)
                    part = max(exact.parts, default=1.0) if exact is not None else 1.0
                    error = error + _VARIES * part * _distance(above, below, types[name])
            found[name] = np.where(other, np.inf, error)
        yield found


def _runs(
    program: Spec, arrays: Mapping[str, Array], scalars: Mapping[str, int | float | bool], sizes: Mapping[str, int],
    how: Roundings, probe: Probe, exact: Arguments | None, shared: dict[int, Unchanged] | None = None,
) -> tuple[dict[str, Array], ...]:  # fmt: skip
    """The outputs under ``probe``; where steps have ties, also those with a few numbers above ties, and below.

    ``exact``: the arguments of these steps.
    """
    chosen = (0, 1, -1) if exact is not None and probe.tries_ties else (None,)
    tried = (replace(probe, tie=tie) for tie in chosen)
    return tuple(run(program, arrays, scalars, sizes, how, p, exact=exact, shared=shared) for p in tried)


def _distance(a: Array, b: Array, dtype: DType) -> Array:
    """How far apart the elements of ``a`` and ``b`` are: inf where one is a number and the other one is none."""
    one, other = kinds(a, dtype), kinds(b, dtype)
    return np.where(np.any(one != other, axis=0), np.inf, np.where(np.any(one, axis=0), 0.0, np.abs(a - b)))


def moves(
    program: Spec, arrays: Mapping[str, Array], scalars: Mapping[str, int | float | bool], sizes: Mapping[str, int],
    how: Roundings, values: Mapping[str, Array], probes: Sequence[Probe],
) -> dict[str, Array]:  # fmt: skip
    """The elements of each output of integers or bools that one of ``probes`` changes."""
    found = {n: np.zeros(x.shape, bool) for n, x in values.items() if x.dtype.kind != "f"}
    exact = arguments(program, how.ties, arrays, scalars, sizes) if found and how.ties else None
    for probe in probes if found else ():
        moved, *sides = _runs(program, arrays, scalars, sizes, how, probe, exact)
        found = {n: f | (moved[n] != values[n]) for n, f in found.items()}
        if sides:
            above, below = sides
            found = {n: f | (above[n] != below[n]) for n, f in found.items()}
    return found


@dataclass(frozen=True, slots=True)
class Effect:
    """``norm``: the largest norm of the errors of an output, inf where that of an element is; ``each``: the largest
    error of each element."""

    norm: float
    each: Array


def largest(found: Iterable[Mapping[str, Array]]) -> dict[str, Effect]:
    """The largest errors of each output."""
    worst: dict[str, Effect] = {}
    for moved in found:
        for name, error in moved.items():
            size = float("inf") if np.isinf(error).any() else norm(error)
            if name in worst:
                size, error = max(worst[name].norm, size), np.maximum(worst[name].each, error)
            worst[name] = Effect(size, error)
    return worst


def kinds(x: Array, dtype: DType) -> Array:
    """Whether each element is a number (0), inf (1), -inf (-1) or NaN (2), and what it is in its type."""
    both = np.stack([x, round_to(x, dtype)])
    return np.where(np.isnan(both), 2, np.where(np.isinf(both), np.sign(both), 0))


def even(error: Array) -> float:
    """How many elements of one error have the norm of ``error`` and that of its squares; rows of elements where the
    errors of a row are alike, and there are rows enough to tell."""
    size = np.where(np.isfinite(error), np.abs(error), 0.0)
    if not size.size:
        return inf
    found = _even(size)
    if size.ndim > 1 and size.size >= _ROWS * size.shape[-1]:
        found = min(found, _even(np.sqrt(np.sum(size * size, axis=-1))))
    return found


def is_uneven(found: Mapping[str, Effect]) -> bool:
    """Whether few elements or rows of an output have most of its error, as those with two large logits have."""
    return any(even(x.each) < EVEN for x in found.values() if x.norm > 0.0)


def _even(size: Array) -> float:
    size = size[size > 0.0]
    if not size.size:
        return 0.0
    squares = (size / size.max()) ** 2
    return float(np.sum(squares) ** 2 / np.sum(squares**2))
