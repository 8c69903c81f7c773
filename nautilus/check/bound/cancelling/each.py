"""The allowed errors on given inputs: of each element of an output whose largest errors are without a bound or that
decisions change, and the norms of those of outputs whose stated figure may not hold on these inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite, sqrt
from typing import Any, Final

import numpy as np

from nautilus.check.bound.bound import Bound
from nautilus.check.bound.choices import Roundings
from nautilus.check.bound.exactness import unit
from nautilus.check.bound.probes import EVEN, errors, even, largest, margin, probes
from nautilus.check.compare import floor, norm
from nautilus.core.numerics import Array
from nautilus.core.types import DType
from nautilus.frontend.interp import run_spec
from nautilus.frontend.spec import Spec

#: Errors under the roundings on given inputs that a single element may have: a few choices of errors are known.
_SINGLE: Final = 4.0


def of_each(values: Array, dtype: DType, bound: Bound, effect: Array) -> Array:
    """The allowed errors of the elements ``values``, inf for any value; ``effect``: under roundings on these inputs.

    The largest errors would hide all others in a norm, so each element has an allowed error of its own: some times that
    under the roundings, and the stated one of a typical element.
    """
    part = np.sort(np.abs(values[np.isfinite(values)]))
    rest = part[: part.size - int(bound.left_out * part.size)]
    typical = bound.relative * norm(rest) / sqrt(max(1, rest.size))
    size = np.where(np.isfinite(values), np.abs(values), 0.0)
    return np.asarray(_SINGLE * effect + unit(dtype) * size + typical + floor(dtype))


def allowed(
    program: Spec, arrays: Mapping[str, Array], scalars: Mapping[str, Any], bounds: Mapping[str, Bound], how: Roundings
) -> dict[str, Array]:  # fmt: skip
    """The allowed errors of the elements of those outputs of ``program`` whose bound leaves the largest errors out."""
    left = [t for t in program.outputs if bounds[t.name].by_element]
    if not left:
        return {}
    values = run_spec(program, arrays, scalars)
    found = largest(errors(program, arrays, scalars, {}, how, values, probes(0, bounds.values())))
    return {t.name: of_each(values[t.name], t.dtype, bounds[t.name], found[t.name].each) for t in left}


def of_inputs(
    program: Spec, arrays: Mapping[str, Array], scalars: Mapping[str, Any], bounds: Mapping[str, Bound], how: Roundings
) -> dict[str, float]:
    """The norm of the errors that roundings on these inputs allow in those outputs of ``program`` whose bound does not
    hold on all inputs."""
    left = [t for t in program.outputs if bounds[t.name].rare_inputs and not bounds[t.name].by_element]
    if not left:
        return {}
    values = run_spec(program, arrays, scalars)
    effects = largest(errors(program, arrays, scalars, {}, how, values, probes(0)))
    units = {t.name: unit(t.dtype) * norm(values[t.name]) + floor(t.dtype) for t in left}
    found = {t.name: margin(values[t.name].size) * effects[t.name].norm + units[t.name] for t in left}
    return {n: x for n, x in found.items() if isfinite(x)}


def of_uneven(
    program: Spec, arrays: Mapping[str, Array], scalars: Mapping[str, Any], how: Roundings,
    cut: Callable[[str, Array], Array],
) -> dict[str, float]:  # fmt: skip
    """The norm of the errors that roundings on these inputs allow in those outputs of ``program`` of which few elements
    have most of the norm of the values or of the errors.

    The norm of such an output at a few of its elements, or on other inputs, is that of other few elements, whose
    relative errors differ, so that the stated figure says little about it.  ``cut``: the part of an output, by its
    name, that is compared.
    """
    values = run_spec(program, arrays, scalars)
    moved = errors(program, arrays, scalars, {}, how, values, probes(0))
    effects = largest({n: cut(n, x) for n, x in each.items()} for each in moved)
    found = {}
    for t in program.outputs:
        if not t.dtype.is_float:
            continue
        part, effect = cut(t.name, values[t.name]), effects[t.name]
        few = min(even(effect.each), even(part))
        if few < EVEN:
            size = norm(part)
            found[t.name] = margin(few) * effect.norm + unit(t.dtype) * size + sqrt(part.size) * floor(t.dtype)
    return {n: x for n, x in found.items() if isfinite(x)}
