"""Operands of products whose elements are reductions of other terms, such as sums of gathered rows.

A tile of the product would hold all terms of its operand in registers.  The operand is a kernel of its own instead,
which stores it in the type that the matrix unit reads (``store-operands``), so that the product has warpgroup MMAs.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from nautilus.core.expr.nodes import Var, free_vars, substitute
from nautilus.planner.products.dots import dot_of
from nautilus.scalar.analysis.contractions.crossing import crosses
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.passes.operands.store_operands import AGAIN_APART

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


def _product(defs: Mapping[str, Def], d: Def) -> Def | None:
    """The product ``d``, or the one of which it has an element at its own position."""
    if d.is_reduction or d.at is not None:
        return d if dot_of(d) is not None and d.at is None else None
    own = tuple(Var(a.name) for a in d.par)
    found = (defs[ld.buffer] for ld in d.reads() if ld.buffer in defs and ld.index == own)
    return next((s for s in found if s.at is None and dot_of(s) is not None), None)
