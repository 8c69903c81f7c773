"""``approximate``: replaces f32 functions by the instructions that compute them with a few units of error.

The pass applies only under ``precision`` fast, and to powers with a constant exponent of at most 1 in magnitude, whose
approximation is no less exact than the function.  ``core.functions`` names the approximation of each function and
states its error; those for narrow outputs only belong to ``hardware-math``.  The pass is one of the last, because
earlier passes rewrite the exact functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from nautilus.core.functions import FUNCTIONS
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.ma_tile.ir.ops import ConstOp, MapOp, MemKernel, MemModule, MemOp, walk_ops
from nautilus.ma_tile.ir.traverse import each_kernel, rebuild

#: function -> the one that computes it in f32 with fewer instructions
APPROXIMATIONS: Mapping[str, str] = {
    f.name: a.function for f in FUNCTIONS.values() for a in f.approximations if a.function and not a.narrow
}


@dataclass(frozen=True, slots=True)
class Approximate:
    """No change under ``precision`` strict."""

    precision: str = "fast"

    name = "approximate"

    def apply(self, module: MemModule) -> MemModule:
        if self.precision != "fast":
            return module
        return each_kernel(module, _approximated)


def _approximated(kernel: MemKernel) -> MemKernel:
    constants = {x.result.name: float(x.value) for x in walk_ops(kernel.body) if isinstance(x, ConstOp)}

    def rule(op: MemOp) -> tuple[MemOp, ...]:
        if not (isinstance(op, MapOp) and op.op in APPROXIMATIONS and op.result.type.dtype is DType.F32):
            return (op,)
        if op.op == "pow" and not 0.0 < abs(constants.get(op.args[1].name, inf)) <= 1.0:
            return (op,)
        return (replace(op, op=APPROXIMATIONS[op.op]),)

    return replace(kernel, body=rebuild(kernel.body, rule))
