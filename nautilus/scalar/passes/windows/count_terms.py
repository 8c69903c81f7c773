"""``count-terms``: a sum of equal terms over a box of indices is the number of its points.

The mean over a window, of which a part is outside of an image, divides by such a sum::

    n[y, x] = sum[r: 3, s: 3 | 0 <= y + r - 1 < H and 0 <= x + s - 1 < W](1)

    n[y, x] = (min(3, H + 1 - y) - max(0, 1 - y)) * (min(3, W + 1 - x) - max(0, 1 - x))

Each condition bounds one of the summed axes by the axes of the result, and reads nothing.  A range whose end is in
front of its beginning has no point.  A number of points below 2^24 is exact in f32.  A term that may be infinite counts
where there is a point alone, because 0 times inf is no 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import prod

from nautilus.core.buffers import Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc, integer, within
from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.infer import make
from nautilus.core.expr.nodes import Axis, Const, Expr, Op, Reduce, Var, free_vars, loads
from nautilus.core.index.alternatives import alternatives
from nautilus.core.index.linear import constant
from nautilus.core.index.linear_bounds import Ranges
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.blocks.cover import largest, smallest
from nautilus.scalar.analysis.blocks.spans import Span, meet, solve
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.inline import replace_reads
from nautilus.scalar.rewriting import axis_assumptions, find_defs

MOST = 1 << 24  # points of a box, which f32 holds exactly
SMALL = 1e30  # a number whose product with that many points is finite


@dataclass(frozen=True, slots=True)
class CountTerms(CertifyingPass[Program]):
    """Find every number of points by its bounds, where it is read."""

    name = "count-terms"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program without sums of equal terms, and a certificate for each; the same object where there are none."""
        found, certificates = program, list[Certificate]()
        for d in find_defs(program).values():
            counts = _counts(d)
            if counts is not None:
                value = _total(d, counts)
                found = replace_reads(found, replace(d, red=(), op=None, value=value, guard=None))
                certificates.append(_certificate(d, counts, value))
        return (program if found is program else Dead().apply(found)), tuple(certificates)


def _counts(d: Def) -> tuple[Expr, ...] | None:
    """The number of points along each axis of the sum ``d`` of equal terms; None for another definition."""
    plain = d.buffer.space is Space.TEMP and d.scatter is None and d.at is None and d.op == "sum"
    names = {a.name for a in d.red}
    sizes = [size(a) for a in d.red]
    if not plain or d.guard is None or None in sizes or prod(n or 0 for n in sizes) > MOST:
        return None
    if d.value.dtype not in (DType.F32, DType.I32) or loads(d.value) or free_vars(d.value) & names:
        return None
    counts = [_count(d, a) for a in d.red]
    bounds = [free_vars(c) & names for c in conjuncts(d.guard)]
    if None in counts or any(len(b) != 1 for b in bounds):
        return None
    return tuple(c for c in counts if c is not None)


def _total(d: Def, counts: Sequence[Expr]) -> Expr:
    """The sum ``d`` by the number of its points, 0 where there is none.

    A large or infinite term, as ``1 / (y - 9)`` may be, meets the number of all points alone, if that is not 0.
    """
    dtype = d.value.dtype
    numbers = [c if dtype is DType.I32 else Op("cast", (c,), dtype) for c in counts]
    if _is_small(d.value):
        return reduce(lambda a, b: Op("mul", (a, b), dtype, d.span), numbers, d.value)
    number = reduce(lambda a, b: Op("mul", (a, b), dtype, d.span), numbers)
    total = Op("mul", (d.value, number), dtype, d.span)
    return make("select", calc("gt", number, Const(0.0, dtype)), total, Const(0.0, dtype))


def _is_small(e: Expr) -> bool:
    """Whether ``e`` is an integer, or a number whose product with every count is finite."""
    return e.dtype is DType.I32 or (isinstance(e, Const) and abs(float(e.value)) <= SMALL)


def _certificate(d: Def, counts: Sequence[Expr], value: Expr) -> Certificate:
    """The sum ``d`` is ``value``, with ``counts`` of points along its axes."""
    assert d.op is not None
    before = Reduce(d.op, d.red, d.guard, d.value, d.value.dtype, d.span)
    given = tuple(c for a in d.par for c in within(Var(a.name), a.extent))
    named = tuple((a.name, c) for a, c in zip(d.red, counts, strict=True))
    proof = "the terms are equal, and their points are those of a box"
    return Certificate(CountTerms.name, d.name, before, value, named, given, (), proof, d.span)


def _count(d: Def, axis: Axis) -> Expr | None:
    """The points along ``axis`` at which the conditions on it hold; None where they are no range."""
    ranges, _ = axis_assumptions(d.axes)
    low, high = [constant(0)], [constant(size(axis) or 0)]
    for c in conjuncts(d.guard):
        if axis.name not in free_vars(c):
            continue
        found = _range(c, axis.name, ranges)
        if found is None or found.when:
            return None
        low += found.lo
        high += found.hi
    return calc("max", calc("sub", smallest(high, ranges), largest(low, ranges)), integer(0))


def _range(c: Expr, name: str, ranges: Ranges) -> Span | None:
    """The values of ``name`` at which ``c`` holds, as a range; None where they are none."""
    if loads(c) or len(found := alternatives(c)) != 1 or not found[0].exact:
        return None
    spans = [solve(form, name, ranges) for form in found[0].forms]
    return None if None in spans else meet(*(s for s in spans if s is not None))
