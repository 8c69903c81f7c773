"""Sums of which some terms are evaluated have the size that they have with all of them.

A mean divides by the number of all terms, and a function of a sum, or a constant beside it, depends on its size: where
an eighth of the terms remains, the excess of a kurtosis over 3 would be 21 instead of 0.  Each such sum is multiplied
by a power of two, which is exact.  Terms of one sign add up to the number of terms, and terms of random signs to its
root.  Which of them a sum has is read off its size beside that of the sum of the magnitudes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import log2
from typing import Final

import numpy as np

from nautilus.check.bound.sums.admitted import Lengths, count, names
from nautilus.check.compare import norm
from nautilus.core.expr.nodes import Const, Expr, Op, Reduce, free_vars, rewrite, walk
from nautilus.core.numerics import Array
from nautilus.core.types import DType, Number
from nautilus.frontend.interp import run_spec
from nautilus.frontend.spec import Definition, Spec, Tensor

_RANDOM: Final = 4.0  # how much larger than that of random signs a sum is that counts as one of equal signs


def at_full_size(cut: Spec, whole: Lengths, arrays: Mapping[str, Array], scalars: Mapping[str, Number]) -> Spec:
    """``cut`` with its sums multiplied, where ``whole`` says that they have more terms; on the inputs ``arrays``."""
    sums = {(d.name, e): whole[d.name, names(e)] / n for d, e in _sums(cut) if (n := count(e))}
    fewer = {key: times for key, times in sums.items() if times > 1.0}
    if not fewer:
        return cut
    probes = [_probes(cut, name, e, n) for n, (name, e) in enumerate(fewer)]
    outputs = tuple(Tensor(p.name, p.stored, p.shape) for group in probes for p in group)
    made = (*cut.definitions, *(p for group in probes for p in group))
    found = run_spec(replace(cut, outputs=outputs, definitions=made), arrays, scalars)
    factors = dict[tuple[str, Expr], float]()
    for (key, times), group in zip(fewer.items(), probes, strict=True):
        total, magnitude, *number = (found[p.name] for p in group)
        kept = float(np.mean(number[0])) if number else float(count(key[1]))
        equal = norm(total) * kept**0.5 > _RANDOM * norm(magnitude)
        factors[key] = 2.0 ** round(log2(times) * (1.0 if equal else 0.5))
    return replace(cut, definitions=tuple(_multiplied(d, factors) for d in cut.definitions))


def _sums(spec: Spec) -> Iterator[tuple[Definition, Reduce]]:
    """The sums that depend on indices of their definition alone."""
    for d in spec.definitions:
        axes = {a.name for a in d.axes}
        for e in walk(d.expr) if d.recurrence is None else ():
            if isinstance(e, Reduce) and e.op == "sum" and free_vars(e) <= axes:
                yield d, e


def _probes(spec: Spec, name: str, e: Reduce, n: int) -> list[Definition]:
    """Definitions of the sum ``e``, of that of the magnitudes, and under a condition of the number of terms."""
    d = replace(spec.definition(name), dtype=None, is_output=True)
    bodies = {"sum": e.body, "magnitude": Op("abs", (e.body,), e.body.dtype)}
    if e.cond is not None:
        bodies["number"] = _number(1.0, e.body.dtype)
    return [replace(d, name=f"{name}__{x}{n}", expr=replace(e, body=body)) for x, body in bodies.items()]


def _multiplied(d: Definition, factors: Mapping[tuple[str, Expr], float]) -> Definition:
    def rule(e: Expr) -> Expr | None:
        factor = factors.get((d.name, e), 1.0) if isinstance(e, Reduce) else 1.0
        return None if factor == 1.0 else Op("mul", (e, _number(factor, e.dtype)), e.dtype)

    return replace(d, expr=rewrite(d.expr, rule))


def _number(value: float, dtype: DType) -> Const:
    return Const(int(value) if dtype.is_int else value, dtype)
