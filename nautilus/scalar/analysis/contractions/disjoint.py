"""Segments of positions between elements of memory, ``start[e] <= t < end[e]``, no two of which overlap.

That follows from two facts for all ``e``: a segment ends where the next one begins or before,
``end[e] <= start[e + 1]``, and the beginnings ascend, ``start[e] <= start[e + 1]``.  A promise of the spec states a
fact with the same sides (``assume off[e] <= off[e + 1]``); a number equals itself (``off[e + 1]`` is the end of one
segment and the beginning of the next one); and a running sum of numbers of which none is negative ascends,
``off[e] = sum[x | x < e](count[x])``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations
from math import prod

from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import all_conjuncts
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, free_vars, loads, substitute
from nautilus.core.expr.products import strip_lossless_conversions
from nautilus.core.index.linear import Linear, linear
from nautilus.core.index.sizes import at_most, nominal
from nautilus.core.records import dataclass
from nautilus.core.types import integer_limits
from nautilus.scalar.analysis.contractions.promises import Promise, Promises, promised_ranges
from nautilus.scalar.analysis.definitions import Def, points

_LEAST_FIRST = {"lt": True, "le": True, "gt": False, "ge": False}


@dataclass(frozen=True, slots=True)
class Ends:
    """``start <= position < end``, or with the bounds of a segment exchanged, ``start < position <= end``.

    ``start`` and ``end`` have ``axis``, which numbers the segments, and ``position`` does not.
    """

    axis: str
    start: Expr
    end: Expr
    position: Expr


def ends_at(guard: Expr | None, axis: str) -> Ends | None:
    """The ends that the parts of ``guard`` state; None where they state none."""
    found: dict[bool, tuple[Expr, Expr, bool]] = {}
    for less, more, strict in (x for c in all_conjuncts(guard) for x in _ordered(c)):
        if axis in free_vars(less) and axis not in free_vars(more):
            found.setdefault(True, (less, more, strict))
        elif axis in free_vars(more) and axis not in free_vars(less):
            found.setdefault(False, (more, less, strict))
    if len(found) < 2 or found[True][1] != found[False][1] or found[True][2] == found[False][2]:
        return None
    made = Ends(axis, found[True][0], found[False][0], found[True][1])
    return made if loads(made.start) and loads(made.end) else None


def facts_of(e: Ends) -> tuple[tuple[Expr, Expr], ...]:
    """Pairs of numbers of which the first one is the greater one nowhere, where the segments ``e`` are disjoint."""
    after = _after(e)
    return tuple((a, after) for a in (e.end, e.start) if not _alike(a, after))


def read_points(d: Def, defs: Mapping[str, Def]) -> int:
    """The points of ``d`` that its readers need, about: those of segments that follow each other, where all read such.

    Scores of the edges of a graph by target, for instance, of which there are as many as edges.
    """
    found = [_segment_rows(r, ld) for r in defs.values() for ld in r.reads() if ld.buffer == d.name]
    rows = min(found, default=1)
    return max(1, points(d.axes) // max(1, rows))


def _segment_rows(reader: Def, ld: Load) -> int:
    """How many segments that follow each other ``reader`` has, where it reads ``ld`` in one of them; 1 for none."""
    names = {e.name for e in ld.index if isinstance(e, Var)}
    for a in reader.axes:
        ends = ends_at(reader.guard, a.name) if a.name in names else None
        if ends is not None and follow(ends) and free_vars(ends.position) & names:
            return nominal(a.extent)
    return 1


def follow(e: Ends) -> bool:
    """Whether each of the segments ``e`` ends where the next one begins."""
    return _alike(e.end, _after(e))


def _after(e: Ends) -> Expr:
    """The beginning of the segment after that of ``e``."""
    return substitute(e.start, {e.axis: calc("add", Var(e.axis), 1)})


def are_disjoint(e: Ends, defs: Mapping[str, Def], spec: Promises | None) -> bool:
    """Whether it is proved that no two of the segments ``e`` have a position in common."""
    return all(_holds(a, b, e.axis, defs, spec) for a, b in facts_of(e))


def ascends(e: Expr, axis: str, defs: Mapping[str, Def], spec: Promises | None) -> bool:
    """Whether it is proved that ``e`` is nowhere less than at the position of ``axis`` before."""
    return _holds(e, substitute(e, {axis: calc("add", Var(axis), 1)}), axis, defs, spec)


def _ordered(c: Expr) -> Iterator[tuple[Expr, Expr, bool]]:
    """The lesser and the greater side of the comparison ``c``, and whether they are never equal."""
    if isinstance(c, Op) and c.op in _LEAST_FIRST and c.args[0].dtype.is_int:
        less, more = c.args if _LEAST_FIRST[c.op] else c.args[::-1]
        yield less, more, c.op in ("lt", "gt")


def _normal(e: Expr) -> Linear:
    """``e`` as a combination of elements at simplified positions."""

    def atom(x: Expr) -> Linear:
        return Linear({_simple(x): 1})

    return linear(e, atom)


def _simple(x: Expr) -> Expr:
    """``x`` without conversions that change nothing, and, if it is an element, at positions of one form."""
    x = strip_lossless_conversions(x)
    if not isinstance(x, Load):
        return x
    index = tuple(_position(i) for i in x.index)
    return Load(x.buffer, index, x.dtype)


def _position(e: Expr) -> Expr:
    """``e`` as a variable plus a constant, if it is one."""
    found = linear(e)
    alone = Linear(found.terms).single()
    if alone is None:
        return e
    return calc("add", alone, found.const) if found.const else alone


def _alike(a: Expr, b: Expr) -> bool:
    """Whether ``a`` and ``b`` are the same combination of the same elements, in one type, so that they wrap alike."""
    return a.dtype is b.dtype and _normal(a) == _normal(b)


def _holds(a: Expr, b: Expr, axis: str, defs: Mapping[str, Def], spec: Promises | None) -> bool:
    """Whether ``a <= b`` is promised or proved for all values of the variables."""
    facts = () if spec is None else spec.facts
    return any(_states(f, a, b, axis) for f in facts) or _accumulates(a, b, defs, spec)


def _states(f: Promise, a: Expr, b: Expr, axis: str) -> bool:
    """Whether a part of ``f`` says ``a <= b``, under other names of its variables, or one position further."""
    names = [x.name for x in f.axes]
    wanted = sorted(free_vars(a) | free_vars(b))
    if len(names) != len(wanted) or len(names) > 3:
        return False
    parts = [(x, y) for c in all_conjuncts(f.condition) for x, y in _sides(c) if loads(x) or loads(y)]
    for own in permutations(wanted):
        for shift in (0, 1, -1):
            at = [calc("add", Var(v), shift) if v == axis and shift else Var(v) for v in own]
            env = dict(zip(names, at, strict=True))
            if any(_alike(substitute(x, env), a) and _alike(substitute(y, env), b) for x, y in parts):
                return True
    return False


def _sides(c: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Pairs of which ``c`` says that the first one is not greater."""
    yield from ((less, more) for less, more, _ in _ordered(c))
    if isinstance(c, Op) and c.op == "eq":
        a, b = c.args
        yield from ((a, b), (b, a))


