"""``unroll-reductions``: a short reduction with many more results than operands is an expression in its readers.

Distances between points of a few coordinates are sums of few terms, one for each pair of points::

    D[i, j] = sum[c: 3]((P[i, c] - Q[j, c]) ** 2)             ;   near[i] = argmin[j](D[i, j])

Lanes would need a shuffle for each addition, and storing ``D`` takes longer than computing it::

    near[i] = argmin[j]((P[i, 0] - Q[j, 0]) ** 2 + (P[i, 1] - Q[j, 1]) ** 2 + (P[i, 2] - Q[j, 2]) ** 2)

The pass applies to temps of at most :data:`MOST_TERMS` terms that have :data:`GAIN` times as many elements as they
read.  The terms are combined from the first to the last one.  A condition that all of them share, such as that a
neighbour lies inside of an image, stays one::

    D[y, r] = sum[c: 3]((X[y + r, c] - X[y, c]) ** 2) where y + r < N       ;   select(y + r < N, (..) + (..) + (..), 0)

It also applies to sums over a tiny matrix, which multiplies each vector of a tensor: colours, the bands of a wavelet,
points in another system of coordinates.  Matrix units, and tiles of products, would be nearly empty::

    Y[c, p] = sum[d: 3](M[c, d] * X[d, p])                 Y[c, p] = M[c, 0] * X[0, p] + M[c, 1] * X[1, p] + ..

The results for each vector are as few as its elements, or :data:`SIDE`, and :data:`WIDE` for a tensor of f32, which
matrix units multiply in parts: points in the coordinates of several cameras.  Other operands have :data:`SMALL` times
fewer elements than the tensor.  Readers read a temp about once, because they compute it again (:data:`AGAIN`).

A matrix of at most :data:`SQUARE` rows and columns may multiply vectors of f32 and of integers too, as the derivative
along each axis of an element of a finite element method does, of which one kernel then has all axes, or a transform of
blocks of pixels.  A temp of them that readers would compute too often stays one.

The pass runs again after ``split-residues``, where the taps of each phase of an upsampling filter or of an inverse
wavelet are such a matrix.  Their results are at places of their own, ``X[b, 2 * m + r]``, which an output may have.

So are products of tiny matrices of f32, of which each of :data:`BATCH` points or more has its own, such as rotations.
A block for each point would have one tile with few elements.

The three elements of a vector would leave a quarter of all lanes idle.  A norm or a product of :data:`VECTORS` of them
is an expression as well.

Few neighbours whose results another kind of reduction combines, as in the median of a window of 3 x 3, would meet in
different threads after the first of both::

    low[y, x, j] = min[i: 3](X[y + i, x + j])     ;     top[y, x] = max[j: 3](low[y, x, j])

A reduction over at most :data:`MOST_POSITIONS` positions that reads nothing along them but coefficients, such as one
over the bits of a number or the powers of a polynomial, has :data:`BATCH` results or more, and becomes an expression
too.  Its positions are numbers then, and the terms are combined in pairs::

    ones[n] = sum[k: 32](x[n] >> k & 1)     ;     ones[n] = ((x[n] & 1) + (x[n] >> 1 & 1)) + ..
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from itertools import product
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import integer
from nautilus.core.expr.nodes import (
    COMBINERS,
    Axis,
    Expr,
    Load,
    Op,
    Reduce,
    Var,
    children,
    free_vars,
    identity,
    loads,
    substitute,
)
from nautilus.core.expr.products import strip_conversions
from nautilus.core.expr.quotients import is_power_of_two
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.definitions import Def, size, slides
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.inline import replace_reads
from nautilus.scalar.rewriting import find_defs, put_defs

MOST_TERMS = 4
GAIN = 4
SIDE = 4  # results for each element of a tensor that a tiny matrix multiplies, at most
WIDE = 32  # the same for a tensor of f32
SQUARE = 8  # rows and columns, at most, of a matrix that multiplies vectors of f32
MOST_POSITIONS = 64  # positions of a reduction that reads nothing along them
VECTORS = 1 << 16  # vectors of a few elements, at least, whose norms or products are expressions
BATCH = 1 << 13  # points with matrices of their own, at least
ENTRIES = 16  # entries of such a matrix, at most
SMALL = 256  # least quotient of the elements of the tensor and of the other operands
AGAIN = 4  # terms of readers for each element of a temp
LIMIT = 2000  # nodes of an expression
_LONG = 4096  # the length of an axis whose size is known at launch


@dataclass(frozen=True, slots=True)
class UnrollReductions(CertifyingPass[Program]):
    """Unroll every such reduction."""

    name = "unroll-reductions"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program without such reductions, and a certificate for each of them."""
        certificates: list[Certificate] = []
        for name in find_defs(program):
            defs, buffers = find_defs(program), {b.name: b for b in program.buffers}
            d = defs[name]
            tiny = _has_few_terms(d) and (_has_tiny_matrix(d, buffers) or _has_matrix_each(d, buffers))
            square = _has_few_terms(d, SQUARE) and _has_tiny_matrix(d, buffers, SQUARE)
            once = _is_read_once(d, program)
            stored = square and not (tiny or once)  # a temp that readers would compute too often
            nested = _is_of_vectors(d, defs) or _is_of_windows(d, program)
            tiny = (tiny or square or _is_of_positions(d) or nested) and once
            if not (tiny or stored or _is_short(d, buffers)):
                continue
            made = _unrolled(d)
            before = Reduce(d.op or "", d.red, d.guard, d.value, d.value.dtype, d.span)
            proof = "these are all terms of the reduction"
            certificates.append(Certificate(self.name, name, before, made.value, (), (), (), proof, d.span))
            if d.buffer.space is Space.TEMP and not stored:
                program = replace_reads(program, made, certificates)
            else:
                program = put_defs(program, name, (made,))
        return (Dead().apply(program) if certificates else program), tuple(certificates)


