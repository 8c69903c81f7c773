"""Definitions that have the elements of a tensor in another order, and are kernels of their own.

Such a kernel goes through shared memory.  In the kernel of a product, each tile would load or store single elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from nautilus.core.buffers import Space
from nautilus.core.expr.nodes import Load, Op, Var, children, free_vars
from nautilus.core.expr.products import strip_conversions, strip_lossless_conversions
from nautilus.core.types import BYTES
from nautilus.planner.products.dots import dot_of
from nautilus.planner.products.sums import SHORT
from nautilus.scalar.analysis.contractions.alternating import Matrices, alternating, is_worth, matrices
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.passes.matrices.store_digits import TERMS as DIGIT_TERMS
from nautilus.scalar.passes.operands.store_operands import AGAIN, AGAIN_APART, AGAIN_INPUTS, TERMS
from nautilus.scalar.passes.windows.order_operands import is_ordered

AGAIN_DIGITS = 64  # terms of which an integer of 8 bits is an operand: a conversion for each tile takes as long as MMAs


def is_turned(defs: Mapping[str, Def], d: Def, reader: Def) -> bool:
    """Whether ``reader`` has elements of ``d`` in an order in which those of different matrices alternate.

    ``d`` is a product, or is computed from one, and has one matrix after another.
    """
    if reader.op is not None:
        return False
    products = (d, *(defs[ld.buffer] for ld in d.reads() if ld.buffer in defs))
    found = (m for p in products if p.op is not None and (m := matrices(p, d)) is not None)
    return any(alternating(m, d) is None and _is_worth(m, reader) for m in found)


def _is_worth(found: Matrices, reader: Def) -> bool:
    """Whether the order of ``reader`` alternates. A temp that is a copy exists only where another order is faster."""
    if reader.buffer.space is Space.TEMP and isinstance(strip_conversions(reader.value), Load):
        return alternating(found, reader) is not None
    return is_worth(found, reader)


def is_operand(defs: Mapping[str, Def], d: Def, reader: Def) -> bool:
    """Whether ``d`` is computed from inputs, as weights are from codes, and the product ``reader`` reads it many times.

    A scale that elements have in common, which reduces inputs, may be a factor.  A kernel of both would have all rows
    of the result in a tile, and MMAs of single warps.
    """
    made = {defs[ld.buffer]: free_vars(ld) for ld in d.reads() if ld.buffer in defs}
    scales = all(s.is_reduction and len(used) < len(d.par) and dot_of(s) is None for s, used in made.items())
    if d.is_reduction or dot_of(reader) is None or not scales or _is_reduced(defs, reader.name):
        return False  # a block of a back-to-back GEMM holds its operand during the whole loop
    terms, elements = (prod(size(a) or SHORT for a in x.axes) for x in (reader, d))
    factors = map(strip_conversions, children(strip_conversions(reader.value)))
    found = [e for e in factors if isinstance(e, Load) and e.buffer == d.name]
    least, again = (DIGIT_TERMS, AGAIN_DIGITS) if d.buffer.dtype in BYTES else (TERMS, AGAIN_INPUTS)
    return bool(found) and d.buffer.dtype.bytes <= 2 and terms >= max(least, again * elements)


def _is_reduced(defs: Mapping[str, Def], name: str) -> bool:
    """Whether a reduction reads the definition ``name``, through elementwise ones or not; sums of chunks are none."""
    made = {name}
    for d in defs.values():
        if not made.isdisjoint(ld.buffer for ld in d.reads()):
            if d.is_reduction and not (d.op == "sum" and isinstance(strip_conversions(d.value), Load)):
                return True
            made.add(d.name)
    return False


def is_copied(defs: Mapping[str, Def], d: Def, reader: Def) -> bool:
    """Whether ``d`` has elements of inputs in the order in which the product ``reader`` reads them, many times.

    They may be 0 elsewhere.  So it is with operands of other reductions in another order.
    """
    value = d.value.args[1] if isinstance(d.value, Op) and d.value.op == "select" and d.buffer.support else d.value
    value = strip_lossless_conversions(value)
    if not isinstance(value, Load) or value.buffer in defs:
        return False
    if dot_of(reader) is None:
        return is_ordered(d, value, reader)
    terms, elements = (prod(size(a) or SHORT for a in x.axes) for x in (reader, d))
    factors = map(strip_conversions, children(strip_conversions(reader.value)))
    found = [e for e in factors if isinstance(e, Load) and e.buffer == d.name]
    return bool(found) and terms >= (AGAIN_APART if _is_apart(d, value) else AGAIN) * elements


def _is_apart(d: Def, value: Load) -> bool:
    """Whether neighbours of an element ``value`` in memory are in other matrices of ``d``, which has these last."""
    last = {a.name for a in d.par[-2:]}
    return bool(value.index) and isinstance(value.index[-1], Var) and value.index[-1].name not in last
