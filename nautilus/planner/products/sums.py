"""Operands of products whose elements are reductions of other terms, such as sums of gathered rows.

A tile of the product would hold all terms of its operand in registers.  The operand is a kernel of its own instead,
which stores it in the type that the matrix unit reads (``store-operands``), so that the product has warpgroup MMAs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod

from nautilus.core.expr.nodes import Expr, Var, free_vars, loads, substitute
from nautilus.planner.products.dots import dot_of
from nautilus.planner.rowwise.segments import segments_of
from nautilus.scalar.analysis.chunks import chunks_of
from nautilus.scalar.analysis.contractions.crossing import crosses
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.passes.operands.store_operands import AGAIN_APART, HELD

ROWS = 128  # of a product, beside which sums for each of its columns are stored: a block would compute them again
FEWER = 64  # results of a product for each one of sums that are stored beside it
SPREAD = 1024  # elements along an axis of a product that several blocks share
SHORT = 1024  # elements of an axis whose size is known at launch


def is_sum_of_others(defs: Mapping[str, Def], d: Def, reader: Def) -> bool:
    """Whether the product ``reader`` has elements ``d``, each made from a reduction, as an operand many times."""
    if d.is_reduction or dot_of(reader) is None:
        return False
    sources = [(ld, defs[ld.buffer]) for ld in d.reads() if ld.buffer in defs]
    axes = {a.name for a in d.par}
    terms, elements = (prod(size(a) or SHORT for a in x.axes) for x in (reader, d))
    summed = any(made.is_reduction and free_vars(ld) >= axes for ld, made in sources)
    return summed and terms >= AGAIN_APART * elements and not any(dot_of(made) for _, made in sources)


def ends_product(defs: Mapping[str, Def], d: Def, reader: Def) -> bool:
    """Whether ``d`` is made from one element of another product, and blocks of the product ``reader`` would repeat it.

    The kernel of the other product has ``d`` as its epilogue.  A tile of ``reader`` has :data:`HELD` columns at most.
    """
    if d.is_reduction or dot_of(reader) is None:
        return False
    used = frozenset[str]().union(*(free_vars(ld) for ld in reader.reads() if ld.buffer == d.name))
    others = prod(size(a) or SHORT for a in reader.par if a.name not in used)
    sources = [(ld, defs[ld.buffer]) for ld in d.reads() if ld.buffer in defs]
    made = {s.name: s for _, s in sources if s.is_reduction}
    if others <= HELD or len(made) != 1:
        return False
    (s,) = made.values()
    own = tuple(Var(a.name) for a in d.par)
    return dot_of(s) is not None and len(s.par) == len(own) and all(ld.index == own for ld, x in sources if x is s)


def is_beside_columns(defs: Mapping[str, Def], d: Def, reader: Def) -> bool:
    """Whether ``d`` is a sum of elements of memory for each term of another product that the sum ``reader`` has.

    Such as the norms of keys.  These terms are columns of the tiles of that product, whose rows have neighbouring
    threads.  A block of rows would compute the sums again, and no warpgroup moves them to the columns.
    Or the terms of the sum are gathered.
    """
    if not (d.is_reduction and reader.is_reduction) or any(ld.buffer in defs for ld in d.reads()):
        return False
    if _is_gathered_beside(defs, d, reader):
        return True
    summed, extents = {a.name for a in reader.red}, {a.name: size(a) or SHORT for a in reader.axes}
    beside = [ld for ld in reader.reads() if ld.buffer in defs and dot_of(defs[ld.buffer]) is not None]
    own = (free_vars(ld) for ld in reader.reads() if ld.buffer == d.name)
    return any(
        used & summed and prod(extents.get(x, 1) for x in free_vars(ld) - used) >= ROWS for used in own for ld in beside
    )


def _is_gathered_beside(defs: Mapping[str, Def], d: Def, reader: Def) -> bool:
    """Whether ``d`` sums gathered elements, and ``reader`` compares its rows with the columns of another product.

    Such as the score of a label, from which those of all others have a distance.  Each tile of columns would gather
    again.
    """
    others = (defs[ld.buffer] for ld in reader.reads() if ld.buffer in defs and ld.buffer != d.name)
    return any(loads(e) for ld in d.reads() for e in ld.index) and any(dot_of(o) is not None for o in others)


def is_read_across(defs: Mapping[str, Def], d: Def, reader: Def) -> bool:
    """Whether ``reader`` has elements ``d``, each made from one of another product, across that one's matrices.

    No kernel has both products.  What the reader needs of an element is made where the inner product is computed, or in
    a kernel that brings the elements into another order.
    """
    if d.is_reduction or d.at is not None or dot_of(reader) is None:
        return False
    sources = [(defs[ld.buffer], ld.index) for ld in d.reads() if ld.buffer in defs]
    if len(sources) != 1 and not d.buffer.dtype.is_half:
        return False  # such as a softmax, which the kernel of the reader computes
    made = [(_product(defs, s), index) for s, index in sources]
    places = [dict(zip((a.name for a in d.par), ld.index, strict=True)) for ld in reader.reads() if ld.buffer == d.name]
    return any(
        s is not None and crosses(s, reader, [substitute(e, at) for e in index]) for s, index in made for at in places
    )


def are_small_sums(defs: Mapping[str, Def], product: str, reader: str, group: Collection[str]) -> bool:
    """Whether all of ``group`` but the elementwise ``reader`` are sums with few results beside those of ``product``.

    Such as the sums of rows that zero points scale, or a product that lacks an axis: they are read once more where they
    are kernels of their own, and ``product`` is not stored where the reader is in its kernel.
    """
    if dot_of(defs[product]) is None or defs[reader].is_reduction or len(group) < 2:
        return False
    results = prod(size(a) or SHORT for a in defs[product].par)
    return all(
        x == reader or (d.is_reduction and FEWER * prod(size(a) or SHORT for a in d.par) <= results)
        for x, d in ((x, defs[x]) for x in group)
    )


def combines_beside(defs: Mapping[str, Def], d: Def, reader: Def) -> bool:
    """Whether ``d`` adds interleaved chunks of a product, and ``reader`` needs another product, or a later such sum.

    Such as the two products of a gated layer.  The warps of a block that compute the chunks of one product add them in
    shared memory where the kernel of the sum needs nothing else.
    """
    if reader.is_reduction or not _adds_chunks(defs, d):
        return False
    names = list(dict.fromkeys(ld.buffer for ld in reader.reads() if ld.buffer in defs))
    later = names[names.index(d.name) + 1 :] if d.name in names else []
    return any(dot_of(defs[x]) is not None for x in names) or any(_adds_chunks(defs, defs[x]) for x in later)


def combines_before(defs: Mapping[str, Def], d: Def, reader: Def) -> bool:
    """Whether ``d`` combines chunks, and ``reader`` reduces elements of a product in chunks, such as the second best.

    Each block of a chunk would combine all chunks of its rows again, in the layout of the tile of the product.
    """
    if not (d.is_reduction and reader.is_reduction) or chunks_of(reader) is None or dot_of(reader) is not None:
        return False
    parts, read = ([defs[ld.buffer] for ld in x.reads() if ld.buffer in defs] for x in (d, reader))
    return any(chunks_of(x) is not None for x in parts) and any(dot_of(x) is not None for x in read)


def _adds_chunks(defs: Mapping[str, Def], d: Def) -> bool:
    """Whether ``d`` adds interleaved chunks of a product."""
    if d.op != "sum":
        return False
    parts = [defs[ld.buffer] for ld in d.reads() if ld.buffer in defs]
    found = [chunks_of(x) for x in parts if dot_of(x) is not None]
    return len(parts) == 1 and any(c is not None and c.interleave > 1 for c in found)


def combines_tiles(defs: dict[str, Def], d: Def, reader: Def) -> bool:
    """Whether ``reader`` reduces results of ``d`` over groups of columns of a product, which no tile has all of."""
    if not (d.is_reduction and reader.is_reduction) or segments_of(reader) is not None:
        return False
    read = {x for x, e in zip(d.index, _read_at(reader, d), strict=True) if e in {Var(x.name) for x in reader.red}}
    over = [a for a in d.par if Var(a.name) in read]
    columns = prod(size(a) or SHORT for a in (*over, *d.red))
    found = ((ld, defs[ld.buffer]) for ld in d.reads() if ld.buffer in defs)
    products = (ld for ld, made in found if dot_of(made) is not None and chunks_of(made) is None)
    return columns >= SPREAD and any({a.name for a in over} & free_vars(ld) for ld in products)


def _read_at(reader: Def, d: Def) -> tuple[Expr, ...]:
    """Where ``reader`` first reads ``d``."""
    return next(ld.index for ld in reader.reads() if ld.buffer == d.name)


def _product(defs: Mapping[str, Def], d: Def) -> Def | None:
    """The product ``d``, or the one of which it has an element at its own position."""
    if d.is_reduction or d.at is not None:
        return d if dot_of(d) is not None and d.at is None else None
    own = tuple(Var(a.name) for a in d.par)
    found = (defs[ld.buffer] for ld in d.reads() if ld.buffer in defs and ld.index == own)
    return next((s for s in found if s.at is None and dot_of(s) is not None), None)


def has_other_rows(defs: Mapping[str, Def], d: Def, reader: Def) -> bool:
    """Whether ``d`` sums over a product whose matrices have other rows than that of the last such sum of ``reader``.

    Queries that share the keys of a prefix are rows of one product, and each of them has keys of its own beside: a
    block of both would have one query, and read the prefix again for each.
    """
    if reader.is_reduction:
        return False
    sums = {ld.buffer: defs[ld.buffer] for ld in reader.reads() if ld.buffer in defs}
    found = {name: rows for name, x in sums.items() if (rows := _rows(defs, x)) is not None}
    last = [found[name] for name in defs if name in found][-1:]
    return d.name in found and [found[d.name]] != last


def _rows(defs: Mapping[str, Def], d: Def) -> int | None:
    """The rows of the matrices of the product over whose columns ``d`` sums; None where it sums over none."""
    summed = {a.name for a in d.red}
    for ld in d.reads() if d.is_reduction else ():
        made = defs.get(ld.buffer)
        dot = None if made is None else dot_of(made)
        if made is None or dot is None:
            continue
        along = {a.name for a, i in zip(made.par, ld.index, strict=True) if free_vars(i) & summed}
        sides = [set(dot.rows), set(dot.columns)]
        others = [x for x in sides if not x & along]
        if along and len(others) == 1:
            return prod(size(a) or SHORT for a in made.par if a.name in others[0])
    return None
