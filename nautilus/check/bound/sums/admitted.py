"""Sums whose conditions admit few of their terms.

The rows of a sparse matrix, segments, and the elements that a key chooses have few of all terms each::

    y[i] = sum[e: ptr[i] .. ptr[i + 1]](val[e] * x[col[e]])          Y[i, d] = sum[t | key[t] == i](X[t, d])

Such a sum is a chain of as many additions as it has terms.  Where each term belongs to one element of the result, an
element has on average as many as there are terms for each element, and :data:`_UNEVEN` times as many are taken.

Where sums are shortened, no sampled term may be one of a sampled element, so that all values are 0 and no error is
seen.  :func:`without` is the spec without such conditions: every term is then one of each element, as if a row were a
dense one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Final

from nautilus.core.expr.conditions import all_conjuncts, conjunction
from nautilus.core.expr.nodes import Const, Expr, Op, Reduce, Var, free_vars, loads, rewrite, substitute, walk
from nautilus.core.types import DType
from nautilus.frontend.spec import Definition, Spec
from nautilus.planner.rowwise.segments import ends_of, follow

Lengths = Mapping[tuple[str, tuple[str, ...]], int]
_UNEVEN: Final = 8  # quotient of the terms of a long row and of an average one
_LEAST: Final = 1024  # least number of terms of a long row


def lengths(spec: Spec) -> dict[tuple[str, tuple[str, ...]], int]:
    """The number of terms of every reduction, by its definition and its axes; conditions do not count."""
    return {(d.name, names(e)): count(e) for d, e in _reductions(spec)}


def averages(spec: Spec) -> dict[tuple[str, tuple[str, ...]], int]:
    """The number of terms of every reduction, of which conditions admit an average share."""
    return {(d.name, names(e)): -(-count(e) // _shares(d, e)) for d, e in _reductions(spec)}


def chains(spec: Spec) -> dict[tuple[str, tuple[str, ...]], int]:
    """The number of terms of every reduction, as an element with many of them has."""
    most = {key: max(_LEAST, _UNEVEN * n) for key, n in averages(spec).items()}
    return {key: min(n, most[key]) for key, n in lengths(spec).items()}


def _reductions(spec: Spec) -> Iterator[tuple[Definition, Reduce]]:
    return ((d, e) for d in spec.definitions for e in walk(d.expr) if isinstance(e, Reduce))


def _shares(d: Definition, e: Reduce) -> int:
    """The number of elements of ``d`` of which one has a term of ``e``."""
    own = {a.name: a.extent for a in d.axes}
    return max(1, prod(n for name in _sharing(e) if isinstance(n := own.get(name, 1), int)))


def _sharing(e: Reduce) -> frozenset[str]:
    """The variables outside of ``e`` whose values share its terms: at most one of them admits a term."""
    over = {a.name for a in e.axes}
    found = {name for c in all_conjuncts(e.cond) if (name := _keyed(c, over))}
    for axis, start, end in ends_of(e.cond):
        if axis in over and follow(start, end):
            found |= free_vars(start) - over
    return frozenset(found)


def _keyed(c: Expr, over: Collection[str]) -> str | None:
    """The variable that the part ``c`` of a condition equates with a value of each term."""
    for a, key in (c.args, c.args[::-1]) if isinstance(c, Op) and c.op == "eq" else ():
        if isinstance(a, Var) and a.name not in over and free_vars(key) and free_vars(key) <= set(over):
            return a.name
    return None


def count(e: Reduce) -> int:
    """The number of terms of ``e`` without its condition."""
    return prod(a.extent for a in e.axes if isinstance(a.extent, int))


def names(e: Reduce) -> tuple[str, ...]:
    """The names of the axes of ``e``."""
    return tuple(a.name for a in e.axes)


def without(spec: Spec, every: bool = False) -> Spec:
    """``spec`` without the parts of conditions that read memory or share terms, or without ``every`` part.

    A choice of a value or 0 has such a condition too.  Where a condition says which term there is, as in
    ``sum[k | k == token[i]](E[k, d])``, that is read.  The same object where there are no such conditions.
    """

    def rule(e: Expr) -> Expr | None:
        match e:
            case Reduce(cond=cond) if cond is not None:
                return _of_one(e) or _changed(e, replace(e, cond=_left(cond, {a.name for a in e.axes}, every)))
            case Op(op="select", args=(c, a, Const(value=0))) if e.dtype is not DType.BOOL and loads(c):
                left = _left(c, (), every)
                return a if left is None else _changed(e, replace(e, args=(left, a, e.args[2])))
        return None

    made = tuple(replace(d, expr=rewrite(d.expr, rule)) for d in spec.definitions)
    return spec if made == spec.definitions else replace(spec, definitions=made)


def _changed(e: Expr, made: Expr) -> Expr | None:
    return None if made == e else made


def _of_one(e: Reduce) -> Expr | None:
    """The reduction ``e`` without an axis of which its condition chooses one index; None where there is none."""
    over = {a.name for a in e.axes}
    for c in all_conjuncts(e.cond):
        for a, key in (c.args, c.args[::-1]) if isinstance(c, Op) and c.op == "eq" else ():
            if isinstance(a, Var) and a.name in over and loads(key) and not free_vars(key) & over:
                at = {a.name: key if key.dtype is a.dtype else Op("cast", (key,), a.dtype)}
                rest = [substitute(p, at) for p in all_conjuncts(e.cond) if p is not c and not loads(p)]
                axes = tuple(x for x in e.axes if x.name != a.name)
                body = substitute(e.body, at)
                return replace(e, axes=axes, cond=conjunction(rest), body=body) if axes else body
    return None


def _left(c: Expr, over: Collection[str], every: bool) -> Expr | None:
    """The parts of the condition ``c`` that stay; None where there are none."""
    return conjunction(p for p in (() if every else all_conjuncts(c)) if not loads(p) and _keyed(p, over) is None)
