"""The printed text of recurrences: states in global memory, exchanged by the threads of a block behind barriers."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.driver import Request
from tests.simulation.compared import differences, prepare
from tests.simulation.simulate import MISSING

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "a compiler")

#: title -> text
CASES = {
    "linear": """
        dim B = 3, T = 9
        input a: f32[B, T], x: f32[B, T]
        output h: f32[B, T]
        recur h[b, t] = a[b, t] * h[b, t - 1] + x[b, t] if t > 0 else x[b, 0]
        """,
    "gates": """
        dim B = 2, T = 5, H = 40
        input Z: f32[B, T, 4, H], U: f16[H, 4, H]
        output h: f16[B, T, H]
        recur {
          G[b, t, g, i] = Z[b, t, g, i] + (sum[j](h[b, t - 1, j] * U[j, g, i]) if t > 0 else 0)
          c[b, t, i] = G[b, t, 0, i] * G[b, t, 1, i] + (G[b, t, 2, i] * c[b, t - 1, i] if t > 0 else 0)
          h[b, t, i] = max(min(G[b, t, 3, i] * c[b, t, i], 2), -2)
        }
        """,
    "best path, and back along it": """
        dim T = 9, S = 50
        input A: f32[S, S], E: f32[T, S]
        output V: f32[T, S], N: i32[T]
        recur V[t, s] = E[t, s] + max[r](V[t - 1, r] + A[r, s]) if t > 0 else E[0, s]
        recur N[t] = argmax[s](V[t, s] + A[s, N[t + 1]]) if t < T - 1 else argmax[s](V[T - 1, s])
        """,
    "a maximum over a long state": """
        dim T = 4, S = 300
        input E: f32[T, S]
        output V: f32[T, S]
        recur V[t, s] = E[t, s] - max[r](V[t - 1, r]) if t > 0 else E[0, s]
        """,
}


@pytest.mark.parametrize("name", CASES)
def test_recurrences(name: str, tmp_path: Path) -> None:
    case = prepare(Request(Path("given.naut"), "sm_90a", text=CASES[name]), integers=True)
    found = differences(case, [0, 1 + list(CASES).index(name)], tmp_path)
    assert not found, "\n".join(found)
