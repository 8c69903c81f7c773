"""``multiply-conditions``: a count of the terms at which conditions on two sides hold is a product of matrices.

Conditions of which some depend on the rows of a result, and the others on its columns, are numbers 0 and 1::

    n[i, j] = sum[k | a[i, k] and b[k, j]](1)            n[i, j] = sum[k](i32(a[i, k]) * i32(b[k, j]))

Matrix units multiply such numbers as integers of 8 bits, where threads would evaluate both conditions for each term.
A step on a graph, or any other product of Boolean matrices, asks whether the number is 0::

    any[k](a[i, k] and b[k, j]) = n[i, j] > 0            all[k](a[i, k] or b[k, j]) = not any[k](not a and not b)

Conditions that depend on neither side are those of the rows too.  Each factor is evaluated at all terms then, so all
that it reads is inside of its tensors there.  Terms are fewer than 2^31, and than 2^24 where f32 counts them, so the
number is exact.  A count over several axes is a sum of counts over one of them, as that of the triangles of a graph::

    n[i] = sum[j, k | a[i, j] and a[j, k] and a[k, i]](1) = sum[k | a[k, i]](sum[j | a[i, j] and a[j, k]](1))

Conditions that equate an index with an element of memory stay: they are the keys of a histogram,
which visits each term once.  So do conditions of which one side only bounds the index by that of the result, as
``u <= t``: later passes find running counts and windows.

It is done for products of :data:`LEAST` terms, with :data:`SIDE` rows and columns: others take no longer than the
launches of the kernels that store the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import conjunction, conjuncts, disjuncts, negated
from nautilus.core.expr.infer import make
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Reduce, Var, free_vars, loads
from nautilus.core.index.prefixes import prefix
from nautilus.core.index.simplify import bounds
from nautilus.core.index.sizes import Extent
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def, points, size
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs

LEAST = 1 << 28  # terms of all results, which take threads 12 us (2048^3 terms: 386 by the cost model, 26 as a product)
SIDE = 32  # rows, columns and terms of each result, at least
MOST = 1 << 28  # elements of a count that is stored, at most
_EXACT = {
    DType.BOOL: 1 << 31,
    DType.I32: 1 << 31,
    DType.I64: 1 << 31,
    DType.F32: 1 << 24,
}  # terms that are counted exactly


@dataclass(frozen=True, slots=True)
class MultiplyConditions(CertifyingPass[Program]):
    """Make counts of conditions on two sides, and whether any or all hold, products of integers."""

    name = "multiply-conditions"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with a product for each such reduction, and its certificate."""
        certificates: list[Certificate] = []
        for d in find_defs(program).values():
            factors = _factors(d, program)
            apart = _axis_apart(program, d) if factors is None else None
            if apart is not None:
                inner, d, proof = apart
                certificates.append(proof)  # of the sum by counts; the count has its own one
                program = put_defs(program, d.name, (inner, d))
                d, factors = inner, _factors(inner, program)
            if factors is not None:
                made = _product(program, d, factors)
                certificates.append(_certificate(d, made))
                program = put_defs(program, d.name, made)
        return program, tuple(certificates)


def _axis_apart(program: Program, d: Def) -> tuple[Def, Def, Certificate] | None:
    """A count over one of several axes of ``d`` that is a product, ``d`` by its elements, and the certificate.

    None where no axis has such a count.
    """
    conditions = None if d.scatter is not None or d.at is not None or len(d.red) < 2 else _conditions(d)
    if conditions is None or None in map(size, d.axes):
        return None
    operands = [ld for c in conditions for ld in loads(c)]
    along = {a: sum(a.name in free_vars(ld.index[-1]) for ld in operands if ld.index) for a in d.red}
    for axis in sorted(d.red, key=lambda a: (-along[a], -points([a]))):  # matrix units read along contracted axes
        own = [c for c in conditions if axis.name in free_vars(c)]
        used = free_vars(conjunction(own) or integer(0))
        par = tuple(a for a in d.axes if a.name in used and a != axis)
        name = fresh_name(program, f"{d.name}_count")
        buffer = Buffer(name, DType.I32, tuple(a.extent for a in par), Space.TEMP, d.span)
        inner = Def(name, buffer, par, (axis,), "sum", integer(1), conjunction(own), d.span)
        if points(par) <= MOST and _factors(inner, program) is not None:
            rest = conjunction(map(_without_equations, (c for c in conditions if c not in own)))
            return inner, *_by_counts(d, inner, rest)
    return None


def _by_counts(d: Def, inner: Def, rest: Expr | None) -> tuple[Def, Certificate]:
    """``d`` by the counts ``inner`` of terms along one axis, under the conditions ``rest`` on the others."""
    red = tuple(a for a in d.red if a not in inner.red)
    read = Load(inner.name, inner.index, DType.I32, d.span)

    held = [] if rest is None else [Op("cast", (rest,), DType.I32, d.span)]

    def value(count: Expr) -> Expr:
        if d.op == "sum":
            found = [
                e if d.value.dtype is DType.I32 else Op("cast", (e,), d.value.dtype, d.span) for e in (count, *held)
            ]
            return found[0] if rest is None else make("mul", *found)
        some = calc("gt", count, integer(0))
        both = some if rest is None else calc("and", rest, some)
        return both if d.op == "any" else negated(both)

    outer = replace(d, red=red, value=value(read), guard=None)
    counted = Reduce("sum", inner.red, inner.guard, inner.value, DType.I32, d.span)
    assert d.op is not None
    before = Reduce(d.op, d.red, d.guard, d.value, d.value.dtype, d.span)
    after = Reduce(d.op, red, None, value(counted), d.value.dtype, d.span)
    proof = "terms that share all positions but one are as many as that position has"
    return outer, Certificate("multiply-conditions", d.name, before, after, (), (), (), proof, d.span)


