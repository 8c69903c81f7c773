"""Specs whose axes collapse, vanish or are summed one inside the other, at odd sizes on every level."""

from __future__ import annotations

import pytest

from tests.endtoend.support import check

SPECS = {
    "rows, and a contraction in two nested sums": """
        dim B = 3, M = 50, K = 9, L = 24, N = 72
        input A: f16[B, M, K, L]
        input W: f16[K, L, N]
        input c: f16[N]
        output C: f16[B, M, N]
        C[b, i, j] = relu(sum[k](sum[l](A[b, i, k, l] * W[k, l, j])) + c[j])
    """,
    "columns": """
        dim M = 150, K = 72, H = 5, D = 40
        input A: f16[M, K, 1]
        input W: f16[K, H, D]
        output C: f32[M, H, D]
        C[i, h, d] = sum[k, u](A[i, k, u] * W[k, h, d])
    """,
    "conditions, and a maximum of everything": """
        dim M = 20, K = 9, L = 13
        input X: f32[M, K, L]
        output y: f32[M]
        output z: f32
        y[i] = sum[k | k <= i](sum[l | l != k](X[i, k, l]))
        z = max[k, l, i](X[i, k, l])
    """,
    "one element under a condition": """
        dim M = 37
        input X: f32[M, 1, 1]
        output Y: f32[M, 1]
        Y[i, u] = sum[v: 1 | i > 4](X[i, u, v] * 2)
    """,
    "a head in two axes": """
        dim B = 2, H = 3, M = 70, N = 90
        input Q: f16[B, H, M, 2, 16]
        input K: f16[B, H, N, 2, 16]
        input V: f16[B, H, N, 2, 16, 1]
        output O: f16[B, H, M, 2, 16, 1]
        S[b, h, i, j] = sum[c, d](Q[b, h, i, c, d] * K[b, h, j, c, d]) / sqrt(32)
        P[b, h, i, j] = softmax[j | j <= i + N - M](S[b, h, i, j])
        O[b, h, i, c, d, u] = sum[j](P[b, h, i, j] * V[b, h, j, c, d, u])
    """,
}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", SPECS)
def test_every_level_agrees(name: str, arch: str) -> None:
    check(SPECS[name], arch)
