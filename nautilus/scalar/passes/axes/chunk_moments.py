"""``chunk-moments``: sums of products about a mean are found in chunks about the means of the chunks.

A variance or a covariance reads its elements twice, because it needs their mean first::

    S = sum_u e(u)
    V = sum_u (e(u) - m) * (e(u) - m)          where m depends on S

Where the elements do not stay on chip between the two sums, a chunk of ``C`` elements, which does, has a mean of its
own::

    S_chunk[c] = sum_u e(c * C + u)                      for u < C
    V_chunk[c] = sum_u (e(c * C + u) - r) * (e(c * C + u) - r)        where r = S_chunk[c] / C
    S = sum_c S_chunk[c]
    V = sum_c V_chunk[c] + C * (r - m) * (r - m)

The identity holds for any ``m``, because the elements of a chunk about their own mean have the sum 0.  The two factors
may differ in their elements and in their means.  The differences in ``V_chunk`` cancel as those in ``V`` do, and no
squares of large elements are subtracted (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
computing sample variances", 1982).  A last chunk that is short has fewer elements in both formulas.  The axis that is
cut may have a size that is known only at launch.

The rewrite is for sums whose elements fit neither in the registers of a block nor, for all blocks that are resident
together, in L2, and for those of too few blocks to fill the GPU (:func:`chunk_of`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import permutations
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Reduce, Var, free_vars, loads, substitute
from nautilus.core.expr.products import matrix_product, product_of
from nautilus.core.index.divisors import divisor
from nautilus.core.index.sizes import Extent, at_most, blocks, extent_expr, large
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.tiles import floor_pow2
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def, sector_results, size
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs
from nautilus.targets.limits import BLOCK_REGISTERS
from nautilus.targets.rates import machine
from nautilus.targets.records import DEFAULT_TARGET

TILE = 16384  # elements of a chunk, over all reduced axes and operands, that a block holds in registers
SHORTEST = 64  # elements of a chunk along the axis that is cut
RESIDENT = machine(DEFAULT_TARGET).multiprocessors  # blocks that are resident together, one for each of them
_MOST_AXES = 4  # axes of a sum whose orders are tried
CACHED = 40 << 20  # bytes of the elements of resident blocks that stay in the L2 of an H200


@dataclass(frozen=True, slots=True)
class ChunkMoments(CertifyingPass[Program]):
    """Cut sums about a mean that read memory twice; ``length``: elements of a chunk of any such sum (for tests)."""

    length: int | None = None

    name = "chunk-moments"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with sums in chunks, and a certificate for each sum about a mean."""
        certificates: list[Certificate] = []
        defs = find_defs(program)
        cuts: dict[str, _Cut] = {}  # sum of elements -> its chunks
        for d in defs.values():
            sides = _sides(d, defs)
            cut = None if sides is None else self._cut(program, d, sides, cuts)
            if sides is None or cut is None:
                continue
            for total in {s.total.name: s.total for s in sides}.values():
                if total.name not in cuts:
                    cuts[total.name] = replace(cut, results=fresh_name(program, f"{total.name}_chunk"))
                    program = put_defs(program, total.name, _in_chunks(total, cuts[total.name]))
            about = replace(cut, results=fresh_name(program, f"{d.name}_chunk"))
            program = put_defs(program, d.name, _about_means(d, about, sides, cuts))
            certificates.append(_certificate(d, sides))
        return program, tuple(certificates)

    def _cut(self, program: Program, d: Def, sides: _Sides, cuts: Mapping[str, _Cut]) -> _Cut | None:
        """How ``d`` is cut: as the sums that it reads are, where they are already; None where it stays as it is."""
        earlier = {replace(cuts[s.total.name], results="") for s in sides if s.total.name in cuts}
        names = [s.total.name for s in sides if s.total.name not in cuts]
        if earlier:
            return None if len(earlier) > 1 or names else next(iter(earlier))
        found = chunk_of(d) if self.length is None else (d.red[-1].name, self.length)
        if found is None:
            return None
        at = [a.name for a in d.red].index(found[0])
        n = d.red[at].extent
        if at_most(n) <= found[1] or any(size(a) is None for k, a in enumerate(d.red) if k != at):
            return None
        return _Cut(at, found[1], n, fresh_name(program, f"{found[0]}_chunk", [a.name for a in d.axes]), "")


