"""``unroll-reductions``: a short reduction with many more results than operands is an expression in its readers.

Distances between points of a few coordinates are sums of few terms, one for each pair of points::

    D[i, j] = sum[c: 3]((P[i, c] - Q[j, c]) ** 2)             ;   near[i] = argmin[j](D[i, j])

Lanes would need a shuffle for each addition, and storing ``D`` takes longer than computing it::

    near[i] = argmin[j]((P[i, 0] - Q[j, 0]) ** 2 + (P[i, 1] - Q[j, 1]) ** 2 + (P[i, 2] - Q[j, 2]) ** 2)

The pass applies to temps of at most :data:`MOST_TERMS` terms that have :data:`GAIN` times as many elements as they
read.  The terms are combined from the first to the last one.  A condition that all of them share, such as that a
neighbour lies inside of an image, stays one::

    D[y, r] = sum[c: 3]((X[y + r, c] - X[y, c]) ** 2) where y + r < N       ;   select(y + r < N, (..) + (..) + (..), 0)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from itertools import product
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import integer
from nautilus.core.expr.nodes import COMBINERS, Axis, Expr, Op, Reduce, free_vars, identity, substitute
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.inline import replace_reads
from nautilus.scalar.rewriting import find_defs

MOST_TERMS = 4
GAIN = 16
_LONG = 4096  # the length of an axis whose size is known at launch


@dataclass(frozen=True, slots=True)
class UnrollReductions(CertifyingPass[Program]):
    """Unroll every such reduction."""

    name = "unroll-reductions"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program without such reductions, and a certificate for each of them."""
        certificates: list[Certificate] = []
        for name, d in find_defs(program).items():
            if not _is_short(d, {b.name: b for b in program.buffers}):
                continue
            made = _unrolled(d)
            before = Reduce(d.op or "", d.red, d.guard, d.value, d.value.dtype, d.span)
            proof = "these are all terms of the reduction"
            certificates.append(Certificate(self.name, name, before, made.value, (), (), (), proof, d.span))
            program = replace_reads(program, made, certificates)
        return (Dead().apply(program) if certificates else program), tuple(certificates)


def _is_short(d: Def, buffers: Mapping[str, Buffer]) -> bool:
    """Whether ``d`` is a temp with few terms for each element, and with far more elements than it reads."""
    plain = d.buffer.space is Space.TEMP and d.scatter is None and d.at is None
    plain = plain and (d.guard is None or not free_vars(d.guard) & {a.name for a in d.red})
    terms = [size(a) or _LONG for a in d.red]
    if not plain or d.op is None or d.buffer.dtype is not d.value.dtype or not 1 < prod(terms) <= MOST_TERMS:
        return False
    read = dict.fromkeys(ld.buffer for ld in d.reads())
    return _elements(d.par) >= GAIN * sum(_footprint(d, buffers[name]) for name in read)


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
    terms = [substitute(d.value, dict(zip(names, map(integer, p), strict=True))) for p in points]
    binary = COMBINERS[d.op or ""].binary

    def both(x: Expr, y: Expr) -> Expr:
        return Op(binary, (x, y), d.value.dtype, d.span)

    value = reduce(both, terms)
    if d.guard is not None:
        value = Op("select", (d.guard, value, identity(d.op or "", value.dtype)), value.dtype, d.span)
    return replace(d, red=(), op=None, value=value, guard=None)
