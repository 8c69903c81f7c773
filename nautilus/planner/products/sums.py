"""Operands of products whose elements are reductions of other terms, such as sums of gathered rows.

A tile of the product would hold all terms of its operand in registers.  The operand is a kernel of its own instead,
which stores it in the type that the matrix unit reads (``store-operands``), so that the product has warpgroup MMAs.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from nautilus.core.expr.nodes import free_vars
from nautilus.planner.products.dots import dot_of
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
