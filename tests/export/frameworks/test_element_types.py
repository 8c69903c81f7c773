"""The names of element types in frameworks, beside what those frameworks document."""

from __future__ import annotations

import ctypes

import pytest

from nautilus.core.types import DType
from nautilus.export.frameworks.element_types import ctype, dlpack, xla, xla_attribute

NAMES = {
    DType.F64: ("kDLFloat", "F64"), DType.F32: ("kDLFloat", "F32"), DType.TF32: ("kDLFloat", "F32"),
    DType.F16: ("kDLFloat", "F16"), DType.BF16: ("kDLBfloat", "BF16"), DType.F8E4M3: ("kDLFloat8_e4m3fn", "F8E4M3FN"),
    DType.F8E5M2: ("kDLFloat8_e5m2", "F8E5M2"), DType.I64: ("kDLInt", "S64"), DType.I32: ("kDLInt", "S32"),
    DType.I16: ("kDLInt", "S16"), DType.I8: ("kDLInt", "S8"), DType.U8: ("kDLUInt", "U8"),
    DType.BOOL: ("kDLBool", "PRED"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", NAMES, ids=str)
def test_names(dtype: DType) -> None:
    assert (dlpack(dtype), xla(dtype)) == ((NAMES[dtype][0], dtype.bits), NAMES[dtype][1])


def test_every_type_has_names() -> None:
    assert all(dlpack(t)[1] == t.bits and xla(t) and xla_attribute(t) for t in DType)
    assert all(ctypes.sizeof(getattr(ctypes, ctype(t))) == t.bytes for t in DType)


def test_attributes_are_wide_enough() -> None:
    wanted = {DType.F16: "float", DType.F64: "double", DType.U8: "int32_t", DType.I64: "int64_t", DType.BOOL: "bool"}
    assert {t: xla_attribute(t)[0] for t in wanted} == wanted
