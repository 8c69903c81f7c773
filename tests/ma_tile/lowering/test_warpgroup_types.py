"""Warpgroup MMAs of operand types other than 16-bit floats, from the VR-tile IR and from specs to a cubin."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.core.schedule import WarpgroupPlan, WarpPlan
from nautilus.driver import Request, build_cubin
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.lowering.lower import lower_raw
from nautilus.ma_tile.lowering.warpgroup import warpgroup_fault
from nautilus.ma_tile.passes.finalise.allocate_shared import AllocateShared
from nautilus.ma_tile.text.printer import format as ma_format
from tests.ma_tile.lowering.support import agree, in_order, lowered, plan, tile
from tests.ma_tile.programs.tiles import matmul

TWO = WarpgroupPlan(warpgroups=2)


def synchronous(text: str) -> MemModule:
    module = tile(text)
    return AllocateShared().apply(lower_raw(module, plan(module, TWO), "sm_90a"))


TYPES = [
    ("bf16", "f32", "f32", "bf16"),
    ("tf32", "f32", "f32", "tf32"),
    ("f8e4m3", "f32", "f32", "e4m3"),
    ("f8e5m2", "f16", "f32", "e5m2"),
    ("i8", "i32", "i32", "s8"),
    ("u8", "i32", "i32", "u8"),
]


@pytest.mark.parametrize(("dtype", "out", "acc", "instr"), TYPES)
def test_products_agree(dtype: str, out: str, acc: str, instr: str) -> None:
    text = matmul(128, 64, 128, 128, 64, 64, dtype, out, acc, b="jk")
    low = synchronous(text)
    in_order(low, rf"mma wgmma\.{instr} smem s_at\[consumer\]")
    agree(tile(text), low)


def fault(text: str, **options: bool) -> str:
    module = tile(text)
    return warpgroup_fault(module.kernels[0], {b.name: b for b in module.buffers}, TWO, "sm_90a", **options) or ""


@pytest.mark.parametrize(("dtype", "out", "acc", "instr"), TYPES)
def test_short_sums_are_refused_where_precision_is_strict(dtype: str, out: str, acc: str, instr: str) -> None:
    """The tensor core adds products of 8-bit floats with about 14 bits."""
    why = fault(matmul(128, 64, 128, 128, 64, 64, dtype, out, acc, b="jk"), strict=True)
    assert (f"by wgmma.{instr} has sums of fewer bits than f32" in why) == (instr in ("e4m3", "e5m2"))


def test_chains_of_short_sums_are_joined_in_f32() -> None:
    text = matmul(128, 64, 256, 128, 64, 128, "f8e4m3", "f32", "f32", b="jk")
    low = synchronous(text)
    in_order(low, r"%cn_part = mma wgmma\.e4m3 .* over k :", r"%cn = add %ci, %cn_part")
    agree(tile(text), low)
    deep = matmul(128, 64, 256, 128, 64, 256, "f8e4m3", "f32", "f32", b="jk")
    assert "would add 256 products in few bits, more than 128" in fault(deep)


#: C = A . B' with f32 rounded to tf32 on the way
ROUNDED = """
module rounded {
  input A: f32[128, 64]
  input B: f32[64, 64]
  output C: f32[128, 64]
  kernel C grid(i0: 1) axes(i: 128, j: 64, k: 64) {
    %a0 = load A[i0 * 128 + i, k] : f32[i: 128, k: 64]
    %b0 = load B[j, k] : f32[j: 64, k: 64]
    %a = narrow %a0 : tf32[i: 128, k: 64]
    %b = narrow %b0 : tf32[j: 64, k: 64]
    %s = dot %a, %b over k : f32[i: 128, j: 64]
    store C[i0 * 128 + i, j], %s
  }
}
"""


def test_bulk_copies_do_not_round_so_f32_is_never_a_shared_tf32_operand() -> None:
    assert "has a right operand, %b, that is computed, not loaded" in fault(ROUNDED)


def test_a_left_operand_is_rounded_to_tf32_in_registers() -> None:
    text = ROUNDED.replace("B: f32", "B: tf32").replace("%b0 = load B[j, k] : f32", "%b = load B[j, k] : tf32")
    text = text.replace("    %b = narrow %b0 : tf32[j: 64, k: 64]\n", "")
    low = synchronous(text)
    in_order(low, r"%a = narrow %a0 : tf32.* #i_k", r"mma wgmma\.tf32 %a, smem s_b\[0\]")
    agree(tile(text), low)


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2"])
def test_without_the_engine_products_of_8_bit_floats_are_scalar(dtype: str) -> None:
    text = matmul(32, 16, 32, 32, 16, 32, dtype, "f32", "f32", b="jk")
    low = lowered(tile(text), WarpPlan(warps=(2, 1)), "sm_90")
    in_order(low, r"smem \w+ : f8e\dm\d\[", r"mma fma ")
    agree(tile(text), low)


SPEC = """
dim M = 256, N = 192, K = 256
input A: {0}[M, K]
input B: {0}[N, K]
output C: {1}[M, N]
C[i, j] = sum[k](A[i, k] * B[j, k])
"""


@pytest.mark.parametrize(("dtype", "out", "acc", "instr"), [*TYPES, ("f8e4m3", "f8e4m3", "f32", "e4m3")])
def test_from_a_spec_to_a_cubin(dtype: str, out: str, acc: str, instr: str, tmp_path: Path) -> None:
    result, compiled = build_cubin(Request(tmp_path / "types.naut", text=SPEC.format(dtype, out)))
    assert f"mma wgmma.{instr} " in ma_format(result.modules["ma-tile"])
    assert f".{instr}.{instr} " in result.cuda
    assert all(r.spill_stores == 0 for r in compiled.resources)


def test_what_the_engine_does_not_take_is_planned_again(tmp_path: Path) -> None:
    strict = Request(tmp_path / "types.naut", text=SPEC.format("f8e4m3", "f32"), precision="strict")
    text = SPEC.format("i8", "i32").replace("B: i8[N, K]", "B: i8[K, N]").replace("B[j, k]", "B[k, j]")
    turned = Request(tmp_path / "types.naut", text=text)
    for request, instr in ((strict, "fma"), (turned, "m16n8k32.s8")):
        result, _ = build_cubin(request)
        assert result.context.fallbacks.steps("C") > 0
        assert f"mma {instr} " in ma_format(result.modules["ma-tile"])
