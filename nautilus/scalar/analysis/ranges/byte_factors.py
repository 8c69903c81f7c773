"""Computed integers in products of matrices: those with 8-bit values become operands of 8 bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.expr.nodes import Expr, Load, Op
from nautilus.core.expr.products import MOST_FACTORS, factors, product_of, two_sides
from nautilus.core.types import BYTES, DType, value_limits
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.value_range import Ranges
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, kernel_of


def with_byte_factors(program: Program) -> Program:
    """``program`` in which both sides of a matrix product of integers have 8 bits where all values do.

    Fields of a word, ``(W[n, k // 4] >> 2 * (k % 4) & 3) - 1``, are integers of 32 bits, which no matrix unit
    multiplies.  The conversion ``i32(i8(x))`` of an integer from -128 to 127 changes nothing.
    """
    defs = find_defs(program)
    found = {name: made for name, d in defs.items() if (made := _with_bytes(d, defs)) is not None}
    kernels = tuple(kernel_of(found[k.name]) if k.name in found else k for k in program.kernels)
    return replace(program, kernels=kernels) if found else program


def _with_bytes(d: Def, defs: Mapping[str, Def]) -> Def | None:
    """``d`` as a product of two sides of 8 bits; None where it is one already, or is none."""
    parts = factors(d.value)
    if d.op != "sum" or d.value.dtype is not DType.I32 or len(parts) > MOST_FACTORS:
        return None
    ranges = Ranges(defs, d.axes, d.guard)
    for pair in two_sides(parts, [a.name for a in d.par], [a.name for a in d.red]):
        sides = [_as_byte(side, ranges) for side in pair]
        if None not in sides and sides != list(pair):
            return replace(d, value=product_of([side for side in sides if side is not None]))
    return None


def _as_byte(e: Expr, ranges: Ranges) -> Expr | None:
    """``e`` as the conversion of an integer of 8 bits; None where it may have other values."""
    match e:
        case Op(op="cast", args=(Load(dtype=dtype) | Op(op="cast", dtype=dtype),)) if dtype in BYTES:
            return e
    lo, hi = ranges.of(e)
    for dtype in BYTES:
        least, greatest = value_limits(dtype)
        if least <= lo and hi <= greatest:
            return Op("cast", (Op("cast", (e,), dtype, e.span),), DType.I32, e.span)
    return None
