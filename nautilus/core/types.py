"""Element types of tensors in memory and of arithmetic.

A *storage* type is the type of elements in memory (``f16``).  A *compute* type is the type in which an expression is
evaluated (``f32 f64 i32 i64 bool``).  The compute type of floating storage types of up to 32 bits is ``f32``, as the
language contract demands ("an intermediate is f32 or better").
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, TypeAlias

from nautilus.core.records import dataclass


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

    __hash__ = object.__hash__  # members are unique; that of Enum is a function of Python

    def __str__(self) -> str:
        return str(self.value)

    # Facts that follow from the record of the type in :data:`FORMATS`: attributes, because they are read very often.
    bits: int  # storage width (``tf32`` is stored as 32, ``bool`` as 8)
    bytes: int  # storage width
    is_float: bool
    is_int: bool  # whether the type is one of signed or unsigned integers
    is_half: bool  # a 16-bit float
    is_float8: bool  # an 8-bit float
    mantissa: int  # explicit mantissa bits of a float type
    stored_as_bits: bool  # a float without a numpy type of its width: arrays of its storage hold unsigned integers
    compute: DType  # the type in which arithmetic on this type is done


@dataclass(frozen=True, slots=True)
class Format:
    """The record of an element type.

    ``kind``: float, int, uint or bool.  ``least``: the least exponent of a normal number.  ``infinite``: there are
    infinities, else numbers beyond ``largest`` round to NaN.  ``numpy``: the numpy type of the values, None where numpy
    has none.  ``raw``: the numpy type of the storage.  ``c``: the C type in memory.  ``pack``: elements in one 32-bit
    register.  ``tensor_map``: the type of a TMA tensor map, which moves bits only.  ``torch``: its name in PyTorch
    and in JAX.
    """

    bits: int
    kind: str
    numpy: str | None
    raw: str
    c: str
    pack: int
    tensor_map: str
    torch: str
    mantissa: int = 0
    least: int = 0
    largest: float = 0.0
    infinite: bool = True


def _float(mantissa: int, least: int, largest: float | None = None, infinite: bool = True) -> dict[str, Any]:
    """Fields of a float type; with infinities the largest number follows from the others."""
    found = (2.0 - 2.0**-mantissa) * 2.0 ** (1 - least) if largest is None else largest
    return {"mantissa": mantissa, "least": least, "largest": found, "infinite": infinite}


#: One record an element type.
FORMATS: Mapping[DType, Format] = {
    DType.F64: Format(64, "float", "float64", "float64", "double", 1, "FLOAT64", "float64", **_float(52, -1022)),
    DType.F32: Format(32, "float", "float32", "float32", "float", 1, "FLOAT32", "float32", **_float(23, -126)),
    DType.TF32: Format(32, "float", None, "float32", "float", 1, "FLOAT32", "float32", **_float(10, -126)),
    DType.F16: Format(16, "float", "float16", "float16", "f16", 2, "FLOAT16", "float16", **_float(10, -14)),
    DType.BF16: Format(16, "float", None, "uint16", "bf16", 2, "BFLOAT16", "bfloat16", **_float(7, -126)),
    DType.F8E4M3: Format(
        8, "float", None, "uint8", "unsigned char", 4, "UINT8", "float8_e4m3fn", **_float(3, -6, 448.0, False)
    ),
    DType.F8E5M2: Format(8, "float", None, "uint8", "unsigned char", 4, "UINT8", "float8_e5m2", **_float(2, -14)),
    DType.I64: Format(64, "int", "int64", "int64", "long long", 1, "INT64", "int64"),
    DType.I32: Format(32, "int", "int32", "int32", "int", 1, "INT32", "int32"),
    DType.I16: Format(16, "int", "int16", "int16", "short", 1, "UINT16", "int16"),
    DType.I8: Format(8, "int", "int8", "int8", "signed char", 4, "UINT8", "int8"),
    DType.U8: Format(8, "uint", "uint8", "uint8", "unsigned char", 4, "UINT8", "uint8"),
    DType.BOOL: Format(8, "bool", "bool", "bool", "unsigned char", 1, "UINT8", "bool"),
}
if set(FORMATS) != set(DType):
    raise AssertionError(f"element types without a record: {set(DType) ^ set(FORMATS)}")
for _d, _f in FORMATS.items():
    _d.bits, _d.bytes, _d.mantissa = _f.bits, _f.bits // 8, _f.mantissa
    _d.is_float, _d.is_int = _f.kind == "float", _f.kind in ("int", "uint")
    _d.is_half, _d.is_float8 = _d.is_float and _f.bits == 16, _d.is_float and _f.bits == 8
    _d.stored_as_bits = _d.is_float and _f.raw.startswith("u")
    _d.compute = DType.F32 if _d.is_float else DType.I32
for _d in (DType.F64, DType.I64, DType.BOOL):
    _d.compute = _d

#: The largest finite number of the float types whose range is much smaller than that of f32.
LARGEST = {d: f.largest for d, f in FORMATS.items() if f.kind == "float" and f.largest < 2.0**100}


def value_limits(dtype: DType) -> tuple[float, float]:
    """The least and the greatest finite value of ``dtype``."""
    f = FORMATS[dtype]
    match f.kind:
        case "float":
            return -f.largest, f.largest
        case "int":
            return -(2.0 ** (f.bits - 1)), 2.0 ** (f.bits - 1) - 1
        case "uint":
            return 0.0, 2.0**f.bits - 1
    return 0.0, 1.0


#: Compute types, and types of indices, of 16-bit floats, and of 8-bit integers.
COMPUTE_TYPES = frozenset(d for d in DType if d.compute is d)
INDEX_TYPES = frozenset({DType.I32, DType.I64})
HALVES = tuple(d for d in DType if d.is_half)
BYTES = (DType.I8, DType.U8)
#: A value of the host for a scalar argument or a size.
Number: TypeAlias = int | float | bool


def integer_limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer type, and of bool."""
    f = FORMATS[dtype]
    if f.kind == "int":
        return -(1 << (f.bits - 1)), (1 << (f.bits - 1)) - 1
    return 0, (1 << f.bits) - 1 if f.kind == "uint" else 1


def holds(target: DType, source: DType) -> bool:
    """Every value of ``source`` is a value of ``target``."""
    if source is target or source is DType.BOOL:
        return True
    s, t = FORMATS[source], FORMATS[target]
    if t.kind == "float":
        if s.kind == "float":
            return s.mantissa <= t.mantissa and s.least >= t.least and s.largest <= t.largest
        return s.bits - (s.kind == "int") <= t.mantissa + 1
    return s.kind != "float" and t.kind == "int" and s.bits < t.bits


def promote(a: DType, b: DType) -> DType:
    """The compute type of an arithmetic operation between ``a`` and ``b``."""
    a, b = a.compute, b.compute
    order = (DType.BOOL, DType.I32, DType.I64, DType.F32, DType.F64)
    return max(a, b, key=order.index)
