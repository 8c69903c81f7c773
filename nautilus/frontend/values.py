"""Arrays whose dimensions are named by index variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import field
from functools import lru_cache
from math import prod

import numpy as np

from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Var, children
from nautilus.core.functions.arrays import every
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.core.types import DType


@dataclass(frozen=True, slots=True)
class Value:
    """An array with one dimension for each of ``names``, whose size is that variable's current extent."""

    array: Array
    names: tuple[str, ...]


def union(values: Iterable[Value], order: Mapping[str, int]) -> tuple[str, ...]:
    """The variables that any of ``values`` depends on, in ``order``."""
    found = {v.names for v in values if v.names}
    if len(found) <= 1:  # those of most operations, which are in order
        return next(iter(found), ())
    return tuple(sorted({n for names in found for n in names}, key=order.__getitem__))


def line_up(v: Value, names: tuple[str, ...]) -> Array:
    """``v.array`` with a dimension for each of ``names`` (1 where ``v`` does not depend on it)."""
    if v.names == names:
        return v.array
    order, places = _placed(v.names, names)
    array = v.array if order is None else v.array.transpose(order)
    return array.reshape([1 if at is None else array.shape[at] for at in places])


@lru_cache(1 << 10)
def _placed(own: tuple[str, ...], names: tuple[str, ...]) -> tuple[tuple[int, ...] | None, tuple[int | None, ...]]:
    """The order of the dimensions of ``own`` (None: as they are), and the place of each of ``names`` among these."""
    ordered = sorted(own, key=names.index)
    order = tuple(own.index(n) for n in ordered) if list(own) != ordered else None
    return order, tuple(ordered.index(n) if n in ordered else None for n in names)


def finite(v: Value) -> bool:
    """Whether no element is inf or NaN."""
    return v.array.dtype.kind != "f" or every(np.isfinite(v.array))


def arrange(v: Value, batch: Sequence[str], first: Sequence[str], second: Sequence[str]) -> Array:
    """``v`` as an array [batch, first, second], each group flattened."""
    array = v.array.transpose([v.names.index(n) for n in (*batch, *first, *second)])
    b, f = len(batch), len(batch) + len(first)
    shape = (prod(array.shape[:b]), prod(array.shape[b:f]), prod(array.shape[f:]))
    return np.ascontiguousarray(array).reshape(shape)


@dataclass(frozen=True)
class Unchanged:
    """What evaluations of an expression have in common: the values of nodes that are the same in all of them.

    The steps of a recurrence are such evaluations, and those on equal inputs with different errors.  ``of``: the
    expression, which keeps the identities of its nodes.  ``nodes``: those, by identity, that are neither rounded nor
    read a result of a definition that is evaluated again, so that no evaluation chooses an error of them.
    """

    of: Expr
    nodes: frozenset[int]
    values: dict[int, Value] = field(default_factory=dict)
    arrays: dict[tuple[object, ...], Array] = field(default_factory=dict)
    are_finite: dict[int, bool] = field(default_factory=dict)

    def add(self, found: Mapping[int, Value]) -> None:
        """Keep the values of the first evaluation."""
        if not self.values:
            self.values.update((n, found[n]) for n in self.nodes if n in found)
            self.are_finite.update((id(v), finite(v)) for v in self.values.values())

    def arranged(self, v: Value, batch: Sequence[str], first: Sequence[str], second: Sequence[str]) -> Array:
        """:func:`arrange`, once for each value that is kept."""
        if id(v) not in self.are_finite:
            return arrange(v, batch, first, second)
        key = id(v), tuple(batch), tuple(first), tuple(second)
        if key not in self.arrays:
            self.arrays[key] = arrange(v, batch, first, second)
        return self.arrays[key]

    def finite(self, v: Value) -> bool:
        """:func:`finite`, once for each value that is kept."""
        known = self.are_finite.get(id(v))
        return finite(v) if known is None else known


def unchanged(e: Expr, states: Set[str], step: str) -> Unchanged:
    """The nodes of ``e``, none of whose results is rounded, that depend neither on ``states`` nor on the ``step``."""
    found: dict[int, bool] = {}

    def visit(n: Expr) -> bool:
        if id(n) not in found:
            parts = [visit(x) for x in children(n)]  # all of them, because some may be kept where ``n`` is not
            found[id(n)] = all(parts) and _is_unchanged(n, states, step)
        return found[id(n)]

    visit(e)
    return Unchanged(e, frozenset(n for n, holds in found.items() if holds))


def _is_unchanged(n: Expr, states: Set[str], step: str) -> bool:
    """The same of a node whose parts are unchanged."""
    match n:
        case Var():
            return True
        case Const():
            return not n.dtype.is_float
        case Param(name=name):
            return name != step and not n.dtype.is_float
        case Load(buffer=buffer):
            return buffer not in states
        case Op(op="cast", args=(x,)) if x.dtype.is_float:
            return n.dtype in (DType.F32, DType.F64) and x.dtype.bits < n.dtype.bits
        case Op():
            return not any(x.dtype.is_float for x in (n, *n.args))
    return False
