"""Whether a sum of equal terms is a term times the number of its points.

The rewrite gives a *count* for each axis of the sum.  The points of the sum are those of a box: each condition bounds
one of its axes, so that the number of points is the product of those along the axes.  isl finds the points along an
axis, as a function of the axes of the result: where they are all integers from the least one to the largest one, it
compares their number with the count, which is 0 where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nautilus.check.validate.sets.index_sets import INSTALL, conjuncts
from nautilus.check.validate.sets.isl_text import NotAffine, condition, isl_text, pieces, sized, variable, variables
from nautilus.check.validate.verdict import Verdict
from nautilus.core.expr.nodes import Axis, Const, Expr, Op, Reduce, Var, free_vars
from nautilus.core.types import DType

_EXACT = 1 << 24  # integers up to this one are numbers of f32
_LARGEST = 2.0**127  # a product below it is finite


def counted_terms(
    before: Expr, after: Expr, counts: Mapping[str, Expr], given: Sequence[Expr] = (), _seed: int = 0
) -> Verdict:  # fmt: skip
    """Whether ``after`` is the term of ``before`` times ``counts``; ``given``: conditions on the axes of the result."""
    if not isinstance(before, Reduce) or before.op != "sum" or [*counts] != [a.name for a in before.axes]:
        return Verdict("refuted", detail="the counts are not those of the axes of a sum")
    names = counts.keys()
    if free_vars(before.body) & names or any(free_vars(e) & names for e in counts.values()):
        return Verdict("refuted", detail="a term or a count depends on what is summed")
    if not _is_exact(before):
        return Verdict("refuted", detail="the type of the sum does not hold the number of its terms")
    if after not in _products(before.body, [*counts.values()]):
        return Verdict("refuted", detail="the result is not the term times the counts, and 0 where one of them is 0")
    conditions = conjuncts(before.cond)
    if any(len(free_vars(c) & names) != 1 for c in conditions):
        return Verdict("not decided", detail="a condition bounds several axes, or none")
    found = [_counted(a, [c for c in conditions if a.name in free_vars(c)], counts[a.name], given) for a in before.axes]
    return next((v for v in found if v.status != "proved"), Verdict("proved", 1))


def _products(body: Expr, counts: Sequence[Expr]) -> Iterator[Expr]:
    """``body`` times ``counts``, in the forms in which it is 0 where a count is 0.

    A term that is small is multiplied by one count after another.  Any other one may be infinite, or become so before
    it meets a count of 0, so that it is multiplied by the product of them, under the condition that this is not 0.
    """
    dtype = body.dtype
    numbers = [c if dtype is c.dtype else Op("cast", (c,), dtype) for c in counts]
    if dtype.is_int or (isinstance(body, Const) and abs(float(body.value)) * _EXACT < _LARGEST):
        yield _times([body, *numbers])
    number, zero = _times(numbers), Const(0.0, dtype)
    yield Op("select", (Op("gt", (number, zero), DType.BOOL), _times([body, number]), zero), dtype)


def _times(factors: Sequence[Expr]) -> Expr:
    made, *others = factors
    for e in others:
        made = Op("mul", (made, e), e.dtype)
    return made


def _is_exact(e: Reduce) -> bool:
    """Whether the type of ``e`` holds all numbers of its points."""
    if e.dtype is not DType.F32:
        return e.dtype in (DType.I32, DType.I64, DType.F64)
    points = 1
    for a in e.axes:
        points = points * a.extent if isinstance(a.extent, int) else _EXACT + 1
    return points <= _EXACT


def _counted(a: Axis, conditions: Sequence[Expr], count: Expr, given: Sequence[Expr]) -> Verdict:
    """Whether ``count`` is the number of points along ``a`` at which ``conditions`` hold."""
    try:
        import islpy
    except ImportError:
        return Verdict("not decided", detail=INSTALL)
    end = Const(a.extent, DType.I32) if isinstance(a.extent, int) else a.extent
    inside = [Op("ge", (Var(a.name), Const(0, DType.I32)), DType.BOOL), Op("lt", (Var(a.name), end), DType.BOOL)]
    free = sorted({n for e in (*conditions, count, *given) for n in free_vars(e)} - {a.name})
    here, point = variables(free), f"[{variable(a.name)}]"
    try:
        held, known = (" and ".join(map(condition, cs)) or "true" for cs in ((*inside, *conditions, *given), given))
        points = sized(islpy.Map, [*inside, *conditions, *given], f"{here} -> {point} : {held}")
        domain = sized(islpy.Set, [*given], f"{here} : {known}")
        sides = "; ".join(
            f"{here} -> [{isl_text(number)}] : {' and '.join([known, *parts])}" for parts, (number,) in pieces([count])
        )
        said = sized(islpy.Map, [count, *given], sides)
    except NotAffine as error:
        return Verdict("not decided", detail=str(error))
    if domain.is_empty():
        return Verdict("not decided", detail="the result has no element")
    least, most = points.lexmin(), points.lexmax()
    if not _between(islpy, least, most).is_equal(points):
        return Verdict("not decided", detail=f"the points along {a.name} are no range")
    length = least.flat_range_product(most).apply_range(islpy.Map("{ [low, high] -> [high - low + 1] }"))
    none = islpy.Map.from_domain_and_range(domain.subtract(points.domain()), islpy.Set("{ [0] }"))
    if not said.is_equal(length.union(none)):
        return Verdict("refuted", detail=f"the count is not the number of points along {a.name}")
    return Verdict("proved", 1)


def _between(islpy: Any, least: Any, most: Any) -> Any:
    """All integers from ``least`` to ``most``."""
    above, below = islpy.Map("{ [x] -> [y] : y >= x }"), islpy.Map("{ [x] -> [y] : y <= x }")
    return least.apply_range(above).intersect(most.apply_range(below))
