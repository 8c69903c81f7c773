"""``chunk-recurrences`` on random, infinite and missing numbers. What it makes: ``chunk_recurrences.scalar``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from nautilus.check.certificates.rules import check
from nautilus.check.inputs import InputSet, generate
from nautilus.core.numerics import Array
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.recurrences import chunk_recurrences
from nautilus.scalar.passes.recurrences.chunk_recurrences import ChunkRecurrences
from nautilus.scalar.passes.recurrences.members.join_recurrences import JoinRecurrences
from nautilus.scalar.passes.recurrences.tile_recurrences import TileRecurrences
from tests.scalar.expect import sound
from tests.scalar.programs.specs import agree

GATE = """
dim B = 3, T = 70
input x: f32[B, T], g: f32[B, T]
output h: f32[B, T]
recur h[b, t] = sigmoid(g[b, t]) * h[b, t - 1] + x[b, t] if t > 0 else x[b, 0]
"""
CASES = {
    "a gate": GATE,
    "a factor relative to a running maximum": """
dim B = 3, T = 64, D = 4
input f: f32[B, T], i: f32[B, T], x: f32[B, T, D]
output N: f32[B, T, D]
recur m[b, t] = max(f[b, t] + m[b, t - 1], i[b, t]) if t > 0 else i[b, t]
a[b, t] = exp(f[b, t] - (m[b, t] - (m[b, t - 1] if t > 0 else 0)))
recur N[b, t, d] = a[b, t] * (N[b, t - 1, d] if t > 0 else 0) + exp(i[b, t] - m[b, t]) * x[b, t, d]
""",
    "a factor relative to the largest element so far": """
dim B = 3, T = 64
input x: f32[B, T]
output s: f32[B, T]
m[b, t: T] = max[u | u <= t](x[b, u])
recur s[b, t] = exp(m[b, t - 1] - m[b, t]) * s[b, t - 1] + exp(x[b, t] - m[b, t]) if t > 0 else 1
""",
    "returns": """
dim B = 3, T = 64
input r: f32[B, T], done: bool[B, T]
scalar gamma: f32 = 0.99
output R: f32[B, T]
assume 0 <= gamma and gamma <= 1
recur R[b, t] = r[b, t] + (0 if done[b, t] else gamma * R[b, t + 1] if t < T - 1 else 0)
""",
    "a matrix": """
dim B = 1, H = 2, T = 48, D = 4, E = 3
input q: f32[B, H, T, D], k: f32[B, H, T, D], v: f32[B, H, T, E], w: f32[H]
output Y: f16[B, H, T, E]
recur {
  S[b, h, t, d, e] = k[b, h, t, d] * v[b, h, t, e] + (exp(-exp(w[h])) * S[b, h, t - 1, d, e] if t > 0 else 0)
  Y[b, h, t, e] = sum[d](q[b, h, t, d] * S[b, h, t, d, e])
}
""",
    "a matrix with a gate for each row, and its reads before it": """
dim H = 2, T = 48, D = 4, E = 3
input q: f32[H, T, D], k: f32[H, T, D], v: f32[H, T, E], g: f32[H, T, D]
output Y: f32[H, T, E]
recur {
  a[h, t, d] = sigmoid(g[h, t, d])
  Y[h, t, e: E] = sum[d](q[h, t, d] * S[h, t - 1, d, e]) if t > 0 else 0
  S[h, t, d, e] = a[h, t, d] * (S[h, t - 1, d, e] if t > 0 else 0) - k[h, t, d] * v[h, t, e]
}
""",
    "reductions in a last chunk that is shorter": """
dim B = 1, H = 2, T = 50, D = 4, E = 3
input q: f32[B, H, T, D], k: f32[B, H, T, D], v: f32[B, H, T, E], w: f32[H]
output Y: f16[B, H, T, E], Z: f32[B, H, T]
recur {
  S[b, h, t, d, e] = k[b, h, t, d] * v[b, h, t, e] + (exp(-exp(w[h])) * S[b, h, t - 1, d, e] if t > 0 else 0)
  Y[b, h, t, e] = sum[d](q[b, h, t, d] * S[b, h, t, d, e])
  Z[b, h, t] = max[e](Y[b, h, t, e])
}
""",
    "two states": """
