"""Tiles that many threads read, in loops without products: copied to shared memory, and read from there by vectors."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.driver import Request, compile_file
from nautilus.ma_tile.ir.ops import AsyncCopy, ForOp, GlobalLoad, SharedLoad, walk_ops
from tests.endtoend.support import complaints, travel

PAIRS = """
dim N = {n}, M = {m}, D = {d}
input X: {dtype}[N, D], Y: {dtype}[M, D]
output Z: f32[N, M]
Z[n, m] = sum[d](abs(X[n, d] - Y[m, d]))
"""
REDUCED = """
dim N = 16, M = 72, D = {d}
input X: f32[N, D], Y: f32[M, D], A: f32[M]
output Z: f32[N]
Z[n] = sum[m](exp(-sum[d](square(X[n, d] - Y[m, d]))) * A[m])
"""
STEPS = """
dim B = 2, T = 6, S = 64
input A: f32[S, S], E: f32[B, T, S]
output best: f32[B]
recur V[b, t, s] = E[b, t, s] + max[r](V[b, t - 1, r] + A[r, s]) if t > 0 else E[b, 0, s]
best[b] = max[s](V[b, T - 1, s])
"""

CASES = [  # text, buffers that are copied, elements of a read, whether the kernel runs
    (PAIRS.format(n=17, m=24, d=20, dtype="f32"), {"X", "Y"}, {4}, True),
    (PAIRS.format(n=33, m=40, d=24, dtype="f16"), {"X", "Y"}, {8}, False),
    (PAIRS.format(n=17, m=20, d=7, dtype="f16"), set[str](), {4}, True),  # rows begin anywhere: loaded, then stored
    (PAIRS.format(n=32, m=32, d=16, dtype="f32").replace("[M, D]", "[D, M]").replace("[m, d]", "[d, m]"), {"X", "Y"},
     {4}, False),
    (REDUCED.format(d=24), {"X", "Y"}, {4}, False),
    (REDUCED.format(d=8), {"A", "Y"}, {1, 4}, True),  # the terms of all rows are in registers
    (STEPS, set[str](), set[int](), False),  # no reduction combines what a step loads: registers have it ahead
]  # fmt: skip


@pytest.mark.parametrize(("text", "copies", "widths", "runs"), CASES, ids=map(str, range(len(CASES))))
def test_the_operands_of_pairs_are_in_shared_memory(text: str, copies: set[str], widths: set[int], runs: bool) -> None:
    if runs:
        made = travel(text, "sm_90a")
        assert complaints(made) == []
        module = made.result.modules["ma-tile"]
    else:
        module = compile_file(Request(Path("given.naut"), "sm_90a", text=text, until="ma-tile")).modules["ma-tile"]
    ops = list(walk_ops(module.kernels[0].body))
    assert {op.buffer for op in ops if isinstance(op, AsyncCopy)} == copies
    assert {op.vec for op in ops if isinstance(op, SharedLoad)} == widths
    inner = [op for op in ops if isinstance(op, ForOp) and not any(isinstance(x, ForOp) for x in op.body)]
    loaded = {op.buffer for loop in inner for op in loop.body if isinstance(op, GlobalLoad)}
    assert loaded.isdisjoint(copies)