def _is_short(d: Def, buffers: Mapping[str, Buffer]) -> bool:
    """Whether ``d`` is a temp with few terms for each element, and with far more elements than it reads."""
    if d.buffer.space is not Space.TEMP or not _has_few_terms(d):
        return False
    read = dict.fromkeys(ld.buffer for ld in d.reads())
    return _elements(d.par) >= GAIN * sum(_footprint(d, buffers[name]) for name in read)


def _has_few_terms(d: Def, most: int = MOST_TERMS) -> bool:
    """Whether ``d`` is a reduction of at most ``most`` terms, all of them under the same condition."""
    return _is_plain(d) and not _has_conditions(d) and 1 < _terms(d) <= most


def _is_plain(d: Def) -> bool:
    placed = d.at is None or d.buffer.space is not Space.TEMP  # readers of a temp read it at its own axes
    return d.op is not None and d.scatter is None and placed and d.buffer.dtype.compute is d.value.dtype


def _has_conditions(d: Def) -> bool:
    """Whether terms of ``d`` have conditions of their own."""
    return d.guard is not None and bool(free_vars(d.guard) & {a.name for a in d.red})


def _is_of_positions(d: Def) -> bool:
    """Whether ``d`` has many results, each of the same elements at a few positions."""
    over, read = {a.name for a in d.red}, d.reads()
    few = _is_plain(d) and d.value.dtype is not DType.F64 and 1 < _terms(d) <= MOST_POSITIONS
    nodes = _size(d.value) + (_size(d.guard) if d.guard is not None else 0)
    own = {a.name for a in d.par}
    alike = few and nodes * _terms(d) <= LIMIT and not any(free_vars(ld) & over and free_vars(ld) & own for ld in read)
    rest = _without(d.value, {ld for ld in read if free_vars(ld) & over})
    return alike and any(free_vars(ld) & own for ld in read) and over <= rest and _elements(d.par) >= BATCH


def _is_of_vectors(d: Def, defs: Mapping[str, Def]) -> bool:
    """Whether ``d`` combines the elements of each of many vectors, which are no power of two.

    Reductions of ``defs`` that it combines are sums of sums, which become one.
    """
    if any(defs[ld.buffer].is_reduction for ld in d.reads() if ld.buffer in defs):
        return False
    few = (
        _has_few_terms(d) and len(d.red) == 1 and not is_power_of_two(_terms(d)) and _size(d.value) * _terms(d) <= LIMIT
    )
    over, own = {a.name for a in d.red}, {a.name for a in d.par}
    return few and not slides(d, over, own) and _elements(d.par) >= VECTORS and not multiplies_matrices(d)


def _is_of_windows(d: Def, program: Program) -> bool:
    """Whether ``d`` combines few neighbours and a reduction of another kind combines few neighbouring results of it."""
    over, own = {a.name for a in d.red}, {a.name for a in d.par}
    few = d.buffer.space is Space.TEMP and _has_few_terms(d) and _size(d.value) * _terms(d) <= LIMIT
    if not few or not slides(d, over, own) or _elements(d.par) < VECTORS or multiplies_matrices(d):
        return False
    readers = find_defs(Dead().apply(program)).values()
    read = [(r, ld) for r in readers for ld in r.reads() if ld.buffer == d.name]
    nested = [(r, ld) for r, ld in read if r.is_reduction and _has_few_terms(r) and _along(ld, r)]
    return len(nested) == len(read) > 0 and any(r.op != d.op for r, _ in nested)


def _along(ld: Load, reader: Def) -> bool:
    """Whether terms of ``reader`` are at neighbouring positions of ``ld``, alone."""
    return all(Var(a.name) in ld.index for a in reader.red)


def _without(e: Expr, gone: set[Load]) -> frozenset[str]:
    """The variables of ``e`` outside of the loads ``gone``."""
    names = {x.name for x in (e,) if isinstance(x, Var)}
    return frozenset(names).union(*(_without(c, gone) for c in children(e) if c not in gone))


def _terms(d: Def) -> int:
    return prod(size(a) or _LONG for a in d.red)


