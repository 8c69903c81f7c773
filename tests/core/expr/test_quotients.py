"""Quotients that decide about a jump stay divisions."""

from __future__ import annotations

import pytest

from nautilus.core.expr.nodes import Op
from nautilus.core.expr.quotients import decided, is_power_of_two, jumps
from nautilus.core.text.expressions import format_expr, parse_expr
from nautilus.core.types import DType


@pytest.mark.parametrize(("text", "found"), [
    ("round(X[i] / 14.0)", ["X[i] / 14.0"]),
    ("round(X[i] / 16.0)", []),  # its inverse is exact
    ("round(X[i] / -0.5)", []),
    ("round(X[i] / Y[i])", []),
    ("X[i] / 14.0", []),
    ("exp(X[i] / 14.0)", []),
    ("cast<i32>(X[i] / 14.0)", ["X[i] / 14.0"]),
    ("cast<f64>(X[i] / 14.0)", []),
    ("select(X[i] / 14.0 <= 0.5, 1.0, 2.0)", ["X[i] / 14.0"]),
    ("select(X[i] / 14.0 <= Y[i], 1.0, 2.0)", []),  # the largest quotient of a row, say
    ("floor(-max(X[i] / 3.0, 1.0))", ["X[i] / 3.0"]),
    ("floor(abs(-X[i]) / 3.0)", ["abs(-X[i]) / 3.0"]),
    ("floor(X[i] * 2.0 / 3.0)", []),  # a number above the line has an error of its own
    ("floor(cast<f32>(n) / 3.0 + X[i] / 5.0)", ["cast<f32>(n) / 3.0", "X[i] / 5.0"]),
    ("floor(select(n < 3, X[i], 2.0) / 3.0)", ["select(n < 3, X[i], 2.0) / 3.0"]),
])  # fmt: skip
def test_decided_quotients(text: str, found: list[str]) -> None:
    types = {"X": DType.F32, "Y": DType.F32}
    assert {format_expr(e) for e in decided(parse_expr(text, types))} == {
        format_expr(parse_expr(t, types)) for t in found
    }
    assert all(isinstance(e, Op) and e.op == "div" for e in decided(parse_expr(text, types)))


@pytest.mark.parametrize(("value", "exact"), [
    (1.0, True), (0.25, True), (-8.0, True), (0.0, False), (3.0, False), (0.1, False), (float("inf"), False),
    (float("nan"), False), (2.0**-149, True),
])  # fmt: skip
def test_powers_of_two_have_exact_inverses(value: float, exact: bool) -> None:
    assert is_power_of_two(value) == exact


def test_functions_that_jump() -> None:
    f32, i32, boolean = DType.F32, DType.I32, DType.BOOL
    assert jumps("floor", f32, f32, False) and not jumps("exp", f32, f32, False)
    assert jumps("lt", boolean, f32, True) and not jumps("lt", boolean, f32, False)
    assert not jumps("lt", boolean, i32, True) and not jumps("floordiv", i32, i32, True)
    assert jumps("cast", i32, f32, False) and not jumps("cast", DType.F64, f32, False)
