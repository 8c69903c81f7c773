"""``approximate``: replaces f32 functions by the instructions that compute them with a few units of error.

The pass applies only under ``precision`` fast.  ``core.functions`` names the approximation of each function and states
its error; those for narrow outputs only belong to ``hardware-math``.  The pass is one of the last, because
earlier passes rewrite the exact functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.functions import FUNCTIONS
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.ma_tile.ir.ops import MapOp, MemModule, MemOp
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
        return each_kernel(module, lambda k: replace(k, body=rebuild(k.body, _rule)))


def _rule(op: MemOp) -> tuple[MemOp, ...]:
    if isinstance(op, MapOp) and op.op in APPROXIMATIONS and op.result.type.dtype is DType.F32:
        return (replace(op, op=APPROXIMATIONS[op.op]),)
    return (op,)
