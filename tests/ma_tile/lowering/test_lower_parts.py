"""Products of f32 in two parts of tf32: which instruction, where its operands are, and what it computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nautilus.core.errors import VerifyError
from nautilus.core.schedule import WarpPlan
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.interp import module as ma_interp
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse as ma_parse
from nautilus.ma_tile.verify.module import verify
from nautilus.vr_tile.ir import TileModule
from nautilus.vr_tile.passes.parts.decompose_operands import DecomposeOperands
from tests.ma_tile.lowering.support import agree, count, in_order, lowered, tile
from tests.ma_tile.programs.tiles import matmul

INSTR = r"mma m16n8k8\.tf32x2"


def in_parts(text: str) -> TileModule:
    return DecomposeOperands().apply(tile(text))


@pytest.mark.parametrize(
    ("text", "mapping"),
    [
        (matmul(64, 64, 64, 32, 32, 32, "f32", "f32"), WarpPlan(warps=(2, 2))),
        (matmul(64, 64, 64, 32, 32, 32, "f32", "f32", a="ki", b="jk"), WarpPlan(warps=(1, 2), stages=3)),
        (matmul(77, 50, 40, 32, 32, 16, "f32", "f32"), WarpPlan(warps=(2, 1))),
        (matmul(32, 32, 144, 32, 32, 48, "f32", "f32"), WarpPlan(warps=(1, 1), stages=1)),
    ],
)
def test_matmul(text: str, mapping: WarpPlan) -> None:
    module = in_parts(text)
    low = lowered(module, mapping)
    agree(module, low)
    in_order(low, rf"{INSTR} smem s_\w+.*, smem s_")


def test_without_permission_and_in_steps_of_less_than_a_k_step_it_is_scalar() -> None:
    text = matmul(32, 32, 32, 16, 16, 16, "f32", "f32")
    assert count(lowered(tile(text)), INSTR) == 0
    assert count(lowered(in_parts(text)), INSTR) > 0
    assert count(lowered(in_parts(matmul(32, 32, 12, 16, 16, 4, "f32", "f32"))), INSTR) == 0


def test_operands_are_in_shared_memory() -> None:
    text = ma_format(lowered(in_parts(matmul(32, 32, 32, 32, 32, 32, "f32", "f32")), WarpPlan(warps=(1, 1), stages=0)))
    verify(ma_parse(text))
    plain = ma_format(lowered(tile(matmul(32, 32, 32, 32, 32, 32, "tf32", "f32")), WarpPlan(warps=(1, 1), stages=0)))
    with pytest.raises(VerifyError, match="operand and accumulator types"):
        verify(ma_parse(plain.replace("m16n8k8.tf32 ", "m16n8k8.tf32x2 ")))


def test_inf_and_nan_and_the_largest_numbers() -> None:
    module = in_parts(matmul(32, 32, 64, 32, 32, 32, "f32", "f32"))
    low = lowered(module, WarpPlan(warps=(2, 1)))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((32, 64), (64, 32)))
    a[3, 5], a[9, 40], b[50, 2], b[5, 7], a[20, 9] = np.inf, np.nan, -np.inf, 0.0, np.finfo(np.float32).max
    b[9] *= np.float32(1e-30)
    names = [x.name for x in module.buffers]
    got = ma_interp.run_module(low, dict(zip(names[:2], (a, b), strict=True)))[names[2]]
    with np.errstate(all="ignore"):
        want = (a.astype(np.float64)[..., None] * b).sum(1)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_factors_of_attention_are_multiplied_in_parts() -> None:
    spec = """
dim M = 32, N = 48, D = 16
input Q: f32[M, D]
input K: f32[N, D]
input V: f32[N, D]
output O: f32[M, D]
S[i, j] = sum[d](Q[i, d] * K[j, d]) / 4
O[i, d] = sum[j](softmax[j | j <= i + 16](S[i, j]) * V[j, d])
"""
    fast, strict = (
        compile_file(Request(Path("a.naut"), "sm_80", text=spec, until="ma-tile", precision=p)).modules["ma-tile"]
        for p in ("fast", "strict")
    )
    assert count(fast, INSTR) >= 2 and count(strict, INSTR) == 0
    assert count(strict, "mma fma") >= 2
