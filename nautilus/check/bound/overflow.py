"""Whether a number of a Spec leaves the range of f32 on given inputs, which an output need not show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nautilus.check.bound.sums.orders import LARGEST
from nautilus.core.expr.nodes import Expr
from nautilus.core.numerics import Array
from nautilus.core.types import DType
from nautilus.frontend.interp import Evaluator, run_spec
from nautilus.frontend.spec import Definition, Spec
from nautilus.frontend.values import Value


def overflows(
    spec: Spec, arrays: Mapping[str, Array], scalars: Mapping[str, Any], sizes: Mapping[str, int]
) -> bool:  # fmt: skip
    """Whether a finite number of type f32 is beyond f32, over the reals."""
    found: list[str] = []

    def evaluate(d: Definition, buffers: Mapping[str, Array], params: Mapping[str, Any]) -> tuple[Array, Array]:
        evaluator = _Watching(d, buffers, params)
        made = evaluator.run()
        if evaluator.beyond:
            found.append(d.name)
        return made, made

    with np.errstate(all="ignore"):
        run_spec(spec, arrays, scalars, sizes, evaluate)
    return bool(found)


class _Watching(Evaluator):
    """The evaluation of one definition, which notes numbers beyond f32."""

    beyond = False

    def compute(self, e: Expr) -> Value:
        made = super().compute(e)
        if e.dtype is DType.F32:
            size = np.abs(made.array)
            self.beyond |= bool(np.any(np.isfinite(size) & (size > LARGEST)))
        return made