def _size(e: Expr) -> int:
    """Nodes of ``e``, where a shared node counts at each place."""
    return 1 + sum(map(_size, children(e)))


def _has_tiny_matrix(d: Def, buffers: Mapping[str, Buffer], wide: int = 0) -> bool:
    """Whether ``d`` sums products of large tensors with coefficients, each of which very many results have.

    ``wide``: the tensors are of f32 or integers, with at most so many results for each element; 0: the limits of
    each type.
    """
    few = _size(d.value) * _terms(d) <= LIMIT
    return d.op == "sum" and few and all(_is_tiny_product(d, e, buffers, wide) for e in _addends(d.value))


def _has_matrix_each(d: Def, buffers: Mapping[str, Buffer]) -> bool:
    """Whether ``d`` sums products of tiny matrices of f32, of which each of many points has its own."""
    read = d.reads()
    if not multiplies_matrices(d) or {buffers[ld.buffer].dtype for ld in read} != {DType.F32}:
        return False
    shared = frozenset.intersection(*(free_vars(ld) for ld in read))
    points = _elements([a for a in d.par if a.name in shared])
    entries = _elements([a for a in d.par if a.name not in shared])
    return points >= BATCH and 1 < entries <= ENTRIES and _size(d.value) * _terms(d) <= LIMIT


def _addends(e: Expr) -> Iterator[Expr]:
    """The terms of the sum or difference ``e``."""
    e = strip_conversions(e)
    if isinstance(e, Op) and e.op in ("add", "sub"):
        for x in e.args:
            yield from _addends(x)
    else:
        yield e


def _is_tiny_product(d: Def, e: Expr, buffers: Mapping[str, Buffer], wide: int) -> bool:
    """Whether the term ``e`` of ``d`` is a product of a tensor and a coefficient; ``wide`` as above."""
    if not (isinstance(e, Op) and e.op == "mul"):
        return False
    small, large = sorted(e.args, key=lambda x: _read(d, x, buffers))
    own = {a.name for a in d.par} - free_vars(large)
    results = _elements([a for a in d.par if a.name in own])
    types = {buffers[ld.buffer].dtype for ld in loads(large)}
    full = types == {DType.F32} or (wide > 0 and all(t is DType.F32 or t.is_int for t in types))
    most = (wide or WIDE) if full else 0 if wide else SIDE
    vectors = {a.name for a in d.red} <= free_vars(large) and 1 < results <= most
    return vectors and _read(d, small, buffers) * SMALL <= _read(d, large, buffers)


def _read(d: Def, e: Expr, buffers: Mapping[str, Buffer]) -> int:
    """Elements that ``e`` reads, over the axes of ``d``; of coefficients that read no memory, those of the axes."""
    read = dict.fromkeys(ld.buffer for ld in loads(e))
    if not read:
        return _elements([a for a in d.axes if a.name in free_vars(e)])
    return sum(_footprint(d, buffers[name]) for name in read)


def _is_read_once(d: Def, program: Program) -> bool:
    """Whether readers of ``d``, if it is a temp, have as many terms as it has elements, about."""
    if d.buffer.space is not Space.TEMP:
        return True
    readers = find_defs(Dead().apply(program)).values()
    terms = (_elements(r.axes) * len({ld for ld in r.reads() if ld.buffer == d.name}) for r in readers)
    return all(n <= AGAIN * _elements(d.par) for n in terms)


def _footprint(d: Def, buffer: Buffer) -> int:
    """The distinct elements of ``buffer`` that ``d`` reads, at most."""
    found = (_elements([a for a in d.axes if a.name in free_vars(ld)]) for ld in d.reads() if ld.buffer == buffer.name)
    return min(sum(found), prod(n if isinstance(n, int) else _LONG for n in buffer.shape))


def _elements(axes: tuple[Axis, ...] | list[Axis]) -> int:
    return prod(size(a) or _LONG for a in axes)


def _unrolled(d: Def) -> Def:
    """``d`` as an elementwise definition."""
    points = product(*(range(size(a) or 0) for a in d.red))
    names = [a.name for a in d.red]
    apart = d.guard is not None and _has_conditions(d)
    value = _or_identity(d, d.guard, d.value) if apart and d.guard is not None else d.value
    terms = [substitute(value, dict(zip(names, map(integer, p), strict=True))) for p in points]
    binary = COMBINERS[d.op or ""].binary

    def both(x: Expr, y: Expr) -> Expr:
        return Op(binary, (x, y), d.value.dtype, d.span)

    while len(terms) > MOST_TERMS:
        terms = [reduce(both, terms[n : n + 2]) for n in range(0, len(terms), 2)]
    value = reduce(both, terms)
    if d.guard is not None and not apart:
        value = _or_identity(d, d.guard, value)
    return replace(d, red=(), op=None, value=value, guard=None)


def _or_identity(d: Def, guard: Expr, value: Expr) -> Expr:
    """``value`` under ``guard``, and the identity of the reduction elsewhere."""
    return Op("select", (guard, value, identity(d.op or "", value.dtype)), value.dtype, d.span)
