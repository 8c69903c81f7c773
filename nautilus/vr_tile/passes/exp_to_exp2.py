"""``exp-to-exp2``: replaces ``exp(x)`` by ``exp2(x * log2 e)``, which the hardware computes, and ``log`` likewise.

The pass applies only under ``precision`` fast, because the product adds a rounding.  ``fold-scale`` then merges the
factor.
"""

from __future__ import annotations

import math

from nautilus.core.numerics import LOG2E
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileType
from nautilus.core.types import DType
from nautilus.vr_tile.ir import MapOp, TileModule, TileOp, Value
from nautilus.vr_tile.rewriting import Peephole, each_kernel


@dataclass(frozen=True, slots=True)
class ExpToExp2:
    """Use base 2 for f32 exponentials and logarithms."""

    precision: str = "fast"

    name = "exp-to-exp2"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` without f32 ``exp`` and ``log`` (unless strict)."""
        if self.precision != "fast":
            return module
        return each_kernel(module, lambda k: Peephole(k).run(_rule))


def _rule(p: Peephole, op: TileOp) -> Value | None:
    match op:
        case MapOp(op="exp", args=(x,)) if x.type.dtype is DType.F32:
            scale = p.const(LOG2E, TileType(DType.F32))
            return p.map("exp2", [p.map("mul", [x, scale])])
        case MapOp(op="log", args=(x,)) if x.type.dtype is DType.F32:
            scale = p.const(math.log(2.0), TileType(DType.F32))
            return p.map("mul", [p.map("log2", [x]), scale])
    return None