dim B = 3, T = 50
input x: f32[B, T]
output s: f32[B, T], y: f32[B, T]
recur {
  s[b, t] = x[b, t] + (s[b, t - 1] if t > 0 else 0)
  m[b, t: T] = 0.9 * m[b, t - 1] + 0.1 * x[b, t] if t > 0 else x[b, t]
  y[b, t] = s[b, t] * m[b, t] - (m[b, t - 1] if t > 0 else 0)
}
""",
    "positions in episodes": """
dim B = 3, T = 70
input done: bool[B, T], a: i32[B, T]
output p: i32[B, T]
recur p[b, t] = 0 if done[b, t] else a[b, t] * p[b, t - 1] - 3 * (p[b, t - 1] + 7) if t > 0 else 1
""",
    "the largest sum of neighbours so far, and the smallest in an episode": """
dim B = 3, T = 70
input x: f32[B, T], done: bool[B, T], n: i32[B, T]
output h: f32[B, T], l: f32[B, T], k: i32[B, T]
recur h[b, t] = max(0, (h[b, t - 1] if t > 0 else 0) + x[b, t] - 0.5)
recur l[b, t] = min(x[b, t], l[b, t + 1] - x[b, t] if t < T - 1 and not done[b, t] else x[b, t])
recur k[b, t] = max(n[b, t], k[b, t - 1] if t > 0 and not done[b, t] else -5)
""",
    "a peak that decays": """
dim B = 3, T = 50
input x: f32[B, T], g: f32[B, T]
output h: f32[B, T]
recur h[b, t] = max(sigmoid(g[b, t]) * (h[b, t - 1] if t > 0 else 3), x[b, t])
""",
    "a promise": GATE.replace("sigmoid(g[b, t])", "g[b, t]") + "assume abs(g[b, t]) <= 1\n",
}
#: recurrences that stay as they are
OTHERS = {
    "a factor of any size": GATE.replace("sigmoid(g[b, t])", "g[b, t]"),
    "a promise of one side": GATE.replace("sigmoid(g[b, t])", "g[b, t]") + "assume g[b, t] <= 1\n",
    "a factor relative to the largest element of a window": """
dim B = 3, T = 64
input x: f32[B, T]
output s: f32[B, T]
m[b, t: T] = max[u | u <= t and u >= t - 2](x[b, u])
recur s[b, t] = exp(m[b, t - 1] - m[b, t]) * s[b, t - 1] + x[b, t] if t > 0 else 1
""",
    "a square": GATE.replace("* h[b, t - 1]", "* h[b, t - 1] * h[b, t - 1]"),
    "a function": GATE.replace("* h[b, t - 1]", "* tanh(h[b, t - 1])"),
    "a condition": GATE.replace("* h[b, t - 1]", "* (h[b, t - 1] if h[b, t - 1] > 0 else 0)"),
    "a rounded state": GATE.replace("h: f32[B", "h: f16[B"),
    "two steps before": GATE.replace("h[b, t - 1]", "h[b, t - 2]").replace("t > 0", "t > 1"),
    "a last chunk that is shorter, whose reductions later steps read": """
