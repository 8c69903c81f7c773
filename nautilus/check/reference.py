"""What a result on given inputs is compared with, and how far it may be off.

The result is compared with the Spec in float64.  The allowed error is the larger one of the stated bound and of the
effect of the roundings on these very inputs (:mod:`nautilus.check.bound`), so results that cancel are measured against
their terms.  Two interpreters over the reals may differ by the effect of roundings to f64, and to f32 where a tensor
of that type is read again, which "or better" leaves open.

Inputs are outside the stated range where an intermediate result leaves the range of its type, or where roundings decide
between a finite result and another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite, sqrt

import numpy as np

from nautilus.check.bound.errors import Probe, roundings, unit
from nautilus.check.bound.program import rounded
from nautilus.check.bound.stated import PROBES, Bound, disturbed, margin, probes, wide
from nautilus.check.compare import floor, norm
from nautilus.check.inputs import RANDOM, InputSet
from nautilus.core.numerics import Array, eval_op
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.frontend.interp import run_spec
from nautilus.frontend.spec import Spec

_REALS = (Probe(0, False, 8.0, reals=True), Probe(1, True, 8.0, reals=True))


@dataclass(frozen=True, slots=True)
class Reference:
    """What a result on one input set is compared with.

    ``values``: the Spec in float64, unrounded; ``rounded``: in the output's type (f32 and f64: as they are);
    ``allowed``: absolute norm of the error; ``noise``: how far two interpreters over the reals may be apart;
    ``in_range``: the inputs are within the stated range.
    """

    values: Mapping[str, Array]
    rounded: Mapping[str, Array]
    allowed: Mapping[str, float]
    noise: Mapping[str, float]
    in_range: bool


@dataclass(frozen=True, slots=True)
class Compiled:
    """A Spec with the options of its compilation."""

    spec: Spec
    precision: str = "fast"
    schedule: Schedule | None = None

    @property
    def program(self) -> Spec:
        return wide(rounded(self.spec, self.precision, self.schedule))


def reference(made: Compiled, given: InputSet, bounds: Mapping[str, Bound]) -> Reference:
    """Evaluate the Spec of ``made`` on ``given``, exactly and with errors, and say what is allowed."""
    spec = made.spec
    values = run_spec(spec, given.arrays, given.scalars, given.sizes)
    regular = given.kind not in RANDOM
    fewest = min((values[t.name].size for t in spec.outputs if t.dtype.is_float), default=1)
    drawn = tuple(replace(p, regular=regular) for p in probes(fewest))
    kernel, reals = _effects(made, given, drawn), _effects(made, given, _REALS)
    rounded_: dict[str, Array] = {}
    allowed: dict[str, float] = {}
    noise: dict[str, float] = {}
    for t in spec.outputs:
        want = rounded_[t.name] = eval_op("cast", [values[t.name]], t.dtype)
        allowed[t.name] = noise[t.name] = 0.0
        if t.dtype.is_float:
            least = floor(t.dtype) * sqrt(max(1, want.size))
            effect = margin(want.size) * kernel[t.name] + unit(t.dtype) * norm(want) if bounds[t.name].relative else 0.0
            allowed[t.name] = max(bounds[t.name].relative * norm(want), effect) + least
            noise[t.name] = reals[t.name]
    return Reference(values, rounded_, allowed, noise, all(isfinite(x) for x in allowed.values()))


def in_range(made: Compiled, given: InputSet) -> bool:
    """Whether ``given`` is within the stated range by a single choice of errors, and every output is finite."""
    values = run_spec(made.spec, given.arrays, given.scalars, given.sizes)
    finite = all(np.isfinite(eval_op("cast", [values[t.name]], t.dtype)).all() for t in made.spec.outputs)
    return finite and all(isfinite(x) for x in _effects(made, given, PROBES[:1]).values())


def _effects(made: Compiled, given: InputSet, drawn: tuple[Probe, ...]) -> dict[str, float]:
    program = made.program
    values = run_spec(program, given.arrays, given.scalars, given.sizes)
    how = roundings(program, made.precision)
    return disturbed(program, given.arrays, given.scalars, given.sizes, how, values, drawn)
