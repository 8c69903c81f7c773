"""How fragments and buffers are spelled in CUDA C++.

16-bit floats are packed two to a 32-bit register and 8-bit numbers four, when the register count
allows; everything else is one array element a register.  Memory types of 16-bit and 8-bit floats are
plain integers: conversions are explicit PTX, so the file needs no CUDA header.
"""

from __future__ import annotations

import numpy as np

from nautilus.core.numerics import storage_array
from nautilus.core.records import dataclass
from nautilus.core.types import FORMATS, DType


def memory_type(dtype: DType) -> str:
    """C type of an element in memory."""
    return FORMATS[dtype].c


def scalar_type(dtype: DType) -> str:
    """C type of a scalar argument of a kernel."""
    return "bool" if dtype is DType.BOOL else memory_type(dtype)


def interface_type(dtype: DType) -> str:
    """C type of a scalar argument of a host function: a 16-bit float is the integer with its bits."""
    return "unsigned short" if dtype.is_half else scalar_type(dtype)


@dataclass(frozen=True, slots=True)
class RegisterArray:
    """The C array of a fragment: ``type name[length]``, ``pack`` elements to an array element."""

    type: str
    length: int
    pack: int


def register_array(dtype: DType, registers: int) -> RegisterArray:
    """Spelling of a fragment of ``registers`` elements a thread."""
    pack = pack_of(dtype, registers)
    if pack > 1:
        return RegisterArray("u32", registers // pack, pack)
    return RegisterArray("bool" if dtype is DType.BOOL else memory_type(dtype), registers, 1)


def pack_of(dtype: DType, registers: int) -> int:
    """Elements in one 32-bit register (1: not packed)."""
    want = FORMATS[dtype].pack
    return want if registers % want == 0 else 1


def literal(value: int | float | bool, dtype: DType) -> str:
    """A C literal; of a 16-bit or 8-bit float its bits, because such values are stored as integers."""
    if dtype.is_float8:
        return f"({memory_type(dtype)}){int(storage_array(np.asarray(float(value)), dtype)):#04x}"
    if dtype.is_half:
        return f"({memory_type(dtype)}){int(storage_array(np.asarray(float(value)), dtype).view(np.uint16)):#06x}"
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype is DType.I64:
        return "(-9223372036854775807LL - 1)" if value == -(2**63) else f"{int(value)}LL"
    if dtype.is_int:
        return "(-2147483647 - 1)" if value == -(2**31) else str(int(value))
    return _float_literal(float(value), dtype)


def _float_literal(value: float, dtype: DType) -> str:
    double = dtype is DType.F64
    if value != value:
        return "__longlong_as_double(0x7ff8000000000000LL)" if double else "__int_as_float(0x7fffffff)"
    if value in (float("inf"), float("-inf")):
        sign = "-" if value < 0 else ""
        return f"{sign}__longlong_as_double(0x7ff0000000000000LL)" if double else f"{sign}__int_as_float(0x7f800000)"
    if double:
        return repr(value)
    text = f"{value:.9g}"
    if not any(c in text for c in ".e"):
        text += ".0"
    return text + "f"
