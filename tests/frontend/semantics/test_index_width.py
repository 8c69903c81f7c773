"""Expressions of indices have their exact value: i64 where the ranges permit a value outside i32."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.expr.nodes import walk
from nautilus.core.types import DType
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_spec

M, N = 7, 5


def values(text: str, scalar: int = 0) -> list[list[int]]:
    """``text`` as an i64 output at every i and j; ``s`` is an i32 scalar, ``X`` an i32 input of great numbers."""
    spec = load_spec(
        f"dim M = {M}, N = {N}\ninput X: i32[M]\nscalar s: i32\noutput Y: i64[M, N]\n"
        f"Y[i, j] = i64({text}) + 0 * (X[i] + s)\n"
    )
    x = np.arange(2**31 - 4, 2**31 - 4 + M) % 2**31
    found = run_spec(spec, {"X": x}, {"s": scalar})["Y"]
    return [[int(v) for v in row] for row in found]


@pytest.mark.parametrize(
    "text",
    [
        "i * 1000000007", "i * 1000000007 - j * 3000000", "i * 1000000007 // 1000", "(i * 1000000007 + 5) % 97",
        "-(i * 1000000007) // 7", "abs(i * 1000000007 - 4000000000)", "max(i * 1000000007, 3)", "(i + 1000) ** 4",
        "9223372036854775807 - i", "i ** 12", "(1 << i * 6) // 3",
        "1 << i", "(i + 1) * (i + 2) ** 11", "6364136223846793005 // (i + 1)",
        "i32(i * 1000000007 > 5)", "i32(i * 2000000000 <= j * 2000000000)", "(i * 1000000007 if i > 2 else j)",
    ],
)  # fmt: skip
def test_values_are_those_of_the_integers(text: str) -> None:
    python = text.replace("i32(", "int(")
    assert values(text) == [[eval(python, {}, {"i": i, "j": j}) for j in range(N)] for i in range(M)]


@pytest.mark.parametrize("scalar", [-(2**31), -5, 2**31 - 1])
def test_a_scalar_counts_as_an_index(scalar: int) -> None:
    assert values("s + i", scalar) == [[scalar + i] * N for i in range(M)]
    assert values("i32(i - 5 < s)", scalar) == [[int(i - 5 < scalar)] * N for i in range(M)]


@pytest.mark.parametrize(
    ("facts", "wide"),
    [
        ("", True), ("assume s >= 1", False), ("assume 0 < s", False), ("assume s <= 9", True), ("assume s != 0", True),
        ("assume s >= 0 and s <= 64", False), ("assume s >= 1 or s <= 9", True), ("assume s == 4", False),
        ("assume 0 <= s - 1", False), ("assume i16(s) >= 1", True), ("assume s >= 9 and s <= 3", False),
        ("assume x[0] > 0 and s >= 1", True),  # a promise, which the launcher does not check
    ],
)  # fmt: skip
def test_facts_about_scalars_narrow_them(facts: str, wide: bool) -> None:
    text = f"dim N = 9\nscalar s: i32\n{facts}\ninput x: f32[N]\noutput y: f32[N]\n"
    (d,) = load_spec(text + "y[i] = x[i] * max(0, i - s + 1)\n").definitions
    assert any(e.dtype is DType.I64 for e in walk(d.expr)) == wide


@pytest.mark.parametrize(
    ("facts", "wide"),
    [("s <= 9", False), ("9 >= s + 1", False), ("s == 4", False), ("s >= 1", True), ("s < 2147483647", True)],
)
def test_facts_bound_scalars_from_above(facts: str, wide: bool) -> None:
    text = f"dim N = 9\nscalar s: i32\nassume {facts}\ninput x: f32[N]\noutput y: f32[N]\n"
    (d,) = load_spec(text + "y[i] = x[i] * (i + s)\n").definitions
    assert any(e.dtype is DType.I64 for e in walk(d.expr)) == wide


def test_elements_wrap_and_casts_too() -> None:
    assert values("X[0] + 5")[0][0] == 2**31 - 4 + 5 - 2**32
    assert values("i32(i * 1000000007)")[6][0] == (6 * 1000000007 + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("i * 1000", DType.I32), ("i * 1000000007", DType.I64), ("i - j", DType.I32), ("s - i", DType.I64),
        ("i * 1000000007 % 10 + j", DType.I64), ("(i & 7) * 300000000", DType.I32), ("(s & 7) * 300000000", DType.I32),
        ("(s & 7) * 400000000", DType.I64), ("i32(i > 2) * 2147483647", DType.I32), ("i32(i > 2) << 31", DType.I64),
        ("3 // (j - 900) * 800000000", DType.I64),
        ("1 << i", DType.I32), ("1 << i * 6", DType.I64), ("i ** 5", DType.I64),
        ("j ** 2", DType.I32), ("X[i] * 1000000007", DType.I32), ("i8(i) * 1000000007", DType.I32),
    ],
)  # fmt: skip
def test_only_what_may_leave_i32_is_wide(text: str, dtype: DType) -> None:
    spec = load_spec(
        f"dim M = 7, N = 5\ninput X: i32[M]\nscalar s: i32\noutput Z: i64[M, N]\nY[i: M, j: N] = {text}\n"
        "Z[i, j] = Y[i, j] + X[i] + s\n"
    )
    assert spec.definitions[0].expr.dtype is dtype
