"""``chunk-scans``: running results along a long axis are found in chunks, so that their work is linear.

A reduction over a prefix of its axis, whose element does not depend on the position of the result::

    Y[t] = op_u f(u) where u <= t

becomes the totals of chunks of ``C`` elements, what precedes each chunk, and running results inside the chunks::

    S[c] = op_u f(c * C + u)                    for u < C
    P[c] = op_d S[d] where d < c
    L[t] = op_u f(t // C * C + u) where u <= t % C
    Y[t] = P[t // C] op L[t]

A prefix without the element itself, a suffix and conditions on ``u`` alone keep their form in ``L``; a condition on
``t`` alone selects results.  ``P`` is a scan again, which is cut where it is long.  A prefix that ends before ``t`` by
a constant is a prefix of a moved axis.

Other reduced axes are reduced first, where a tile over all of them is too large, where they are those of a matrix
product, or where a condition relates them to the result: the sum over a rectangle from the origin is a scan of scans.

``L`` is a scan of one tile (``vr_tile.lowering.scans``).  An axis that fits in a tile is left alone, unless a parallel
axis is contiguous in memory: blocks then have several of its elements, and short chunks, or whole columns in registers
where there are enough of them (:func:`chunk_length`).
All partial results have the accumulation type.  Reductions may be associated again (``grammar/README.md``, "Numbers").
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import COMBINERS, Axis, Expr, Load, Op, Reduce, Var, free_vars, loads, substitute
from nautilus.core.expr.products import matrix_product
from nautilus.core.index.divisors import divisor
from nautilus.core.index.prefixes import Prefix
from nautilus.core.index.sizes import Extent, at_most, blocks, extent_expr, large
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.tiles import floor_pow2
from nautilus.scalar.analysis.definitions import Def, points, size
from nautilus.scalar.analysis.domains import Scan, prefix_of, split_guard
from nautilus.scalar.analysis.masking import without_short_circuits
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs

TILE = 8192  # elements of an axis that fits in one tile
FILL = 264  # chunks that fill the GPU: two blocks for each multiprocessor of an H200
SHORTEST, LONGEST = 512, 4096  # elements of a chunk along contiguous memory
SHORT = 32  # elements of the longest axis for which a rewrite saves no time
COLUMN, COLUMN_TILE = 64, 128  # elements of a chunk across contiguous memory, and of an axis that is not cut
COLUMN_ROW = 2048  # elements of an axis across contiguous memory that a block holds in registers for several columns
COLUMNS = 4096  # columns with which the blocks of such columns fill the GPU


@dataclass(frozen=True, slots=True)
class ChunkScans(CertifyingPass[Program]):
    """Cut every long scan; ``length``: the elements of a chunk, of any scan that is longer (for tests)."""

    length: int | None = None

    name = "chunk-scans"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with scans in chunks, and a certificate for each cut."""
        certificates: list[Certificate] = []
        todo = [d for d in find_defs(program).values() if d.is_reduction and d.at is None]
        while todo:
            d = todo.pop(0)
            made = self._rewritten(program, d)
            if made is not None:
                defs, found = made
                certificates += found
                program = put_defs(program, d.name, defs)
                todo = [*(x for x in defs if x.is_reduction), *todo]
        return program, tuple(certificates)

    def _rewritten(self, program: Program, d: Def) -> tuple[tuple[Def, ...], tuple[Certificate, ...]] | None:
        """The definitions that take the place of ``d``; None where it stays as it is."""
        found, old = prefix_of(d), d
        if found is None and d.guard is not None:
            shapes = {b.name: b.shape for b in program.buffers}
            d = replace(d, guard=without_short_circuits(d.guard, shapes, {a.name: a.extent for a in d.axes}))
            found = prefix_of(d)
        aligned = None if found is None else _aligned(d, found)
        if aligned is None:
            return None
        new, scan = aligned
        extent = next(a for a in new.red if a.name == scan.axis).extent
        n = at_most(extent)
        chunk = chunk_length(new, scan, extent) if self.length is None else self.length if n > self.length else 0
        if _reduces_first(new, scan, n, chunk):
            return _reduced_first(program, new, scan)
        if chunk:
            return _chunked(program, new, scan, chunk)
        return None if new is old or n < SHORT else ((new,), ())


