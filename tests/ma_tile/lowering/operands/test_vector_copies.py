"""What an operand is computed from in a loop of MMAs arrives with the copies of the operands, but for positions.

That is a vector that many threads read, such as scales, and a matrix of bytes.
"""

from __future__ import annotations

from pathlib import Path

from nautilus.driver import Request, compile_file
from nautilus.ma_tile.ir.ops import AsyncCopy, ForOp, GlobalLoad, walk_ops

SCALES = """
dim M = 64, N = 256, K = 1024
input X: bf16[M, K], W: u4[K, N], s: bf16[K // 64, N]
output Y: bf16[M, N]
Y[i, j] = sum[k](X[i, k] * (W[k, j] - 8) * s[k // 64, j])
"""
BYTES = """
dim M = 16, N = 256, K = 1024
input X: bf16[M, K], W: i8[N, K]
output Y: bf16[M, N]
Y[i, j] = sum[k](X[i, k] * W[j, k])
"""
GATHERED = """
dim M = 64, N = 256, K = 1024
input X: f16[M, 4096], W: f16[4096, N], at: i32[K]
output Y: f16[M, N]
assume 0 <= at[k] < 4096
Y[i, j] = sum[k: K](X[i, at[k]] * W[at[k], j])
"""


def accesses(text: str, folder: Path, name: str) -> set[type]:
    """The kinds of accesses to input ``name`` in loops."""
    module = compile_file(Request(folder / "w.naut", "sm_80", text=text, until="ma-tile")).modules["ma-tile"]
    loops = [op for k in module.kernels for op in walk_ops(k.body) if isinstance(op, ForOp)]
    inside = [x for loop in loops for x in walk_ops(loop.body) if isinstance(x, GlobalLoad | AsyncCopy)]
    return {type(x) for x in inside if x.buffer == name}


def test_scales_of_a_row_are_copied_with_the_operands(tmp_path: Path) -> None:
    assert accesses(SCALES, tmp_path, "s") == {AsyncCopy}


def test_positions_of_gathered_rows_are_loaded_where_the_copies_need_them(tmp_path: Path) -> None:
    assert accesses(GATHERED, tmp_path, "at") == {GlobalLoad}


def test_bytes_that_are_converted_are_copied_with_the_operands(tmp_path: Path) -> None:
    assert accesses(BYTES, tmp_path, "W") == {AsyncCopy}


def test_copies_of_few_lines_that_many_blocks_read_stay_in_l1(tmp_path: Path) -> None:
    text = """
        dim B = 64, N = 8192, L = 64
        input x: f32[B, N], h: f32[L]
        output y: f32[B, N * 4]
        y[b, m] = sum[l | (m - l) % 4 == 0 and m >= l](h[l] * x[b, (m - l) // 4])
    """
    module = compile_file(Request(tmp_path / "w.naut", "sm_90a", text=text, until="ma-tile")).modules["ma-tile"]
    copies = [op for op in walk_ops(module.kernels[0].body) if isinstance(op, AsyncCopy)]
    assert {(op.buffer, op.vec, op.cached) for op in copies} == {("h", 4, True), ("x", 1, False)}
