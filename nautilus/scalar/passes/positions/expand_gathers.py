"""``expand-gathers``: a product with a factor that is gathered among a few neighbours becomes a sum over all of them.

Sparse weights may have two values and their positions for each group of four::

    Y[m, n] sum= X[m, 4 * g + I[n, g, z]] * V[n, g, z]                    where 0 <= I[n, g, z] < 4 is promised

Each column ``n`` reads other elements of ``X``, so no tile of ``X`` serves all of them.  There are four elements, and
what each is multiplied by is a function of ``n``, so that this is a product of matrices::

    Y[m, n] sum= X[m, 4 * g + r] * sum_z(V[n, g, z] if I[n, g, z] == r else 0)      where any_z(I[n, g, z] == r)

It has more terms, at the rate of matrix units.  The condition keeps inf and NaN of elements that no position names out
of the sum; it is left out where a promise says that the gathered tensor has none.

The pass applies to a position in memory that differs from term to term and is bounded by a type and by promises to
:data:`MOST` values, to a gathered factor with at least :data:`ROWS` rows that the position does not depend on, and
where at most :data:`INNER` terms have the same neighbours.  All neighbours are proved to be inside of the tensor.
Where the other factors have an axis of the result for themselves, as queries have their heads beside the pages of
keys, the sum is a product of matrices with gathered rows as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from itertools import product
from math import prod

from nautilus.core.expr.build import calc, integer, number
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.infer import make
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars, loads, rewrite, substitute
from nautilus.core.expr.products import factors, product_of, strip_conversions, strip_lossless_conversions
from nautilus.core.index.groups import quotients
from nautilus.core.index.linear import linear
from nautilus.core.index.simplify import bounds, simplify
from nautilus.core.index.sizes import Extent
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.core.types import DType, integer_limits
from nautilus.scalar.analysis.contractions.promises import Promises, finite_inputs, promised_ranges
from nautilus.scalar.analysis.definitions import Def, points, size
from nautilus.scalar.analysis.masking import certainly_in_range
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.rewriting import axis_assumptions, find_defs, put_defs

MOST = 16  # neighbours, so terms of the product of matrices for each gathered one
INNER = 8  # terms that have the same neighbours
ROWS = 8  # least number of rows, those of the smallest tile of a matrix unit


@dataclass(frozen=True, slots=True)
class ExpandGathers:
    """Expand gathers.  ``spec``: the Spec, whose promises bound positions, and say what is finite."""

    spec: Promises | None = None

    name = "expand-gathers"

    def apply(self, program: Program) -> Program:
        """The program with such products; the same object where there are none."""
        shapes = {b.name: b.shape for b in program.buffers}
        ranges = promised_ranges(self.spec)
        done = program
        for d in find_defs(program).values():
            made = _expanded(d, shapes, ranges, finite_inputs(self.spec))
            if made is not None:
                done = put_defs(done, d.name, (made,))
        return done if done is program else Simplify().apply(done)


@dataclass(frozen=True, slots=True)
class _Gather:
    """Factor ``factor`` is ``load``, whose dimension ``at`` has ``position`` in memory, from ``lo`` to ``hi``.

    ``rest``: the other factors.  ``inner``: the reduced axes of the terms that have the same neighbours.
    """

    factor: Expr
    rest: tuple[Expr, ...]
    load: Load
    at: int
    position: Expr
    lo: int
    hi: int
    inner: tuple[Axis, ...]


def _expanded(
    d: Def, shapes: Mapping[str, tuple[Extent, ...]], ranges: Mapping[str, tuple[float, float]], finite: frozenset[str]
) -> Def | None:  # fmt: skip
    """``d`` as a sum over all neighbours; None where it is no product with a gather among a few."""
    if d.op != "sum" or d.at is not None or not d.buffer.dtype.is_float or len(factors(d.value)) < 2:
        return None
    for split in _splits(d):
        for g in _gathers(split, ranges):
            made = _over_neighbours(split, g, finite)
            if made is not None and _is_inside(made, g, shapes):
                return made
    return None


def _splits(d: Def) -> Iterator[Def]:
    """``d`` with two axes for a reduced one of which a position is ``axis // n``, and ``d`` itself."""
    for a in d.red:
        sizes = {n for ld in loads(d.value) for e in ld.index for n in quotients(e, a.name) if n > 1}
        for n in sizes:
            extent = size(a)
            if extent is None or extent % n:
                continue
            inner = Axis(unused(f"{a.name}_member", {x.name for x in d.axes}), n, a.span)
            env = {a.name: calc("add", calc("mul", Var(a.name), n), Var(inner.name))}
            red = tuple(x for b in d.red for x in ((replace(a, extent=extent // n), inner) if b is a else (b,)))
            known, given = axis_assumptions((*d.par, *red))
            put = (None if e is None else simplify(substitute(e, env), known, given) for e in (d.value, d.guard))
            value, guard = put
            assert value is not None
            yield replace(d, red=red, value=value, guard=guard)
    yield d


def _gathers(d: Def, ranges: Mapping[str, tuple[float, float]]) -> Iterator[_Gather]:
    """The factors of ``d`` that are gathered among a few neighbours."""
    par, red = {a.name for a in d.par}, {a.name for a in d.red}
    parts = factors(d.value)
    for place, f in enumerate(parts):
        ld = strip_conversions(f)
        if not isinstance(ld, Load) or not any(map(loads, ld.index)):
            continue
        rest = (*parts[:place], *parts[place + 1 :])  # the same factor may stand there again
        if frozenset[str]().union(*map(free_vars, rest)) & par - free_vars(ld):
            continue  # gathered rows of a product of matrices
        for n, e in enumerate(ld.index):
            found = [a for a, c in linear(e).terms.items() if loads(a) and c == 1]
            limits = _limits(found[0], d, ranges) if len(found) == 1 and len(loads(e)) == 1 else None
            if limits is None or limits[1] - limits[0] >= MOST:
                continue
            others = frozenset[str]().union(*(free_vars(x) for k, x in enumerate(ld.index) if k != n))
            apart = others | free_vars(_base(e, found[0]))
            inner = tuple(a for a in d.red if a.name not in apart)
            rows = points(a for a in d.par if a.name in apart - free_vars(found[0]))
            columns = free_vars(found[0]) & par - apart
            each = free_vars(found[0]) & apart & red  # else rows of a matrix are gathered
            if rows >= ROWS and columns and prod(size(a) or INNER + 1 for a in inner) <= INNER and each:
                yield _Gather(f, rest, ld, n, found[0], *limits, inner)


def _base(e: Expr, position: Expr) -> Expr:
    """The index ``e`` without ``position``, a term of it."""
    return simplify(calc("sub", e, position))


def _limits(position: Expr, d: Def, ranges: Mapping[str, tuple[float, float]]) -> tuple[int, int] | None:
    """The least and greatest value of a position that memory decides, by its type and by promises."""
    if position.dtype is not DType.I32:
        return None
    ld = strip_conversions(position)
    if isinstance(ld, Load) and ld.dtype.is_int:
        lo, hi = integer_limits(ld.dtype)
        least, greatest = ranges.get(ld.buffer, (-math.inf, math.inf))
        lo, hi = math.ceil(max(lo, least)), math.floor(min(hi, greatest))
        if _keep(position, lo, hi):
            return lo, hi
    known, given = axis_assumptions(d.axes)
    found = bounds(position, known, given)
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def _keep(position: Expr, lo: int, hi: int) -> bool:
    """Whether the conversions around a load keep integers from ``lo`` to ``hi``, as ``i8`` does not keep 256."""
    while isinstance(position, Op):
        if not position.dtype.is_int:
            return False
        least, greatest = integer_limits(position.dtype)
        if lo < least or hi > greatest:
            return False
        position = position.args[0]
    return True


def _over_neighbours(d: Def, g: _Gather, finite: frozenset[str]) -> Def | None:
    """``d`` with an axis of neighbours in the place of the inner ones; None where it is no product of matrices."""
    inner = {a.name for a in g.inner}
    rows = {a.name for a in d.par} & free_vars(g.load) - free_vars(g.position)
    if any(free_vars(f) & rows for f in g.rest) or (d.guard is not None and free_vars(d.guard) & inner):
        return None
    axis = Axis(unused("neighbour", {a.name for a in d.axes}), g.hi - g.lo + 1, d.span)
    place = calc("add", Var(axis.name), g.lo)
    base = _base(g.load.index[g.at], g.position)
    index = tuple(calc("add", base, place) if n == g.at else e for n, e in enumerate(g.load.index))
    near = rewrite(g.factor, lambda e: replace(g.load, index=index) if e == g.load else None)
    weight = product_of(g.rest)
    terms = [
        (calc("eq", substitute(g.position, at), place), substitute(weight, at)) for at in _points(g.inner)
    ]  # fmt: skip
    chosen = [make("select", met, w, number(0, w.dtype)) for met, w in terms]
    value = Op("mul", (near, reduce(lambda a, b: Op("add", (a, b), a.dtype), chosen)), d.value.dtype, d.span)
    is_finite = g.load.buffer in finite and strip_lossless_conversions(g.factor) == g.load  # f16 of a number may be inf
    met = None if is_finite else reduce(lambda a, b: calc("or", a, b), [met for met, _ in terms])
    red = (*(a for a in d.red if a.name not in inner), axis)
    return replace(d, red=red, value=value, guard=conjunction((d.guard, met)))


def _points(axes: Iterable[Axis]) -> Iterator[dict[str, Expr]]:
    every = tuple(axes)
    for at in product(*(range(size(a) or 0) for a in every)):
        yield {a.name: integer(n) for a, n in zip(every, at, strict=True)}


def _is_inside(d: Def, g: _Gather, shapes: Mapping[str, tuple[Extent, ...]]) -> bool:
    """Whether all neighbours are inside of their tensor."""
    found = [ld for ld in loads(d.value) if ld.buffer == g.load.buffer]
    scope = {a.name: a.extent for a in d.axes}
    return all(certainly_in_range(ld, shapes, scope) for ld in found)
