"""The names that frameworks have for element types, which derive from the records of :mod:`nautilus.core.types`."""

from __future__ import annotations

from nautilus.core.types import FORMATS, DType

_DLPACK = {"float": "Float", "bfloat": "Bfloat", "int": "Int", "uint": "UInt", "bool": "Bool"}
_XLA = {"float": "F", "bfloat": "BF", "int": "S", "uint": "U"}
#: compute type of a scalar -> the type of its attribute, in C++ and in numpy
_ATTRIBUTES = {
    DType.F64: ("double", "float64"), DType.F32: ("float", "float32"), DType.I64: ("int64_t", "int64"),
    DType.I32: ("int32_t", "int32"), DType.BOOL: ("bool", "bool_"),
}  # fmt: skip


def _divided(dtype: DType) -> tuple[str, str]:
    """The kind and what follows it: ``uint`` and ``8``, ``float`` and ``8_e5m2``."""
    name = FORMATS[dtype].torch
    kind = name.partition("_")[0].rstrip("0123456789")
    return kind, name.removeprefix(kind)


def dlpack(dtype: DType) -> tuple[str, int]:
    """The type code and the bits of DLPack."""
    kind, rest = _divided(dtype)
    return f"kDL{_DLPACK[kind]}{rest if dtype.is_float8 else ''}", dtype.bits


def xla(dtype: DType) -> str:
    """The type of XLA."""
    kind, rest = _divided(dtype)
    return "PRED" if dtype is DType.BOOL else _XLA[kind] + rest.replace("_", "").upper()


def xla_attribute(dtype: DType) -> tuple[str, str]:
    """The type of a scalar that is an attribute, in C++ and in numpy; narrow integers are passed as 32 bits."""
    return _ATTRIBUTES[dtype.compute]


def ctype(dtype: DType) -> str:
    """The type of an argument in :mod:`ctypes`; 16-bit floats are passed as their bits."""
    raw = FORMATS[dtype].raw
    return f"c_{ {'float64': 'double', 'float32': 'float', 'float16': 'uint16'}.get(raw, raw) }"
