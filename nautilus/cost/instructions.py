"""Issue slots and special-function results of elementwise operations for each register of the result.

The source is the SASS of kernels on an H200: of 459 instructions in the loop of a 128 x 128 back-to-back GEMM, 66 are
MUFU, 66 FFMA, 64 FADD, 68 FMNMX, 64 FMUL and 32 F2FP (two values each).  Operations without an instruction of their own
count as their expansions in the CUDA math library.
"""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.types import DType

#: results of the special-function unit
SPECIAL: Mapping[str, float] = {
    "exp": 1, "exp2": 1, "log": 1, "log2": 1, "sqrt": 1, "rsqrt": 1, "rcp": 1, "div": 1, "sin": 1, "cos": 1,
    "tanh": 2, "tanh_approx": 1, "sigmoid": 2, "pow": 2,
}  # fmt: skip

_SLOTS: Mapping[str, float] = {
    "exp": 2, "log": 2, "div": 8, "pow": 12, "tanh": 6, "sigmoid": 4, "erf": 16, "sin": 4, "cos": 4, "rcp": 2,
    "sqrt": 3, "rsqrt": 2, "floordiv": 12, "mod": 12, "cast": 1, "narrow": 1,
}  # fmt: skip
SKIPPED = 0.4  # share of warps that execute a multiplication which is skipped while all factors of the warp are 1
LAZY = 0.05  # the same under lazy rescaling, where factors other than 1 are rare after the first steps


def issue_slots(op: str, source: DType, result: DType, whole: bool) -> float:
    """Issue slots of ``op`` for a register of the result.  ``whole``: the second operand is as large as the result."""
    if op in ("cast", "narrow"):
        narrow = min(source.bytes, result.bytes)
        return 0.0 if source is result else 0.5 if narrow == 2 else 1.0
    if op == "mul_unless_one" and not whole:
        return SKIPPED
    factor = 2.0 if result.bytes == 8 else 1.0  # 64-bit values take two registers, and f64 units are rare
    return factor * _SLOTS.get(op, 1.0)