def _accumulates(a: Expr, b: Expr, defs: Mapping[str, Def], spec: Promises | None) -> bool:
    """Whether ``a`` and ``b`` are neighbours along ``axis`` in a running sum of which no term is negative."""
    a, b = strip_lossless_conversions(a), strip_lossless_conversions(b)
    if not (isinstance(a, Load) and isinstance(b, Load) and a.buffer == b.buffer and a.buffer in defs):
        return False
    d = defs[a.buffer]
    differ = [n for n, (x, y) in enumerate(zip(a.index, b.index, strict=True)) if x != y]
    if len(differ) != 1 or d.op != "sum" or d.at is not None or not d.buffer.dtype.is_int:
        return False
    (n,) = differ
    along, step = d.par[n].name, linear(b.index[n]) - linear(a.index[n])
    if step.terms or step.const != 1 or along in free_vars(d.value):
        return False
    conditions = [c for c in all_conjuncts(d.guard) if along in free_vars(c)]
    if not all(_stays(c, along) for c in conditions):
        return False
    lo, hi = _range(d.value, spec)
    most = hi * prod(at_most(x.extent) for x in d.red)
    return lo >= 0 and most <= integer_limits(d.buffer.dtype)[1]


def _stays(c: Expr, along: str) -> bool:
    """Whether the condition ``c``, once it holds, holds at all later positions of ``along``."""
    return any(more == Var(along) and along not in free_vars(less) for less, more, _ in _ordered(c))


def _range(e: Expr, spec: Promises | None) -> tuple[float, float]:
    """The range of the number or of the promised element ``e``."""
    e = strip_lossless_conversions(e)
    if isinstance(e, Const):
        return float(e.value), float(e.value)
    lo, hi = integer_limits(e.dtype) if e.dtype.is_int else (float("-inf"), float("inf"))
    if not isinstance(e, Load):
        return lo, hi
    given = promised_ranges(spec).get(e.buffer, (lo, hi))
    return max(lo, given[0]), min(hi, given[1])
