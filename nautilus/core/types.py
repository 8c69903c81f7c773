"""Element types: what a tensor holds, and what arithmetic on it is done in.

A *storage* type is what memory holds (``f16``); a *compute* type is what an expression is
evaluated in (``f32 f64 i32 i64 bool``).  Floating storage types of up to 32 bits compute in
``f32``, as the language contract demands ("an intermediate is f32 or better").
"""

from __future__ import annotations

import enum


class DType(enum.Enum):
    """An element type of the language (``grammar/README.md``, "Element types")."""

    F64 = "f64"
    F32 = "f32"
    TF32 = "tf32"
    F16 = "f16"
    BF16 = "bf16"
    F8E4M3 = "f8e4m3"
    F8E5M2 = "f8e5m2"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    U8 = "u8"
    BOOL = "bool"

    def __str__(self) -> str:
        return self.value

    @property
    def bits(self) -> int:
        """Storage width in bits (``tf32`` is stored as 32, ``bool`` as 8)."""
        return _BITS[self]

    @property
    def bytes(self) -> int:
        """Storage width in bytes."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self in _MANTISSA

    @property
    def is_int(self) -> bool:
        return self.value[0] in "iu"

    @property
    def compute(self) -> DType:
        """The type in which arithmetic on this type is done."""
        if self in (DType.F64, DType.I64, DType.BOOL):
            return self
        return DType.F32 if self.is_float else DType.I32

    @property
    def mantissa(self) -> int:
        """Explicit mantissa bits of a float type."""
        return _MANTISSA[self]


_BITS = {
    DType.F64: 64, DType.F32: 32, DType.TF32: 32, DType.F16: 16, DType.BF16: 16,
    DType.F8E4M3: 8, DType.F8E5M2: 8, DType.I64: 64, DType.I32: 32, DType.I16: 16,
    DType.I8: 8, DType.U8: 8, DType.BOOL: 8,
}  # fmt: skip
_MANTISSA = {
    DType.F64: 52, DType.F32: 23, DType.TF32: 10, DType.F16: 10, DType.BF16: 7,
    DType.F8E4M3: 3, DType.F8E5M2: 2,
}  # fmt: skip

#: the largest finite number of the float types that overflow where f32 does not by far
LARGEST = {DType.F16: 65504.0, DType.F8E4M3: 448.0, DType.F8E5M2: 57344.0}


def promote(a: DType, b: DType) -> DType:
    """The compute type of an arithmetic operation between ``a`` and ``b``."""
    a, b = a.compute, b.compute
    order = (DType.BOOL, DType.I32, DType.I64, DType.F32, DType.F64)
    return max(a, b, key=order.index)
