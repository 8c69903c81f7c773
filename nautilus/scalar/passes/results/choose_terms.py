"""``choose-terms``: a reduction over an index of which a condition admits one value computes that term alone.

The expert of each token is often written as a condition on a sum over experts::

    H[t, f] = sum[e | id[t] == e](silu(G[t, f, e] + b[e, f]))              G[t, f, e] = sum[d](X[t, d] * W[e, f, d])

The product then has elements for every expert, of which one counts.  It is computed for that expert alone instead, and
a row whose expert is none has 0 (:func:`_term`)::

    G_at[t, f] = sum[d | 0 <= id[t] < E](X[t, d] * W[id[t], f, d])
    H[t, f] = silu(G_at[t, f] + b[id[t], f]) if 0 <= id[t] < E else 0

``sum[e, d | id[t] == e](X[t, d] * W[e, f, d])`` is computed in the same way.  Where the index depends on what is still
summed, as in ``sum[k, e, d | id[t, k] == e](..)``, the sum over ``d`` has an element for each ``k``.  ``sort-rows``
makes products of matrices of them.

Rows that are sorted by expert have segments, of which at most one has a row where they are disjoint
(``analysis.contractions.disjoint``).  Products stay sums over segments, which the planner knows (:func:`_segment`)::

    which[t] = max[e | off[e] <= t < off[e + 1]](e)
    G_at[t, f] = sum[e, d | off[e] <= t < off[e + 1]](X[t, d] * W[e, f, d])
    H[t, f] = silu(G_at[t, f] + b[which[t], f]) if which[t] >= 0 else 0

It is done for :data:`LEAST` terms or more, where reductions that are read at the index are read once and nowhere else,
and anything else there is an input or has fewer axes than the result.  A product has fewer elements at chosen indices:
one that all tokens share, which would be computed once for each token, is read at the index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc, integer, within
from nautilus.core.expr.conditions import all_conjuncts, conjunction, short_circuit
from nautilus.core.expr.infer import make
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Reduce, Var, free_vars, identity, loads, rewrite, substitute
from nautilus.core.expr.products import matrix_product, strip_lossless_conversions
from nautilus.core.index.sizes import Extent, at_most, nominal
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.source import Span
from nautilus.core.text.expressions import format_expr
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.contractions.disjoint import Ends, are_disjoint, ends_at, facts_of
from nautilus.scalar.analysis.contractions.promises import Promises
from nautilus.scalar.analysis.definitions import Def, points, rename_axes
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.results.sort_rows import MOST
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs, reduction_at

LEAST = 4  # terms of which one is chosen
FEW = 32  # rows of a product whose time is that of reading the matrices


@dataclass(frozen=True, slots=True)
class ChooseTerms(CertifyingPass[Program]):
    """Compute the only term of each such reduction.

    ``spec``: the Spec, whose promises say which segments are disjoint.
    """

    spec: Promises | None = None

    name = "choose-terms"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with terms in the place of sums, and a certificate for each element of memory that chooses one;
        the same object where there are none.
        """
        left, certificates = [k.name for k in program.kernels], list[Certificate]()
        while left:
            made = _rewritten(program, left[0], self.spec)
            if made is None:
                left = left[1:]
                continue
            known = {k.name for k in program.kernels}
            left = [*(k.name for k in made[0].kernels if k.name not in known), *left]
            program = Dead().apply(made[0])
            certificates += made[1]
        return program, tuple(certificates)


def _rewritten(program: Program, name: str, spec: Promises | None) -> tuple[Program, tuple[Certificate, ...]] | None:
    """``program`` with one index less in the reduction ``name``; None where that has no such index."""
    defs = find_defs(program)
    d = defs.get(name)
    if d is None or d.op is None or d.at is not None:
        return None
    for a in d.red:
        key = _key(d, a, {b.name: b.shape for b in program.buffers})
        if key is not None and at_most(a.extent) >= LEAST and _reads_at(program, d, a, key.asked, defs) is not None:
            return put_defs(program, name, _term(program, d, a, key, defs)), (_certificate(d, a, key),)
    found = _segments(program, d, defs)
    if found is None or not are_disjoint(found[1], defs, spec):
        return None
    return put_defs(program, name, _segment(program, d, found[0], defs)), ()


