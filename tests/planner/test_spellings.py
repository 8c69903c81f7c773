"""Spellings of one computation: the plan does not depend on how a spec writes its axes, sums, factors and types.

Each spelling must have the engine of the first one of its family, and a predicted time within :data:`SHARE` of its own.
At small odd sizes every level agrees.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.cost.model import estimate
from nautilus.driver import Request, compile_file
from tests.endtoend.support import check

SHARE = 0.05

FAMILIES: dict[str, tuple[str, ...]] = {
    "product of 4096 x 4096 x 4096": (
        "input A: f16[4096, 4096]\ninput B: f16[4096, 4096]\noutput C: f16[4096, 4096]\n"
        "C[i, j] = sum[k](A[i, k] * B[k, j])\n",
        "input A: bf16[4096, 4096]\ninput B: bf16[4096, 4096]\noutput C: bf16[4096, 4096]\n"
        "S: f32[i, j] = sum[k](f32(A[i, k]) * f32(B[j, k]))\nC[i, j] = S[i, j]\n",
        "input A: f16[4096, 1, 4096, 1]\ninput B: f16[4096, 1, 4096]\noutput C: f16[4096, 4096, 1]\n"
        "C[i, j, u] = sum[k, v](A[i, v, k, u] * B[k, v, j])\n",
        "input A: f16[64, 64, 4096]\ninput B: f16[4096, 32, 128]\noutput C: f16[64, 64, 32, 128]\n"
        "S: f16[b, i, h, d] = sum[k](A[b, i, k] * B[k, h, d])\nC[b, i, h, d] = 2 * S[b, i, h, d]\n",
        "input A: f16[4096, 64, 64]\ninput B: f16[64, 64, 4096]\noutput C: f16[4096, 4096]\n"
        "C[i, j] = sum[l, k](A[i, k, l] * B[k, l, j])\n",
        "input A: f16[4096, 32, 128]\ninput B: f16[4096, 32, 128]\noutput C: f16[4096, 4096]\n"
        "C[i, j] = sum[k](sum[l](A[i, k, l] * B[j, k, l]))\n",
    ),
    "product of 4096 x 4096 x 4096, in other orders": (
        "input A: f16[4096, 4096]\ninput B: f16[4096, 4096]\noutput C: f16[4096, 4096]\n"
        "C[i, j] = sum[k](B[k, j] * A[i, k])\n",
        "input A: f16[32, 4096, 128]\ninput B: f16[32, 128, 4096]\noutput C: f16[4096, 4096]\n"
        "C[i, j] = sum[h, d](A[h, i, d] * B[h, d, j])\n",
        "input A: bf16[64, 4096, 64]\ninput B: bf16[64, 64, 4096]\noutput C: bf16[4096, 4096]\n"
        "C[j, i] = sum[d](sum[h](A[h, i, d] * B[d, h, j]))\n",
    ),
    "batched product": (
        "input A: f16[16, 1024, 1024]\ninput B: f16[16, 1024, 1024]\noutput C: f16[16, 1024, 1024]\n"
        "C[h, i, j] = sum[k](A[h, i, k] * B[h, k, j])\n",
        "input A: f16[1024, 16, 1024]\ninput B: f16[1024, 16, 1024]\noutput C: f16[1024, 16, 1024]\n"
        "C[i, h, j] = sum[k](A[i, h, k] * B[k, h, j])\n",
        "input A: f16[4, 1, 4, 1024, 1024]\ninput B: f16[4, 4, 1024, 1024]\noutput C: f16[4, 4, 1024, 1024]\n"
        "C[g, h, i, j] = sum[k, u](A[g, u, h, i, k] * B[g, h, k, j])\n",
    ),
    "convolution with a filter of one pixel": (
        "input X: f16[100352, 256]\ninput K: f16[256, 64]\noutput Y: f16[100352, 64]\n"
        "Y[i, f] = sum[c](X[i, c] * K[c, f])\n",
        "input X: f16[32, 56, 56, 256]\ninput K: f16[1, 1, 256, 64]\noutput Y: f16[32, 56, 56, 64]\n"
        "Y[b: 32, y: 56, x: 56, f] = sum[r, s, c](X[b, y + r, x + s, c] * K[r, s, c, f])\n",
    ),
    "convolution": (
        "input X: f16[8, 56, 56, 64]\ninput K: f16[3, 3, 64, 64]\noutput Y: f16[8, 54, 54, 64]\n"
        "Y[b, y, x, f] = sum[r, s, c](X[b, y + r, x + s, c] * K[r, s, c, f])\n",
        "input X: bf16[8, 56, 56, 64]\ninput K: bf16[1, 3, 3, 64, 64]\noutput Y: bf16[8, 54, 54, 64]\n"
        "Y[b, y, x, f] = sum[u, r](sum[s](sum[c](X[b, y + r, x + s, c] * K[u, r, s, c, f])))\n",
    ),
    "attention": (
        "input Q: f16[2, 16, 4096, 128]\ninput K: f16[2, 16, 4096, 128]\ninput V: f16[2, 16, 4096, 128]\n"
        "output O: f16[2, 16, 4096, 128]\nS[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(128)\n"
        "P[b, h, i, j] = softmax[j](S[b, h, i, j])\nO[b, h, i, d] = sum[j](P[b, h, i, j] * V[b, h, j, d])\n",
        "input Q: bf16[2, 16, 4096, 2, 64]\ninput K: bf16[2, 16, 4096, 2, 64]\ninput V: bf16[2, 16, 4096, 2, 64]\n"
        "output O: bf16[2, 16, 4096, 2, 64]\n"
        "S[b, h, i, j] = sum[c](sum[d](K[b, h, j, c, d] * Q[b, h, i, c, d])) * 128 ** -0.5\n"
        "m[b, h, i] = max[j](S[b, h, i, j])\nE[b, h, i, j] = exp(S[b, h, i, j] - m[b, h, i])\n"
        "O[b, h, i, c, d] = sum[j](E[b, h, i, j] * V[b, h, j, c, d]) / sum[j](E[b, h, i, j])\n",
        "input Q: f16[2, 4, 4, 4096, 128, 1]\ninput K: f16[2, 4, 4, 4096, 128]\ninput V: f16[2, 4, 4, 4096, 128, 1]\n"
        "output O: f16[2, 4, 4, 4096, 128, 1]\n"
        "S: f32[b, g, h, i, j] = sum[d](Q[b, g, h, i, d, 0] / sqrt(128) * K[b, g, h, j, d])\n"
        "P[b, g, h, i, j] = softmax[j](S[b, g, h, i, j])\n"
        "O[b, g, h, i, d, u] = sum[j](P[b, g, h, i, j] * V[b, g, h, j, d, u])\n",
        "input Q: f16[2, 4096, 16, 128]\ninput K: f16[2, 4096, 16, 128]\ninput V: f16[2, 4096, 16, 128]\n"
        "output O: f16[2, 4096, 16, 128]\n"
        "P[b, h, i, j] = softmax[j](sum[d](Q[b, i, h, d] * K[b, j, h, d]) / sqrt(128))\n"
        "O[b, i, h, d] = sum[j](P[b, h, i, j] * V[b, j, h, d])\n",
    ),
    "softmax": (
        "input X: f16[16384, 4096]\noutput Y: f16[16384, 4096]\nY[i, j] = softmax[j](X[i, j])\n",
        "input X: bf16[16384, 4096, 1]\noutput Y: bf16[16384, 4096, 1]\nm: f32[i, u] = max[j](X[i, j, u])\n"
        "E[i, j, u] = exp(X[i, j, u] - m[i, u])\nY[i, j, u] = E[i, j, u] / sum[j](E[i, j, u])\n",
        "input X: f16[64, 256, 32, 128]\noutput Y: f16[64, 256, 32, 128]\n"
        "Y[b, i, h, j] = softmax[h, j](X[b, i, h, j])\n",
    ),
    "norm": (
        "input X: f16[16384, 4096]\noutput Y: f16[16384, 4096]\n"
        "Y[i, j] = X[i, j] * rsqrt(mean[k](X[i, k] * X[i, k]) + 1e-5)\n",
        "input X: bf16[32, 512, 4096]\noutput Y: bf16[32, 512, 4096]\ns: f32[b, i] = sum[k](X[b, i, k] ** 2) / 4096\n"
        "Y[b, i, j] = bf16(f32(X[b, i, j]) / sqrt(s[b, i] + 1e-5))\n",
        "input X: f16[16384, 32, 128, 1]\noutput Y: f16[16384, 32, 128, 1]\n"
        "Y[i, g, j, u] = X[i, g, j, u] * (sum[h](sum[k](square(X[i, h, k, u]) / 4096)) + 1e-5) ** -0.5\n",
    ),
    "sum of everything": (
        "input X: f32[33554432]\noutput y: f32\ny = sum[l](X[l])\n",
        "input X: f32[64, 1, 512, 1024]\noutput y: f32\ny = sum[b, u, m, n](X[b, u, m, n])\n",
        "input X: f32[64, 512, 1024]\noutput y: f32[1]\ny[u: 1] = mean[b](mean[m, n](X[b, m, n]))\n",
    ),
    "sums of columns": (
        "input X: f16[16384, 4096]\noutput y: f32[4096]\ny[i] = sum[l](X[l, i])\n",
        "input X: f16[128, 128, 4096]\noutput y: f32[4096]\ny[i] = sum[k](sum[l](X[k, l, i]))\n",
    ),
    "elementwise": (
        "input X: f16[67108864]\noutput Y: f16[67108864]\nY[l] = silu(X[l])\n",
        "input X: f16[8388608, 8, 1]\noutput Y: f16[8388608, 8, 1]\nY[l, m, u] = silu(X[l, m, u])\n",
    ),
    "decoding": (
        "input Q: f16[8, 32, 1, 128]\ninput K: f16[8, 8, 4096, 128]\ninput V: f16[8, 8, 4096, 128]\n"
        "output O: f16[8, 32, 1, 128]\nP[b, h, i, j] = softmax[j](sum[d](Q[b, h, i, d] * K[b, h // 4, j, d]))\n"
        "O[b, h, i, d] = sum[j](P[b, h, i, j] * V[b, h // 4, j, d])\n",
        "input Q: f16[8, 32, 128]\ninput K: f16[8, 4096, 8, 128]\ninput V: f16[8, 4096, 8, 128]\n"
        "output O: f16[8, 32, 128]\nP[b, h, j] = softmax[j](sum[d](Q[b, h, d] * K[b, j, h // 4, d]))\n"
        "O[b, h, d] = sum[j](P[b, h, j] * V[b, j, h // 4, d])\n",
        "input Q: bf16[8, 8, 4, 1, 128]\ninput K: bf16[8, 8, 4096, 128]\ninput V: bf16[8, 8, 4096, 128]\n"
        "output O: bf16[8, 8, 4, 1, 128]\nP[b, g, h, i, j] = softmax[j](sum[d](Q[b, g, h, i, d] * K[b, g, j, d]))\n"
        "O[b, g, h, i, d] = sum[j](P[b, g, h, i, j] * V[b, g, j, d])\n",
    ),
}


def plan(text: str) -> tuple[float, str]:
    """The predicted seconds, and the engine of the slowest kernel."""
    result = compile_file(Request(Path("given.naut"), "sm_90a", text=text, until="ma-tile"))
    found = estimate(result.modules["ma-tile"], "sm_90a")
    slowest = max(found.kernels, key=lambda k: k.seconds)
    assert result.context.schedule is not None
    engines = {k.name: k.mapping.engine for k in result.context.schedule.kernels}
    return found.seconds, engines[slowest.name]


LEVELS = {
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
    "a contraction over two axes that are apart": """
        dim M = 70, N = 72, H = 3, D = 128
        input A: f16[H, M, D]
        input B: f16[D, H, N]
        output C: f16[N, M]
        C[j, i] = sum[h](sum[d](A[h, i, d] * B[d, h, j]))
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


@pytest.mark.parametrize("family", FAMILIES)
def test_spellings_have_one_plan(family: str) -> None:
    first, *others = (plan(text) for text in FAMILIES[family])
    for seconds, engine in others:
        assert engine == first[1]
        assert seconds == pytest.approx(first[0], rel=SHARE)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", LEVELS)
def test_every_level_agrees(name: str, arch: str) -> None:
    check(LEVELS[name], arch)
