"""The last rounding of an output: what its element type, or the type in which it is computed, does to its values."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot, prod, sqrt

import numpy as np

from nautilus.check.bound.cancelling.ties import FLIPS
from nautilus.check.bound.exactness import copies, keeps, rounds_at_store, unit
from nautilus.check.compare import norm, spacing
from nautilus.core.expr.nodes import Op
from nautilus.core.numerics import Array
from nautilus.core.types import DType
from nautilus.frontend.spec import Spec, Tensor


def last_unit(spec: Spec, t: Tensor) -> float:
    """The unit roundoff of the last rounding of output ``t``; an output of f64 may be computed in f32.

    Where the values are already numbers of the type, as those that a maximum chooses, it is 0 for elements of inputs.
    Of those that were rounded before, a few are rounded the other way.
    """
    d = spec.definition(t.name)
    if d.stored.bits <= 16 and not rounds_at_store(spec, d):
        size = prod(n for n in t.shape if isinstance(n, int))
        few = 2.0 * sqrt(max(1.0 / FLIPS, 1.0 / max(1, size)))
        return 0.0 if copies(spec, d) else min(1.0, few) * unit(t.dtype)
    e = d.expr
    while isinstance(e, Op) and e.op == "cast" and e.dtype is DType.F64:
        e = e.args[0]
    return max(unit(t.dtype), unit(e.dtype.compute) if e.dtype.is_float else 0.0)


def last_rounding(spec: Spec, t: Tensor, values: Sequence[Array]) -> float:
    """The largest error of the last rounding of output ``t``, relative to its ``values`` on each of some inputs.

    It is the unit roundoff, and more where many elements are denormal numbers of the type.  It is 0 where the type is
    the one in which the values are computed: their operations have their roundings.
    """
    if t.dtype.bits > 16 and keeps(t.dtype, spec.definition(t.name).expr.dtype):
        return 0.0
    last = last_unit(spec, t)
    if t.dtype.bits <= 16 and not rounds_at_store(spec, spec.definition(t.name)):
        return last
    errors = [np.where(x == 0.0, 0.0, np.minimum(0.5 * spacing(x, t.dtype), np.abs(x))) for x in values]
    size = hypot(*map(norm, values))
    denormal = hypot(*map(norm, errors)) / size if size > 0.0 else 0.0
    return max(last, denormal if denormal > 1.01 * unit(t.dtype) else 0.0)
