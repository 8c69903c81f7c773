"""The printed text of recurrences: states in registers, or in memory where other threads of the block read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nautilus.check.inputs import generate
from nautilus.core.fallbacks import LIGHTER, Fallbacks
from nautilus.driver import Request, compile_checked
from nautilus.scalar.passes.recurrences import tile_recurrences
from nautilus.scalar.rewriting import recurrence_teams
from nautilus.scalar.rewriting.states import circular_buffers
from tests.endtoend.support import complaints, travel
from tests.simulation.compared import Case, compiled, differences, differing, prepare
from tests.simulation.simulate import MISSING, Fault

GALLERY = Path(__file__).parents[2] / "specs" / "gallery" / "scan" / "recurrence"
#: recurrences of the gallery -> sizes, of which no tile is a multiple
ODD = {
    "delta_rule": {"B": 1, "H": 2, "T": 5, "D": 5},
    "edit_distance": {"B": 2, "M": 5, "N": 5},
    "gru": {"B": 2, "T": 5, "D": 5, "H": 5},
    "viterbi": {"B": 2, "T": 5, "S": 45},
}

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
    "long sums over the state before": """
        dim B = 2, T = 3, H = 100
        input Z: f32[B, T, 2, H], U: f16[2, H, H]
        output h: f32[B, T, H]
        recur {
          G[b, t, g, i] = Z[b, t, g, i] + (sum[j](h[b, t - 1, j] * U[g, j, i]) if t > 0 else 0)
          h[b, t, i] = max(min(G[b, t, 0, i] - G[b, t, 1, i], 2), -2) - (h[b, t - 1, i] if t > 0 else 0)
        }
        """,
    "the state of two steps before, downwards": """
        dim B = 2, T = 7, D = 5, E = 6
        input k: f32[B, T, D], v: f32[B, T, E]
        output Y: f16[B, T, D]
        recur {
          S[b, t, d, e] = k[b, t, d] * v[b, t, e] - (S[b, t + 2, d, e] if t < T - 2 else 0)
          Y[b, t, d] = sum[e](S[b, t, d, e]) + (Y[b, t + 1, d] if t < T - 1 else 0)
        }
        """,
    "best path, and back along it": """
        dim T = 9, S = 50
        input A: f32[S, S], E: f32[T, S]
        output V: f32[T, S], N: i32[T]
        recur V[t, s] = E[t, s] + max[r](V[t - 1, r] + A[r, s]) if t > 0 else E[0, s]
        recur N[t] = argmax[s](V[t, s] + A[s, N[t + 1]]) if t < T - 1 else argmax[s](V[T - 1, s])
        """,
    "chunks of a gate, downwards, of other length at the end": """
        dim B = 2, T = 301
        input x: f32[B, T], g: f32[B, T]
        output h: f32[B, T]
        recur h[b, t] = sigmoid(g[b, t]) * h[b, t + 1] + x[b, t] if t < T - 1 else x[b, t]
        """,
    "chunks of a matrix state": """
        dim H = 2, T = 256, D = 5, E = 3
        input q: f16[H, T, D], k: f16[H, T, D], v: f16[H, T, E], w: f32[H]
        output Y: f16[H, T, E]
        recur {
          S[h, t, d, e] = k[h, t, d] * v[h, t, e] + (sigmoid(w[h]) * S[h, t - 1, d, e] if t > 0 else 0)
          Y[h, t, e] = sum[d](q[h, t, d] * S[h, t, d, e])
        }
        """,
    "vectors of steps: two steps before, a tail, and downwards": """
        dim B = 3, T = 76
        input x: f32[B, T], g: f16[B, T]
        output y: f32[B, T], z: f16[B, T]
        recur y[b, t] = x[b, t] - (0.5 * y[b, t - 1] if t > 0 else 0) + (x[b, t - 2] * g[b, t] if t > 1 else 0)
        recur z[b, t] = max(g[b, t], 0.25 * z[b, t + 1] - g[b, t + 1]) if t < T - 1 else g[b, t]
        """,
    "chunks of a filter": """
        dim B = 2, T = 404
        input x: f32[B, T]
        output y: f32[B, T]
        recur y[b, t] = x[b, t] - (0.5 * y[b, t - 1] if t > 0 else 0) + (0.25 * y[b, t - 2] if t > 1 else 0)
        """,
    "a maximum over a long state": """
        dim T = 4, S = 300
        input E: f32[T, S]
        output V: f32[T, S]
        recur V[t, s] = E[t, s] - max[r](V[t - 1, r]) if t > 0 else E[0, s]
        """,
    "copied rows of steps from the end, and steps that are left": """
        dim B = 2, T = 71, D = 46
        input a: f32[B, T, D], x: f16[B, T, D]
        output h: f32[B, T, D]
        recur h[b, t, d] = a[b, t, d] * h[b, t + 1, d] + x[b, t, d] if t < T - 1 else x[b, t, d]
        """,
}


@pytest.mark.parametrize("name", CASES)
def test_recurrences(name: str, tmp_path: Path) -> None:
    _same(Request(Path("given.naut"), "sm_90a", text=CASES[name]), list(CASES).index(name), tmp_path)


@pytest.mark.parametrize("name", ODD)
def test_the_gallery_at_odd_sizes(name: str, tmp_path: Path) -> None:
    _same(Request(GALLERY / f"{name}.naut", "sm_90a", dims=ODD[name]), len(name), tmp_path)


def test_a_state_that_a_later_level_refused_is_in_memory(tmp_path: Path) -> None:
    given = Request(Path("given.naut"), "sm_90a", text=CASES["gates"], fallbacks=Fallbacks.of({"h": LIGHTER}))
    _same(given, len(CASES), tmp_path)


def _same(request: Request, seed: int, folder: Path) -> None:
    found = differences(prepare(request, integers=True), [0, 1 + seed], folder)
    assert not found, "\n".join(found)


#: gates whose state meets a matrix of 16 bits, and one of f32 that is multiplied in parts; a norm follows, so that a
#: step waits twice; the last slice of a block ends beyond the axis
TEAM = """
    dim B = 17, T = 3, H = 60
    input A: f16[B, T, 2, H], U: f16[H, H], V: f32[H, H]
    output h: f32[B, T, H]
    recur {
      z[b, t, i] = sigmoid(A[b, t, 0, i] + (sum[j](h[b, t - 1, j] * U[j, i]) if t > 0 else 0))
      p[b, t, i] = A[b, t, 1, i] + (sum[j](h[b, t - 1, j] * V[j, i]) if t > 0 else 0)
      s[b, t] = sum[i](p[b, t, i] * p[b, t, i])
      n[b, t, i] = tanh(p[b, t, i] * rsqrt(s[b, t] / H + 0.01))
      h[b, t, i] = (1 - z[b, t, i]) * n[b, t, i] + (z[b, t, i] * h[b, t - 1, i] if t > 0 else 0)
    }
    """


def test_teams_of_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that run at the same time exchange states in global memory; without their barrier they race."""
    monkeypatch.setattr(recurrence_teams, "STEP", -99.0)
    monkeypatch.setattr(recurrence_teams, "SLICES", (32,))
    made = travel(TEAM, "sm_90a")
    assert not complaints(made, stages=("ma-tile",))
    (*_, kernel) = made.result.modules["ma-tile"].kernels
    given = generate(made.result.modules["spec"], "random", 0)
    given.arrays["A"][3, 0, 1, 7] = np.inf  # the sums of the row are not finite from the second step on
    case = Case(made.result, given, False, made.last("ma-tile"))
    assert kernel.team == 2 and case.text.count("team_barrier(h_arrivals") >= 2
    both = compile_checked(Request(Path("spec.naut"), "sm_90a", text=TEAM, variants=2)).cuda_module.code
    alone = case.text.replace("team_barrier(h_arrivals", "; // (h_arrivals")
    for name in ("both", "alone"):
        (tmp_path / name).mkdir()
    program, racing = (compiled(case, tmp_path / name, text) for name, text in (("both", both), ("alone", alone)))
    assert not differing(case, [3], program)
    with pytest.raises(Fault, match="another thread of the launch wrote"):
        differing(case, [0], racing)
    monkeypatch.setenv("MULTIPROCESSORS", "1")
    assert not differing(case, [3], program)
    with pytest.raises(Fault, match="the device does not run all 4 blocks"):
        differing(case, [0], racing)