def _certificate(d: Def, a: Axis, k: _Key) -> Certificate:
    """The terms of ``d`` are those at the index ``k`` along ``a``."""
    assert d.op is not None
    at = {a.name: k.index}
    rest, inside, value = tuple(x for x in d.red if x is not a), k.inside(a, at), substitute(d.value, at)
    before = Reduce(d.op, d.red, d.guard, d.value, d.value.dtype, d.span)
    after = Reduce(d.op, rest, inside, value, value.dtype, d.span) if rest else _or_identity(d, inside, value)
    given = tuple(c for x in d.par for c in within(Var(x.name), x.extent))
    proof = f"one value of {a.name} at most is {format_expr(k.key)}"
    return Certificate(ChooseTerms.name, d.name, before, after, ((a.name, k.index),), given, (), proof, d.span)


def _segments(program: Program, d: Def, defs: Mapping[str, Def]) -> tuple[Axis, Ends] | None:
    """The axis that numbers the segments of ``d``, of which one has terms where they are disjoint, with their ends."""
    if d.op is None or d.at is not None or len(d.red) != 1 or (d.op == "sum" and isinstance(d.value, Load)):
        return None
    (a,) = d.red
    ends = ends_at(d.guard, a.name)
    reads = any(a.name in free_vars(ld) for ld in loads(d.value))
    if ends is None or not reads or at_most(a.extent) < LEAST:
        return None
    return None if _reads_at(program, d, a, _asked(d, a), defs) is None else (a, ends)


@dataclass(frozen=True, slots=True)
class Overlapping:
    """Sum ``name`` has terms of all ``count`` segments at each position; ``facts`` would make them disjoint."""

    name: str
    count: int
    facts: tuple[str, ...]
    span: Span


def overlapping(program: Program) -> tuple[Overlapping, ...]:
    """The reductions of ``program``, a result of the pass, in which promises about inputs would choose terms."""
    defs, out = find_defs(program), []
    inputs = {b.name for b in program.buffers if b.space is Space.INPUT}
    for d in defs.values():
        found = _segments(program, d, defs)
        needed = () if found is None else facts_of(found[1])
        if found is not None and all(ld.buffer in inputs for pair in needed for e in pair for ld in loads(e)):
            facts = tuple(f"{format_expr(a)} <= {format_expr(b)}" for a, b in needed)
            out.append(Overlapping(d.name, nominal(found[0].extent), facts, d.span))
    return tuple(out)


@dataclass(frozen=True, slots=True)
class _Key:
    """The element of memory that a part of a condition equates with an index.

    ``before`` and ``after``: the other parts, in the order in which they are evaluated.
    """

    key: Expr
    before: tuple[Expr, ...]
    after: tuple[Expr, ...]

    @property
    def index(self) -> Expr:
        """The element as an index."""
        return self.key if self.key.dtype is DType.I32 else Op("cast", (self.key,), DType.I32)

    @property
    def asked(self) -> frozenset[str]:
        """The variables that it depends on."""
        return free_vars(self.key)

    def inside(self, a: Axis, at: Mapping[str, Expr]) -> Expr:
        """The condition for the index ``at`` of the axis ``a``, evaluated after the condition that there is one."""
        there = [c for c in self.before if a.name in free_vars(c)]
        exists = conjunction(within(self.key, _in_type(a.extent, self.key.dtype)))
        assert exists is not None
        first = [c for c in self.before if c not in there]
        return reduce(_both, [*first, exists, *(substitute(c, at) for c in (*there, *self.after))])


