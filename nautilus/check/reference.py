"""What a result on given inputs is compared with, and how far it may be off.

The model of ``frontend.error_bound`` takes inputs of ordinary size.  What *given* inputs do (large logits,
cancellation) is measured, not modelled: :class:`Reference` adds to the stated bound four times the error of the
spec evaluated as written, one rounding an operation; eight times the change of the result when the
float inputs change by ``u`` (2^17 times where products of 8-bit floats are added in few bits); and, per
element, what flushing denormals to 0 may lose.  Zero and constant inputs are covered because these are
absolute terms.  For the hardware's ``tanh`` and ``erf`` it
takes three times the changes of the result when these change by their errors, all in one direction and
each in its own, instead of the stated part: that one is for exponents of 16, and 1 + tanh(-3) cancels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from nautilus.check.compare import floor, norm
from nautilus.check.inputs import InputSet
from nautilus.core.numerics import Array, eval_op
from nautilus.core.types import DType
from nautilus.frontend.error_bound import U32, Bound, approximated
from nautilus.frontend.spec import Spec

#: The spec as written, one rounding an operation: outputs by name.
Naive = Callable[[InputSet], Mapping[str, Array]]


@dataclass(frozen=True, slots=True)
class Reference:
    """What a result on one input set is compared with.

    ``values``: the Spec in float64, unrounded; ``rounded``: in the output's type (f32 and f64: as they
    are); ``allowed``: absolute norm of the error; ``noise``: how much float64 itself may be off;
    ``in_range``: evaluating the spec as written in its compute types gives inf and NaN nowhere else;
    ``faithful``: and nothing overflowed or vanished on the way (its error is below 1%).
    """

    values: Mapping[str, Array]
    rounded: Mapping[str, Array]
    allowed: Mapping[str, float]
    noise: Mapping[str, float]
    in_range: bool
    faithful: bool


def reference(spec: Spec, given: InputSet, bounds: Mapping[str, Bound], naive: Naive) -> Reference:
    """Run ``spec`` in float64 on ``given`` (twice) and as written (once), and say what is allowed."""
    from nautilus.frontend.interp import run_spec

    values = run_spec(spec, given.arrays, given.scalars, given.sizes)
    wide, shaken = _shaken(spec, given)
    moved = run_spec(wide, shaken, given.scalars, given.sizes)
    rough = approximated(spec) if any(b.hardware for b in bounds.values()) else ()
    coarse = [run_spec(s, given.arrays, given.scalars, given.sizes) for s in rough]
    written = naive(given)
    rounded: dict[str, Array] = {}
    allowed: dict[str, float] = {}
    noise: dict[str, float] = {}
    in_range = faithful = True
    for t in spec.outputs:
        want = rounded[t.name] = eval_op("cast", [values[t.name]], t.dtype)
        if not t.dtype.is_float:
            allowed[t.name] = noise[t.name] = 0.0
            continue
        got = np.asarray(written[t.name], np.float64)
        in_range &= bool(np.array_equal(np.isfinite(got), np.isfinite(want)))
        with np.errstate(all="ignore"):
            drift = norm(moved[t.name] - values[t.name])
            off = norm(got - want)
        noise[t.name] = drift * 2.0**-20
        tiny = floor(t.dtype) * sqrt(max(1, want.size))
        faithful &= off <= 0.01 * norm(want) + tiny
        stated = bounds[t.name].relative - bounds[t.name].hardware
        shaking = 8.0 + 2.0**17 * bounds[t.name].short
        allowed[t.name] = stated * norm(want) + 4.0 * off + shaking * drift + tiny
        with np.errstate(all="ignore"):
            allowed[t.name] += 3.0 * sum(norm(c[t.name] - values[t.name]) for c in coarse if bounds[t.name].hardware)
    return Reference(values, rounded, allowed, noise, in_range, in_range and faithful)


def _shaken(spec: Spec, given: InputSet) -> tuple[Spec, dict[str, Array]]:
    """The spec with float inputs taken as f64, and inputs changed by ``u`` up or down at random."""
    rng = np.random.default_rng(given.seed)
    wide = tuple(replace(t, dtype=DType.F64) if t.dtype.is_float else t for t in spec.inputs)
    arrays = {
        t.name: x * (1.0 + U32 * rng.choice([-1.0, 1.0], np.shape(x))) if t.dtype.is_float else x
        for t, x in ((t, given.arrays[t.name]) for t in spec.inputs)
    }
    return replace(spec, inputs=wide), arrays
