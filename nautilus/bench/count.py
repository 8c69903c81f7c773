"""The work of a Spec in floating-point operations and bytes, by a stated convention.

FLOP: 2 for every multiply-add of a sum of products at every needed point of its index space.  Nothing else counts, such
as exponentials, norms and epilogues.  A point is needed where the result can depend on it: a definition is needed only
where the conditions around its reads hold, and a term of a sum is not needed where a factor is the 0 of a conditional
expression.  A causal mask therefore halves the count.  Conditions on indices alone are counted exactly, or over 1024
evenly spaced rows of a large space; a condition that reads a tensor counts as true.

Bytes: every input and every output once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

import numpy as np

from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import TRUE, conjunction
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import (
    Axis,
    Const,
    Expr,
    Load,
    Op,
    Param,
    Reduce,
    Var,
    children,
    free_vars,
    substitute,
    walk,
)
from nautilus.core.expr.products import indexed_factors
from nautilus.frontend.spec import Definition, Spec, extent_at

_EXACT = 1 << 25  # number of points up to which a condition is counted exactly
_ROWS = 1024


def total_bytes(spec: Spec, sizes: Mapping[str, int]) -> int:
    """Bytes of all inputs and outputs, each once."""
    tensors = (*spec.inputs, *spec.outputs)
    return sum(t.dtype.bytes * prod(extent_at(n, sizes) for n in t.shape) for t in tensors)


def flops(spec: Spec, sizes: Mapping[str, int]) -> float:
    """The operations of ``spec`` by the convention above."""
    asked: dict[str, list[Expr]] = {d.name: [TRUE] for d in spec.definitions if d.is_output}
    total = 0.0
    for d in reversed(spec.definitions):
        if d.name not in asked:
            continue
        count = _Counter(spec, d, _either(asked[d.name]), sizes)
        count.visit(d.expr, ())
        total += count.total
        for name, condition in count.reads:
            asked.setdefault(name, []).append(condition)
    return total


class _Counter:
    """Counts the sums of products of one definition, and collects the conditions of its reads of other definitions."""

    def __init__(self, spec: Spec, d: Definition, asked: Expr, sizes: Mapping[str, int]) -> None:
        self.made = {x.name: x for x in spec.definitions}
        self.asked, self.sizes = asked, sizes
        self.extents = {a.name: extent_at(a.extent, sizes) for a in d.axes}
        self.total = 0.0
        self.reads: list[tuple[str, Expr]] = []
        self._seen: set[tuple[int, ...]] = set()
        self._counted: set[int] = set()

    def visit(self, e: Expr, conditions: tuple[Expr, ...]) -> None:
        """Traverse ``e``, which is needed where all ``conditions`` hold."""
        key = (id(e), *map(id, conditions))  # the frontend shares equal nodes
        if key in self._seen:
            return
        self._seen.add(key)
        match e:
            case Load(buffer=name, index=index) if name in self.made:
                self.reads.append((name, self._at(self.made[name], index, conditions)))
            case Op(op="select", args=(c, a, b)):
                self.visit(c, conditions)
                self.visit(a, (*conditions, c))
                self.visit(b, conditions)
                return
            case Reduce(axes=axes, cond=cond, body=body):
                self.extents |= {a.name: extent_at(a.extent, self.sizes) for a in axes}
                inner = conditions if cond is None else (*conditions, cond)
                if e.op == "sum" and len(indexed_factors(body)) > 1:
                    inner = (*inner, *self._nonzero(body))
                    if id(e) not in self._counted:
                        self._count(e, axes, inner)
                    self._counted.add(id(e))
                if cond is not None:
                    self.visit(cond, conditions)
                self.visit(body, inner)
                return
        for child in children(e):
            self.visit(child, conditions)

    def _count(self, e: Reduce, axes: Sequence[Axis], conditions: Iterable[Expr]) -> None:
        names = free_vars(e) | {a.name for a in axes}
        kept = conjunction([c for c in (*conditions, self.asked) if free_vars(c) <= names]) or TRUE
        points = prod(self.extents[n] for n in names)
        self.total += 2.0 * points * fraction(kept, {n: self.extents[n] for n in names})

    def _nonzero(self, body: Expr) -> list[Expr]:
        """Conditions under which no factor of ``body`` is the 0 of a conditional expression."""
        out: list[Expr] = []
        for f in indexed_factors(body):
            value, env = f, None
            if isinstance(f, Load) and f.buffer in self.made:
                d = self.made[f.buffer]
                value, env = d.expr, {a.name: i for a, i in zip(d.axes, f.index, strict=True)}
            if isinstance(value, Op) and value.op == "select" and _is_zero(value.args[2]):
                condition = value.args[0]
                if not any(isinstance(n, (Load, Reduce)) for n in walk(condition)):
                    out.append(condition if env is None else substitute(condition, env))
        return out

    def _at(self, d: Definition, index: Sequence[Expr], conditions: Iterable[Expr]) -> Expr:
        """``conditions`` rewritten over the axes of ``d`` for the read ``d[index]``."""
        names = {i.name: Var(a.name) for i, a in zip(index, d.axes, strict=True) if isinstance(i, Var)}
        known = [c for c in (*conditions, self.asked) if free_vars(c) <= names.keys()]
        if len(names) < len(index):  # a position is computed, so the needed points are unknown
            return TRUE
        return conjunction([substitute(c, dict(names)) for c in known]) or TRUE


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0


def _either(parts: Sequence[Expr]) -> Expr:
    distinct = list(dict.fromkeys(parts))
    if TRUE in distinct:
        return TRUE
    out = distinct[0]
    for p in distinct[1:]:
        out = calc("or", out, p)
    return out


def fraction(condition: Expr, extents: Mapping[str, int]) -> float:
    """The share of the index space where ``condition`` holds (a condition on data counts as true)."""
    names = sorted(free_vars(condition) & extents.keys())
    if not names or any(isinstance(n, (Load, Param, Reduce)) for n in walk(condition)):
        return 1.0
    points = {n: np.arange(extents[n], dtype=np.int64) for n in names}
    while prod(len(p) for p in points.values()) > _EXACT:
        widest = max(names, key=lambda n: len(points[n]))
        if len(points[widest]) <= _ROWS:
            break
        size = extents[widest]
        points[widest] = ((np.arange(_ROWS) + 0.5) * size / _ROWS).astype(np.int64)
    env = {n: points[n].reshape([-1 if m == n else 1 for m in names]) for n in names}
    kept = np.broadcast_to(evaluate(condition, env), tuple(len(points[n]) for n in names))
    return float(np.count_nonzero(kept)) / kept.size
