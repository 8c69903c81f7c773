"""Whether a number of a Spec leaves the range of f32 on given inputs, which an output need not show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nautilus.check.bound.sums.orders import LARGEST
from nautilus.core.expr.nodes import Expr
from nautilus.core.numerics import Array
from nautilus.core.types import DType
from nautilus.frontend.interp import Evaluator, exactly, run_spec
from nautilus.frontend.spec import Definition, Spec
from nautilus.frontend.values import Value


def overflows(
    spec: Spec, arrays: Mapping[str, Array], scalars: Mapping[str, Any], sizes: Mapping[str, int]
) -> bool:  # fmt: skip
    """Whether a finite number of type f32 is beyond f32, over the reals."""
    watch = Watch(LARGEST, inside=True)
    with np.errstate(all="ignore"):
        run_spec(spec, arrays, scalars, sizes, watch)
    return watch.found


class Watch:
    """Evaluates definitions in float64 for :func:`~nautilus.frontend.interp.run_spec`.

    A finite value of type f32 whose magnitude is above ``most`` is inf for the readers of its definition, and sets
    ``found``.  ``inside``: numbers inside of a definition set ``found`` too.
    """

    def __init__(self, most: float, inside: bool = False) -> None:
        self.most, self.inside, self.found = most, inside, False

    def __call__(self, d: Definition, buffers: Mapping[str, Array], params: Mapping[str, Any]) -> tuple[Array, Array]:
        """The values of ``d``, and what its readers see."""
        evaluator = _Watching(d, buffers, params, self) if self.inside else None
        made, seen = exactly(d, buffers, params, evaluator)
        beyond = self.beyond(made) if d.expr.dtype is DType.F32 else None
        if beyond is None or not beyond.any():
            return made, seen
        self.found = True
        made, seen = (np.where(beyond, np.copysign(np.inf, made), x) for x in (made, seen))
        return made, seen

    def beyond(self, x: Array) -> Array:
        """Which elements of ``x`` are finite and above ``most`` in magnitude."""
        return np.asarray(np.isfinite(x) & (np.abs(x) > self.most))


class _Watching(Evaluator):
    """The evaluation of one definition, which tells ``watch`` of its numbers."""

    shares = False

    def __init__(self, d: Definition, buffers: Mapping[str, Array], params: Mapping[str, Any], watch: Watch) -> None:
        super().__init__(d, buffers, params)
        self.watch = watch

    def compute(self, e: Expr) -> Value:
        """The value of ``e``."""
        made = super().compute(e)
        if e.dtype is DType.F32:
            self.watch.found |= bool(self.watch.beyond(made.array).any())
        return made
