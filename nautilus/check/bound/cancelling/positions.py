"""Comparisons of numbers that positions alone decide about, such as the mask ``log(f32(j) + 1) / log(2.0) <= k``.

No input decides about them, so it is known at which elements both sides are equal over the reals, and how far apart
they are elsewhere.  Where no elements are equal, and none so close that roundings decide, the comparison is exact.
Where they are equal at some elements, which depends on the row, a figure would be that of the rows that happen to be
sampled: what ties is left out of it, and the statement says that it may have another value.  Where the same terms tie
in all rows, the figure counts them.

:func:`marked_orders` marks the comparisons that are evaluated without roundings: they stand in a conjunction with true.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Final, TypeGuard

import numpy as np

from nautilus.check.bound.cancelling.ties import are_equal
from nautilus.check.bound.exactness import inexact, is_inexact_number
from nautilus.core.expr.nodes import (
    RELATIONAL,
    Const,
    Expr,
    Load,
    Op,
    Param,
    Reduce,
    children,
    free_vars,
    rewrite,
    walk,
)
from nautilus.core.numerics import round_to
from nautilus.core.types import DType
from nautilus.frontend.interp import Evaluator
from nautilus.frontend.spec import Definition, Spec
from nautilus.frontend.values import Value, line_up, union

_TRUE: Final = Const(True, DType.BOOL)
_ARITHMETIC: Final = frozenset({"add", "sub", "mul", "cast"})  # operations that every form rounds to nearest
_MOST: Final = 1 << 22  # positions at which a comparison is evaluated
_CLOSE: Final = 2.0**-18  # the relative distance of numbers about which roundings may decide


def is_marked(e: Expr) -> TypeGuard[Op]:
    """Whether ``e`` is a comparison that is evaluated without roundings."""
    return isinstance(e, Op) and e.op == "and" and e.args[1] == _TRUE


def exactly(run: Evaluator, e: Expr) -> Value:
    """The value of ``e`` without the errors that the evaluation ``run`` has."""
    plain = Evaluator(run.d, run.buffers, run.params)
    plain.ranges = run.ranges
    return plain.value(e)


def unmarked(e: Expr) -> Iterator[Expr]:
    """The nodes of ``e`` without the comparisons that are marked."""
    waiting = [e]
    while waiting:
        node = waiting.pop()
        if not is_marked(node):
            yield node
            waiting += children(node)


@lru_cache(maxsize=16)
def marked_orders(spec: Spec) -> tuple[Spec, frozenset[str]]:
    """``spec`` with such comparisons marked, and the definitions in which elements tie in rows of their own."""
    some = set[str]()

    def marked(d: Definition) -> Definition:
        found: dict[Expr, bool] = {}
        axes = [a for e in walk(d.expr) if isinstance(e, Reduce) for a in e.axes]
        sizes = {a.name: a.extent for a in (*d.axes, *axes)}
        own = {a.name for a in d.axes}
        known = {n: x for n, x in sizes.items() if isinstance(x, int)}
        for e in walk(d.expr) if d.recurrence is None else ():
            if _is_of_positions(e) and free_vars(e) <= known.keys() and e not in found:
                ties = _ties(d, e, known)
                found[e] = ties is not None and (not ties or not own.isdisjoint(free_vars(e)))
                if ties and found[e]:
                    some.add(d.name)
        chosen = {e for e, fits in found.items() if fits}
        if not chosen:
            return d
        return replace(d, expr=rewrite(d.expr, lambda e: Op("and", (e, _TRUE), DType.BOOL) if e in chosen else None))

    made = tuple(marked(d) for d in spec.definitions)
    return (spec if made == spec.definitions else replace(spec, definitions=made)), frozenset(some)


def depends(spec: Spec, name: str, others: frozenset[str]) -> bool:
    """Whether ``name`` is one of ``others``, or reads one."""
    made = {d.name: d.expr for d in spec.definitions}
    seen, waiting = set[str](), [name]
    while waiting:
        current = waiting.pop()
        if current in made and current not in seen:
            seen.add(current)
            waiting += [e.buffer for e in walk(made[current]) if isinstance(e, Load)]
    return bool(seen & others)


def _is_of_positions(e: Expr) -> TypeGuard[Op]:
    """Whether ``e`` compares rounded numbers that positions alone decide about."""
    if not (isinstance(e, Op) and e.op in RELATIONAL and e.args[0].dtype.is_float):
        return False
    nodes = [n for a in e.args for n in walk(a)]
    if any(isinstance(n, Load | Param | Reduce) for n in nodes):
        return False
    return any(inexact(n) or is_inexact_number(n, n.dtype.compute) for n in nodes)


def _ties(d: Definition, e: Op, sizes: dict[str, int]) -> bool | None:
    """Whether the sides of ``e`` are equal anywhere; None where it is not known, or where they may be so close that
    roundings decide."""
    if prod(sizes[n] for n in free_vars(e)) > _MOST:
        return None
    run = Evaluator(d, {}, {})
    values = [run.value(a) for a in e.args]
    if all(_is_exact(run, n) for a in e.args for n in walk(a)):
        return False
    names = union(values, {n: k for k, n in enumerate(sizes)})
    with np.errstate(all="ignore"):
        a, b = np.broadcast_arrays(*(line_up(v, names) for v in values))
        finite = np.isfinite(a) & np.isfinite(b)  # infinite sides are equal in any code
        tied = are_equal(a, b) & finite
        close = np.abs(a - b) <= _CLOSE * np.maximum(np.abs(a), np.abs(b))
    return None if np.any(close & ~tied & finite) else bool(tied.any())


def _is_exact(run: Evaluator, e: Expr) -> bool:
    """Whether code has the value of ``e`` at all positions, because its type has the results of arithmetic."""
    if not e.dtype.is_float:
        return True
    if inexact(e) and not (isinstance(e, Op) and e.op in _ARITHMETIC):
        return False
    value = run.value(e).array
    return bool(np.array_equal(round_to(value, e.dtype.compute), value))
