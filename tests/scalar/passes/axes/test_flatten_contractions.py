"""``flatten-contractions``: which products get one contracted axis, in what order, and what stays."""

from __future__ import annotations

import pytest

from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.axes.flatten_contractions import FlattenContractions
from tests.scalar.expect import expect, sound
from tests.scalar.programs.specs import agree

DIMS = "dim M = 4, N = 5, H = 3, G = 2, D = 64\n"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (
            "input A: f16[H, M, D]\ninput B: f16[H, D, N]\noutput C: f32[M, N]\n"
            "C[i, j] = sum[d, h](A[h, i, d] * B[h, d, j])\n",
            "cast<f32>(A[h_d // 64, i, h_d % 64]) * cast<f32>(B[h_d // 64, h_d % 64, j])",
        ),
        (
            "input A: f16[G, H, M, D]\ninput B: f16[D, G, N, H]\noutput C: f32[M, N]\n"
            "C[i, j] = sum[g, h, d](A[g, h, i, d] * B[d, g, j, h])\n",
            "A[g_h_d // 192, g_h_d // 64 % 3, i, g_h_d % 64]",
        ),
        (  # a shift by the other axis
            "input A: f16[H + M - 1, D]\ninput B: f16[H, D, N]\noutput C: f32[M, N]\n"
            "C[i, j] = sum[h, d](A[i + h, d] * B[h, d, j])\n",
            "cast<f32>(A[i + h_d // 64, h_d % 64]) * cast<f32>(B[h_d // 64, h_d % 64, j])",
        ),
        (  # zeros outside of a tensor
            "input A: f16[M, D]\ninput B: f16[H, D, N]\noutput C: f32[M, N]\n"
            "C[i, j] = sum[h, d | 0 <= i + h - 1 < M](A[i + h - 1, d] * B[h, d, j])\n",
            "where 0 <= i + h_d // 64 - 1 and i + h_d // 64 - 1 < 4",
        ),
        (  # an innermost axis that is padded
            "input A: f16[H, M, 48]\ninput B: f16[H, 48, N]\noutput C: f32[M, N]\n"
            "C[i, j] = sum[h, d | i + h >= 0](A[h, i, d] * B[h, d, j])\n",
            "h_d in 0..192",
        ),
    ],
)
def test_one_loop(text: str, want: str) -> None:
    spec = load_text(DIMS + text)
    p = FlattenContractions().apply(lower(spec))
    sound(p)
    agree(spec, p)
    expect(p, want)


@pytest.mark.parametrize(
    "text",
    [
        "input A: f16[M, D]\ninput B: f16[D, N]\noutput C: f32[M, N]\nC[i, j] = sum[d](A[i, d] * B[d, j])\n",
        "input A: f16[D, M, H]\ninput B: f16[H, D, N]\noutput C: f32[M, N]\n"
        "C[i, j] = sum[h, d](A[d, i, h] * B[h, d, j])\n",  # a step of the loop would leave the innermost axis
        "input A: f16[H, M, D]\ninput B: f16[H, D, N]\noutput C: f32[M, N]\n"
        "C[i, j] = sum[h, d | h < i](A[h, i, d] * B[h, d, j])\n",  # which loses iterations that nothing needs
        "input A: f32[H + M - 1, D]\ninput B: f32[H, D, N]\noutput C: f32[M, N]\n"
        "C[i, j] = sum[h, d](A[i + h, d] * B[h, d, j])\n",
        "input A: f16[H, M + D]\ninput B: f16[H, D, N]\noutput C: f32[M, N]\n"
        "C[i, j] = sum[h, d](A[h, i + d] * B[h, d, j])\n",
        "input A: f16[H, M, D]\noutput y: f32[M]\ny[i] = sum[h, d](A[h, i, d] * A[h, i, d])\n",
    ],
)
def test_left_alone(text: str) -> None:
    p = lower(load_text(DIMS + text))
    assert FlattenContractions().apply(p) is p