@dataclass(frozen=True, slots=True)
class _Cut:
    """The reduced axis number ``at``, of ``extent`` elements, in chunks of ``chunk``; ``number``: the axis of chunks.

    ``results``: the buffer of the sums of the chunks.
    """

    at: int
    chunk: int
    extent: Extent
    number: str
    results: str

    @property
    def whole(self) -> bool:
        """Whether no chunk is short."""
        return divisor(extent_expr(self.extent)) % self.chunk == 0

    def count(self, others: int) -> Expr:
        """The elements of a chunk, with ``others`` for each position on the axis, as f32."""
        if self.whole:
            return Const(float(self.chunk * others), DType.F32)
        left = calc("sub", extent_expr(self.extent), calc("mul", Var(self.number), self.chunk))
        return Op("cast", (calc("mul", calc("min", left, self.chunk), others),), DType.F32)


@dataclass(frozen=True, slots=True)
class _Side:
    """A factor ``element - centre``: ``total`` is the sum of the elements, read at ``read``.

    The reduced axes of ``total`` are in the order of those of the sum about the centre.
    """

    element: Expr
    centre: Expr
    total: Def
    read: Load


_Sides = tuple[_Side, _Side]


def chunk_of(d: Def) -> tuple[str, int] | None:
    """The axis that is cut and the elements of a chunk; None where the elements of ``d`` stay on chip.

    The contiguous axis is preferred, because a block then reads long runs.  Where results are contiguous, a block has
    those of a sector.  In L2, elements wait only for the second sum of the same block: with too few blocks to fill the
    GPU, both sums are split, and the second one has kernels of its own.  Sizes that are known only at launch count as
    large: variants under bounds have other ones.
    """
    extents = {a.name: large(a.extent) for a in d.red}
    operands = {ld.buffer: ld.dtype.bytes for ld in loads(d.value) if free_vars(ld) & extents.keys()}
    if not operands:
        return None
    fast = {v.name for ld in loads(d.value) if ld.index and isinstance(v := ld.index[-1], Var)}
    across = sector_results(d)
    rows = prod(large(a.extent) for a in d.par) // across
    elements = prod(extents.values()) * across
    held = elements * len(operands) <= BLOCK_REGISTERS
    if held or (rows >= RESIDENT and elements * sum(operands.values()) * RESIDENT <= CACHED):
        return None
    lengths = {x: floor_pow2(TILE // len(operands) // (elements // n)) for x, n in extents.items()}
    usable = [x for x, n in extents.items() if SHORTEST <= lengths[x] < n]
    best = max(usable, key=lambda x: (x in fast, lengths[x]), default=None)
    return None if best is None else (best, lengths[best])


def _sides(d: Def, defs: Mapping[str, Def]) -> _Sides | None:
    """The two factors of the elements of ``d``, if it is a sum about means of its own elements."""
    match d:
        case Def(op="sum", guard=None, at=None, value=Op(op="mul", dtype=DType.F32, args=(a, b))):
            left, right = _side(d, a, defs), _side(d, b, defs)
            product = matrix_product(d.value, [x.name for x in d.par])
            return (left, right) if left and right and product is None else None
    return None


def _side(d: Def, e: Expr, defs: Mapping[str, Def]) -> _Side | None:
    """``e`` as an element and a centre that depends on the sum of all elements; None where it has another form."""
    reduced = {a.name for a in d.red}
    match e:
        case Op(op="sub", args=(element, centre)) if not free_vars(centre) & reduced:
            totals = ((ld, _total(defs[ld.buffer], d, element, ld)) for ld in _reads(centre, defs))
            return next((_Side(element, centre, total, ld) for ld, total in totals if total is not None), None)
    return None


def _reads(e: Expr, defs: Mapping[str, Def]) -> Iterator[Load]:
    """The reductions that ``e`` reads, also those behind elementwise definitions, such as a mean that is an output."""
    for ld in loads(e):
        d = defs.get(ld.buffer)
        if d is not None and d.is_reduction:
            yield ld
        elif d is not None and d.at is None and d.guard is None:
            at = {a.name: x for a, x in zip(d.par, ld.index, strict=True)}
            yield from _reads(substitute(d.value, at), defs)


def _total(total: Def, d: Def, element: Expr, ld: Load) -> Def | None:
    """``total`` with its reduced axes in the order of ``d``, where ``ld`` reads the sum of ``element`` over them."""
    if total.op != "sum" or total.guard is not None or total.at is not None or total.buffer.dtype is not DType.F32:
        return None
    if len(total.red) != len(d.red) or len(d.red) > _MOST_AXES:
        return None
    at: dict[str, Expr] = {a.name: e for a, e in zip(total.par, ld.index, strict=True)}
    for red in permutations(total.red):
        own = {a.name: Var(b.name) for a, b in zip(red, d.red, strict=True)}
        alike = all(a.extent == b.extent for a, b in zip(red, d.red, strict=True))
        if alike and substitute(total.value, at | own) == element:
            return replace(total, red=red)
    return None


def _in_chunks(d: Def, cut: _Cut) -> tuple[Def, Def]:
    """The sums of the chunks of ``d``, and the sum of these."""
    made = _chunk(d, cut, d.value)
    element = Load(made.name, made.index, made.buffer.dtype, d.span)
    return made, replace(d, red=(made.par[-1],), value=element)


def _about_means(d: Def, cut: _Cut, sides: _Sides, cuts: Mapping[str, _Cut]) -> tuple[Def, Def]:
    """The sums of the chunks of ``d`` about the means of the chunks, and their sum with what the means add."""
    count = cut.count(prod(size(a) or 1 for k, a in enumerate(d.red) if k != cut.at))
    means = [_mean(s, cuts[s.total.name], Var(cut.number), count) for s in sides]
    made = _chunk(d, cut, _product(_minus(s.element, mean) for s, mean in zip(sides, means, strict=True)))
    here = Load(made.name, made.index, made.buffer.dtype, d.span)
    between = _product((count, *(_minus(mean, s.centre) for s, mean in zip(sides, means, strict=True))))
    return made, replace(d, red=(made.par[-1],), value=Op("add", (here, between), DType.F32))


def _mean(side: _Side, cut: _Cut, number: Expr, count: Expr) -> Expr:
    """The mean of the elements of a chunk of ``side``."""
    return Op("div", (Load(cut.results, (*side.read.index, number), DType.F32), count), DType.F32)


def _chunk(d: Def, cut: _Cut, value: Expr) -> Def:
    """The sums of ``value``, over the reduced axes of ``d``, in chunks."""
    whole = d.red[cut.at]
    n = cut.extent
    number = Axis(cut.number, blocks(n, cut.chunk), whole.span)
    position = calc("add", calc("mul", Var(cut.number), cut.chunk), Var(whole.name))
    inside = conjunction(() if cut.whole else (calc("lt", position, extent_expr(n)),))
    par = (*d.par, number)
    red = tuple(replace(a, extent=cut.chunk) if k == cut.at else a for k, a in enumerate(d.red))
    buffer = Buffer(cut.results, d.buffer.dtype, tuple(a.extent for a in par), Space.TEMP)
    return Def(cut.results, buffer, par, red, "sum", substitute(value, {whole.name: position}), inside, d.span)


def _minus(a: Expr, b: Expr) -> Expr:
    return Op("sub", (a, b), DType.F32)


def _product(parts: Iterable[Expr]) -> Expr:
    return product_of(tuple(parts))


def _certificate(d: Def, sides: _Sides) -> Certificate:
    """A sum about any centres is one about the means of the elements, and a product for the means themselves."""

    def total(body: Expr) -> Expr:
        return Reduce("sum", d.red, None, body, DType.F32, d.span)

    count = total(Const(1.0, DType.F32))
    means = [Op("div", (total(s.element), count), DType.F32) for s in sides]
    near = total(_product(_minus(s.element, m) for s, m in zip(sides, means, strict=True)))
    between = _product((count, *(_minus(m, s.centre) for s, m in zip(sides, means, strict=True))))
    proof = "the elements of a chunk about their own mean have the sum 0, and a sum is the sum of those over chunks"
    after = Op("add", (near, between), DType.F32)
    return Certificate("chunk-moments", d.name, total(d.value), after, (), (), (), proof, d.span)
