"""Which elements of the inputs the results of a Spec need, and which are read under a false condition.

The definitions are visited from the last to the first with the elements that later ones need; every element of a
recurrence counts as needed.  Inside a definition, the condition of a reduction, the condition of a ``select`` and a
structural zero (:mod:`nautilus.frontend.structural`) limit the points at which a load is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nautilus.core.expr.nodes import Expr, Load, Op, Reduce, children
from nautilus.core.index.strides import row_major
from nautilus.core.numerics import Array, eval_op, round_to
from nautilus.core.records import dataclass
from nautilus.core.types import FORMATS, DType
from nautilus.frontend.interp import Evaluator, Tensors, evaluate_all, exactly
from nautilus.frontend.spec import Spec
from nautilus.frontend.structural import absent_from
from nautilus.frontend.values import Value, line_up, union


@dataclass(frozen=True, slots=True)
class Needed:
    """By tensor: the elements that some result needs, and those that some point leaves out by a false condition.

    ``outside``: tensors of which a result needs an element outside of their shapes; this result has no value.
    """

    read: Mapping[str, Array]
    skipped: Mapping[str, Array]
    outside: frozenset[str]


def needed(spec: Spec, inputs: Mapping[str, Array], params: Mapping[str, Any]) -> Needed:
    """What ``spec`` needs of ``inputs``; conditions that read tensors are evaluated on these.

    ``params``: the values of scalars and runtime sizes.
    """
    buffers = Tensors({d.name: d for d in spec.definitions})
    buffers.update(inputs)
    evaluate_all(spec.definitions, buffers, params, exactly)
    read = {name: np.zeros(x.shape, bool) for name, x in buffers.items()}
    skipped = {name: np.zeros(x.shape, bool) for name, x in buffers.items()}
    outside: set[str] = set()
    for d in reversed(spec.definitions):
        whole = d.is_output or d.recurrence is not None
        at = np.ones(buffers[d.name].shape, bool) if whole else read[d.name]
        run = Evaluator(d, buffers, params)
        with np.errstate(all="ignore"):
            _Visit(run, read, skipped, outside).visit(d.expr, Value(at, tuple(a.name for a in d.axes)))
    return Needed(read, skipped, frozenset(outside))


def with_garbage(
    spec: Spec, inputs: Mapping[str, Array], params: Mapping[str, Any], rng: np.random.Generator
) -> dict[str, Array]:
    """``inputs`` with NaN, inf and the largest number where a condition is false.

    They stand at all elements of float tensors that no result needs, and at up to :data:`_FEW` that some point leaves
    out by a condition and another one needs.
    """
    found = needed(spec, inputs, params)
    out = dict(inputs)
    for t in spec.inputs:
        if not t.dtype.is_float:
            continue
        wild = ~found.read[t.name]
        some = np.flatnonzero(found.read[t.name] & found.skipped[t.name])
        wild.flat[rng.choice(some, min(_FEW, some.size), replace=False)] = True
        values = np.array([np.nan, np.inf, -np.inf, FORMATS[t.dtype].largest])
        made = np.where(wild, rng.choice(values, wild.shape), out[t.name])
        out[t.name] = round_to(made, t.dtype)
    return out


_FEW = 3  # elements of a tensor that some results need


@dataclass(frozen=True, slots=True)
class _Visit:
    run: Evaluator
    read: dict[str, Array]
    skipped: dict[str, Array]
    outside: set[str]

    def visit(self, e: Expr, where: Value) -> None:
        """Note the loads of ``e``, which is evaluated at the points ``where``."""
        match e:
            case Op(op="select", args=(c, a, b)):
                self.visit(c, where)
                cond = self.run.value(c)
                self.visit(a, self.both(where, cond))
                self.visit(b, self.both(where, Value(~cond.array, cond.names)))
            case Reduce():
                if e.cond is not None:
                    self.visit(e.cond, where)
                    where = self.both(where, self.run.value(e.cond))
                self.element(e.op, e.body, where)
            case Load():
                for i in e.index:
                    self.visit(i, where)
                self.note(e, where)
            case _:
                for child in children(e):
                    self.visit(child, where)

    def element(self, op: str, e: Expr, where: Value) -> None:
        """Note the loads of the element of a reduction ``op``: a term of a sum may be absent."""
        if op == "sum" and isinstance(e, Op) and e.op in ("add", "sub"):
            for x in e.args:
                self.element(op, x, where)
            return
        missing = absent_from(self.run, op, e)
        self.visit(e, where if missing is None else self.both(where, Value(~missing.array, missing.names)))

    def both(self, a: Value, b: Value) -> Value:
        names = union((a, b), self.run.order)
        return Value(eval_op("and", [line_up(v, names) for v in (a, b)], DType.BOOL), names)

    def note(self, e: Load, where: Value) -> None:
        index = [self.run.value(i) for i in e.index]
        names, sizes = union(index, self.run.order), self.read[e.buffer].shape
        shape = tuple(len(self.run.ranges[n]) for n in names)
        if not all(len(self.run.ranges[n]) for n in (*names, *where.names)):
            return
        places = [line_up(v, names) for v in index]
        holds, fails = (
            np.broadcast_to(self.somewhere(x, where.names, names), shape) for x in (where.array, ~where.array)
        )
        for x, size in zip(places, sizes, strict=True):
            beyond = (x < 0) | (x >= size)
            if np.any(beyond) and np.any(beyond & holds):
                self.outside.add(e.buffer)
        if 0 in sizes:
            return
        inside = (np.clip(x, 0, size - 1) * step for x, size, step in zip(places, sizes, row_major(sizes), strict=True))
        at = np.broadcast_to(sum(inside, np.zeros((), np.int64)), shape)
        for found, there in ((self.read, holds), (self.skipped, fails)):
            found[e.buffer].reshape(-1)[at[there]] = True

    def somewhere(self, x: Array, own: tuple[str, ...], names: tuple[str, ...]) -> Array:
        """For each point of ``names``: whether ``x``, over ``own``, holds at some point of the other variables."""
        gone = tuple(n for n, name in enumerate(own) if name not in names)
        return line_up(Value(np.asarray(x.any(axis=gone)), tuple(n for n in own if n in names)), names)
