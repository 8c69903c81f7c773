"""Sums of which some terms are evaluated have the size that they have with all of them.

A mean divides by the number of all terms, and a function of a sum, or a constant beside it, depends on its size: where
an eighth of the terms remains, the excess of a kurtosis over 3 would be 21 instead of 0.  Each such sum is multiplied
by a number, whose product counts as exact.  Terms of one sign add up to the number of terms, and terms of random signs
to its root: in a chain of products, errors then grow from one to the next as they do at full size.  Which of them a sum
has is read off its size beside that of the sum of the magnitudes.

Terms from which their own mean is subtracted add up to 0, and the rounding errors of such a difference have one sign.
So a sum that other sums over the same terms read, the same for each of their terms, has the size of one whose terms are
repeated, and so have these others: that values then fall with the number of terms is seen in still shorter sums.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from nautilus.check.bound.sums.admitted import Lengths, count, names
from nautilus.check.compare import norm
from nautilus.core.expr.nodes import Const, Expr, Op, Reduce, free_vars, loads, rewrite, walk
from nautilus.core.numerics import Array
from nautilus.core.types import DType, Number
from nautilus.frontend.interp import run_spec
from nautilus.frontend.spec import Definition, Spec, Tensor

_RANDOM: Final = 4.0  # how much larger than that of random signs a sum is that counts as one of equal signs
_EQUAL: Final = 0.75  # the same as a part of the sum of magnitudes, for few terms


def at_full_size(
    cut: Spec, whole: Lengths, arrays: Mapping[str, Array], scalars: Mapping[str, Number]
) -> tuple[Spec, frozenset[float]]:  # fmt: skip
    """``cut`` with its sums multiplied, where ``whole`` says that they have more terms, and the factors.

    The signs of terms are those on the inputs ``arrays``.
    """
    sums = {(d.name, e): whole[d.name, names(e)] / n for d, e in _sums(cut) if (n := count(e))}
    fewer = {key: times for key, times in sums.items() if times > 1.0}
    if not fewer:
        return cut, frozenset()
    repeated = _read_by_sums(cut, fewer)
    probes = [_probes(cut, name, e, n) for n, (name, e) in enumerate(fewer)]
    outputs = tuple(Tensor(p.name, p.stored, p.shape) for group in probes for p in group)
    made = (*cut.definitions, *(p for group in probes for p in group))
    found = run_spec(replace(cut, outputs=outputs, definitions=made), arrays, scalars)
    factors = dict[tuple[str, Expr], float]()
    for (key, times), group in zip(fewer.items(), probes, strict=True):
        total, magnitude, *number = (found[p.name] for p in group)
        kept = float(np.mean(number[0])) if number else float(count(key[1]))
        least = min(_RANDOM, _EQUAL * kept**0.5)
        equal = norm(total) * kept**0.5 > least * norm(magnitude) or key in repeated
        factor = times if equal else times**0.5
        factors[key] = float(round(factor)) if key[1].dtype.is_int else factor
    made = tuple(_multiplied(d, factors) for d in cut.definitions)
    return replace(cut, definitions=made), frozenset(factors.values())


def _read_by_sums(spec: Spec, fewer: Collection[tuple[str, Reduce]]) -> frozenset[tuple[str, Reduce]]:
    """Those of the sums ``fewer`` that others of as many terms read at indices that are the same for all terms, and
    these others."""
    made = {d.name: d for d in spec.definitions}
    found = set[tuple[str, Reduce]]()
    for name, e in fewer:
        extents = {a.extent for a in e.axes}
        left = [(ld, frozenset(a.name for a in e.axes)) for ld in loads(e.body) if ld.buffer in made]
        while left:
            ld, terms = left.pop()
            d = made[ld.buffer]
            along = frozenset(a.name for a, x in zip(d.axes, ld.index, strict=True) if free_vars(x) & terms)
            own = {k for k in fewer if k[0] == d.name and not free_vars(k[1]) & along}
            same = {k for k in own if {a.extent for a in k[1].axes} & extents}
            found |= {*same, (name, e)} if same else same
            left += [(x, along) for x in loads(_without_reductions(d.expr)) if x.buffer in made]
    return frozenset(found)


def _without_reductions(e: Expr) -> Expr:
    return rewrite(e, lambda x: _number(0.0, x.dtype) if isinstance(x, Reduce) else None)


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