STENCIL = """
    dim T = 13, N = 6, M = 40
    input X: f32[N, M]
    output Y: f32[N, M]
    recur {
      s[t: T] = sum[i: N, j: M](u[t - 1, i, j] if t > 0 else X[i, j])
      u[t: T, i: N, j: M] = (X[i, j] if t == 0 else 0.5 * u[t - 1, N - 1 - i, j]) + 0.01 * s[t]
    }
    Y[i, j] = u[T - 1, i, j]
    """


def test_blocks_that_share_a_state_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has some rows of a step; a sum over all of them is that of one block.  Their barriers order the steps."""
    monkeypatch.setattr(tile_recurrences, "on_chip", lambda *_, **__: None)
    monkeypatch.setattr(circular_buffers, "LEAST", 0)
    made = travel(STENCIL, "sm_90a")
    assert not complaints(made, stages=("ma-tile",))
    case = Case(made.result, generate(made.result.modules["spec"], "random", 0), False, made.last("ma-tile"))
    kernel = next(k for k in made.result.modules["ma-tile"].kernels if k.team > 1)
    assert kernel.team == 6 and "team_barrier(u_arrivals" in case.text and "t % 3" in case.text
    barriers = case.text.count("team_barrier(u_arrivals")
    for name in ("whole", "without"):
        (tmp_path / name).mkdir()
    assert not differing(case, [3], compiled(case, tmp_path / "whole", case.text))
    racing = compiled(case, tmp_path / "without", case.text.replace("team_barrier(u_arrivals", "; // (u_arrivals"))
    with pytest.raises(Fault, match="another thread of the launch wrote"):
        differing(case, [0], racing)
    assert barriers >= 2


@pytest.mark.parametrize("name", ["gates", "best path, and back along it"])
def test_a_lost_barrier_of_a_step_is_found(name: str, tmp_path: Path) -> None:
    case = prepare(Request(Path("given.naut"), "sm_90a", text=CASES[name]), integers=True)
    before, barrier, behind = case.text.partition("__syncthreads();")
    assert barrier
    with pytest.raises(Fault):
        differences(case, range(5), tmp_path, f"{before};{behind}")
