"""An evaluation in which each result is the nearest number of its type, as a kernel has it, with no chosen errors.

A product that is added at once is not rounded, as a fused multiply-add leaves it (PTX ISA, ``fma.rn``).  Such roundings
are no random errors: ``u + 0.1 * x`` is rounded in one direction where ``x`` is five units in the last place of ``u``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from nautilus.core.expr.nodes import Expr, Load, Op, walk
from nautilus.core.numerics import Array, round_to
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
        if not e.dtype.is_float or isinstance(e, Load) or id(e) in self.fused:
            return value
        target = e.dtype if isinstance(e, Op) and e.op == "cast" else e.dtype.compute
        return Value(round_to(value.array, target), value.names)

    @cached_property
    def fused(self) -> frozenset[int]:
        """The products that are added at once, one of each sum, by identity."""
        sums = (n for n in walk(self.d.expr) if isinstance(n, Op) and n.op in ("add", "sub"))
        products = ([a for a in n.args if isinstance(a, Op) and a.op == "mul"] for n in sums)
        return frozenset(id(found[0]) for found in products if found)