def _factors(d: Def, program: Program) -> tuple[Expr, Expr] | None:
    """The conditions of rows and those of columns under which terms of ``d`` count; None where it is no such count."""
    found = None if d.scatter is not None or d.at is not None else _conditions(d)
    if found is None or any(map(_is_key, found)) or not _is_large(d):
        return None
    parallel = frozenset(a.name for a in d.par)
    for row in d.par:
        rows = [c for c in found if row.name in free_vars(c)]
        columns = [c for c in found if c not in rows and free_vars(c) & parallel]
        shared = [c for c in found if c not in rows and c not in columns]
        left, right = (conjunction(map(_without_equations, cs)) for cs in ((*shared, *rows), columns))
        if left is None or right is None or _is_range(d, rows) or _is_range(d, columns):
            continue
        if not _are_sides(d, [free_vars(side) & parallel for side in (left, right)]):
            continue
        if all(_is_inside(ld, d, program) for side in (left, right) for ld in loads(side)):
            return left, right
    return None


def _is_large(d: Def) -> bool:
    """Whether ``d`` has as many terms as are worth a product, no more than are counted exactly, and known sizes."""
    known = None not in map(size, d.axes)
    return known and SIDE <= points(d.red) < _EXACT[d.value.dtype] and points(d.axes) >= LEAST


def _are_sides(d: Def, names: Sequence[frozenset[str]]) -> bool:
    """Whether the axes ``names`` of two factors are those of rows and columns, and of several matrices."""
    own = [[a for a in d.par if a.name in names[k] - names[1 - k]] for k in (0, 1)]
    return all(points(axes) >= SIDE for axes in own)


def _conditions(d: Def) -> tuple[Expr, ...] | None:
    """The conditions that all hold at the terms which ``d`` counts, or looks for; None where it does neither."""
    value = d.value
    match d.op, value:
        case "any", _:
            return (*conjuncts(d.guard), *conjuncts(value))
        case "all", _:
            return (*conjuncts(d.guard), *(negated(c) for c in disjuncts(value)))
        case "sum", Const(value=one) if one == 1 and value.dtype in _EXACT:
            return conjuncts(d.guard)
        case "sum", Op(op="cast", args=(c,)) if c.dtype is DType.BOOL and value.dtype in _EXACT:
            return (*conjuncts(d.guard), *conjuncts(c))
    return None


def _is_key(c: Expr) -> bool:
    """Whether ``c`` equates a position with an element of memory, which says at which result its term counts."""
    sides = c.args if isinstance(c, Op) and c.op == "eq" else ()
    return any(map(loads, sides)) and any(free_vars(e) and not loads(e) for e in sides)


def _is_range(d: Def, side: Sequence[Expr]) -> bool:
    """Whether the conditions ``side`` only say where the range of a reduced index is, relative to a result."""
    pairs = [(u.name, t.name) for u in d.red for t in d.par]
    return any(all(prefix(c, u, t) is not None for c in side) for u, t in pairs)


def _without_equations(c: Expr) -> Expr:
    """``c`` as two comparisons where it equates integers: a sum takes an equation as the place of its term."""
    match c:
        case Op(op="eq", args=(a, b)) if a.dtype.is_int:
            return calc("and", calc("le", a, b), calc("le", b, a))
    return c


def _is_inside(ld: Load, d: Def, program: Program) -> bool:
    """Whether ``ld`` reads an element of its tensor at all points of ``d``, whatever conditions hold there."""
    ranges = {a.name: (0, points([a]) - 1) for a in d.axes}

    def fits(e: Expr, extent: Extent) -> bool:
        low, high = bounds(e, ranges)
        return isinstance(extent, int) and low is not None and high is not None and low >= 0 and high < extent

    return all(map(fits, ld.index, program.buffer(ld.buffer).shape))


def _product(program: Program, d: Def, factors: tuple[Expr, Expr]) -> tuple[Def, ...]:
    """The product of ``factors`` under the name of ``d``, or under another one with ``d``, which reads it."""
    left, right = (Op("cast", (c,), DType.I32, d.span) for c in factors)
    value = calc("mul", left, right)
    if d.op == "sum" and d.value.dtype is DType.I32:
        return (replace(d, value=value, guard=None),)
    name = fresh_name(program, f"{d.name}_count")
    buffer = Buffer(name, DType.I32, d.buffer.shape, Space.TEMP, d.span)
    count = replace(d, name=name, buffer=buffer, op="sum", value=value, guard=None)
    total = Load(name, tuple(Var(a.name) for a in d.par), DType.I32, d.span)
    return count, replace(d, red=(), op=None, value=_result(d, total), guard=None)


def _result(d: Def, count: Expr) -> Expr:
    """The value of ``d`` where ``count`` terms hold."""
    if d.op == "sum":
        return count if d.value.dtype is DType.I32 else Op("cast", (count,), d.value.dtype, d.span)
    return calc("gt", count, integer(0)) if d.op == "any" else calc("eq", count, integer(0))


def _certificate(d: Def, made: Sequence[Def]) -> Certificate:
    assert d.op is not None
    before = Reduce(d.op, d.red, d.guard, d.value, d.value.dtype, d.span)
    after = _result(d, Reduce("sum", d.red, None, made[0].value, DType.I32, d.span))
    proof = "a product of numbers 0 and 1 is 1 where both conditions hold, and 0 elsewhere"
    return Certificate("multiply-conditions", d.name, before, after, (), (), (), proof, d.span)
