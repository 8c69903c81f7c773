"""``slide-windows``: a reduction over a window that moves with a result visits the window only.

``Y[b, t] sum= X[b, u] where t - W < u and u <= t`` visits a tile of ``u`` for each result, of which a few positions are
in the window.  Where both bounds move together, the reduced axis counts from the beginning of the window instead::

    Y[b, t] sum= X[b, t - W + 1 + u]  where 0 <= t - W + 1 + u and t - W + 1 + u < N,  u < W

so that the results of a block read their windows as those of a pooling or of a filter do.  The width is the largest one
where both ends are known functions of a result's position, as in ``i * H // P <= u < ((i + 1) * H + P - 1) // P``; the
condition at the end then stays.  A width that is known
only at launch is a condition ``u < W``, and the reduced axis counts from the end of the window that is known::

    Y[b, t] sum= X[b, t - u]  where 0 <= t - u and u < W,  u < N

That end is inside of the axis, so that ``u`` takes every position that the window may have.  It stays as it is where

* the window is no small part of the axis (:data:`PART`);
* a tensor is read at ``u`` and at a position along another of its axes that depends on the bounds, such as
  ``S[t, u]``: its rows are long, and no two results share an element;
* the element is a product of matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

import numpy as np

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Axis, Expr, Param, Var, free_vars, loads, substitute, walk
from nautilus.core.expr.products import matrix_product
from nautilus.core.index.alternatives import alternatives
from nautilus.core.index.linear import Linear, build
from nautilus.core.index.simplify import bounds
from nautilus.core.index.sizes import extent_expr, nominal
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, put_defs

MOST = 1 << 16  # positions at which the ends of windows are compared
PART = 4  # least quotient of the lengths of an axis and of the window


@dataclass(frozen=True, slots=True)
class SlideWindows:
    """Number the positions of every window from its beginning."""

    name = "slide-windows"

    def apply(self, program: Program) -> Program:
        """The program with reductions over windows alone."""
        for d in find_defs(program).values():
            made = d
            for a in d.red:
                made = _slid(made, a) or made
            if made is not d:
                program = put_defs(program, d.name, (made,))
        return program


@dataclass(frozen=True, slots=True)
class _Window:
    """A window of ``width`` positions from ``first`` on; ``rest``: the other conditions.

    ``backwards``: its positions are numbered from ``first`` downwards.  ``width``: an expression of scalars where it is
    known only at launch.
    """

    first: Linear
    width: int | Linear
    rest: tuple[Expr, ...]
    backwards: bool = False


def _slid(d: Def, axis: Axis) -> Def | None:
    """``d`` with ``axis`` over the window that its guard leaves; None where there is none (module docstring)."""
    if d.at is not None or matrix_product(d.value, [a.name for a in d.par]) is not None:
        return None
    found = _window(d, axis.name) or _launched(d, axis)
    if found is None or (isinstance(found.width, int) and found.width * PART > nominal(axis.extent)):
        return None
    place = calc("sub" if found.backwards else "add", build(found.first, DType.I32), Var(axis.name))
    value = substitute(d.value, {axis.name: place})
    rest = [substitute(c, {axis.name: place}) for c in found.rest]
    moves = free_vars(build(found.first, DType.I32))
    if not any(axis.name in free_vars(ld) for ld in loads(value)) or any(
        _rows(e, axis.name, moves) for e in (value, *rest)
    ):
        return None
    inside = (calc("le", integer(0), place), calc("lt", place, extent_expr(axis.extent)))
    if isinstance(found.width, Linear):
        within = calc("lt", Var(axis.name), build(found.width, DType.I32))
        return replace(d, value=value, guard=conjunction((*inside, within, *rest)))
    red = tuple(replace(a, extent=found.width) if a.name == axis.name else a for a in d.red)
    return replace(d, red=red, value=value, guard=conjunction((*inside, *rest)))


def _rows(e: Expr, axis: str, moves: frozenset[str]) -> bool:
    """Whether a tensor is read at ``axis`` and, along another of its axes, at one of ``moves``."""
    for ld in loads(e):
        at = [free_vars(i) for i in ld.index]
        if any(axis in f for f in at) and any(axis not in f and f & moves for f in at):
            return True
    return False


def _window(d: Def, axis: str) -> _Window | None:
    """The narrowest window of ``axis`` whose two ends move together with other axes."""
    parts = [(c, tuple(_forms(c))) for c in (() if d.guard is None else conjuncts(d.guard))]
    lows = [(f, Linear({}, 0) - f.without(Var(axis))) for _, forms in parts for f in forms if f.slope(axis) == 1]
    highs = [(f, f.without(Var(axis))) for _, forms in parts for f in forms if f.slope(axis) == -1]
    best: tuple[int, tuple[Linear, ...], Linear] | None = None
    for low, first in lows:
        for high, last in highs:
            between = last - first
            width = _largest(d, between)
            moves = first.terms and not any(axis in free_vars(a) for a in first.terms)
            if moves and width is not None and width >= 0 and (best is None or width < best[0]):
                best = width, (low,) if between.terms else (low, high), first
    if best is None:
        return None
    width, held, first = best
    rest: list[Expr] = []
    for c, forms in parts:
        if not any(f in forms for f in held):
            rest.append(c)
        else:
            rest += [calc("le", integer(0), build(f, DType.I32)) for f in forms if f not in held]
    return _Window(first, width + 1, tuple(rest))


def _largest(d: Def, between: Linear) -> int | None:
    """The largest value of ``between`` over the results of ``d``; None unless it is that of one axis at most."""
    if not between.terms:
        return between.const
    e = build(between, DType.I32)
    axes = [a for a in d.par if a.name in free_vars(e)]
    count = size(axes[0]) if len(axes) == 1 and len(free_vars(e)) == 1 else None
    if count is None or count > MOST or loads(e) or any(isinstance(n, Param) for n in walk(e)):
        return None
    return int(np.max(evaluate(e, {axes[0].name: np.arange(count, dtype=np.int64)})))


def _launched(d: Def, axis: Axis) -> _Window | None:
    """The window of ``axis`` from or to a known end, whose width is known at launch; None where there is none."""
    parts = conjuncts(d.guard)
    ranges = {a.name: (0, n - 1) for a in d.par if (n := size(a)) is not None}
    for c, k in permutations(parts, 2):
        near, far = ([*_forms(x)] for x in (c, k))
        if len(near) != 1 or len(far) != 1 or abs(slope := near[0].slope(axis.name)) != 1:
            continue
        here, there = near[0].without(Var(axis.name)), far[0].without(Var(axis.name))
        end = here.scale(-slope)
        left = here + there  # positions of the window, less one
        known = all(isinstance(a, Var) and a.name in ranges for a in end.terms) and bool(end.terms)
        launched = bool(left.terms) and all(isinstance(a, Param) for a in left.terms)
        low, high = bounds(build(end, DType.I32), ranges) if known else (None, None)
        inside = low is not None and high is not None and low >= 0 and high < (size(axis) or 0)
        if far[0].slope(axis.name) == -slope and launched and inside:
            return _Window(end, left.shift(1), tuple(x for x in parts if x not in (c, k)), slope < 0)
    return None


def _forms(e: Expr) -> Iterator[Linear]:
    """Linear forms that are not negative exactly where ``e`` holds; none where it is no such condition."""
    found = alternatives(e)
    if len(found) == 1 and found[0].exact:
        yield from found[0].forms