def chunk_length(d: Def, scan: Scan, extent: Extent) -> int:
    """The elements of a chunk of an axis of ``extent``, a power of two; 0 where it certainly fits in one tile."""
    n = at_most(extent)
    others = prod(size(a) or 1 for a in d.red if a.name != scan.axis)
    rows = points(a for a in d.par if a.name != scan.into)
    if _across(d, scan.axis):
        held = n <= COLUMN_ROW and rows >= COLUMNS and others == 1 and d.buffer.dtype.bytes <= 4
        return COLUMN if n > COLUMN_TILE and not held else 0
    if n * others <= TILE:
        return 0
    wanted = floor_pow2(large(extent) * rows // FILL)
    return max(SHORTEST, min(LONGEST, wanted))


def _across(d: Def, axis: str) -> bool:
    """Whether another axis than ``axis`` is contiguous in the largest tensor that has ``axis``."""
    found = [ld for ld in loads(d.value) if any(axis in free_vars(e) for e in ld.index)]
    last = max(found, key=lambda ld: len(ld.index)).index[-1] if found else None
    return last is not None and axis not in free_vars(last) and bool(free_vars(last))


def _aligned(d: Def, scan: Scan) -> tuple[Def, Scan] | None:
    """``d`` over an axis of the extent of its results whose bound is the position of the result; None without one."""
    u, t = (next(a for a in d.axes if a.name == name) for name in (scan.axis, scan.into))
    n, m, shift = size(u), size(t), scan.bound.shift
    if n is None or m is None:
        return (d, scan) if u.extent == t.extent and shift in (0, -1) else None
    if n == m and shift in (0, -1):
        return d, scan
    if shift > 0 or (scan.bound.reverse and n + shift > m):
        return None
    moved = calc("sub" if scan.bound.reverse else "add", Var(u.name), shift)
    bound = calc("le", Var(u.name), Var(t.name)) if not scan.bound.reverse else calc("le", Var(t.name), Var(u.name))
    inside = (calc("le", integer(0), moved), calc("lt", moved, n))
    rest = [substitute(c, {u.name: moved}) for c in conjuncts(d.guard) if c != scan.condition]
    red = tuple(replace(a, extent=m) if a is u else a for a in d.red)
    value = substitute(d.value, {u.name: moved})
    new = replace(d, red=red, value=value, guard=conjunction((*inside, bound, *rest)))
    return new, Scan(u.name, t.name, Prefix(0, scan.bound.reverse), bound)


def _reduces_first(d: Def, scan: Scan, n: int, chunk: int) -> bool:
    """Whether other reduced axes of ``d`` are reduced first (module docstring)."""
    others = {a.name: size(a) or TILE for a in d.red if a.name != scan.axis}
    inner, _ = split_guard(d)
    bounded = any(free_vars(c) & {a.name for a in d.par} for c in inner if c != scan.condition)
    product = matrix_product(d.value, [scan.axis, *(a.name for a in d.par)]) is not None
    return bool(others) and (chunk > 0 or bounded or product or n * prod(others.values()) > TILE)


def _reduced_first(program: Program, d: Def, scan: Scan) -> tuple[tuple[Def, ...], tuple[Certificate, ...]]:
    """The reduction over all axes but that of the scan, and the scan of its results."""
    assert d.op is not None
    u = next(a for a in d.red if a.name == scan.axis)
    axes = tuple(u if a.name == scan.into else a for a in d.par)
    others = tuple(a for a in d.red if a is not u)
    inner, outer = split_guard(d)
    rest = conjunction(c for c in inner if c != scan.condition)
    name = fresh_name(program, f"{d.name}_term")
    buffer = Buffer(name, d.buffer.dtype, tuple(a.extent for a in axes), Space.TEMP)
    first = Def(name, buffer, axes, others, d.op, d.value, rest, d.span)
    element = Load(name, tuple(Var(a.name) for a in axes), buffer.dtype, d.span)
    bound = conjunction((scan.condition, *outer))
    part = Reduce(d.op, others, rest, d.value, d.value.dtype, d.span)
    before = Reduce(d.op, d.red, d.guard, d.value, d.value.dtype, d.span)
    after = Reduce(d.op, (u,), bound, part, d.value.dtype, d.span)
    proof = f"a {d.op} over parts of a domain is the {d.op} over all of it, in any order"
    certificate = Certificate("chunk-scans", d.name, before, after, (), (), (), proof, d.span)
    return (first, replace(d, red=(u,), value=element, guard=bound)), (certificate,)


def _chunked(program: Program, d: Def, scan: Scan, chunk: int) -> tuple[tuple[Def, ...], tuple[Certificate, ...]]:
    assert d.op is not None
    taken = {a.name for a in d.axes}
    u, t = (next(a for a in d.axes if a.name == name) for name in (scan.axis, scan.into))
    number = Axis(fresh_name(program, f"{u.name}_chunk", taken), blocks(u.extent, chunk), u.span)
    before = Axis(fresh_name(program, f"{u.name}_before", {*taken, number.name}), number.extent, u.span)
    short = replace(u, extent=chunk)
    chunk_of, place = calc("floordiv", Var(t.name), chunk), calc("mod", Var(t.name), chunk)
    inner, outer = split_guard(d)
    rest = [c for c in inner if c != scan.condition]
    red = tuple(short if a is u else a for a in d.red)

    def buffer(suffix: str, axes: tuple[Axis, ...]) -> Buffer:
        name = fresh_name(program, f"{d.name}_{suffix}")
        return Buffer(name, d.buffer.dtype, tuple(a.extent for a in axes), Space.TEMP)

    def part(suffix: str, axes: tuple[Axis, ...], at: Expr, *conditions: Expr) -> Def:
        position = calc("add", calc("mul", at, chunk), Var(u.name))
        extent = extent_expr(u.extent)
        inside = (calc("lt", position, extent),) if divisor(extent) % chunk else ()
        own = [substitute(c, {u.name: position}) for c in rest]
        b, guard = buffer(suffix, axes), conjunction((*inside, *conditions, *own))
        return Def(b.name, b, axes, red, d.op, substitute(d.value, {u.name: position}), guard, d.span)

    chunks = tuple(number if a is t else a for a in d.par)
    totals = part("chunk", chunks, Var(number.name))
    exclusive, reverse = scan.bound.shift == -1, scan.bound.reverse
    ordered = (place, Var(u.name)) if reverse else (Var(u.name), place)
    local = part("local", d.par, chunk_of, calc("lt" if exclusive else "le", *ordered))
    carry_buffer = buffer("carry", chunks)
    element = Load(totals.name, tuple(Var(before.name if a is t else a.name) for a in d.par), d.buffer.dtype, d.span)
    earlier = calc("lt", *(Var(a.name) for a in ((number, before) if reverse else (before, number))))
    carry = Def(carry_buffer.name, carry_buffer, chunks, (before,), d.op, element, earlier, d.span)
    front = Load(carry.name, tuple(chunk_of if a is t else Var(a.name) for a in d.par), d.buffer.dtype, d.span)
    here = Load(local.name, local.index, d.buffer.dtype, d.span)
    value: Expr = Op(COMBINERS[d.op].binary, (front, here), d.buffer.dtype)
    present = conjunction(outer)
    value = value if present is None else calc("select", present, value, d.init())
    whole = replace(d, red=(), op=None, value=value, guard=None)
    return (totals, carry, local, whole), (_certificate(d, scan, chunk),)


def _certificate(d: Def, scan: Scan, chunk: int) -> Certificate:
    """A domain is cut into the elements of earlier chunks and those of the chunk of the result."""
    assert d.op is not None
    mine, theirs = (calc("floordiv", Var(x), chunk) for x in (scan.into, scan.axis))
    dtype = d.value.dtype

    def over(*conditions: Expr) -> Expr:
        return Reduce(d.op or "", d.red, conjunction((d.guard, *conditions)), d.value, dtype, d.span)

    earlier = calc("lt", mine, theirs) if scan.bound.reverse else calc("lt", theirs, mine)
    after = Op(COMBINERS[d.op].binary, (over(earlier), over(calc("eq", theirs, mine))), dtype)
    proof = f"a {d.op} over a domain is the {d.op} over the parts of it that lie in chunks of {chunk}, in any order"
    return Certificate("chunk-scans", d.name, over(), after, (), (), (), proof, d.span)
