"""Keys: reductions in which each term belongs to one element of the result.

The condition of a *keyed* reduction equates an axis of the result with an integer that is read from memory::

    O[e, d] sum= X[t, d]  where Index[t] == e

So term ``t`` is part of the elements ``O[Index[t], d]`` alone, if these are inside of ``O``.  :func:`keyed` solves the
equations for such axes, one after another, by the linear form of both sides; another equation may then contain the
axis that was solved before (``Row[t] == i and Column[t] - i == j``).

A key reads memory and depends on a reduced axis.  A condition on indices alone (``t // 4 == e``) is no key, because
its terms form blocks, which ``partition`` and ``split-residues`` know without reading them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from nautilus.core.expr.build import within
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import Axis, Expr, Op, Var, free_vars, loads, substitute
from nautilus.core.index.linear import build, linear
from nautilus.core.index.sizes import Extent, at_most
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.masking import certainly_in_range


@dataclass(frozen=True, slots=True)
class Keyed:
    """A reduction by its terms: term ``axes`` is combined into the element ``at`` where ``guard`` holds.

    ``keys``: the axes of the result that are no axes any more.  ``guard`` contains that ``at`` is inside of the result.
    ``inside``: that alone.
    """

    axes: tuple[Axis, ...]
    keys: tuple[Axis, ...]
    at: tuple[Expr, ...]
    value: Expr
    guard: Expr | None
    inside: Expr | None

    @property
    def elements(self) -> int:
        """Elements of the keyed axes, at most."""
        return prod(at_most(a.extent) for a in self.keys)


def keyed(d: Def, shapes: Mapping[str, tuple[Extent, ...]]) -> Keyed | None:
    """The reduction ``d`` by its terms; None where no axis has a key.

    ``shapes`` by buffer: what conditions read must be inside of its tensor wherever the remaining ones ask for it.
    """
    if d.op is None or d.at is not None or d.guard is None:
        return None
    rest, solved = list(conjuncts(d.guard)), dict[str, Expr]()
    red = {a.name for a in d.red}
    while True:
        now = {name: _index(key) for name, key in solved.items()}
        pairs = ((c, a, _key(substitute(c, now), a.name, red)) for c in rest for a in d.par if a.name not in solved)
        found = next(((c, a, key) for c, a, key in pairs if key is not None), None)
        if found is None:
            break
        condition, axis, key = found
        rest.remove(condition)
        solved = {name: substitute(e, {axis.name: _index(key)}) for name, e in solved.items()} | {axis.name: key}
    return _by_terms(d, solved, rest, shapes) if solved else None


def _by_terms(
    d: Def, solved: Mapping[str, Expr], conditions: Sequence[Expr], shapes: Mapping[str, tuple[Extent, ...]]
) -> Keyed | None:
    """``d`` with the keys ``solved`` and the other ``conditions``; None where one may read outside of a tensor."""
    env = {name: _index(key) for name, key in solved.items()}
    keys = tuple(a for name in reversed(list(solved)) for a in d.par if a.name == name)
    axes = (*d.red, *(a for a in d.par if a.name not in solved))
    inside = [p for a in keys for p in within(solved[a.name], _extent(a, solved[a.name].dtype))]
    free = [c for c in conditions if not free_vars(c) & solved.keys()]
    bound = [substitute(c, env) for c in conditions if free_vars(c) & solved.keys()]
    scope = {a.name: a.extent for a in axes}
    early = [*free, *inside]
    if not all(certainly_in_range(c, shapes, scope, early[:n]) for n, c in enumerate(early)):
        return None
    at = tuple(solved.get(a.name, Var(a.name)) for a in d.par)
    guard = conjunction((*early, *bound))
    return Keyed(axes, keys, at, substitute(d.value, env), guard, conjunction(inside))


def _index(key: Expr) -> Expr:
    """``key`` as an index, of which it has the value wherever it is inside of the result."""
    return key if key.dtype is DType.I32 else Op("cast", (key,), DType.I32)


def _extent(a: Axis, dtype: DType) -> Expr | int:
    """The extent of ``a`` in the type of its key."""
    if isinstance(a.extent, int) or a.extent.dtype is dtype:
        return a.extent
    return Op("cast", (a.extent,), dtype)


def _key(c: Expr, axis: str, red: set[str]) -> Expr | None:
    """The integer that condition ``c`` equates with ``axis``, if it is a key."""
    match c:
        case Op(op="eq", args=(a, b)) if a.dtype.is_int:
            key = _solved(a, b, axis)
            if key is not None and loads(key) and free_vars(key) & red:
                return key
    return None


def _solved(a: Expr, b: Expr, axis: str) -> Expr | None:
    """``e`` such that ``a == b`` means ``axis == e``; None where none is found."""
    for mine, other in ((a, b), (b, a)):
        if _uncast(mine) == Var(axis) and axis not in free_vars(other):
            return other
    difference = linear(a) - linear(b)
    slope = difference.slope(axis)
    rest = difference.without(Var(axis))
    if abs(slope) != 1 or a.dtype is not DType.I32 or any(axis in free_vars(t) for t in rest.terms):
        return None
    return build(rest.scale(-slope), a.dtype)


def _uncast(e: Expr) -> Expr:
    """An index without the conversion to a wider integer, which changes no value."""
    match e:
        case Op(op="cast", args=(x,)) if e.dtype is DType.I64 and x.dtype is DType.I32:
            return x
    return e
