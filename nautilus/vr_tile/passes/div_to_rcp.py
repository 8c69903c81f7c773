"""``div-to-rcp``: multiplies by the reciprocal of a divisor that has fewer elements than the quotient.

``x / r`` becomes ``x * rcp(r)`` if ``r`` lacks an axis of the result: one reciprocal a row instead of a division an
element.  The pass applies only under ``precision`` fast, because it rounds twice instead of once, and only to f32.
IEEE special values agree: ``0 * rcp(0)`` is NaN like ``0 / 0``, and ``x * rcp(inf)`` is 0.  A divisor whose reciprocal
overflows (a denormal below 2^-128) gives inf, which the stated bound of fast permits.
Division by a constant becomes multiplication by its inverse, also under strict if the inverse is exact (a power of
two).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from nautilus.core.types import DType
from nautilus.vr_tile.ir import MapOp, TileModule, TileOp, Value
from nautilus.vr_tile.rewriting import Peephole, each_kernel


@dataclass(frozen=True, slots=True)
class DivToRcp:
    """Replace divisions by multiplications with reciprocals."""

    precision: str = "fast"

    name = "div-to-rcp"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with divisions by broadcast values replaced."""
        return each_kernel(module, lambda k: Peephole(k).run(self._rule))

    def _rule(self, p: Peephole, op: TileOp) -> Value | None:
        if not (isinstance(op, MapOp) and op.op == "div" and op.result.type.dtype is DType.F32):
            return None
        x, r = op.args
        c = p.constant(r)
        if c is not None and (self.precision == "fast" or _is_power_of_two(c)) and _invertible(c):
            return p.map("mul", [x, p.const(1.0 / float(c), r.type)])
        if self.precision != "fast" or c is not None:
            return None
        if p.constant(x) == 1.0 and r.type == op.result.type:
            return p.map("rcp", [r])
        if len(r.type.axes) < len(op.result.type.axes):
            return p.map("mul", [x, p.map("rcp", [r])])
        return None


def _invertible(c: float) -> bool:
    return math.isfinite(c) and 2.0**-125 <= abs(c) <= 2.0**125


def _is_power_of_two(c: float) -> bool:
    return c != 0 and math.isfinite(c) and abs(math.frexp(c)[0]) == 0.5
