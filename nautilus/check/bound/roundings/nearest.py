"""An evaluation in which each result is the nearest number of its type, as a kernel has it, with no chosen errors.

A product that is added at once is not rounded, as a fused multiply-add leaves it (PTX ISA, ``fma.rn``).  Such roundings
are no random errors: ``u + 0.1 * x`` is rounded in one direction where ``x`` is five units in the last place of ``u``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nautilus.core.expr.nodes import Expr, Load, Op, walk
from nautilus.core.numerics import Array, round_to
from nautilus.core.records.memo import by_identity
from nautilus.core.types import DType
from nautilus.frontend.interp import Evaluator, run_spec
from nautilus.frontend.spec import Definition, Spec
from nautilus.frontend.values import Value


def run_nearest(program: Spec, inputs: Mapping[str, Any], scalars: Mapping[str, Any], steps: int) -> dict[str, Array]:
    """The outputs of ``program``, unrounded; ``steps``: of recurrences, at most."""

    def evaluate(d: Definition, buffers: Mapping[str, Array], params: Mapping[str, Any]) -> tuple[Array, Array]:
        made = _Nearest(d, buffers, params).run()
        return made, round_to(made, d.stored)

    with np.errstate(all="ignore"):
        return run_spec(program, inputs, scalars, {}, evaluate, steps)


class _Nearest(Evaluator):
    def compute(self, e: Expr) -> Value:
        """The value of ``e`` as the nearest numbers of the type that computes them."""
        value = super().compute(e)
        target = _targets(self.d.expr).get(id(e))
        return value if target is None else Value(round_to(value.array, target), value.names)


@by_identity(1 << 8)
def _targets(e: Expr) -> Mapping[int, DType]:
    """By identity, the types to which the results in ``e`` are rounded.

    One product of each sum is none of them: it is added at once.
    """
    nodes = list(walk(e))
    sums = (n for n in nodes if isinstance(n, Op) and n.op in ("add", "sub"))
    products = ([a for a in n.args if isinstance(a, Op) and a.op == "mul"] for n in sums)
    fused = {id(found[0]) for found in products if found}
    rounded = (n for n in nodes if n.dtype.is_float and not isinstance(n, Load) and id(n) not in fused)
    return {id(n): n.dtype if isinstance(n, Op) and n.op == "cast" else n.dtype.compute for n in rounded}
