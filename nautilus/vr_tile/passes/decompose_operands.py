"""``decompose-operands``: a matrix product of f32 operands may be computed in parts of tf32.

Matrix units have no f32.  Each operand is the sum of two tf32 numbers, and the product is the sum of three products of
parts (``core.functions.parts`` has the parts, the error, and what happens to inf and NaN)::

    dot a, b  ->  dot low(a), high(b) + dot high(a), low(b) + dot high(a), high(b)      written  dot a, b parts 2

The pass permits it with ``parts 2``, because every operand of the three products is made from ``a`` and ``b`` in the
registers of the instruction that multiplies them; the level below decides whether it does so or keeps ``fma``.  Over
the reals nothing changes.  The error of a term is at most 2^-21 of it, and ``check.bound`` states it.

A product is one of f32 operands if not both are exact conversions of a narrower type, which has MMAs of its own.
``precision`` strict, and ``Schedule.decompose_operands`` False, permit no parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.vr_tile.ir import DotOp, MapOp, TileKernel, TileModule, TileOp, Value, results, walk_ops
from nautilus.vr_tile.rewriting import each_kernel, each_op

PARTS = 2


@dataclass(frozen=True, slots=True)
class DecomposeOperands:
    """Permit parts in matrix products of f32."""

    schedule: Schedule | None = None
    precision: str = "fast"

    name = "decompose-operands"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with ``parts`` on its f32 products."""
        if self.precision != "fast" or (self.schedule is not None and not self.schedule.decompose_operands):
            return module
        return each_kernel(module, _kernel)


def _kernel(k: TileKernel) -> TileKernel:
    defs = {v.name: op for op in walk_ops(k.body) for v in results(op)}

    def changed(op: TileOp) -> TileOp:
        return replace(op, parts=PARTS) if isinstance(op, DotOp) and _permits(op, defs) else op

    body = tuple(each_op(op, changed) for op in k.body)
    return k if body == k.body else replace(k, body=body)


def _permits(op: DotOp, defs: Mapping[str, TileOp]) -> bool:
    """A product of matrices of f32, of which at least one needs all bits of f32."""
    free = [set(v.type.names) - set(op.axes) for v in (op.a, op.b)]
    matrices = len(op.axes) == 1 and all(len(f) == 1 for f in free) and free[0] != free[1]
    return matrices and op.a.type.dtype is DType.F32 and not all(_converted(v, defs) for v in (op.a, op.b))


def _converted(v: Value, defs: Mapping[str, TileOp]) -> bool:
    """Whether ``v`` is an exact conversion of a narrower type."""
    op = defs.get(v.name)
    return isinstance(op, MapOp) and op.op == "cast" and op.args[0].type.dtype.mantissa < DType.F32.mantissa