def _key(d: Def, a: Axis, shapes: Mapping[str, Sequence[Extent]]) -> _Key | None:
    """What the condition of ``d`` equates with ``a``."""
    parts = tuple(all_conjuncts(d.guard))
    for n, c in enumerate(parts):
        for one, key in (c.args, c.args[::-1]) if isinstance(c, Op) and c.op == "eq" else ():
            named = strip_lossless_conversions(one) == Var(a.name) and key.dtype in (DType.I32, DType.I64)
            found = _Key(key, parts[:n], parts[n + 1 :])
            if not named or not loads(key) or a.name in found.asked:
                continue
            if _is_inside(key, d, shapes) or not any(a.name in free_vars(x) for x in found.before):
                return found
    return None


def _is_inside(key: Expr, d: Def, shapes: Mapping[str, Sequence[Extent]]) -> bool:
    """Whether every element that ``key`` reads exists at all points of the axes of ``d``."""
    own = {x.name: x.extent for x in d.axes}
    places = [(e, n) for ld in loads(key) for e, n in zip(ld.index, shapes[ld.buffer], strict=True)]
    return all(isinstance(e, Var) and own.get(e.name) == n for e, n in places)


def _both(a: Expr, b: Expr) -> Expr:
    """``a and b``; ``b`` is evaluated only where ``a`` holds, if it reads memory."""
    return short_circuit(a, b) if loads(b) else calc("and", a, b)


def _asked(d: Def, a: Axis) -> frozenset[str]:
    """The variables beside ``a`` in the condition of ``d``."""
    return frozenset[str]().union(*map(free_vars, all_conjuncts(d.guard))) - {a.name}


def _reads_at(
    program: Program, d: Def, a: Axis, asked: frozenset[str], defs: Mapping[str, Def]
) -> tuple[Load, ...] | None:  # fmt: skip
    """What ``d`` reads at ``a`` that is reduced for the chosen index alone; None unless all reads can be chosen."""
    found: list[Load] = []
    inputs = {b.name for b in program.buffers if b.space is Space.INPUT}
    parts = [d.value, *(c for c in all_conjuncts(d.guard) if a.name in free_vars(c))]
    for ld in dict.fromkeys(ld for e in parts for ld in loads(e) if a.name in free_vars(ld)):
        if ld.buffer in inputs:
            continue
        if _is_alone(ld, d, defs) and _is_at_axes(ld, d, defs) and _has_less(ld, a, asked, d, defs):
            found.append(ld)
        elif {x.name for x in d.par} <= free_vars(ld) and not _is_alone(ld, d, defs):
            return None
    return tuple(found)


def _is_alone(ld: Load, d: Def, defs: Mapping[str, Def]) -> bool:
    """Whether ``ld`` is an element of a reduction that the value of ``d`` alone reads, and once.

    A condition of that reduction is one of ``d``, at axes that ``ld`` has.
    """
    made = defs.get(ld.buffer)
    if made is None or made.op is None or made.at is not None:
        return False
    readers = [x for r in defs.values() for x in r.reads() if x.buffer == ld.buffer]
    if made.buffer.space is not Space.TEMP or readers != [ld] or ld not in loads(d.value):
        return False
    at = {a.name: e for a, e in zip(made.par, ld.index, strict=True)}
    parts, mine = ({*all_conjuncts(c)} for c in (made.guard, d.guard))
    held = {substitute(c, at) for c in parts}
    return not held or (held <= mine and frozenset[str]().union(*map(free_vars, mine)) <= free_vars(ld))


