"""Shifts and masks in place of divisions by powers of two have the same values, and stand where the power fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nautilus.core.expr.bit_fields import bit_fields
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Expr
from nautilus.core.text.expressions import format_expr, parse_expr
from nautilus.core.types import DType

RANGES = {"k": (0, 15), "j": (-3, 4)}
VALUES = np.array([-(2**31), -257, -1, 0, 1, 15, 16, 255, 65537, 2**31 - 1])


def parsed(text: str) -> Expr:
    return parse_expr(text, {"W": DType.I32, "U": DType.U8})


def value(e: Expr) -> Any:
    k, j, w = np.meshgrid(np.arange(16), np.arange(-3, 5), VALUES)
    return np.broadcast_to(evaluate(e, {"k": k, "j": j}, lambda _: w), w.shape)


@pytest.mark.parametrize(("text", "found"), [
    ("W[j] // select(k % 2 == 1, 16, 1) % 16", "bit_and(shift_right(W[j], k % 2 * 4), 15)"),
    ("W[j] // select(k % 2 == 0, 1, 16)", "shift_right(W[j], k % 2 * 4)"),
    ("W[j] // select(k % 2 == 0, 16, 1)", "shift_right(W[j], select(k % 2 == 0, 4, 0))"),
    ("W[j] // select(k % 2 == 1, 16, 2)", "shift_right(W[j], select(k % 2 == 1, 4, 1))"),
    ("W[j] // select(k % 3 == 1, 16, 1)", "shift_right(W[j], select(k % 3 == 1, 4, 0))"),
    ("W[j] // select(k < 3, 8, 2) % 8", "bit_and(shift_right(W[j], select(k < 3, 3, 1)), 7)"),
    ("W[j] // pow(16, k % 8)", None),  # 16 ** 7 is 2 ** 28, and 16 ** 8 does not fit
    ("W[j] // pow(4, k)", None),
    ("W[j] // pow(2, k) % 4", "bit_and(shift_right(W[j], k * 1), 3)"),
    ("W[j] // pow(2, k % 8 * 2) % 4", "bit_and(shift_right(W[j], k % 8 * 2 * 1), 3)"),
    ("W[j] // pow(8, k % 8 + 1)", "same"),
    ("W[j] // pow(2, j % 4 * 9)", None),
    ("W[j] // pow(2, j % 4 * 10)", None),
    ("W[j] // pow(2, j)", "same"),  # j may be negative
    ("W[j] // pow(3, k)", "same"),
    ("W[j] // select(k < 3, 8, 6)", "same"),
    ("W[j] // select(k < 3, 8, k)", "same"),
    ("W[j] // select(k < 3, 8, 2) % 6", "shift_right(W[j], select(k < 3, 3, 1)) % 6"),
    ("W[j] // 16 % 16", "same"),  # no division takes long
    ("(k + j) // select(k < 3, 8, 2)", "same"),  # made of index variables alone
    ("cast<f32>(W[j] // select(k < 3, 8, 2)) + 1.0", "cast<f32>(shift_right(W[j], select(k < 3, 3, 1))) + 1.0"),
])  # fmt: skip
def test_values_stay(text: str, found: str | None) -> None:
    e = parsed(text)
    made = bit_fields(e, RANGES)
    if found == "same":
        assert made is e
    elif found is not None:
        assert format_expr(made) == format_expr(parsed(found))
    assert np.array_equal(value(made), value(e))


@pytest.mark.parametrize(
    ("base", "most", "fits"), [(2, 15, True), (4, 15, True), (8, 15, False), (16, 7, True), (16, 8, False)]
)
def test_a_power_fits_its_type(base: int, most: int, fits: bool) -> None:
    e = parsed(f"W[j] // pow({base}, k)")
    assert (bit_fields(e, {"k": (0, most)}) is e) == (not fits)
    assert bit_fields(e, {}) is e


def test_positions_of_tensors_stay() -> None:
    e = parsed("W[W[j] // select(k < 3, 8, 2)]")
    assert bit_fields(e, RANGES) is e
