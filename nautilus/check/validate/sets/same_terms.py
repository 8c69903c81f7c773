"""Whether a rewrite of a reduction keeps its terms, which other axes may count.

An equation leaves an axis one value, and a loop over rows and columns becomes one loop.  The rewrite gives the *values*
that the axes of the reduction before it have at a term after it; an axis without one is itself.  Both sides have the
same terms if the term before is, at these values, the term after, and the values map the terms after one to one to all
terms before.  isl decides the second part.  Where no axis is left, the only term may be the result, or the identity
under a condition that says that there is none.

A condition that isl knows nothing of, as one that reads memory, has to stand on both sides, at these values: what is
one to one without it is so with it.  A value that reads memory, as the index that a condition equates with an element,
is any number, which is the same on both sides: its place is that of the term on either side.  Sides of the same terms
are equal for all numbers, inf and NaN included.

A result may have other axes too, as a quotient and a remainder in the place of a position.  The values then include
those of the axes of the result before, and map the new axes one to one to all positions before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from nautilus.check.validate.identities import decide
from nautilus.check.validate.sets.index_sets import INSTALL, conjuncts
from nautilus.check.validate.sets.isl_text import NotAffine, condition, isl_text, pieces, sized, variables
from nautilus.check.validate.verdict import Verdict
from nautilus.core.expr.nodes import (
    Axis,
    Const,
    Expr,
    Load,
    Op,
    Reduce,
    Var,
    children,
    free_vars,
    identity,
    rewrite,
    substitute,
)  # fmt: skip
from nautilus.core.records import dataclass
from nautilus.core.types import DType


@dataclass(frozen=True, slots=True)
class _Terms:
    """The terms of a reduction: one for each point of ``axes`` at which all ``conditions`` hold.

    ``numbers``: elements of memory, of which each may be any number.
    """

    axes: tuple[Axis, ...]
    conditions: tuple[Expr, ...]
    body: Expr
    numbers: tuple[Axis, ...] = ()

    @staticmethod
    def of(e: Reduce) -> _Terms:
        return _Terms(e.axes, _conditions(e.cond), e.body)

    @property
    def ranges(self) -> list[Expr]:
        """The conditions that the axes are within their extents."""
        ends = {a.name: Const(a.extent, DType.I32) if isinstance(a.extent, int) else a.extent for a in self.axes}
        least = [Op("ge", (Var(name), Const(0, DType.I32)), DType.BOOL) for name in ends]
        return [*least, *(Op("lt", (Var(name), end), DType.BOOL) for name, end in ends.items())]


def same_terms(
    before: Expr, after: Expr, values: Mapping[str, Expr], given: Sequence[Expr] = (), seed: int = 0
) -> Verdict:  # fmt: skip
    """Whether ``after`` reduces the terms of ``before``; ``given``: conditions on the axes of the result."""
    new = _terms(after, before) if isinstance(before, Reduce) else None
    if new is None or not isinstance(before, Reduce):
        return Verdict("refuted", detail="the sides are no reductions of one kind")
    old = _Terms.of(before)
    names, own = [a.name for a in old.axes], {a.name for a in new.axes}
    at = {name: values.get(name, Var(name)) for name in names}
    known = own | free_vars(before).union(*map(free_vars, given))
    if not values.keys() <= {*names} or any(not free_vars(e) <= known for e in at.values()):
        return Verdict("refuted", detail="the values are not those of the axes")
    body = substitute(old.body, at)
    known_here = (*given, *new.conditions)
    terms = Verdict("proved") if body == new.body else decide(body, new.body, known_here, "everything", seed)
    pairs = _one_to_one(old, new, at, given) if terms.ok else terms
    return terms if pairs.status == "proved" and terms.status != "proved" else pairs


def same_results(
    before: Expr, after: Expr, values: Mapping[str, Expr], given: Sequence[Expr] = (), seed: int = 0
) -> Verdict:  # fmt: skip
    """Whether ``after`` has the terms and results of ``before``, over other axes of the result (module docstring)."""
    inner = {a.name for e in (before, after) if isinstance(e, Reduce) for a in e.axes}
    places = {name: e for name, e in values.items() if isinstance(before, Reduce) and name not in inner}
    moved = frozenset[str]().union(*map(free_vars, places.values()))
    if moved & (inner | places.keys()):
        return Verdict("refuted", detail="the place of a result depends on its terms")
    there = [substitute(c, places) for c in given]
    found = _all_places(places, moved, given, there)
    if found.status != "proved" or not isinstance(before, Reduce):
        return found
    cond = None if before.cond is None else substitute(before.cond, places)
    at = replace(before, cond=cond, body=substitute(before.body, places))
    return same_terms(at, after, {n: e for n, e in values.items() if n not in places}, there, seed)


def _all_places(
    places: Mapping[str, Expr], moved: frozenset[str], given: Sequence[Expr], there: Sequence[Expr]
) -> Verdict:  # fmt: skip
    """Whether ``places`` are those of all results, once each; ``there``: what is ``given``, at these places."""
    try:
        import islpy
    except ImportError:
        return Verdict("not decided", detail=INSTALL)
    free = sorted({n for e in (*there, *places.values()) for n in free_vars(e)} - moved - places.keys())
    mine, theirs = [*places], sorted(moved)
    before = [e for e in given if not free_vars(e) & moved]
    try:
        left = sized(islpy.Set, before, f"{variables([*free, *mine])} : {_all(before)}")
        relation = sized(islpy.Map, there, _relation(free, theirs, [*places.values()], _all(there)))
    except NotAffine as error:
        return Verdict("not decided", detail=str(error))
    if not relation.is_injective() or not relation.range().is_equal(left):
        return Verdict("refuted", detail="the places are not those of all results, once each")
    return Verdict("proved", 1)


def _terms(e: Expr, old: Reduce) -> _Terms | None:
    """The terms of ``e``, which reduces them as ``old`` does, or has one at most; None for another reduction."""
    match e:
        case Reduce():
            return _Terms.of(e) if e.op == old.op else None
        case Op(op="select", args=(c, value, none)) if none == identity(old.op, old.dtype):
            return _Terms((), _conditions(c), value)
    return _Terms((), (), e)


def _conditions(e: Expr | None) -> tuple[Expr, ...]:
    """The parts of a condition that must all hold; one may be asked only where another one holds."""
    found: list[Expr] = []
    for c in conjuncts(e):
        match c:
            case Op(op="select", args=(first, second, Const(value=False))):
                found += (*_conditions(first), *_conditions(second))
            case _:
                found.append(c)
    return tuple(found)


def _one_to_one(old: _Terms, new: _Terms, at: Mapping[str, Expr], given: Sequence[Expr]) -> Verdict:
    """Whether the values ``at`` map the points of ``new`` one to one to those of ``old``, where ``given`` holds."""
    try:
        import islpy
    except ImportError:
        return Verdict("not decided", detail=INSTALL)
    old, new, at = _with_numbers(old, new, at)
    opaque = {e: substitute(e, at) for e in old.conditions if not _is_affine(e)}
    if any(e not in new.conditions for e in opaque.values()):
        return Verdict("not decided", detail="a condition that isl knows nothing of has changed")
    before = [*old.ranges, *(e for e in old.conditions if e not in opaque), *given]
    after = [*new.ranges, *(e for e in new.conditions if e not in opaque.values()), *given]
    mine, theirs = ([a.name for a in (*side.axes, *side.numbers)] for side in (old, new))
    values = [_number(at[name], new.numbers) for name in mine]
    free = sorted({n for e in (*before, *after, *values) for n in free_vars(e)} - {*mine} - {*theirs})
    try:
        left = sized(islpy.Set, before, f"{variables([*free, *mine])} : {_all(before)}")
        relation = sized(islpy.Map, [*after, *values], _relation(free, theirs, values, _all(after)))
    except NotAffine as error:
        return Verdict("not decided", detail=str(error))
    found = relation.range()
    if left.is_empty() and found.is_empty():
        return Verdict("not decided", detail="there is no term")
    if not relation.is_injective():
        return Verdict("refuted", detail="a term occurs twice")
    lost, extra = left.subtract(found), found.subtract(left)
    if not (lost.is_empty() and extra.is_empty()):
        what, where = ("lost", lost) if extra.is_empty() else ("new", extra)
        return Verdict("refuted", detail=f"a term is {what}: {where.sample_point()}")
    return Verdict("proved", 1)


def _with_numbers(old: _Terms, new: _Terms, at: Mapping[str, Expr]) -> tuple[_Terms, _Terms, Mapping[str, Expr]]:
    """Both sides, and the values, with an axis for each element that a value reads at one place on both."""
    reads = {ld for e in at.values() for ld in _reads(e) if substitute(ld, at) == ld}
    names = {ld: f"element {n}" for n, ld in enumerate(sorted(reads, key=repr))}

    def named(e: Expr) -> Expr:
        return rewrite(e, lambda n: Var(names[n], n.dtype) if isinstance(n, Load) and n in names else None)

    numbers = tuple(Axis(x, 1) for x in names.values())
    sides = [replace(s, numbers=numbers, conditions=tuple(map(named, s.conditions))) for s in (old, new)]
    return sides[0], sides[1], {**{n: named(e) for n, e in at.items()}, **{x: Var(x) for x in names.values()}}


def _number(e: Expr, numbers: Sequence[Axis]) -> Expr:
    """``e``, or the one of ``numbers`` of which it is the conversion to 32 bits.

    Where the values are those of an axis, numbers are within its extent, so that the conversion does not change them.
    """
    match e:
        case Op(op="cast", args=(Var(name=name) as number,)) if e.dtype is DType.I32:
            return number if any(a.name == name for a in numbers) else e
    return e


def _reads(e: Expr) -> Iterator[Load]:
    """The elements in ``e`` that are in no index of another one."""
    if isinstance(e, Load):
        yield e
    else:
        for c in children(e):
            yield from _reads(c)


def _is_affine(e: Expr) -> bool:
    try:
        condition(e)
    except NotAffine:
        return False
    return True


def _all(conditions: Sequence[Expr]) -> str:
    return " and ".join(map(condition, conditions)) or "true"


def _relation(free: Sequence[str], axes: Sequence[str], values: Sequence[Expr], domain: str) -> str:
    """The points of ``free`` and ``axes`` in ``domain`` -> ``free`` and ``values``, in the syntax of isl."""
    here, same = variables([*free, *axes]), [isl_text(Var(n)) for n in free]
    return "; ".join(
        f"{here} -> [{', '.join([*same, *map(isl_text, there)])}] : {' and '.join([domain, *conditions])}"
        for conditions, there in pieces(values)
    )
