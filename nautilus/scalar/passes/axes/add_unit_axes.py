"""``add-unit-axes``: two consecutive products of a matrix and a vector get an axis of one element, as their rows.

One query for each head of keys is the product of a matrix and a vector, and so is what follows it::

    S[b, h, j] = sum[d](Q[b, h, d] * K[b, j, h, d])         S[b, h, u, j] = sum[d](Q[b, h, u, d] * K[b, j, h, d])
    O[b, h, d] = sum[j](f(S[b, h, j]) * V[b, j, h, d])  ->  O[b, h, u, d] = sum[j](f(S[b, h, u, j]) * V[b, j, h, d])

With ``u`` they are products of matrices, which stream their operands through shared memory, in chunks that the warps of
a block take one after another.  A spec that has the axis itself has the same program.

The matrices are of 16 bits, or computed from a tensor of 8 bits or fewer and others of 16 bits, and read along ``j``,
which has at least :data:`LONG` elements.  A block holds the other axes of both, of at most :data:`HELD` elements.  The
vector is an input in row-major order.  The first one may be the same for several matrices, as the weights ``w[d]`` of a
pooling by attention.  No output has an element for each one of the first product: such products are in kernels of their
own.

All definitions between the two products get the axis.  So do elementwise ones that read the second product at their own
position, and what is computed from these definitions alone for each position of the other axes.  Any other reader has
its position 0.  An argument keeps the shape that the caller gives it (``Buffer.array_shape``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import integer
from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars, loads, rewrite
from nautilus.core.expr.products import MOST_FACTORS, factors, product_of, strip_conversions
from nautilus.core.index.groups import shared_group
from nautilus.core.index.sizes import nominal
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import all_defs, kernel_of

LONG = 256  # elements of the shortest axis along which matrices are streamed
HELD = 1024  # largest number of elements of their other axes


@dataclass(frozen=True, slots=True)
class AddUnitAxes:
    """Give products of matrices and vectors that follow each other an axis of one element."""

    name = "add-unit-axes"

    def apply(self, program: Program) -> Program:
        """The program with such axes; the same object where there are no such products."""
        defs = all_defs(program)
        found = None if defs is None else next(_chains(program, defs), None)
        return program if defs is None or found is None else _with_axis(program, defs, found)


@dataclass(frozen=True, slots=True)
class _Chain:
    """The input that is the vector, the definitions that get the axis, and its place among their axes."""

    vector: Buffer
    members: frozenset[str]
    place: int


@dataclass(frozen=True, slots=True)
class _Vector:
    """The product of the element ``vector`` and of a matrix that is streamed along ``along`` and has ``held``."""

    vector: Expr
    along: Axis
    held: Axis


def _chains(program: Program, defs: Mapping[str, Def]) -> Iterator[_Chain]:
    buffers = {b.name: b for b in program.buffers}
    for first in defs.values():
        for found in _products(first, first.par, first.red):
            yield from _after_first(defs, buffers, first, found)


def _after_first(
    defs: Mapping[str, Def], buffers: Mapping[str, Buffer], first: Def, found: _Vector
) -> Iterator[_Chain]:
    """The chains that begin with ``first``, which is the product ``found``."""
    vector = strip_conversions(found.vector)
    if not isinstance(vector, Load) or vector.buffer not in buffers:
        return
    given = buffers[vector.buffer]
    if given.space is not Space.INPUT or given.strides is not None or len(given.shape) < 1:
        return
    after = _after(defs, first.name)
    if any(_stores(defs[n], first, found.along.name) for n in after):
        return
    for last in (defs[n] for n in after):
        second = next(_products(last, last.red, last.par), None)
        if second is None or not _follows(second, first, found.along.name):
            continue
        ends = {d.name for d in defs.values() if _is_beside(d, last)} | {last.name}
        before = set[str]().union(*(_before(defs, n) for n in ends)) | ends
        members = _with_statistics(defs, (before & after) | {first.name}, first, found.along.name)
        yield _Chain(given, frozenset(members), len(first.par) - 1)


def _products(d: Def, streamed: tuple[Axis, ...], held: tuple[Axis, ...]) -> Iterator[_Vector]:
    """``d`` as products of a vector and a matrix of 16 bits, with one of ``streamed`` and one of ``held``.

    The matrix has all axes; of those it shares with the vector none is one of groups.  Of several axes of ``streamed``
    that the vector lacks, each may be the one of the matrix; the others number matrices.
    """
    value = d.value
    if d.op != "sum" or len(d.red) != 1 or not (isinstance(value, Op) and value.op == "mul"):
        return
    parts = factors(value)
    several = 2 < len(parts) <= MOST_FACTORS
    more = ((p, product_of(parts[:k] + parts[k + 1 :])) for k, p in enumerate(parts) if several)
    for vector, matrix in (value.args, value.args[::-1], *more):
        inner, used = strip_conversions(matrix), free_vars(vector)
        own = [a for a in d.par if a.name not in used]
        if not (_is_half(inner) or _is_made_of_bytes(inner)) or not free_vars(inner) >= used:
            continue
        if any((shared_group(vector, inner, a.name) or 1) > 1 for a in d.par) or (len(own) > 1 and own[0] in held):
            continue
        for axis in (a for a in own if {x.name for x in own} <= free_vars(inner)):
            pair = {axis.name, d.red[0].name}
            along, columns = ([a for a in axes if a.name in pair] for axes in (streamed, held))
            if (
                len(along) == len(columns) == 1
                and nominal(along[0].extent) >= LONG
                and (size(columns[0]) or LONG**2) <= HELD
            ):
                yield _Vector(vector, along[0], columns[0])


def _is_half(e: Expr) -> bool:
    return isinstance(e, Load) and e.dtype.is_half


def _is_made_of_bytes(e: Expr) -> bool:
    """Whether ``e`` is computed from tensors of at most 16 bits, of which one of 8 bits has all of its axes."""
    read = loads(e)
    short = all(ld.dtype.bits <= 16 for ld in read) and not isinstance(e, Load)
    return short and any(ld.dtype.bytes == 1 and free_vars(ld) == free_vars(e) for ld in read)


def _follows(second: _Vector, first: Def, along: str) -> bool:
    """Whether the vector of ``second`` is computed from ``first``, whose axis ``along`` it reads along its own."""
    place = [a.name for a in first.par].index(along)
    read = [ld for ld in loads(second.vector) if ld.buffer == first.name]
    return bool(read) and all(ld.index[place] == Var(second.along.name) for ld in read)


def _stores(d: Def, first: Def, along: str) -> bool:
    """Whether ``d`` is an argument with an element for each one of ``first``, such as a probability."""
    place = [a.name for a in first.par].index(along)
    own = {Var(a.name) for a in d.par}
    read = (ld for ld in d.reads() if ld.buffer == first.name)
    return d.buffer.space is Space.OUTPUT and any(ld.index[place] in own for ld in read)


def _is_beside(d: Def, last: Def) -> bool:
    """Whether ``d`` is an elementwise definition that reads ``last`` at its own position only."""
    read = [ld for ld in d.reads() if ld.buffer == last.name]
    return d.op is None and d.scatter is None and bool(read) and all(ld.index == d.index for ld in read)


def _with_statistics(defs: Mapping[str, Def], members: set[str], first: Def, along: str) -> set[str]:
    """``members``, and what is computed from them alone for each position of the other axes, such as a maximum."""
    found, place = set(members), [a.name for a in first.par].index(along)
    for d in defs.values():
        own = {Var(a.name) for a in d.par}
        reads = [ld for ld in d.reads() if ld.buffer in found]
        apart = (e not in own for ld in reads for n, e in enumerate(ld.index) if (ld.buffer, n) != (first.name, place))
        alone = all(ld.buffer in found or len(ld.index) < 2 for ld in d.reads())
        if reads and alone and d.scatter is None and not any(apart):
            found.add(d.name)
    return found


def _after(defs: Mapping[str, Def], name: str) -> set[str]:
    """The definitions that are computed from ``name``."""
    found = {name}
    for d in defs.values():  # in the order of dependence
        if any(ld.buffer in found for ld in d.reads()):
            found.add(d.name)
    return found - {name}


def _before(defs: Mapping[str, Def], name: str) -> set[str]:
    """The definitions from which ``name`` is computed."""
    found, stack = set[str](), [name]
    while stack:
        new = {ld.buffer for ld in defs[stack.pop()].reads() if ld.buffer in defs} - found
        found |= new
        stack += new
    return found


def _with_axis(program: Program, defs: Mapping[str, Def], chain: _Chain) -> Program:
    """``program`` where the members of ``chain`` and its vector have one more axis."""
    taken = {a.name for d in defs.values() for a in d.axes} | {b.name for b in program.buffers}
    unit = unused("u", taken | {p.name for p in program.params})
    places = {n: min(chain.place, len(defs[n].par)) for n in chain.members}
    places[chain.vector.name] = len(chain.vector.shape) - 1

    def changed(d: Def) -> Def:
        inside = d.name in chain.members
        at: Expr = Var(unit) if inside else integer(0)

        def rule(n: Expr) -> Expr | None:
            if not isinstance(n, Load) or n.buffer not in places:
                return None
            index = tuple(rewrite(e, rule) for e in n.index)
            k = places[n.buffer]
            return replace(n, index=(*index[:k], at, *index[k:]))

        guard = None if d.guard is None else rewrite(d.guard, rule)
        made = replace(d, value=rewrite(d.value, rule), guard=guard)
        if not inside:
            return made
        k = places[d.name]
        par = (*d.par[:k], Axis(unit, 1, d.span), *d.par[k:])
        return replace(made, buffer=_longer(d.buffer, k), par=par)

    buffers = tuple(_longer(b, places[b.name]) if b.name in places else b for b in program.buffers)
    return replace(program, buffers=buffers, kernels=tuple(kernel_of(changed(d)) for d in defs.values()))


def _longer(b: Buffer, place: int) -> Buffer:
    """``b`` with one more dimension, of one element."""
    return replace(b.viewed((*b.shape[:place], 1, *b.shape[place:])), support=None)