dim T = 50, D = 4, E = 3
input q: f32[T, D], k: f32[T, D], v: f32[T, E]
output Z: f32[T, E]
recur {
  S[t, d, e] = k[t, d] * v[t, e] + (S[t - 1, d, e] if t > 0 else 0)
  Y[t, e: E] = sum[d](q[t, d] * S[t, d, e])
  Z[t, e] = Y[t, e] - (Y[t - 1, e] if t > 0 else 0)
}
""",
}


def chunked(spec: Spec, length: int = 16) -> tuple[Program, Program]:
    before = JoinRecurrences().apply(lower(spec))
    after, certificates = ChunkRecurrences(spec, length).derive(before)
    assert all(check(c).ok for c in certificates)
    return before, after


@pytest.mark.parametrize("name", CASES)
def test_chunks_are_the_recurrence(name: str) -> None:
    spec = load_text(CASES[name])
    before, after = chunked(spec)
    assert after is not before
    sound(after)
    inputs = generate(spec, "random").arrays
    agree(spec, after, inputs, 1e-5)  # an output of f32 that is read again is f32 or better
    tiled = TileRecurrences().apply(after)
    sound(tiled)
    agree(spec, tiled, inputs, 1e-5)


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay_as_they_are(name: str) -> None:
    before, after = chunked(load_text(OTHERS[name]))
    assert after is before


@pytest.mark.parametrize("name", ["a gate", "returns", "two states", "a factor relative to the largest element so far"])
@pytest.mark.parametrize("seed", range(4))
def test_inf_and_nan_are_where_the_recurrence_has_them(name: str, seed: int) -> None:
    spec = load_text(CASES[name])
    before, after = chunked(spec)
    given = spoilt(generate(spec, "random", seed), seed)
    numbers = {**given.scalars, **given.sizes}
    want, got = (run_program(p, given.arrays, numbers, "typed") for p in (before, TileRecurrences().apply(after)))
    same_special_values(spec, want, got)


@pytest.mark.parametrize("name", ["a gate", "returns", "two states", "positions in episodes"])
@pytest.mark.parametrize("again", [8, 1000])
def test_the_ends_of_chunks_run_in_chunks(name: str, again: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 or more steps, 16 chunks, of whose ends there are 4 chunks, which have 4 ends.

    ``again``: from how many chunks on the last one has an end too.
    """
    monkeypatch.setattr(chunk_recurrences, "chunk_length", lambda *_: 4)
    monkeypatch.setattr(chunk_recurrences, "AGAIN", again)
    spec = load_text(CASES[name])
    before, after = chunked(spec, 4)
    assert sum(b.name.endswith("_end_end") for b in after.buffers) >= 1
    sound(after)
    tiled = TileRecurrences().apply(after)
    agree(spec, tiled, generate(spec, "random").arrays, 1e-5)
    if name == "positions in episodes":
        return
    for seed in range(3):
        given = spoilt(generate(spec, "random", seed), seed)
        numbers = {**given.scalars, **given.sizes}
        want, got = (run_program(p, given.arrays, numbers, "typed") for p in (before, tiled))
        same_special_values(spec, want, got)


def same_special_values(spec: Spec, want: Mapping[str, Array], got: Mapping[str, Array]) -> None:
    """The outputs ``got`` have NaN and inf where ``want`` has them; the other elements agree to 1e-5 of the largest."""
    for t in spec.outputs:
        a, b = (np.asarray(x[t.name], np.float64) for x in (want, got))
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        np.testing.assert_array_equal(np.where(np.isinf(a), a, 0), np.where(np.isinf(b), b, 0))
        good = np.isfinite(a)
        np.testing.assert_allclose(b[good], a[good], atol=1e-5 * np.abs(a[good]).max(initial=0.0))


