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
from nautilus.core.expr.conditions import all_conjuncts, conjunction, short_circuit
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
    ``inside``: that, and no condition on a reduced axis of which no position depends.
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
    rest, solved = list(all_conjuncts(d.guard)), dict[str, Expr]()
    red = {a.name for a in d.red}
    equations: dict[Expr, str] = {}
    while True:
        now = {name: _index(key) for name, key in solved.items()}
        pairs = ((c, a, key_of(substitute(c, now), a.name, red)) for c in rest for a in d.par if a.name not in solved)
        found = next(((c, a, key) for c, a, key in pairs if key is not None), None)
        if found is None:
            break
        condition, axis, key = found
        rest.remove(condition)
        equations.setdefault(condition, axis.name)
        solved = {name: substitute(e, {axis.name: _index(key)}) for name, e in solved.items()} | {axis.name: key}
    return _by_terms(d, solved, equations, shapes) if solved else None


def _by_terms(
    d: Def, solved: Mapping[str, Expr], equations: Mapping[Expr, str], shapes: Mapping[str, tuple[Extent, ...]]
) -> Keyed | None:
    """``d`` with the keys ``solved``, each from one of ``equations``; None where a condition may read outside.

    Conditions that are in range everywhere come before the keys, so that fewer keys are read.  Others keep their
    places, because the ones before them may be the reason why they are in range.
    """
    env = {name: _index(key) for name, key in solved.items()}
    keys = tuple(a for name in reversed(list(solved)) for a in d.par if a.name == name)
    axes = (*d.red, *(a for a in d.par if a.name not in solved))
    inside = {a.name: tuple(within(solved[a.name], _extent(a, solved[a.name].dtype))) for a in keys}
    certain = _Certain(shapes, {a.name: a.extent for a in axes})
    conditions = [c for c in dict.fromkeys(all_conjuncts(d.guard)) if c not in equations]
    free = [c for c in conditions if not free_vars(c) & solved.keys()]
    bound = [substitute(c, env) for c in conditions if free_vars(c) & solved.keys()]
    at = tuple(solved.get(a.name, Var(a.name)) for a in d.par)
    value = substitute(d.value, env)
    keys_inside = [p for a in keys for p in inside[a.name]]
    early = [*free, *keys_inside]
    if all(certain(c, early[:n]) for n, c in enumerate(early)):
        return Keyed(axes, keys, at, value, conjunction((*early, *bound)), conjunction(keys_inside))
    found = _in_order(tuple(all_conjuncts(d.guard)), equations, env, inside, certain)
    apart = frozenset(a.name for a in d.red) - frozenset[str]().union(*map(free_vars, at))
    if found is None or not _apart_last(found, apart, certain):
        return None
    own = [c for c in found if not free_vars(c) & apart]
    return Keyed(axes, keys, at, value, certain.together(found), certain.together(own))


@dataclass(frozen=True, slots=True)
class _Certain:
    """Whether conditions are in range at all points of ``scope``."""

    shapes: Mapping[str, tuple[Extent, ...]]
    scope: Mapping[str, Extent]

    def __call__(self, c: Expr, given: Sequence[Expr] = ()) -> bool:
        """Whether ``c`` is, where ``given`` holds."""
        return certainly_in_range(c, self.shapes, self.scope, given)

    def together(self, conditions: Sequence[Expr]) -> Expr | None:
        """All of ``conditions``, each of which is evaluated only where those before it hold if it may not be else."""
        total: Expr | None = None
        for c in conditions:
            total = conjunction((total, c)) if total is None or self(c) else short_circuit(total, c)
        return total


def _in_order(
    conditions: Sequence[Expr],
    equations: Mapping[Expr, str],
    env: Mapping[str, Expr],
    inside: Mapping[str, Sequence[Expr]],
    certain: _Certain,
) -> list[Expr] | None:
    """``conditions`` of terms in the order in which they are evaluated.

    An equation becomes the condition that its key is ``inside``.  A condition on an axis whose key comes later waits
    for it; None where one that comes before it then may be out of range.
    """
    found, waiting, known = list[Expr](), list[Expr](), set[str]()
    for new in dict.fromkeys(conditions):
        waiting.append(new)
        while (c := next((c for c in waiting if _axes(c, equations, env) <= known), None)) is not None:
            parts = inside[equations[c]] if c in equations else (substitute(c, env),)
            if c != waiting[0] and not all(certain(p, found) for p in parts):
                return None
            found += parts
            waiting.remove(c)
            known |= {equations[c]} if c in equations else set()
    return found


def _axes(c: Expr, equations: Mapping[Expr, str], env: Mapping[str, Expr]) -> frozenset[str]:
    """The axes whose keys condition ``c`` needs, without the one that it gives."""
    return (free_vars(c) & env.keys()) - {equations.get(c, "")}


def _apart_last(conditions: Sequence[Expr], apart: frozenset[str], certain: _Certain) -> bool:
    """Whether those of ``conditions`` without an axis of ``apart`` are in range without those that have one."""
    first = next((n for n, c in enumerate(conditions) if free_vars(c) & apart), len(conditions))
    own = [n for n, c in enumerate(conditions) if not free_vars(c) & apart]
    return all(n < first or certain(conditions[n], [conditions[k] for k in own if k < n]) for n in own)


def _index(key: Expr) -> Expr:
    """``key`` as an index, of which it has the value wherever it is inside of the result."""
    return key if key.dtype is DType.I32 else Op("cast", (key,), DType.I32)


def _extent(a: Axis, dtype: DType) -> Expr | int:
    """The extent of ``a`` in the type of its key."""
    if isinstance(a.extent, int) or a.extent.dtype is dtype:
        return a.extent
    return Op("cast", (a.extent,), dtype)


def key_of(c: Expr, axis: str, red: set[str]) -> Expr | None:
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
