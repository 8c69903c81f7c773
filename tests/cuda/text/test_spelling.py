"""The C text of literals, operators, helpers and their names, in full."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nautilus.core.expr.nodes import Const, Var
from nautilus.core.types import DType
from nautilus.cuda.ctypes import literal
from nautilus.cuda.expr import Speller, _in_u32
from nautilus.cuda.host.facts import _double
from nautilus.cuda.intrinsics import helper
from nautilus.cuda.text.matrix import WGMMA_TYPES
from nautilus.ma_tile.ir.instruction_tables import WGMMA
from nautilus.ma_tile.ir.layout import SmemLayout

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(("value", "dtype", "text"), [
    (INF, DType.F64, "__longlong_as_double(0x7ff0000000000000LL)"), (INF, DType.F32, "__int_as_float(0x7f800000)"),
    (-INF, DType.F64, "-__longlong_as_double(0x7ff0000000000000LL)"), (-INF, DType.F32, "-__int_as_float(0x7f800000)"),
    (NAN, DType.F64, "__longlong_as_double(0x7ff8000000000000LL)"), (NAN, DType.F32, "__int_as_float(0x7fffffff)"),
    (0.1, DType.F64, "0.1"), (0.1, DType.F32, "0.1f"), (2.0, DType.F32, "2.0f"), (1e30, DType.F32, "1e+30f"),
    (-0.0, DType.F32, "-0.0f"), (1.0, DType.F16, "(f16)0x3c00"), (1.0, DType.BF16, "(bf16)0x3f80"),
    (-(2**31), DType.I32, "(-2147483647 - 1)"), (-(2**31) + 1, DType.I32, "-2147483647"),
    (-(2**63), DType.I64, "(-9223372036854775807LL - 1)"), (7, DType.I64, "7LL"), (True, DType.BOOL, "true"),
])  # fmt: skip
def test_literals(value: float, dtype: DType, text: str) -> None:
    assert literal(value, dtype) == text


def test_a_choice_inside_of_another_one_stands_in_parentheses() -> None:
    s, three, types = Speller(), ["a", "b", "c"], [DType.BOOL] * 3
    inner = s.op("select", three, types, DType.BOOL)
    assert inner == "a ? b : c"
    for n in range(3):
        args = ["x", "y", "z"]
        args[n] = inner
        parts = ["x", "y", "z"]
        parts[n] = "(a ? b : c)"
        assert s.op("select", args, types, DType.BOOL) == f"{parts[0]} ? {parts[1]} : {parts[2]}"
    either = s.op("or", ["a", "b"], types[:2], DType.BOOL)
    assert s.op("select", [either, either, "c"], types, DType.BOOL) == "a || b ? a || b : c"
    assert s.op("and", [either, inner], types[:2], DType.BOOL) == "(a || b) && (a ? b : c)"


@pytest.mark.parametrize(("width", "dtype"), [(128, DType.F16), (64, DType.F16), (32, DType.F16), (64, DType.F32)])
def test_a_swizzle_is_that_of_the_layout(width: int, dtype: DType) -> None:
    found = re.search(r"return (.*);", helper(f"swizzle_{width}").text)
    assert found is not None
    rows, columns = 24, 4 * width // dtype.bytes
    row, column = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    here = {"ROWS": rows, "row": row, "byte": column * dtype.bytes}
    assert np.array_equal(eval(found[1], here), SmemLayout(rows, columns, dtype, width).address(row, column))


@pytest.mark.parametrize(("element", "given", "values"), [
    ("tf32", "const float* a", [f'"r"(__float_as_uint(a[{i}]))' for i in range(4)]),
    ("f16", "const u32* a", [f'"r"(a[{i}])' for i in range(4)]),
    ("s8", "const u32* a", [f'"r"(a[{i}])' for i in range(4)]),
])  # fmt: skip
def test_operands_of_a_warpgroup_mma_in_registers(element: str, given: str, values: list[str]) -> None:
    text = helper(f"wgmma_m64n8_{element}_rs").text
    assert f"* d, {given}, u64 b, int add)" in text
    assert f': {", ".join(values)}, "l"(b), "r"(add));' in text


def test_every_warpgroup_mma_has_a_helper() -> None:
    assert WGMMA_TYPES.keys() == WGMMA.keys()


@pytest.mark.parametrize(
    ("value", "text"), [(INF, "INFINITY"), (-INF, "-INFINITY"), (NAN, "NAN"), (0.1, "0.1"), (-2.0, "-2.0")]
)
def test_numbers_of_the_host(value: float, text: str) -> None:
    assert _double(value) == text


@pytest.mark.parametrize(
    ("low", "high", "fits"), [(0, (1 << 32) - 1, True), (-1, 5, False), (0, 1 << 32, False), (-9, 1 << 40, False)]
)
def test_quotients_without_a_sign(low: int, high: int, fits: bool) -> None:
    x = Var("x", DType.I64)
    assert _in_u32(x, Const(3, DType.I64), {"x": (low, high)}) is fits
    assert _in_u32(Const(3, DType.I64), x, {"x": (low, high)}) is fits