def _has_less(ld: Load, a: Axis, asked: frozenset[str], d: Def, defs: Mapping[str, Def]) -> bool:
    """Whether the elements of ``ld`` for chosen indices alone are fewer than those for all indices, and take less time.

    They take as long in a product of few rows with matrices of which all are chosen, which reads each matrix once
    either way, and with more rows than ``sort-rows`` sorts, because those are no product of matrices.
    """
    if prod(at_most(x.extent) for x in d.axes if x.name in asked) > MOST:
        return False
    made, chosen = defs[ld.buffer], free_vars(ld) - {a.name} | asked
    less = [nominal(x.extent) for x in d.axes if x.name in chosen]
    if prod(less) >= points(made.par):
        return False
    sides = matrix_product(made.value, [x.name for x in made.par])
    index = [x.name for x, e in zip(made.par, ld.index, strict=True) if e == Var(a.name)]
    if sides is None or not {*index} & (sides.rows | sides.columns):
        return True
    rows, columns = (sides.rows, sides.columns) if {*index} & sides.columns else (sides.columns, sides.rows)
    each = points(x for x in made.par if x.name in columns and x.name not in index)
    few = points(x for x in made.par if x.name in rows) <= FEW
    return not few or prod(less) < each * nominal(a.extent)


def _is_at_axes(ld: Load, d: Def, defs: Mapping[str, Def]) -> bool:
    """Whether the place of ``ld`` has an axis of ``d`` alone in each dimension."""
    own = {x.name: x.extent for x in d.axes}
    places = [e.name if isinstance(e, Var) else "" for e in ld.index]
    sizes = [x.extent for x in defs[ld.buffer].par]
    return [own.get(name) for name in places] == sizes and len({*places}) == len(places)


def _term(program: Program, d: Def, a: Axis, k: _Key, defs: Mapping[str, Def]) -> tuple[Def, ...]:
    """``d`` for the index ``k`` alone, after the products that it reads there."""
    at = {a.name: k.index}
    inside = k.inside(a, at)
    exists = replace(k, before=(), after=()).inside(a, at)
    rest = tuple(x for x in d.red if x is not a)
    made: list[Def] = []
    put: dict[Load, Expr] = {}
    for ld in _reads_at(program, d, a, k.asked, defs) or ():
        chosen = replace(ld, index=tuple(substitute(e, at) for e in ld.index))
        guard = inside if free_vars(inside) <= free_vars(chosen) else exists
        made += _at_index(program, chosen, (*d.par, *rest), guard, made, defs)
        put[ld] = Load(made[-1].name, made[-1].index, ld.dtype, ld.span)
    if d.value in put and made[-1].op == d.op and not rest and made[-1].guard is inside:
        return (*made[:-1], replace(d, red=made[-1].red, value=made[-1].value, guard=inside))
    value = _with(d.value, put, at)
    if not rest:
        return (*made, replace(d, op=None, red=(), value=_or_identity(d, inside, value), guard=None))
    outer = tuple(x for x in rest if x.name in k.asked)
    inner = tuple(x for x in rest if x.name not in k.asked)
    if not outer or not inner:
        return (*made, replace(d, red=rest, value=value, guard=inside))
    return (*made, *_in_parts(program, d, value, inside, outer, inner, made))


def _at_index(
    program: Program, ld: Load, axes: Sequence[Axis], guard: Expr, others: Sequence[Def], defs: Mapping[str, Def]
) -> list[Def]:  # fmt: skip
    """The reduction that ``ld`` reads for its place alone, after the reductions that it alone reads there."""
    own = reduction_at(program, defs[ld.buffer], ld, axes, guard, others)
    made: list[Def] = []
    put: dict[Load, Expr] = {}
    for x in dict.fromkeys(loads(defs[ld.buffer].value)):
        if not _is_alone(x, defs[ld.buffer], defs) or not _is_at_axes(x, defs[ld.buffer], defs):
            continue
        (there,) = [y for y in loads(own.value) if y.buffer == x.buffer]
        made += _at_index(program, there, (*own.par, *own.red), guard, [*others, own, *made], defs)
        put[there] = Load(made[-1].name, made[-1].index, x.dtype, x.span)
    return [*made, replace(own, value=_with(own.value, put, {}))]


