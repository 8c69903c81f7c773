"""Rows and blocks that are rounded to 8 bits: the largest magnitude and the rounding share a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.driver import Request, compile_file
from nautilus.ma_tile.ir.ops import MmaOp, walk_ops

HEAD = "dim M = 64, N = 1024\ninput X: bf16[M, N]\noutput Q: f8e4m3[M, N]\n"
BLOCK = "max[k: 128](abs(X[i, g * 128 + k]))"
SPECS = {
    "rows": "output s: f32[M]\ns[i] = max[j](abs(X[i, j])) / 448\nQ[i, j] = X[i, j] / s[i]\n",
    "blocks": f"output s: f32[M, N // 128]\ns[i, g] = {BLOCK} / 448\nQ[i, j] = X[i, j] / s[i, j // 128]\n",
    "powers of two": "output s: f32[M, N // 128]\n"
    f"s[i, g] = exp2(ceil(log2(max({BLOCK}, 1e-4) / 448)))\nQ[i, j] = X[i, j] / s[i, j // 128]\n",
}


@pytest.mark.parametrize("name", SPECS)
def test_one_kernel(name: str) -> None:
    result = compile_file(Request(Path("given.naut"), "sm_90a", text=HEAD + SPECS[name], until="ma-tile"))
    assert len(result.modules["ma-tile"].kernels) == 1


PRODUCT = "dim M = 512, N = 1024, K = 512\ninput X: bf16[M, K], W: bf16[N, K], V: bf16[N, K]\n"
SUM = "y[i, j] = sum[k](X[i, k] * W[j, k])\n"
PRODUCTS = {
    "blocks": f"output Q: f8e4m3[M, N], s: f32[M, N // 128]\n{SUM}"
    "s[i, g] = max[j: 128](abs(y[i, g * 128 + j])) / 448\nQ[i, j] = y[i, j] / s[i, j // 128]\n",
    "gated": f"output Q: f8e4m3[M, N], s: f32[M, N // 128]\n{SUM}h[i, j] = y[i, j] * sum[k](X[i, k] * V[j, k])\n"
    "s[i, g] = max[j: 128](abs(h[i, g * 128 + j])) / 448\nQ[i, j] = h[i, j] / s[i, j // 128]\n",
    "heads": f"output Y: bf16[M, N]\n{SUM}r[i, h: N // 64] = rsqrt(mean[d: 64](y[i, h * 64 + d] ** 2) + 1e-6)\n"
    "Y[i, c] = y[i, c] * r[i, c // 64]\n",
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_columns_of_a_tile_are_a_group(name: str) -> None:
    text = PRODUCT + PRODUCTS[name]
    text = text if "V[j" in text else text.replace(", V: bf16[N, K]", "")
    result = compile_file(Request(Path("given.naut"), "sm_90a", text=text, until="ma-tile"))
    (kernel,) = result.modules["ma-tile"].kernels
    assert {op.instr for op in walk_ops(kernel.body) if isinstance(op, MmaOp)} == {"wgmma.bf16"}
