"""Which conversions and operations round: all values of the small types, and a table of the others."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nautilus.check.bound.exactness import (
    U32,
    U64,
    hardware_error,
    inexact,
    instruction_error,
    is_inexact_number,
    keeps,
    scales,
    unit,
)
from nautilus.core.expr.nodes import Const, Load, Op, Reduce
from nautilus.core.functions import FUNCTIONS
from nautilus.core.numerics import round_to
from nautilus.core.text.expressions import parse_expr
from nautilus.core.types import DType


def eight_bits(mantissa: int, bias: int, largest: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The finite numbers of a float of 8 bits."""
    code, unit = np.arange(128), 1 << mantissa
    exponent, rest = code // unit, code % unit
    size = np.where(exponent == 0, rest * 2.0 ** (1 - bias), (rest + unit) * 2.0 ** (exponent - bias)) / unit
    size = size[size <= largest]
    return np.concatenate([size, -size])


ALL = {
    DType.BOOL: np.array([0.0, 1.0]),
    DType.I8: np.arange(-128.0, 128.0),
    DType.U8: np.arange(256.0),
    DType.I16: np.arange(-(2.0**15), 2.0**15),
    DType.F8E4M3: eight_bits(3, 7, 448.0),
    DType.F8E5M2: eight_bits(2, 15, 57344.0),
    DType.F16: np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64),
    DType.BF16: (np.arange(0x7F80, dtype=np.uint32) << 16).view(np.float32).astype(np.float64),
}
FLOATS = (DType.F8E4M3, DType.F8E5M2, DType.F16, DType.BF16, DType.F32, DType.F64)


@pytest.mark.parametrize("source", ALL)
@pytest.mark.parametrize("target", FLOATS)
def test_a_conversion_is_exact_if_the_type_has_all_values(target: DType, source: DType) -> None:
    finite = ALL[source][np.isfinite(ALL[source])]
    exact = np.array_equal(round_to(finite, target), finite)
    assert keeps(target, source) == exact


@pytest.mark.parametrize(("target", "source", "exact"), [
    (DType.F32, DType.I32, False), (DType.F64, DType.I32, True), (DType.F64, DType.I64, False),
    (DType.F64, DType.F32, True), (DType.F32, DType.F64, False), (DType.F32, DType.I16, True),
])  # fmt: skip
def test_wide_types(target: DType, source: DType, exact: bool) -> None:
    assert keeps(target, source) == exact


TYPES = {"X": DType.F32, "H": DType.F16, "N": DType.I32}


@pytest.mark.parametrize(("text", "rounds"), [
    ("X[i] + X[j]", True), ("X[i] * X[j]", True), ("X[i] * 0.25", False), ("X[i] * 0.3", True), ("X[i] / 8.0", False),
    ("8.0 / X[i]", True), ("-X[i]", False), ("abs(X[i])", False), ("max(X[i], X[j])", False), ("X[i] < X[j]", False),
    ("exp(X[i])", True), ("sqrt(X[i])", True), ("floor(X[i])", False), ("N[i] * N[j]", False),
    ("cast<f32>(H[i])", False), ("cast<f16>(X[i])", True), ("cast<f32>(N[i])", True), ("cast<i32>(X[i])", False),
    ("select(N[i] < 3, X[i], 0.0)", False),
])  # fmt: skip
def test_operations_that_round(text: str, rounds: bool) -> None:
    assert inexact(parse_expr(text, TYPES)) == rounds


def test_sums_and_products_round_and_extremes_do_not() -> None:
    body = Load("X", (), DType.F32)
    assert {op: inexact(Reduce(op, (), None, body, DType.F32)) for op in ("sum", "prod", "max", "min")} == {
        "sum": True, "prod": True, "max": False, "min": False,
    }  # fmt: skip
    assert not inexact(Reduce("sum", (), None, Load("N", (), DType.I32), DType.I32))


@pytest.mark.parametrize(("text", "found"), [
    ("X[i] * 2.0", True), ("0.5 * X[i]", True), ("X[i] / 4.0", True), ("4.0 / X[i]", False), ("X[i] * 3.0", False),
    ("X[i] + 2.0", False),
])  # fmt: skip
def test_scales(text: str, found: bool) -> None:
    e = parse_expr(text, TYPES)
    assert isinstance(e, Op) and scales(e) == found


def test_numbers_that_a_type_does_not_have() -> None:
    assert is_inexact_number(Const(0.1, DType.F32), DType.F32) and is_inexact_number(
        Const(2049.0, DType.F32), DType.F16
    )
    assert not is_inexact_number(Const(2048.0, DType.F32), DType.F16)
    assert not is_inexact_number(Const(math.inf, DType.F32), DType.F16) and not is_inexact_number(
        Const(3, DType.I32), DType.F16
    )


def test_units_and_errors_of_instructions() -> None:
    assert [unit(t) for t in (DType.F16, DType.BF16, DType.F32, DType.F64)] == [2.0**-11, 2.0**-8, U32, U64]
    assert (U32, U64) == (2.0**-24, 2.0**-53)
    for name, f in FUNCTIONS.items():
        assert instruction_error(name, U64, True) == 2.0 * f.ulps[1] * U64
        assert instruction_error(name, U32, False) == 2.0 * f.ulps[0] * U32
        approximate = [a.ulps for a in f.approximations]
        assert instruction_error(name, U32, True) == 2.0 * U32 * max(f.ulps[0], *approximate, 0.0)
        assert hardware_error(name) == max([a.relative for a in f.approximations if a.narrow], default=0.0)
    assert hardware_error("tanh") > 0.0 and instruction_error("add", U32, True) == U32
