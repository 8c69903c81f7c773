"""C++ text that rounds a number of the host to the bits of a 16-bit float, to nearest even."""

from __future__ import annotations

from collections.abc import Sequence

from nautilus.core.buffers import ScalarParam
from nautilus.core.types import DType

_TEXTS = {
    DType.F16: """
static unsigned short f16_bits(float x) {
    unsigned word, sign;
    memcpy(&word, &x, 4);
    sign = (word >> 16) & 0x8000u;
    word &= 0x7fffffffu;
    if (word > 0x7f800000u) return sign | 0x7e00u;   // NaN
    if (word >= 0x477ff000u) return sign | 0x7c00u;  // rounds to more than the largest number
    if (word < 0x38800000u) {                        // below the normal numbers: 0.5 has the same last place
        float half;
        memcpy(&half, &word, 4);
        half += 0.5f;
        memcpy(&word, &half, 4);
        return sign | (word - 0x3f000000u);
    }
    return sign | ((word - 0x38000000u + 0xfffu + ((word >> 13) & 1u)) >> 13);
}
""",
    DType.BF16: """
static unsigned short bf16_bits(float x) {
    unsigned word;
    memcpy(&word, &x, 4);
    if ((word & 0x7fffffffu) > 0x7f800000u) return (word >> 16) | 0x40u;  // NaN
    return (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
}
""",
}


def half_helpers(params: Sequence[ScalarParam]) -> list[str]:
    """Lines with the functions that :func:`half_bits` calls for ``params``."""
    used = {p.dtype for p in params}
    return [line for dtype, text in _TEXTS.items() if dtype in used for line in text.rstrip().splitlines()]


def half_bits(dtype: DType, number: str, scope: str) -> str:
    """The C++ text of the bits of ``number``, a float. ``scope``: the namespace of :func:`half_helpers`."""
    return f"{scope}::{dtype}_bits({number})"
