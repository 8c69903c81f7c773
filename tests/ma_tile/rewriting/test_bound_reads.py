"""Loops under ``j < len[b]`` end at values that each block reads, on both engines and in every role."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from nautilus.check.inputs import generate
from nautilus.check.levels import Level, Trace, run
from nautilus.core.expr.nodes import free_vars, loads, walk
from nautilus.driver import Request, Result, compile_file
from nautilus.frontend.interp import run_spec
from nautilus.ma_tile.ir.ops import AsyncCopy, ForOp, MmaOp, RolesOp, walk_ops

SEGMENTS = """
dim B = 3, N = 9000
input X: f32[B, N], start: i32[B], stop: i64[B]
output O: f32[B], P: f32[B]
O[b] = sum[j: start[b] .. stop[b]](X[b, j])
P[b] = max[j: start[b] .. stop[b] | j != 5](X[b, j])
"""
ATTENTION = """
dim B = 2, M = 128, N = 300, D = 64
input Q: f16[B, M, D], K: f16[B, N, D], V: f16[B, N, D], len: i32[B]
output O: f16[B, M, D]
S[b, i, j] = sum[d](Q[b, i, d] * K[b, j, d]) / 8
P[b, i, j] = softmax[j | j < len[b] and j - i <= len[b] - M](S[b, i, j])
O[b, i, d] = sum[j](P[b, i, j] * V[b, j, d])
"""

GROUPED = """
dim T = 256, E = 3, K = 128, N = 128
input X: bf16[T, K], W: bf16[E, K, N], off: i32[E + 1]
output Y: f32[T, N]
Y[t, n] = sum[e: E | off[e] <= t < off[e + 1]](sum[k](X[t, k] * W[e, k, n]))
"""

SINKS = """
dim B = 2, G = 4, N = 1024, D = 64
input Q: f16[B, G, D], K: f16[B, N, D], V: f16[B, N, D], len: i32[B]
output O: f16[B, G, D]
S[b, g, j] = sum[d](Q[b, g, d] * K[b, j, d]) / 8
P[b, g, j] = softmax[j | j < len[b] and (j < 4 or j >= len[b] - 300)](S[b, g, j])
O[b, g, d] = sum[j](P[b, g, j] * V[b, j, d])
"""


@cache
def compiled(text: str, arch: str) -> tuple[Result, Level]:
    trace = Trace()
    result = compile_file(Request(Path("given.naut"), arch, text=text), [trace])
    return result, [x for x in trace.levels if x.stage == "ma-tile"][-1]


@pytest.mark.parametrize(("text", "roles"), [(SEGMENTS, False), (ATTENTION, True)])
def test_every_loop_ends_at_what_a_block_reads(text: str, roles: bool) -> None:
    kernel = compiled(text, "sm_90a")[0].modules["ma-tile"].kernels[0]
    read = {name for name, e in kernel.decode if loads(e)}
    ends = [op.hi for op in walk_ops(kernel.body) if isinstance(op, ForOp)]
    assert read and ends and all(free_vars(e) & read for e in ends)
    assert any(isinstance(op, RolesOp) for op in walk_ops(kernel.body)) is roles


@pytest.mark.parametrize(
    ("start", "stop"), [([0, 4097, 8999], [9000, 4098, 9001]), ([-(1 << 31), 5, 9000], [1 << 40, 3, -(1 << 62)])]
)
def test_any_contents(start: list[int], stop: list[int]) -> None:
    result, last = compiled(SEGMENTS, "sm_90a")
    given = generate(result.modules["spec"])
    arrays = {**given.arrays, "start": np.array(start), "stop": np.array(stop)}
    got, want = run(last, replace(given, arrays=arrays), "typed"), run_spec(result.modules["spec"], arrays)
    assert np.allclose(got["O"], want["O"], atol=1e-3) and np.array_equal(got["P"], want["P"])


def test_the_copies_of_several_ranges_choose_their_block_by_few_variables() -> None:
    result, last = compiled(SINKS, "sm_90a")
    copies = [op for op in walk_ops(result.modules["ma-tile"].kernels[0].body) if isinstance(op, AsyncCopy)]
    assert copies and all(sum(1 for e in op.index for _ in walk(e)) < 40 for op in copies)
    given = generate(result.modules["spec"])
    for lengths in ([2, 1024], [-7, 1 << 30]):
        arrays = {**given.arrays, "len": np.array(lengths)}
        got, want = run(last, replace(given, arrays=arrays), "typed"), run_spec(result.modules["spec"], arrays)
        assert np.allclose(got["O"], want["O"], atol=1e-3)


@pytest.mark.parametrize("off", [[0, 100, 100, 250], [-5, 200, 130, 900]])
def test_rows_of_groups_multiply_only_their_own_matrices(off: list[int]) -> None:
    result, last = compiled(GROUPED, "sm_90a")
    products = [op for op in walk_ops(result.modules["ma-tile"].kernels[0].body) if isinstance(op, MmaOp)]
    assert products and all(op.instr.startswith("wgmma") for op in products)
    given = generate(result.modules["spec"])
    arrays = {**given.arrays, "off": np.array(off)}
    got, want = run(last, replace(given, arrays=arrays), "typed"), run_spec(result.modules["spec"], arrays)
    assert np.allclose(got["Y"], want["Y"], atol=1e-3)
