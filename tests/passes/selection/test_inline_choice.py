"""Definitions that are stored because the cost model says so: the candidates; decisions of a given schedule stay."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nautilus.core.schedule import Schedule
from nautilus.driver import Request, compile_file
from nautilus.frontend.semantics.check import load_text
from nautilus.passes.manager import Context
from nautilus.passes.selection import split_choice
from nautilus.passes.selection.inline_choice import candidates, choose
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.inline import default_inline
from nautilus.scalar.passes.operands.store_operands import AGAIN
from nautilus.scalar.rewriting import find_defs
from nautilus.tune.search.trial_lowering import trials_of

GATED = """
dim M = 2048, D = 1024, F = 2048
input X: bf16[M, D]
input Wg: bf16[F, D]
input Wu: bf16[F, D]
input Wd: bf16[D, F]
output Y: bf16[M, D]
H{type}[i, f] = silu(sum[k](X[i, k] * Wg[f, k])) * sum[k](X[i, k] * Wu[f, k])
Y[i, j] = sum[f](H[i, f] * Wd[j, f])
"""
PAIRS = """
dim M = 256, C = 32, S = 512, Z = 128
input A: bf16[S, M, C], W: bf16[C, C, Z]
output Y: bf16[M, M, Z]
T: bf16[i, j, c, d: C] = mean[s](A[s, i, c] * A[s, j, d])
Y[i, j, z] = sum[c, d](T[i, j, c, d] * W[c, d, z])
"""
ATTENTION = """
dim M = 1024, N = 1024, D = 64
input Q: bf16[M, D]
input K: bf16[N, D]
input V: bf16[N, D]
output O: bf16[M, D]
P: bf16[i, j] = softmax[j](sum[d](Q[i, d] * K[j, d]))
O[i, d] = sum[j](P[i, j] * V[j, d])
"""
SCALED = """
dim H = 8, M = 2048, N = 2048, D = 128
const G = 2
input Q: bf16[H, M, D]
input K: bf16[H // 2, N, D]
input V: bf16[H // 2, N, D]
input s: f32[N, D]
output O: bf16[H, M, D]
Ks: bf16[h, j, d] = K[h, j, d] * cos(s[j, d])
Qs: bf16[h, i, d] = tanh(Q[h, i, d])
P[h, i, j] = softmax[j](sum[d](Qs[h, i, d] * Ks[h // G, j, d]))
O[h, i, d] = sum[j](P[h, i, j] * V[h // G, j, d])
"""
COPY = """
dim M = 1024, N = 1024, K = 1024
input A: f32[M, K]
input B: bf16[N, K]
output C: f32[M, N]
T: bf16[i, k] = A[i, k]
C[i, j] = sum[k](T[i, k] * B[j, k])
"""
ENDED = """
dim H = 8, M = 1024, D = 128, E = 1024
input X: bf16[H, M, D]
input V: bf16[H, D, D]
input W: bf16[H, D, E]
output Y: bf16[M, E]
O: bf16[h, i, d] = sum[c](X[h, i, c] * V[h, c, d])
Y[i, e] = sum[h, d](O[h, i, d] * W[h, d, e])
"""
PROJECTED = """
dim H = 16, M = 64, N = 512, D = 64, E = 96
input Q: bf16[H, M, D]
input K: bf16[H, N, D]
input V: bf16[H, N, D]
input W: bf16[H, D, E]
output Y: bf16[H, M, E]
S: bf16[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / 8
A: bf16[h, i, d] = sum[j](softmax[j](S[h, i, j]) * V[h, j, d])
Y[h, i, e] = sum[d](A[h, i, d] * W[h, d, e])
"""
NORMED = """
dim H = 8, M = 4096, D = 128
input Q: bf16[H, M, D]
input K: bf16[H, M, D]
input V: bf16[H, M, D]
output O: bf16[H, M, D]
Qn: bf16[h, i, d] = Q[h, i, d] * rsqrt(mean[e: D](Q[h, i, e] ** 2) + 1e-6)
S[h, i, j] = sum[d](Qn[h, i, d] * K[h, j, d]) / 8
P[h, i, j] = softmax[j](S[h, i, j])
O[h, i, d] = sum[j](P[h, i, j] * V[h, j, d])
"""
SAMPLED = """
dim P = 16384, T = 9, C = 128, O = 128, R = 4096
input X: f16[R, C]
input at: i32[P, T]
input near: f16[P, T]
input K: f16[T, C, O]
output Y: f16[P, O]
S[p, k, c] = near[p, k] * X[at[p, k], c] + (1 - near[p, k]) * X[at[p, k] + 1, c]
Y[p, o] = sum[k, c](S[p, k, c] * K[k, c, o])
"""
PAGED = """
dim M = 1024, N = 1024, D = 64, R = 4096
input Q: f16[M, D]
input K: f16[R, D]
input V: f16[N, D]
input scale: f16[R, N]
input at: i32[N]
output O: f16[M, D]
S[i, j] = sum[d](Q[i, d] * K[at[j], d]) * scale[at[j], j]
O[i, d] = sum[j](softmax[j](S[i, j]) * V[j, d])
"""
WINDOWS = """
dim B = 16, T = 1500, C = 512
input X: f16[B, T, 2 * C]
input W: f16[31, C]
output Y: f16[B, T, C]
A[b, t, c: C] = X[b, t, c] * sigmoid(X[b, t, c + C])
Y[b, t: T, c] = sum[k: 31 | 0 <= t + k - 15 < T](A[b, t + k - 15, c] * W[k, c])
"""
RANKS = """
dim T = 8192, E = 256
input X: f32[T, E]
output R: f32[T, E]
s[t, e] = softplus(X[t, e])
R[t, e] = sum[f](1 if s[t, f] > s[t, e] else 0)
"""
FEW_RANKS = RANKS.replace("T = 8192, E = 256", "T = 16, E = 1024")  # of which each has its own elements
DEPTHWISE = """
dim B = 8, H = 56, W = 56, C = 128, K = 64
input X: bf16[B, H, W, C]
input D: bf16[3, C]
input P: bf16[C, K]
output Y: bf16[B, H, W, K]
T: bf16[b, y, x: W, c] = relu(sum[r: 3 | 0 <= x + r - 1 < W](X[b, y, x + r - 1, c] * D[r, c]))
Y[b, y, x, k] = sum[c](T[b, y, x, c] * P[c, k])
"""
TYPED = GATED.replace("{type}", ": bf16")


def request(text: str, schedule: Schedule | None = None) -> Request:
    return Request(Path("given.naut"), "sm_90a", text=text, schedule=schedule, until="ma-tile")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TYPED, ("H",)),
        (GATED.replace("{type}", ""), ()),
        (ATTENTION, ()),
        (COPY, ()),
        (ENDED, ("O",)),
        (PROJECTED, ("A",)),
        (NORMED, ("Qn",)),
        (SAMPLED, ("S",)),
        (PAGED, ()),
        (WINDOWS, ("A",)),
        (WINDOWS.replace("X[b, t, c] * sigmoid(X[b, t, c + C])", "2 * X[b, t, c]"), ()),
        (SAMPLED.replace("O = 128", "O = 64"), ()),
        (SAMPLED.replace("at[p, k]", "p // 8"), ()),
        (RANKS, ("s",)),
        (RANKS.replace("E = 256", "E = 32"), ()),
        (RANKS.replace("softplus(X[t, e])", "X[t, e]"), ()),
        (FEW_RANKS, ("s",)),
        (FEW_RANKS.replace("T = 16", "T = 2"), ()),
        (PAIRS, ("T",)),
        (PAIRS.replace("T: bf16", "T"), ()),
        (DEPTHWISE, ("T",)),
        (DEPTHWISE.replace("T: bf16", "T"), ()),
        (DEPTHWISE.replace("x + r - 1", "r"), ()),
    ],
)
def test_candidates_are_small_computed_and_read_often(text: str, expected: tuple[str, ...]) -> None:
    origin = trials_of(request(text, Schedule(inline=())))[0].origin
    assert origin is not None
    found = candidates(find_defs(origin.before), default_inline(origin.before))
    assert found == expected
    assert AGAIN > 256  # the widest head, so that scores are never stored


def test_an_operand_is_stored_where_that_is_faster() -> None:
    stored = compile_file(request(SCALED)).context.schedule
    assert stored is not None and "Ks" not in (stored.inline or ())
    assert [k.ops[0] for k in stored.kernels] == ["Ks", "Qs"]
    assert stored.kernels[1].mapping.engine == "warpgroup"


def test_samples_of_gathered_rows_are_stored_where_that_is_faster() -> None:
    """In the fragments of an MMA a thread would load 4 bytes of a gathered row at a time."""
    stored = compile_file(request(SAMPLED)).context.schedule
    assert stored is not None and "S" not in (stored.inline or ())
    assert stored.kernels[-1].mapping.engine == "warpgroup"


def test_an_operand_is_stored_where_the_plan_without_it_has_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product with the operand inside of its loop may need more conservative plans than a trial makes."""

    def priced(program: Program, context: Context, *_: object) -> SimpleNamespace | None:
        assert context.schedule is not None
        inline = context.schedule.inline or ()
        return None if "Qn" in inline else SimpleNamespace(inline=inline, seconds=1.0)

    monkeypatch.setattr(split_choice, "priced_after", priced)
    before = lower(load_text(NORMED))
    context = Context("sm_90a", schedule=Schedule(inline=default_inline(before)))
    made: Any = choose(before, context)
    assert made is not None and "Qn" not in made.inline


def test_what_the_schedule_says_is_inlined_stays() -> None:
    given = compile_file(request(COPY, Schedule(inline=("T",)))).context.schedule
    assert given is not None and given.inline == ("T",)


CELL = """
dim B = 512, D = {terms}, H = 1024
input x: f16[B, D]
input h: f16[B, D]
input W: f16[4 * H, D]
input U: f16[4 * H, D]
output y: f16[B, H]
z[b, g: 4 * H] = sum[k](x[b, k] * W[g, k]) + sum[k](h[b, k] * U[g, k])
y[b, j: H] = sigmoid(z[b, j]) * tanh(z[b, j + H]) + z[b, j + 2 * H] * z[b, j + 3 * H]
"""


@pytest.mark.parametrize(("terms", "kernels"), [(1024, ["z", "y"]), (4096, ["z_sum", "z_sum_2", "y"])])
def test_sums_of_products_for_gates_are_one_kernel(terms: int, kernels: list[str]) -> None:
    """Long products of one result have kernels of their own, whose tiles are faster."""
    made = compile_file(Request(Path("given.naut"), "sm_90a", text=CELL.format(terms=terms), until="ma-tile"))
    assert [k.name for k in made.modules["ma-tile"].kernels] == kernels


EDGES = """
dim H = 4096, W = {width}
input x: f32[H, W]
output e: f32[H, W]
gx[i: H, j: W] = x[i, min(j + 1, W - 1)] - x[i, max(j - 1, 0)]
gy[i: H, j: W] = x[min(i + 1, H - 1), j] - x[max(i - 1, 0), j]
m[i, j] = sqrt(gx[i, j] ** 2 + gy[i, j] ** 2)
e[i, j] = max(m[i, j], m[i, max(j - 1, 0)], m[i, min(j + 1, W - 1)], m[max(i - 1, 0), j], m[min(i + 1, H - 1), j])
"""


@pytest.mark.parametrize(("width", "stored"), [(4096, True), (8, False)])
def test_a_stencil_of_a_stencil_is_stored_where_that_is_faster(width: int, stored: bool) -> None:
    """A small image takes less time than a launch."""
    given = compile_file(request(EDGES.format(width=width))).context.schedule
    assert given is not None and ("m" not in (given.inline or ())) is stored
