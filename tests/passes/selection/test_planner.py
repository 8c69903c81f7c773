"""Kernels of which only smaller plans are legal, and their definitions apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from nautilus.core.fallbacks import EPILOGUES, LIGHTER, SMALLER, Fallbacks
from nautilus.driver import Request, compile_file
from nautilus.passes.manager import Context
from nautilus.passes.selection import planner
from nautilus.planner.kernels import plan_kernels
from nautilus.scalar.ir import Program

# The powers of 201 frequencies of each frame, and 80 weighted sums of them, for which a block has all frequencies.
SPECTRUM = """
    dim B = 16, F = 1000, N = 400, H = 160, M = 80
    const K = N // 2 + 1, S = (F - 1) * H + N
    input x: f32[B, S]
    input w: f32[N]
    input C: f32[K, N]
    input D: f32[K, N]
    input W: f32[M, K]
    output Y: f32[B, M, F]
    re[b, f: F, k] = sum[n](x[b, f * H + n] * w[n] * C[k, n])
    im[b, f: F, k] = sum[n](x[b, f * H + n] * w[n] * D[k, n])
    Y[b, m, f] = log(max(sum[k](W[m, k] * (re[b, f, k] ** 2 + im[b, f, k] ** 2)), 1e-10))
"""


def test_products_are_apart_where_one_kernel_has_small_tiles_only() -> None:
    result = compile_file(Request(Path("given.naut"), "sm_90a", text=SPECTRUM, until="ma-tile"))
    assert result.context.schedule is not None
    assert "re" in {k.name for k in result.context.schedule.kernels}
    assert SMALLER not in dict(result.context.fallbacks.taken).values()
    assert EPILOGUES in dict(result.context.fallbacks.taken).values()


# Attention of 256 columns with normalised queries and keys, over a window.
NORMALISED = """
    dim H = 16, G = 8, L = 16384, D = 256, W = 1024
    input Q: bf16[L, H, D], K: bf16[L, G, D], V: bf16[L, G, D]
    output O: bf16[L, H, D]
    q: bf16[t, h, d] = rms_norm[d](Q[t, h, d], 1e-6) / 16
    k: bf16[t, h, d] = rms_norm[d](K[t, h, d], 1e-6)
    S[h, t, u] = sum[d](q[t, h, d] * k[u, h // (H // G), d])
    O[t, h, d] = sum[u](softmax[u | t - W < u and u <= t](S[h, t, u]) * V[u, h // (H // G), d])
"""


def test_an_operand_that_leaves_too_few_registers_is_stored() -> None:
    """A refused kernel, which held its queries in registers, has smaller tiles and reads them from memory."""
    request = Request(Path("given.naut"), "sm_90a", text=NORMALISED, until="ma-tile")
    for taken, names in (({}, ["k", "O"]), ({"O": LIGHTER}, ["q", "k", "O"])):
        result = compile_file(replace(request, fallbacks=Fallbacks.of(taken)))
        assert result.context.schedule is not None
        kernels = result.context.schedule.kernels
        assert [x.name for x in kernels] == names and kernels[-1].mapping.engine == "warpgroup"


# A convolution of bytes with a zero point: the sum of the weights, of which a kernel of products has whole tiles.
ZERO_POINT = """
    dim B = 32, H = 58, C = 128, F = 128
    const O = H - 2
    input X: u8[B, H, H, C]
    input W: i8[3, 3, C, F]
    output Y: f16[B, O, O, F]
    Y[b, y: O, x: O, f] = f32(sum[r: 3, q: 3, c]((i32(X[b, y + r, x + q, c]) - 128) * i32(W[r, q, c, f])))
"""


def test_what_leaves_a_kernel_of_small_tiles_is_split() -> None:
    """The splits of the rules are those for the kernels that the program has in the end."""
    result = compile_file(Request(Path("given.naut"), "sm_90a", text=ZERO_POINT, until="ma-tile"))
    assert result.context.schedule is not None
    assert [c.op for c in result.context.schedule.splits or ()] == ["Y_sum_term"]


# A linear recurrence in chunks: the products within a chunk have the longest axes, which ``pack`` cuts.
GATED = """
    dim B = 4, T = 4096, H = 8, D = 128
    input q: bf16[B, T, H, D], k: bf16[B, T, H, D], v: bf16[B, T, H, D], g: f32[B, T, H, D]
    output o: bf16[B, T, H, D]
    assume -1 <= g[b, t, h, d] <= 0
    recur S[b, t, h, d, e: D] = (
        exp(g[b, t, h, d]) * S[b, t - 1, h, d, e] + k[b, t, h, d] * v[b, t, h, e] if t > 0
        else k[b, 0, h, d] * v[b, 0, h, e])
    o[b, t, h, e] = sum[d](q[b, t, h, d] * S[b, t, h, d, e])
"""


def test_packs_of_a_trial_without_splits_are_chosen_where_they_apply() -> None:
    """The trial of the pass ``inline`` has packs of a program in which other passes have cut the axes."""
    result = compile_file(Request(Path("given.naut"), "sm_90a", text=GATED, until="ma-tile"))
    assert result.context.schedule is not None and result.context.schedule.kernels


# The powers of frames: two products of f32 with one operand in common.
POWERS = """
    dim B = 16, F = {frames}, N = 400, K = 201, H = 160
    const S = (F - 1) * H + N
    input x: f32[B, S], C: f32[K, N], D: f32[K, N]
    output P: f32[B, K, F]
    re[b, k, f: F] = sum[n](x[b, f * H + n] * C[k, n])
    im[b, k, f: F] = sum[n](x[b, f * H + n] * D[k, n])
    P[b, k, f] = re[b, k, f] ** 2 + im[b, k, f] ** 2
"""


def test_several_products_of_f32_are_apart_where_parts_are_stored() -> None:
    request = Request(Path("given.naut"), "sm_90a", text=POWERS.format(frames=1000), until="ma-tile")
    for precision, engine in (("fast", "warpgroup"), ("strict", "warp")):
        schedule = compile_file(replace(request, precision=precision)).context.schedule
        assert schedule is not None
        products = [k for k in schedule.kernels if {"re", "im"} & {*k.ops}]
        assert len(products) == (2 if precision == "fast" else 1)
        assert all(k.mapping.engine == engine for k in products)


def test_few_products_of_f32_share_a_kernel() -> None:
    request = Request(Path("given.naut"), "sm_90a", text=POWERS.format(frames=20), until="ma-tile")
    schedule = compile_file(request).context.schedule
    assert schedule is not None and any({"re", "im"} <= {*k.ops} for k in schedule.kernels)


# Queries and keys of which pairs of elements turn.
TURNED = """
    dim H = 256, M = 1024, D = 64
    input Q: f16[H, M, D], K: f16[H, M, D], V: f16[H, M, D], c: f32[M, D], s: f32[M, D]
    output O: f16[H, M, D]
    def turned(X, h, t, d) = X[h, t, d] * c[t, d] + (X[h, t, d + 1] if d % 2 == 0 else X[h, t, d - 1]) * s[t, d]
    q: f16[h, t, d] = turned(Q, h, t, d)
    k: f16[h, t, d] = turned(K, h, t, d)
    O[h, i, d] = sum[j](softmax[j](sum[d](q[h, i, d] * k[h, j, d])) * V[h, j, d])
"""


@pytest.mark.parametrize(("stored", "names"), [(1.0, ["q", "k", "O"]), (3.0, ["k", "O"])])
def test_operands_of_pairs_are_stored_where_that_is_faster(
    stored: float, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def priced(program: Program, context: Context, after: str, attempts: int = 1) -> SimpleNamespace:
        made = plan_kernels(program, context.schedule, context.arch, context.fallbacks)
        seconds = stored if context.fallbacks.stored else 2.0
        return SimpleNamespace(schedule=made, fallbacks=context.fallbacks, seconds=seconds)

    monkeypatch.setattr(planner, "attempt", priced)
    made = compile_file(Request(Path("given.naut"), "sm_90a", text=TURNED, until="scalar")).context.schedule
    assert made is not None and [k.name for k in made.kernels] == names