def spoilt(given: InputSet, seed: int) -> InputSet:
    """``given`` with inf, NaN, zeros and numbers that make factors 0 or very small at a few places."""
    rng = np.random.default_rng(seed)
    special = np.array([np.inf, -np.inf, np.nan, 0.0, 1e-30, -1.0, -200.0, -60.0])

    def some(name: str, x: Array) -> Array:
        flat = x.astype(np.float64).reshape(-1)
        at = rng.integers(0, flat.size, 1 + flat.size // 50)
        flat[at] = rng.choice(special, at.size)
        return flat.reshape(x.shape)

    arrays = {n: some(n, x) if x.dtype.kind == "f" else x for n, x in given.arrays.items()}
    return InputSet(given.kind, given.seed, arrays, given.scalars, given.sizes)


def test_a_long_recurrence_with_few_positions_is_cut_and_one_that_fills_the_gpu_is_not() -> None:
    for b, t, cut in ((3, 4096, True), (1 << 15, 512, False), (3, 16, False)):
        spec = load_text(GATE.replace("B = 3, T = 70", f"B = {b}, T = {t}"))
        before, after = chunked(spec, 0)
        assert (after is not before) is cut


# Recurrences of matrices whose many positions fill the multiprocessors.
SLOTS = """
dim B = 4, H = 4, T = 2048, D = 64, M = 64
input Q: bf16[B, H, T, D], K: bf16[B, H, T, D], V: bf16[B, H, T, D], F: f32[B, H, T, M]
output O: bf16[B, H, T, D]
assume 0 <= F[b, h, t, m] <= 1
recur SK[b, h, t, m, d] = F[b, h, t, m] * (SK[b, h, t - 1, m, d] if t > 0 else 0) + (1 - F[b, h, t, m]) * K[b, h, t, d]
recur SV[b, h, t, m, d] = F[b, h, t, m] * (SV[b, h, t - 1, m, d] if t > 0 else 0) + (1 - F[b, h, t, m]) * V[b, h, t, d]
P[b, h, t, m] = softmax[m](sum[d](SK[b, h, t, m, d] * Q[b, h, t, d]))
O[b, h, t, d] = sum[m](P[b, h, t, m] * SV[b, h, t, m, d])
"""
# Long steps of few positions.
MINIMAL = """
dim B = 16, T = 2048, D = 512
input f: f32[B, T, D], i: f32[B, T, D], x: f32[B, T, D]
output h: f32[B, T, D]
recur h[b, t, d] = (
    sigmoid(f[b, t, d]) / (sigmoid(f[b, t, d]) + sigmoid(i[b, t, d])) * h[b, t - 1, d]
    + sigmoid(i[b, t, d]) / (sigmoid(f[b, t, d]) + sigmoid(i[b, t, d])) * x[b, t, d] if t > 0 else x[b, 0, d])
"""


def test_steps_whose_work_or_states_take_most_of_their_time_are_not_cut() -> None:
    """A step reads tensors beside its operations, and states that another kernel reads are in memory."""
    before, after = chunked(load_text(SLOTS, "given.naut"), 0)
    assert after is before
    before, after = chunked(load_text(MINIMAL, "given.naut"), 0)
    assert after is not before


@pytest.mark.parametrize(("steps", "chunks"), [(512, 8), (16384, 64), (48000, 125)])
def test_the_states_at_the_ends_of_chunks_are_few(steps: int, chunks: int) -> None:
    """A step over them takes as long as several steps in chunks, which are whole lines of memory."""
    text = f"dim B = 64, N = {steps}\ninput X: f32[B, N]\noutput Y: f32[B, N]\n"
    text += "recur Y[b, n] = 0.5 * Y[b, n - 1] + X[b, n] if n > 0 else X[b, 0]\n"
    made = ChunkRecurrences().apply(lower(load_text(text, "given.naut")))
    shapes = {b.name: b.shape for b in made.buffers}
    assert shapes["Y_end"] == (64, chunks - 1) and "Y_end_end" not in shapes


def test_a_sequence_of_millions_of_steps_has_chunks_of_chunks() -> None:
    text = "dim N = 8388608\ninput A: f32[N]\ninput X: f32[N]\noutput Y: f32[N]\nassume abs(A[n]) <= 1\n"
    text += "recur Y[n] = A[n] * Y[n - 1] + X[n] if n > 0 else X[0]\n"
    spec = load_text(text, "given.naut")
    shapes = {b.name: b.shape for b in ChunkRecurrences(spec).apply(lower(spec)).buffers}
    assert [shapes[f"Y{'_end' * n}"] for n in (1, 2, 3)] == [(1 << 17,), (1024,), (15,)]
