"""``j: lo .. hi`` is the condition ``lo <= j < hi``."""

from __future__ import annotations

import pytest

from nautilus.core.errors import DiagnosticError
from nautilus.frontend.printer import format_spec
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec

HEAD = "dim M = 5, N = 7, W = 3\ninput X: f32[M, N], L: i32[M], S: i64[M + 1]\nscalar n: i32\n"


def spec(expr: str, output: str = "O: f32[M]", left: str = "O[i]") -> Spec:
    return load_text(f"{HEAD}output {output}\n{left} = {expr}\n")


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("sum[j: 0 .. L[i]](X[i, j])", "sum[j | 0 <= j < L[i]](X[i, j])"),
        ("sum[j: L[i] - W..n](X[i, j])", "sum[j | L[i] - W <= j < n](X[i, j])"),
        ("max[j: 1..3 | X[i, j] > 0](X[i, j])", "max[j | 1 <= j < 3 and X[i, j] > 0](X[i, j])"),
        ("mean[j: i .. N](X[i, j])", "mean[j | i <= j < N](X[i, j])"),
        ("argmax[j: 0 .. L[i]](X[i, j])", "argmax[j | 0 <= j < L[i]](X[i, j])"),
        ("sum[k, j: 0 .. k](X[k, j])", "sum[k, j | 0 <= j < k](X[k, j])"),
        ("logsumexp[j: i .. i + W](X[i, j])", "logsumexp[j | i <= j < i + W](X[i, j])"),
        ("sum[k: 0 .. W](X[i, k + 1])", "sum[k: W | 0 <= k < W](X[i, k + 1])"),
        ("sum[k: 1 .. 2 * W](X[i, k])", "sum[k | 1 <= k < 6](X[i, k])"),
    ],
)
def test_it_is_the_condition(short: str, long: str) -> None:
    assert spec(short).definitions == spec(long).definitions
    assert load_text(format_spec(spec(short))).definitions == spec(short).definitions


def test_functions_take_it_with_their_condition() -> None:
    first = spec("softmax[j: 0 .. L[i] | j != i](X[i, j])", "O: f32[M, N]", "O[i, j]")
    assert first.definitions == spec(
        "softmax[j | 0 <= j < L[i] and j != i](X[i, j])", "O: f32[M, N]", "O[i, j]"
    ).definitions  # fmt: skip


def test_ends_say_nothing_about_the_range_of_other_variables() -> None:
    assert spec("sum[j: S[i] .. S[i + 1]](X[i, j])").definitions[0].shape == (5,)
    with pytest.raises(DiagnosticError, match="N0303"):
        spec("sum[j | S[i] <= j < S[i + 1]](X[i, j])")
    with pytest.raises(DiagnosticError, match="N0305"):
        spec("sum[j: S[i + 2] .. N](X[i, j])")


def test_without_other_reads_they_do() -> None:
    made = load_text(f"{HEAD}output O: f32[M]\nR[i] = sum[j: 0 .. L[i]](X[0, j])\nO[i] = R[i] * X[i, 0]\n")
    assert made.definitions[0].shape == (5,)
