"""``decompose-operands``: a matrix product of f32 operands may be computed in parts of tf32 or of bf16.

Matrix units have no f32.  Each operand is the sum of two tf32 numbers, and the product is the sum of three products of
parts (``core.functions.parts`` has the parts, the error, and what happens to inf and NaN)::

    dot a, b  ->  dot low(a), high(b) + dot high(a), low(b) + dot high(a), high(b)      written  dot a, b parts 2

The pass permits it with ``parts 2``, because every operand of the three products is made from ``a`` and ``b`` in the
registers of the instruction that multiplies them; the level below decides whether it does so or keeps ``fma``.  Over
the reals nothing changes.  The error of a term is at most 2^-21 of it, and ``check.bound`` states it.

Warpgroup MMAs read their operands from shared memory, where copy units have put them.  In a kernel whose plan has this
engine, a product of two loaded operands has ``parts 3``: each operand is the sum of three bf16 numbers, which a kernel
before it stores (``store-parts``).  ``recompute-masked`` adds the kernel that multiplies the operands themselves where
a sum is inf or NaN.

A product is one of f32 operands if not both are exact conversions of a narrower type, which has MMAs of its own.
``precision`` strict, and ``Schedule.decompose_operands`` False, permit no parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import calc, within
from nautilus.core.expr.nodes import Const, Expr, Param, Var, walk
from nautilus.core.functions.parts import PARTS, STORED
from nautilus.core.index.simplify import TRUE, Ranges, simplify
from nautilus.core.index.sizes import at_most, extent_expr
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule, mapping_of, parts_allowed
from nautilus.core.types import DType
from nautilus.targets.limits import TENSOR_MAP_AXES
from nautilus.vr_tile.analysis.not_a_number import finished
from nautilus.vr_tile.ir import DotOp, LoadOp, MapOp, TileKernel, TileModule, TileOp, Value, results, walk_ops
from nautilus.vr_tile.rewriting import each_kernel, each_op


@dataclass(frozen=True, slots=True)
class DecomposeOperands:
    """Permit parts in matrix products of f32."""

    schedule: Schedule | None = None
    precision: str = "fast"

    name = "decompose-operands"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with ``parts`` on its f32 products."""
        if not parts_allowed(self.precision, self.schedule):
            return module
        buffers = {b.name: b for b in module.buffers}

        def one(k: TileKernel) -> TileKernel:
            mapping = mapping_of(self.schedule, k.name)
            return _kernel(k, buffers if mapping is not None and mapping.engine == "warpgroup" else {})

        return each_kernel(module, one)


def _kernel(k: TileKernel, buffers: Mapping[str, Buffer]) -> TileKernel:
    """``k`` with parts; ``buffers``: those whose parts may be stored."""
    defs = {v.name: op for op in walk_ops(k.body) for v in results(op)}
    ranges = {a.name: (0, a.size - 1) for a in k.axes} | {g.var: (0, max(at_most(g.extent) - 1, 0)) for g in k.grid}
    facts = [calc("lt", Var(g.var), g.extent) for g in k.grid if not isinstance(g.extent, Const)]

    def changed(op: TileOp) -> TileOp:
        if not (isinstance(op, DotOp) and _permits(op, defs, k.team > 1)):
            return op
        stored = all(_is_stored(v, defs, buffers, ranges, facts) for v in (op.a, op.b))
        return replace(op, parts=STORED if stored and finished(k, op.result) is not None else PARTS)

    body = tuple(each_op(op, changed) for op in k.body)
    return k if body == k.body else replace(k, body=body)


def _is_stored(
    v: Value, defs: Mapping[str, TileOp], buffers: Mapping[str, Buffer], ranges: Ranges, facts: Sequence[Expr]
) -> bool:  # fmt: skip
    """Whether ``v`` is loaded from one of ``buffers`` whose rows the host knows, and whose parts have a tensor map."""
    op = defs.get(v.name)
    if not (isinstance(op, LoadOp) and op.buffer in buffers):
        return False
    shape = buffers[op.buffer].shape
    if not shape or any(isinstance(x, Param) and x.device for x in walk(extent_expr(shape[-1]))):
        return False
    if len(shape) != TENSOR_MAP_AXES:
        return len(shape) < TENSOR_MAP_AXES
    return all(simplify(c, ranges, facts) == TRUE for c in within(op.index[0], shape[0]))


def _permits(op: DotOp, defs: Mapping[str, TileOp], sliced: bool) -> bool:
    """A product of matrices of f32, of which at least one needs all bits of f32.

    ``sliced``: an axis that both have may number the warps, which multiply fragments.
    """
    both = set(op.a.type.names) & set(op.b.type.names) - set(op.axes) if sliced else set[str]()
    free = [set(v.type.names) - set(op.axes) - both for v in (op.a, op.b)]
    matrices = len(op.axes) == 1 and all(len(f) == 1 for f in free) and free[0] != free[1]
    return matrices and op.a.type.dtype is DType.F32 and not all(_converted(v, defs) for v in (op.a, op.b))


def _converted(v: Value, defs: Mapping[str, TileOp]) -> bool:
    """Whether ``v`` is an exact conversion of a narrower type."""
    op = defs.get(v.name)
    return isinstance(op, MapOp) and op.op == "cast" and op.args[0].type.dtype.mantissa < DType.F32.mantissa
