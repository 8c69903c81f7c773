"""Issue slots and special-function results of elementwise operations for each register of the result.

``core.functions`` states both for f32 (its docstring names the source); conversions and skipped multiplications have
rules here.
"""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.functions import FUNCTIONS
from nautilus.core.types import DType

#: results of the special-function unit
SPECIAL: Mapping[str, float] = {f.name: f.special for f in FUNCTIONS.values() if f.special}
_SLOTS: Mapping[str, float] = {f.name: f.slots for f in FUNCTIONS.values()}
SKIPPED = 0.4  # share of warps that execute a multiplication which is skipped while all factors of the warp are 1
GUARD = 0.0  # the same for a subtraction that only rows of very large numbers need
LAZY = 0.05  # the same under lazy rescaling, where factors other than 1 are rare after the first steps


def issue_slots(op: str, source: DType, result: DType, whole: bool) -> float:
    """Issue slots of ``op`` for a register of the result.  ``whole``: the second operand is as large as the result."""
    if op in ("cast", "narrow"):
        narrow = min(source.bytes, result.bytes)
        return 0.0 if source is result else 0.5 if narrow == 2 else 1.0
    if op == "mul_unless_one" and not whole:
        return SKIPPED
    if op == "sub_unless_zero" and not whole:
        return GUARD
    factor = 2.0 if result.bytes == 8 else 1.0  # 64-bit values take two registers, and f64 units are rare
    return factor * _SLOTS[op]
