"""A Spec prints as text of the language that parses back to an equal Spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.frontend.printer import format_expr, format_spec
from nautilus.frontend.semantics.check import load_spec, load_text
from tests.frontend.references import SPECS

FOLDER = Path(__file__).parents[2] / "specs"
HEAD = "dim M = 5, N = 7\ninput X: f32[M, N]\ninput I: i32[M]\nscalar s: f64 = -2.5\noutput O: f64[M]\n"


@pytest.mark.parametrize("name", SPECS)
def test_shipped_specs_round_trip(name: str) -> None:
    spec = load_spec(FOLDER / f"{name}.naut")
    again = load_text(format_spec(spec), f"{spec.name}.naut")
    assert again == spec and format_spec(again) == format_spec(spec)


@pytest.mark.parametrize(
    "expr",
    [
        "-X[i, 0] ** 2", "(-X[i, 0]) ** 2", "2 ** (-X[i, 0]) ** 2", "(X[i, 0] ** 2) ** 3", "1 - (2 - X[i, 1])",
        "X[i, 0] / (s / 3)", "(i + 1) // 2 % 3 * (4 - i)", "-(i + 1) * -3", "s if not (i < 2 and i > 0) else 1",
        "(s if i < 1 else 2) + (1 if (true if i > 2 else i < 1) else 0)", "f64(f16(X[i, 0]))", "-inf",
        "1 if (i < 2) == (i > 1) else 0", "1 if (i < 2 or i > 3) and i != 2 else 0", "i32(X[i, 0]) + I[i]",
        "sum[j | X[i, j] > 0 and j < i](X[i, j] * j)", "argmax[j](X[i, j]) - mean[j | j > i](X[i, j])",
        "X[I[i], 1] if I[i] >= 0 and I[i] < M and X[I[i], 0] > 0 else 0", "min(X[i, 0], pow(2, i))",
    ],
)  # fmt: skip
def test_expressions_round_trip(expr: str) -> None:
    spec = load_text(HEAD + f"O[i] = {expr}\n")
    assert load_text(format_spec(spec)).definitions == spec.definitions


def test_runtime_dims_and_types_round_trip() -> None:
    text = "dim N = runtime <= 64, R = runtime\ninput X: f16[N, R]\noutput O: f16[N]\n"
    text += "T: f8e4m3[i, j] = X[i, j] * N\nO[i] = softmax[j](T[i, j]) * 2 if N > 1 else 0\n"
    text = text.replace("O[i] =", "P[i, j] =").replace("output O: f16[N]", "output P: f16[N, R]")
    spec = load_text(text)
    assert load_text(format_spec(spec)) == spec


def test_text() -> None:
    spec = load_text(HEAD + "O[i] = sum[j | j <= i](X[i, j]) / -2 if i else 0\n".replace("if i ", "if i > 0 "))
    assert format_expr(spec.definitions[0].expr) == ("f64(sum[j: 7 | j <= i](X[i, j]) / -2.0 if i > 0 else 0.0)")
