"""Parts of what is computed beside a product of matrices that many of its elements have in common.

Scores of attention over windows have a bias for each pair of positions, which is the same in all windows::

    S[w, h, i, j] + 16 * sigmoid(T[i // 8 - j // 8 + 7, i % 8 - j % 8 + 7, h])    ;    S[r, h, i, j] + B[i, j, h]

The threads of a tile of ``S`` have neighbours along ``j``.  They evaluate the function for each window, and their
elements of ``B`` are apart in memory.  Stored once with the axes in the order in which the product has them
(``[h, i, j]``), such a part is a vector of neighbouring elements.

A part reads nothing that is made from products of matrices.  It is

* an element of a tensor whose last dimension is not along the last axis of the product, with :data:`AGAIN` uses; or
* one of a tensor along the last two axes of the product whose rows have no multiple of :data:`VECTOR_BYTES`, such as a
  bias of 49 x 49 positions, with as many uses; or
* a function of :data:`COSTLY` issue slots or more, or one of such an element that takes special functions, with
  :data:`OFTEN` uses of each element and at most :data:`LARGEST` elements, which stay in L2; or
* a function along the columns of the product that takes special functions, such as the norms of keys, with
  :data:`ROWS` uses: the threads of a tile evaluate it for every second row.

A part that depends on the last axis through one sum of axes, such as the distance of two positions, is stored over the
values of that sum: a bias ``T[bucket[j - i + 1023], h]`` of 1024 x 1024 positions has 2047 elements for each head, and
threads still read neighbours.  Rows of other tiles are stored with zeros up to a multiple of :data:`VECTOR_BYTES`, so
that threads and TMA copies load vectors.  A part that depends on the remainder of an axis alone is stored over the
remainders.

All elements of a table are computed.  Where the part is read under a condition, elements whose positions are outside of
a tensor, which nothing reads, are 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Var, children, free_vars, loads, walk
from nautilus.core.expr.products import strip_lossless_conversions
from nautilus.core.functions import FUNCTIONS
from nautilus.core.index.groups import over_remainders, over_sum
from nautilus.core.index.linear import moves_with
from nautilus.core.index.sizes import Extent
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.definitions import Def, points
from nautilus.scalar.analysis.masking import certainly_in_range
from nautilus.targets.limits import VECTOR_BYTES

Shapes: TypeAlias = Mapping[str, tuple[Extent, ...]]  # of tensors

COSTLY = 16  # issue slots: several times those of a load
OFTEN = 32  # uses of each element of a function
AGAIN = 4  # uses of each element that is copied
ROWS = 128  # uses of each element of a vector along columns, which one block may have
LARGEST = 1 << 22
TERMS = 1 << 24  # elements of the smallest product: those of fewer take less time than one more kernel
MORE_TERMS = 1 << 26  # the same where a part takes a few special functions


@dataclass(frozen=True, slots=True)
class Part:
    """The part ``of`` a value: the element at ``index`` of ``value`` over ``axes``; ``dtype`` has all of its values.

    ``pitch``: the elements of a row where it is stored.  ``partial``: ``value`` may read outside of tensors.
    """

    of: Expr
    axes: tuple[Axis, ...]
    dtype: DType
    value: Expr
    index: tuple[Expr, ...]
    pitch: Extent
    partial: bool = False


def shared_parts(d: Def, defs: Mapping[str, Def], shapes: Shapes) -> tuple[Part, ...]:
    """The largest parts of the value of ``d``, and of its condition, that are worth storing."""
    order = _order(d, defs)
    if order is None or points(order) < TERMS:
        return ()
    read, results = (d.value,) if d.guard is None else (d.value, d.guard), _of_products(defs)
    found = tuple(dict.fromkeys(p for e in read for p in _parts(e, order, results, shapes)))
    scope = {a.name: a.extent for a in d.axes}
    if d.guard is None and not _has_choices_beside(d.value, {p.of for p in found}):
        return found
    whole = {p: certainly_in_range(p.of, shapes, scope) for p in found}
    return tuple(replace(p, partial=not w) for p, w in whole.items() if w or not _has_choices(p.of))


def _has_choices(e: Expr) -> bool:
    return any(isinstance(n, Op) and n.op == "select" for n in walk(e))


def _has_choices_beside(e: Expr, parts: Collection[Expr]) -> bool:
    """Whether ``e`` has a choice outside of ``parts``, which then may not be evaluated everywhere."""
    if e in parts:
        return False
    chosen = isinstance(e, Op) and e.op == "select"
    return chosen or any(_has_choices_beside(c, parts) for c in children(e))


def is_shared_part(defs: Mapping[str, Def], d: Def, reader: Def) -> bool:
    """Whether ``d`` is such a part of ``reader``, whose kernel would evaluate it again."""
    if d.is_reduction or d.at is not None or d.scatter is not None or d.guard is not None:
        return False
    order = _order(reader, defs)
    terms = 0 if order is None else points(order)
    part = _part(d.value, d.par, terms, _of_products(defs), {}) if terms >= TERMS else None
    return (terms >= TERMS and _is_padded(d)) or (part is not None and part.value is d.value)


def _is_padded(d: Def) -> bool:
    """Whether the last elements of each row of ``d`` are zeros, as those of a part with longer rows are."""
    match d.value:
        case Op(op="select", args=(Op(op="lt", args=(Var(name=name), Const())), _, Const(value=0))):
            return name == d.par[-1].name
    return False


def _of_products(defs: Mapping[str, Def]) -> set[str]:
    """The definitions that are products of matrices, or made from them."""
    found = set[str]()
    for n, d in defs.items():
        if multiplies_matrices(d) or any(ld.buffer in found for ld in d.reads()):
            found.add(n)
    return found


def slots(e: Expr) -> float:
    """Issue slots of one evaluation of ``e``."""
    return sum(FUNCTIONS[n.op].slots if n.op in FUNCTIONS else 1 for n in walk(e) if isinstance(n, Op))


def _order(d: Def, defs: Mapping[str, Def]) -> tuple[Axis, ...] | None:
    """The axes of the product of matrices that ``d`` reads at its own axes, in the order of the product."""
    for ld in d.reads():
        made = defs.get(ld.buffer)
        if made is None or not multiplies_matrices(made) or made.at is not None:
            continue
        axes = [d.axis(e.name) for e in ld.index if isinstance(e, Var)]
        if len(axes) == len(ld.index) == len(set(ld.index)):
            return tuple(a for a in axes if a is not None)
    return None


def _parts(e: Expr, order: tuple[Axis, ...], results: set[str], shapes: Shapes) -> Iterator[Part]:
    part = _part(e, order, points(order), results, shapes)
    if part is not None:
        yield part
    elif not isinstance(e, Load):
        for c in children(e):
            yield from _parts(c, order, results, shapes)


def _part(e: Expr, order: tuple[Axis, ...], terms: int, results: set[str], shapes: Shapes) -> Part | None:
    """``e``, with axes among ``order``, as a part beside ``terms`` elements of a product; None where it is none."""
    names = free_vars(e)
    axes = tuple(a for a in order if a.name in names)
    read = loads(e)
    if e.dtype is not DType.F32 or not read or len(axes) < len(names) or any(ld.buffer in results for ld in read):
        return None
    plain, last = strip_lossless_conversions(e), order[-1]
    value, axes, index = over_sum(e, axes, last) or over_remainders(e, axes)
    uses = terms / points(axes)
    if isinstance(plain, Load):
        if uses < AGAIN or not (plain.dtype is DType.F32 or plain.dtype.is_half):
            return None
        wanted = _is_across(plain, last.name) or _has_uneven_rows(plain, order, shapes.get(plain.buffer, ()))
        return Part(e, axes, plain.dtype, value, index, _pitch(index, axes, order, plain.dtype)) if wanted else None
    zeros = any(isinstance(n, Op) and n.op == "select" and n.dtype.is_float for n in walk(e))  # may be structural
    special = any(isinstance(n, Op) and n.op in FUNCTIONS and FUNCTIONS[n.op].special for n in walk(e))
    across = special and any(_is_across(ld, last.name) for ld in read)
    costly = (across or slots(e) >= COSTLY) and uses >= OFTEN and points(axes) <= LARGEST
    vector = special and uses >= ROWS and terms >= MORE_TERMS
    wanted = (costly or vector) and last.name in names and not zeros
    return Part(e, axes, DType.F32, value, index, _pitch(index, axes, order, DType.F32)) if wanted else None


def _pitch(index: tuple[Expr, ...], axes: tuple[Axis, ...], order: tuple[Axis, ...], dtype: DType) -> Extent:
    """The elements of a row of a table that is read at ``index``: whole vectors for tiles of the last two axes."""
    row, vector = axes[-1].extent, VECTOR_BYTES // dtype.bytes
    return -(-row // vector) * vector if isinstance(row, int) and _is_tile(index, order) else row


def _is_tile(index: tuple[Expr, ...], order: tuple[Axis, ...]) -> bool:
    """Whether the last dimension at ``index`` is along the last axis of ``order``, another one along that before."""
    if len(order) < 2 or len(index) < 2 or not moves_with(index[-1], order[-1].name):
        return False
    rows = order[-2].name
    return rows not in free_vars(index[-1]) and any(rows in free_vars(e) for e in index[:-1])


def _has_uneven_rows(ld: Load, order: tuple[Axis, ...], shape: tuple[Extent, ...]) -> bool:
    """Whether ``ld`` reads a tile of the last two axes of ``order`` whose rows are no whole vectors."""
    row = shape[-1] if shape else None
    return isinstance(row, int) and row * ld.dtype.bytes % VECTOR_BYTES != 0 and _is_tile(ld.index, order)


def _is_across(ld: Load, last: str) -> bool:
    """Whether elements of ``ld`` at neighbouring positions of the axis ``last`` are apart in memory."""
    return bool(ld.index) and last in free_vars(ld) - free_vars(ld.index[-1])
