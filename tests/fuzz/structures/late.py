"""Rows, columns and positions of tensors whose sizes are known only at launch."""

from __future__ import annotations

import random

_BODIES = (
    "O[i] = sum[j](X[i, j])", "O[i] = sum[j](X[i, j] * V[j]) / 8", "O[i] = max(max[j](X[i, j]), -9)",
    "O[i] = clamp(logsumexp[j](X[i, j]), -9, 9)", "O[i] = sum[j | j <= i](X[i, j])", "O[i] = variance[j](X[i, j])",
    "O[i] = sum[j](softmax[j](X[i, j]) * V[j])", "O[i] = X[i, N - 1 - i] if i < N else 0",
    "O[i] = sum[j: N, k: N | k <= j and j <= i](X[i, j] * V[k]) / 64", "O[i] = sum[j](X[i, j]) + sum[j: N](V[j]) * i",
    "O[i] = sum[j | abs(j - i) <= 3 or j % 7 == 0](X[i, j])", "O[i] = f32(argmax[j](X[i, j]) if N > 0 else -1)",
    "O[i] = sum[j](X[i, j] / (1 + N))", "O[i] = max[u: M | u <= i](X[u, N // 2] if N > 0 else 0)",
)  # fmt: skip


def program(r: random.Random) -> str:
    """The text of a spec."""
    late = r.choice(("", "runtime <= "))
    body, dtype = r.choice(_BODIES), r.choice(("f32", "f16", "bf16", "f8e5m2"))
    lines = [f"dim N = runtime <= {r.choice((1, 5, 77, 130, 300))}", f"dim M = {late}{r.choice((1, 3, 33, 130))}"]
    lines += [f"input X: {dtype}[M, N]"] + [f"input V: {dtype}[N]"] * ("V[" in body)
    return "\n".join([*lines, "output O: f32[M]", body])
