"""``unroll-recurrences`` beside the recurrence that it replaces. What it makes: ``unroll_recurrences.scalar``."""

from __future__ import annotations

import pytest

from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.analysis.definitions import is_recurrence
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.recurrences.unroll_recurrences import UnrollRecurrences
from nautilus.scalar.verify import verify
from tests.scalar.programs.specs import agree

CASES = {
    "a stencil": """
dim T = 5, N = 9
input F: f32[N, N]
output U: f32[N, N]
recur u[t: T, y: N, x: N] = (0.25 * (u[t - 1, y - 1, x] + u[t - 1, y + 1, x] + u[t - 1, y, x - 1] + u[t - 1, y, x + 1])
  + F[y, x] if 0 < y < N - 1 and 0 < x < N - 1 else 1) if t > 0 else F[y, x]
U[y, x] = u[T - 1, y, x] + u[1, y, x]
""",
    "scales of rows and columns": """
dim T = 4, N = 6, M = 7
input C: f32[N, M]
output P: f32[N, M]
recur {
    u[t: T, i: N] = 1 / sum[j: M](exp(-C[i, j]) * v[t - 1, j]) if t > 0 else 1 / sum[j: M](exp(-C[i, j]))
    v[t: T, j: M] = 1 / sum[i: N](exp(-C[i, j]) * u[t, i])
}
P[i, j] = u[T - 1, i] * exp(-C[i, j]) * v[T - 1, j]
""",
    "downwards, in a batch, two steps back": """
dim B = 2, T = 6, N = 5
input X: f32[B, N]
output Y: f32[B, N]
recur w[b: B, t: T, i: N] = (w[b, t + 1, (i + 1) % N] - 0.5 * w[b, t + 2, i] if t < T - 2 else X[b, i] * t)
Y[b, i] = w[b, 0, i]
""",
    "outputs, of which one is read at all steps": """
dim T = 4, N = 6
input A: f64[N, N], x: f64[N]
output u: f64[T, N], h: f64[N, T], S: f64
recur {
    u[t, i] = sum[j](A[i, j] * u[t - 1, j]) / n[t - 1] if t > 0 else x[i]
    n[t: T] = 1 + max[i](abs(u[t, i]))
    h[i, t] = 0.5 * h[(i + 1) % N, t - 1] + u[t, i] if t > 0 else x[i]
}
S = sum[t](n[t])
""",
}


@pytest.mark.parametrize("name", CASES)
def test_steps(name: str) -> None:
    spec = load_text(CASES[name])
    program = lower(spec)
    made = UnrollRecurrences(always=True).apply(program)
    assert any(map(is_recurrence, program.kernels)) and not any(map(is_recurrence, made.kernels))
    verify(made)
    agree(spec, made)
