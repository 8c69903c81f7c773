"""The figure of an output without its largest errors, which have no bound."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from math import isfinite
from typing import Final

import numpy as np

from nautilus.check.bound.bound import Bound
from nautilus.check.bound.cancelling import tails
from nautilus.check.bound.probes import FEW
from nautilus.check.compare import norm, without_largest
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass

#: The shares of elements, and the share of inputs, that a figure may leave out.  The first share that gives a figure is
#: taken: where one element in twenty has no value on one side of a rounding, a smaller share gives none.
ELEMENTS: Final = (1 / 100, 1 / 20, 1 / 4)
INPUTS: Final = 1 / 16
_LEAST: Final = 4  # least number of elements that are left out, where the output has this many
_MARGIN: Final = 1.1  # factor between what was found and what is stated
_DECIDES: Final = 2.0  # the figure with the largest errors, in units of that without them


@dataclass(frozen=True, slots=True)
class Sample:
    """Errors of an output of ``size`` elements, or of more that have so few values that may cancel, each in a group.

    ``errors``: for each choice of errors, those of the elements on each input.  ``values``: the output on each input.
    """

    errors: Sequence[Sequence[Array]]
    values: Sequence[Array]
    size: int

    @property
    def per_input(self) -> bool:
        """Whether there are so few elements or groups of them that inputs are left out instead."""
        return self.size < FEW

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares that may be left out."""
        return (INPUTS,) if self.per_input else tuple(max(x, min(1 / 2, _LEAST / self.size)) for x in ELEMENTS)

    @property
    def grows(self) -> bool:
        """Whether the norm of the errors of all elements is that of a few."""
        each = np.max([np.stack(e) for e in self.errors], axis=0)
        return not self.per_input and tails.grows(each, np.stack(self.values))

    def figures(self, share: float) -> tuple[float, float]:
        """The largest relative error of everything, and without ``share``."""
        found = [_both(e, self.values, share, self.per_input) for e in self.errors]
        return max(f[0] for f in found), max(f[1] for f in found)


def bound(samples: Sequence[Sample], unit: float, decide: bool) -> Bound | None:
    """The bound of an output without its largest errors, by the sample in which they are largest in comparison with
    the others; None where they decide in none, and not at the full size (``decide``)."""
    for share in samples[0].shares:
        found = [s.figures(share) for s in samples]
        full, rest = max(found, key=lambda f: f[0] / f[1] if f[1] > 0.0 else 0.0)
        if not decide and full <= _DECIDES * rest:
            return None
        stated = _MARGIN * rest + unit
        if isfinite(stated):
            break
    return Bound(stated, rare_inputs=share) if samples[0].per_input else Bound(stated, left_out=share)


def _both(errors: Sequence[Array], values: Sequence[Array], share: float, per_input: bool) -> tuple[float, float]:
    """The relative error of everything, and without a share of the elements or of the inputs."""
    if per_input:
        ratios = np.array([_ratio(e, x) for e, x in zip(errors, values, strict=True)])
        return float(ratios.max()), float(np.sort(ratios)[: len(ratios) - max(1, int(share * len(ratios)))].max())
    # The largest of the errors that are left vary between inputs.
    full, rest = (max(map(without_largest, errors, values, repeat(x))) for x in (0.0, share))
    return full, rest


def _ratio(error: Array, values: Array) -> float:
    size = norm(values)
    return norm(error) / size if size > 0.0 and not np.isinf(error).any() else float("inf" if np.any(error) else 0)
