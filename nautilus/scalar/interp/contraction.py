"""Sums of products by matrix multiplication, for the Scalar interpreter.

``sum_k a(i, k) * b(k, j)`` does not need the product at every ``(i, j, k)``.  The factors
are evaluated over their own axes, each conjunct of the guard masks a factor that has its axes with 0,
and numpy contracts.  :func:`contract` returns None whenever the result could differ from the definition: no factor
has the axes of a conjunct, a factor is not finite and there is a guard (0 * inf), an access is legal only under the
full guard, or integers are too large for exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from nautilus.core.expr.nodes import Expr, free_vars, loads
from nautilus.core.expr.products import factors
from nautilus.core.numerics import Array, Mode
from nautilus.core.types import DType
from nautilus.scalar.interp.space import Memory, ScalarRunError, Space, both

_EXACT = 2.0**53


def contract(space: Space, value: Expr, guards: Sequence[Expr], red: frozenset[int], mode: Mode) -> Array | None:
    """``sum`` of ``value`` over the axes ``red`` of ``space``, or None (module docstring).

    The result has the space's rank, with 1 along ``red``.
    """
    parts = factors(value)
    if len(parts) < 2 or (not value.dtype.is_float and not value.dtype.is_int):
        return None
    groups = _groups([(frozenset(_axes(space, p)), p) for p in parts])
    every = frozenset(p for p, a in enumerate(space.axes) if a.n > 1)
    if len(groups) < 2 or any(axes >= every for axes, _ in groups):
        return None
    try:
        arrays = _evaluate(space, groups, guards)
    except ScalarRunError:
        return None
    return None if arrays is None else _multiply(space, arrays, red, value.dtype, mode)


def _axes(space: Space, e: Expr) -> set[int]:
    """The axes with more than one point that ``e`` depends on; a private copy depends on its own."""
    names = set(free_vars(e)) | _owned(space, e)
    return {p for p, a in enumerate(space.axes) if a.n > 1 and a.var in names}


def _owned(space: Space, e: Expr) -> set[str]:
    memory: dict[str, Memory] = space.tables.memory
    return {r.var for ld in loads(e) if ld.buffer in memory for r in memory[ld.buffer].own}


def _groups(parts: list[tuple[frozenset[int], Expr]]) -> list[tuple[frozenset[int], list[Expr]]]:
    """Groups of factors: a factor joins a group that contains all of its axes."""
    groups: list[tuple[frozenset[int], list[Expr]]] = []
    for axes, e in sorted(parts, key=lambda t: -len(t[0])):
        for have, members in groups:
            if axes <= have:
                members.append(e)
                break
        else:
            groups.append((axes, [e]))
    return groups


def _evaluate(
    space: Space, groups: list[tuple[frozenset[int], list[Expr]]], guards: Sequence[Expr]
) -> list[tuple[frozenset[int], Array]] | None:
    held = [frozenset(_axes(space, g)) for g in guards]
    if any(not any(h <= axes for axes, _ in groups) for h in held):
        return None
    out = []
    for axes, members in groups:
        mine = [k for k, h in enumerate(held) if h <= axes]
        mask = tuple(space.eval(guards[k]) for k in mine)
        total = space.eval(members[0], mask)
        for m in members[1:]:
            total = np.multiply(total, space.eval(m, mask))
        if mask:
            total = np.where(both(mask), total, 0)
        out.append((axes, total))
    if guards and not all(np.isfinite(a).all() for _, a in out):
        return None
    return out


def _multiply(
    space: Space, arrays: list[tuple[frozenset[int], Array]], red: frozenset[int], dtype: DType, mode: Mode
) -> Array | None:
    full = [np.broadcast_to(a, _shape(space, axes)) for axes, a in arrays]
    if dtype.is_int:
        size = prod(float(np.abs(a).max(initial=0)) for a in full) * prod(space.axes[p].n for p in red)
        if size >= _EXACT or size >= 2.0 ** (dtype.bits - 1):
            return None
    kind = np.float32 if mode == "typed" and dtype is DType.F32 else np.float64
    total, axes = full[0].astype(kind), arrays[0][0]
    for k, (more, _) in enumerate(arrays[1:], 1):
        later = frozenset[int]().union(*(a for a, _ in arrays[k + 1 :]))
        total = pairwise(total, full[k].astype(kind), axes, more, red - later)
        axes = (axes | more) - (red - later)
    idle = prod(space.axes[p].n for p in red if not any(p in a for a, _ in arrays))
    total = total * idle
    return total.astype(np.int64) if dtype.is_int else total.astype(np.float64)


def _shape(space: Space, axes: frozenset[int]) -> tuple[int, ...]:
    return tuple(a.n if p in axes else 1 for p, a in enumerate(space.axes))


def pairwise(a: Array, b: Array, in_a: frozenset[int], in_b: frozenset[int], red: frozenset[int]) -> Array:
    """``sum over red of a * b`` for arrays of one rank, as one batched matrix multiplication."""
    a = a.sum(axis=tuple((red & in_a) - in_b), keepdims=True)
    b = b.sum(axis=tuple((red & in_b) - in_a), keepdims=True)
    batch = sorted((in_a & in_b) - red)
    rows, columns = sorted(in_a - in_b - red), sorted(in_b - in_a - red)
    inner = sorted(in_a & in_b & red)
    rest = [p for p in range(a.ndim) if p not in {*batch, *rows, *columns, *inner}]
    left = a.transpose([*batch, *rows, *inner, *columns, *rest])
    right = b.transpose([*batch, *inner, *columns, *rows, *rest])
    nb, nr, nc = ([x.shape[p] for p in group] for x, group in ((a, batch), (a, rows), (b, columns)))
    k = prod(a.shape[p] for p in inner)
    product = left.reshape(prod(nb), prod(nr), k) @ right.reshape(prod(nb), k, prod(nc))
    grid = product.reshape(*nb, *nr, *nc, *([1] * (len(inner) + len(rest))))
    order = [*batch, *rows, *columns, *inner, *rest]
    return np.asarray(grid.transpose(np.argsort(order)))