def _in_parts(
    program: Program, d: Def, value: Expr, inside: Expr, outer: tuple[Axis, ...], inner: tuple[Axis, ...],
    others: Sequence[Def],
) -> tuple[Def, Def]:  # fmt: skip
    """The reduction of ``value`` over ``inner`` for each point of ``outer``, and the one over ``outer``."""
    par = (*d.par, *outer)
    name = fresh_name(program, f"{d.name}_part", [x.name for x in others])
    buffer = Buffer(name, value.dtype, tuple(x.extent for x in par), Space.TEMP, d.span)
    part = Def(name, buffer, par, inner, d.op, value, inside, d.span)
    return part, replace(d, red=outer, value=Load(name, part.index, value.dtype, d.span), guard=None)


def _segment(program: Program, d: Def, a: Axis, defs: Mapping[str, Def]) -> tuple[Def, ...]:
    """``d`` for the segment of each position alone, after the products that it reads there."""
    asked = _asked(d, a)
    par = tuple(x for x in d.par if x.name in asked)
    name = fresh_name(program, f"{d.name}_which")
    buffer = Buffer(name, DType.I32, tuple(x.extent for x in par), Space.TEMP, d.span)
    made = [Def(name, buffer, par, d.red, "max", Var(a.name), d.guard, d.span)]
    key = Load(name, made[0].index, DType.I32, d.span)
    inside = calc("ge", key, integer(0))
    put: dict[Load, Expr] = {}
    for ld in _reads_at(program, d, a, asked, defs) or ():
        product = defs[ld.buffer]
        if _sums_products(product, defs):
            made.append(_over_segments(program, d, a, ld, product, made))
        else:
            chosen = replace(ld, index=tuple(substitute(e, {a.name: key}) for e in ld.index))
            made += _at_index(program, chosen, d.par, inside, made, defs)
        put[ld] = Load(made[-1].name, made[-1].index, ld.dtype, ld.span)
    term = _or_identity(d, inside, _with(d.value, put, {a.name: key}))
    return (*made, replace(d, op=None, red=(), value=term, guard=None))


def _sums_products(d: Def, defs: Mapping[str, Def]) -> bool:
    """Whether ``d`` is a product of matrices, or a sum of elements of one, such as those of groups with a scale."""
    inner = [defs[ld.buffer] for ld in loads(d.value) if ld.buffer in defs]
    return d.op == "sum" and (multiplies_matrices(d) or any(multiplies_matrices(x) for x in inner))


def _over_segments(program: Program, d: Def, a: Axis, ld: Load, product: Def, others: Sequence[Def]) -> Def:
    """The sum ``product``, read as ``ld``, over its terms and over the segments under the condition of ``d``."""
    names = {x.name: e.name for x, e in zip(product.par, ld.index, strict=True) if isinstance(e, Var)}
    taken = {x.name for x in (*d.axes, *product.axes)}
    for x in product.red:
        if d.axis(x.name) is not None:
            names[x.name] = unused(x.name, taken)
            taken.add(names[x.name])
    own = rename_axes(product, names)
    par = tuple(x for x in own.par if x.name != a.name)
    name = fresh_name(program, f"{product.name}_at", [x.name for x in others])
    buffer = Buffer(name, product.buffer.dtype, tuple(x.extent for x in par), Space.TEMP, ld.span)
    return Def(name, buffer, par, (a, *own.red), own.op, own.value, d.guard, ld.span)


def _or_identity(d: Def, inside: Expr, value: Expr) -> Expr:
    """``value`` where ``inside`` holds, else the result of ``d`` without a term."""
    assert d.op is not None
    return make("select", inside, value, identity(d.op, value.dtype))


def _with(e: Expr, put: Mapping[Load, Expr], at: Mapping[str, Expr]) -> Expr:
    """``e`` with ``put`` in the place of elements and ``at`` in the place of variables."""
    return substitute(rewrite(e, lambda n: put.get(n) if isinstance(n, Load) else None), at)


def _in_type(extent: Extent, dtype: DType) -> Expr | int:
    """``extent`` in the type ``dtype``; a number has every type."""
    return extent if isinstance(extent, int) or dtype is extent.dtype else Op("cast", (extent,), dtype)
