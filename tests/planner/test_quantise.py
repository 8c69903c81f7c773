"""Rows and blocks that are rounded to 8 bits: the largest magnitude and the rounding share a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.driver import Request, compile_file

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
    result = compile_file(Request(Path("given.naut"), "sm_90a", text=HEAD + SPECS[name]))
    assert len(result.modules["ma-tile"].kernels) == 1
