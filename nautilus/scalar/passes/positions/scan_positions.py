"""``scan-positions``: positions of running extremes are running results.

The index of the largest element so far, as in ``argmax[u | u <= t](x[u])``, is the lowest one with the extreme::

    m[t] = max_u x[u]       where u <= t
    p[t] = min_u u          where u <= t and x[u] == m[t]

Its condition depends on the result, so that it is no scan, and its work is quadratic.  It is also the last position at
which the extreme changed, which the elements up to this position decide::

    b[t] = max_u x[u]       where u < t
    p[t] = max_u u          where u <= t and (u == 0 or not x[u] <= b[u])

``b`` has the axis of ``p``, so that one kernel has both, where ``m[u - 1]`` is at another position.

An element that equals the extreme before it is no new one, so that the lowest position of equal ones stays.  A NaN
becomes the extreme and stays it, so that nothing is new after the first one.

From the end on, the last position at which the extreme changed is the lowest one, and an element that equals the
extreme after it is a new one, as every NaN is::

    a[t] = max_u x[u]       where u > t
    p[t] = min_u u          where u >= t and (x[u] >= a[u] or x[u] != x[u])
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import TRUE, conjunction, conjuncts
from nautilus.core.expr.nodes import Expr, Load, Op, Var, free_vars, substitute
from nautilus.core.index.prefixes import Prefix, prefix
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs

_WHOLE = (Prefix(0, reverse=False), Prefix(0, reverse=True))  # up to a position, and from it to the end
_LATER = {"max": "ge", "min": "le"}  # what an element is that changes the extreme after it
_STAYS = {"max": "le", "min": "ge"}  # what an element is that does not change the extreme before it


@dataclass(frozen=True, slots=True)
class ScanPositions:
    """Find the position of every running extreme as a running result."""

    name = "scan-positions"

    def apply(self, program: Program) -> Program:
        """The program with scans in place of searches for extremes."""
        for name, d in find_defs(program).items():
            if (made := _scan(program, d)) is not None:
                program = Dead().apply(put_defs(program, name, made))
        return program


def _scan(program: Program, d: Def) -> tuple[Def, Def] | None:
    """The extremes beside each position and ``d`` as scans; None where ``d`` is not the position of such an extreme."""
    if d.op != "min" or len(d.red) != 1 or d.at is not None or d.value != Var(u := d.red[0].name):
        return None
    conditions = conjuncts(d.guard)
    for t in (a.name for a in d.par):
        bounds = [c for c in conditions if prefix(c, u, t) in _WHOLE]
        others = [c for c in conditions if c not in bounds]
        for x, m in _hits(others[0]) if len(bounds) == len(others) == 1 else ():
            end = prefix(bounds[0], u, t) == _WHOLE[1]
            if (beside := _beside(program, d, (x, m), u, t, end)) is not None:
                index = tuple(Var(u) if i == Var(t) else i for i in m.index)
                extreme, kind = Load(beside.name, index, m.dtype, m.span), str(beside.op)
                if end:
                    return beside, replace(d, guard=conjunction((bounds[0], _changes_later(x, extreme, kind))))
                new = calc("select", calc("lt", integer(0), Var(u)), _changes(x, extreme, kind), TRUE)
                return beside, replace(d, op="max", guard=conjunction((bounds[0], new)))
    return None


def _changes(x: Expr, extreme: Expr, op: str) -> Expr:
    """Whether the element ``x`` changes the ``extreme`` of those before it."""
    new: Expr = Op("not", (Op(_STAYS[op], (x, extreme), DType.BOOL),), DType.BOOL)
    return calc("and", new, Op("eq", (extreme, extreme), DType.BOOL)) if x.dtype.is_float else new


def _changes_later(x: Expr, extreme: Expr, op: str) -> Expr:
    """Whether the element ``x`` changes the ``extreme`` of those after it, as one that equals it does."""
    new: Expr = Op(_LATER[op], (x, extreme), DType.BOOL)
    return calc("or", new, Op("ne", (x, x), DType.BOOL)) if x.dtype.is_float else new


def _hits(condition: Expr) -> list[tuple[Expr, Load]]:
    """The elements and the extremes that ``condition`` may compare; with floats, a NaN is an extreme too."""
    match condition:
        case Op(op="or", args=(Op(op="eq", args=sides), Op(op="ne", args=(a, b)))) if a == b:
            return [(x, m) for x, m in (sides, sides[::-1]) if isinstance(m, Load) and x == a]
        case Op(op="eq", args=sides) if sides[0].dtype.is_int:
            return [(x, m) for x, m in (sides, sides[::-1]) if isinstance(m, Load)]
    return []


def _beside(program: Program, d: Def, hit: tuple[Expr, Load], u: str, t: str, end: bool) -> Def | None:
    """The extremes of the elements before each position, or after it from the ``end`` on.

    None where the extreme of ``hit`` is not of those up to ``t``, or from ``t`` on.
    """
    x, read = hit
    made = find_defs(program).get(read.buffer)
    if made is None or made.op not in _STAYS or len(made.red) != 1 or made.at is not None or made.scatter is not None:
        return None
    names = {a.name: i for a, i in zip(made.par, read.index, strict=True)}
    if made.buffer.dtype is not made.value.dtype or t in free_vars(x) or not all(map(_is_axis, names.values())):
        return None
    own, (into, *more) = made.red[0], [a for a, i in names.items() if i == Var(t)] or ["", ""]
    sizes = {a.name: a.extent for a in (*made.axes, *d.axes)}
    if more or sizes[into] != sizes[t] or sizes[own.name] != sizes[u]:
        return None
    alone = made.guard is not None and prefix(made.guard, own.name, into) == _WHOLE[end]
    if not alone or substitute(made.value, {**names, own.name: Var(u)}) != x:
        return None
    name = fresh_name(program, f"{made.name}_{'after' if end else 'before'}")
    buffer = replace(made.buffer, name=name, space=Space.TEMP, view_of=None, strides=None)
    return replace(made, name=name, buffer=buffer, guard=calc("gt" if end else "lt", Var(own.name), Var(into)))


def _is_axis(e: Expr) -> bool:
    return isinstance(e, Var)
