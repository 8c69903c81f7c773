"""Matrix states in chunks of steps, at every level, in chunks that are shorter than the rule takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.check.bound.program import in_chunks
from nautilus.check.bound.stated import _stated
from nautilus.check.check import Check
from nautilus.check.run import check_spec
from nautilus.driver import Request
from nautilus.scalar.passes.recurrences import chunk_matrix_states

GATES = """
dim H = 2, T = 36, D = 32, E = 16
input q: bf16[H, T, D], k: bf16[H, T, D], v: bf16[H, T, E], g: f32[H, T]
output Y: f32[H, T, E]
recur {
  S[h, t, d, e] = sigmoid(g[h, t]) * (S[h, t - 1, d, e] if t > 0 else 0) + k[h, t, d] * v[h, t, e]
  Y[h, t, e] = sum[d](q[h, t, d] * S[h, t, d, e])
}
"""
DELTA = """
dim H = 1, T = 36, D = 32, E = 64
input q: bf16[H, T, D], k: bf16[H, T, D], v: bf16[H, T, E], g: f32[H, T], beta: f32[H, T]
output Y: bf16[H, T, E]
assume abs(k[h, t, d]) < inf
recur {
  r[h, t, e] = sigmoid(g[h, t]) * sum[d](k[h, t, d] * S[h, t - 1, d, e]) / 6 if t > 0 else 0
  w[h, t, e] = sigmoid(beta[h, t]) * (v[h, t, e] - r[h, t, e])
  S[h, t, d, e] = (sigmoid(g[h, t]) * S[h, t - 1, d, e] if t > 0 else 0) + k[h, t, d] * w[h, t, e] / 6
  Y[h, t, e] = sum[d](q[h, t, d] * S[h, t, d, e])
}
"""
SPECS = {
    "a delta rule": DELTA,
    "a delta rule in f32, downwards": DELTA.replace("bf16", "f32")
    .replace("t - 1", "t + 1")
    .replace("t > 0", "t < T - 1"),
    "a gate of each step": GATES,
    "a gate of each row, in f32": GATES.replace("sigmoid(g[h, t])", "sigmoid(g[h, t] * k[h, t, d])").replace(
        "bf16", "f32"
    ),
    "a gate of each row, downwards, and keys that are computed": GATES.replace("(g[h, t])", "(k[h, t, d])")
    .replace("+ k[h, t, d] * v", "+ (1 - sigmoid(k[h, t, d])) * v")
    .replace("t - 1", "t + 1")
    .replace("t > 0", "t < T - 1"),
    "a gate of each column": GATES.replace("sigmoid(g[h, t])", "sigmoid(v[h, t, e])"),
    "gates of each row and of each column, downwards, and values that are computed": GATES.replace(
        "sigmoid(g[h, t])", "sigmoid(k[h, t, d]) * sigmoid(v[h, t, e])"
    )
    .replace("* v[h, t, e]\n", "* silu(v[h, t, e])\n")
    .replace("output Y: f32", "output Y: bf16")
    .replace("t - 1", "t + 1")
    .replace("t > 0", "t < T - 1"),
    "slots with a softmax between two states": """
dim T = 36, D = 32, M = 16
input q: bf16[T, D], k: bf16[T, D], v: bf16[T, D], f: bf16[T, M]
output o: bf16[T, D]
a[t, m] = sigmoid(f[t, m])
recur K[t, m, i: D] = a[t, m] * (K[t - 1, m, i] if t > 0 else 0) + (1 - a[t, m]) * k[t, i]
p[t, m] = softmax[m](sum[i](q[t, i] * K[t, m, i]))
recur V[t, m, j: D] = a[t, m] * (V[t - 1, m, j] if t > 0 else 0) + (1 - a[t, m]) * v[t, j]
o[t, j] = sum[m](p[t, m] * V[t, m, j])
""",
    "a delta rule of computed keys, whose rows decay": DELTA.replace("k: bf16[H, T, D]", "key: bf16[H, T, D]")
    .replace("recur {", "k[h, t, d] = tanh(key[h, t, d])\nrecur {")
    .replace("assume abs(k[h, t, d]) < inf\n", "")
    .replace("g: f32[H, T]", "g: f32[H, T, D]")
    .replace("sigmoid(g[h, t]) * sum[d](k[h, t, d] *", "sum[d](k[h, t, d] * sigmoid(g[h, t, d]) *")
    .replace("(sigmoid(g[h, t]) * S", "(sigmoid(g[h, t, d]) * S"),
    "scales, heads that share rows, and the state before": """
dim T = 36, H = 2, P = 16, N = 16
input x: f16[T, H, P], a: f32[T, H], dt: f32[T, H], K: f16[T, N], C: f16[T, N]
output y: f16[T, H, P]
assume abs(a[t, h]) <= 1
recur {
  S[t, h, p, n] = a[t, h] * (S[t - 1, h, p, n] if t > 0 else 0) + sigmoid(dt[t, h]) * x[t, h, p] * K[t, n]
  z[t, h, p] = sum[n]((S[t - 1, h, p, n] if t > 0 else 0) * C[t, n])
}
y[t, h, p] = z[t, h, p] + x[t, h, p]
""",
}


#: of which every pass is validated too; those of the others run on the inputs and have their certificates checked, and
#: what this pass makes of such states is in test_chunk_matrix_states.py
COMPARED = ("a delta rule", "a gate of each row, in f32")
#: kinds of inputs; the other specs have one of them, one after another
KINDS = ("random", "large-logits", "equal")
LENGTH = 16  # steps of a chunk: there are three chunks, and the last one is not full


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_all_levels_are_within_the_stated_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: tuple[str, ...] = KINDS
    if name not in COMPARED:
        kinds = (KINDS[[*SPECS].index(name) % 3],)
        for validation in ("validation", "machine_validation"):
            monkeypatch.setattr(Check, validation, lambda *_: None)
    monkeypatch.setattr(chunk_matrix_states, "chosen_length", lambda *_: LENGTH)
    for cached in (_stated, in_chunks):
        cached.cache_clear()
    request = Request(Path("states.naut"), "sm_90a", text=SPECS[name])
    report = check_spec(request, device="cpu", full_size=True, only=kinds)
    for cached in (_stated, in_chunks):
        cached.cache_clear()
    assert [o.text for o in report.outcomes if o.status == "fail"] == []
    assert "scalar/chunk-matrix-states" in {o.subject for o in report.outcomes}
