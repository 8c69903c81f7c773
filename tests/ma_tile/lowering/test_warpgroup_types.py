"""Warpgroup MMAs of operand types other than 16-bit floats, from the VR-tile IR and from specs to a cubin."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.core.errors import ScheduleError
from nautilus.core.schedule import WarpgroupPlan, WarpPlan
from nautilus.driver import Request, build_cubin, compile_file
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.lowering.lower import lower_raw
from nautilus.ma_tile.lowering.warpgroup import lower_warpgroup_kernel
from nautilus.ma_tile.passes.finalise.allocate_shared import AllocateShared
from nautilus.ma_tile.text import format as ma_format
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
    try:
        lower_warpgroup_kernel(module.kernels[0], {b.name: b for b in module.buffers}, TWO, "sm_90a", **options)
    except ScheduleError as error:
        return error.reason
    return ""


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


def test_tma_copies_do_not_round_so_f32_is_never_a_shared_tf32_operand() -> None:
    assert "has a right operand, %b, that is computed, not loaded" in fault(ROUNDED)


def test_a_left_operand_is_rounded_to_tf32_in_registers() -> None:
    text = ROUNDED.replace("B: f32", "B: tf32").replace("%b0 = load B[j, k] : f32", "%b = load B[j, k] : tf32")
    text = text.replace("    %b = narrow %b0 : tf32[j: 64, k: 64]\n", "")
    low = synchronous(text)
    in_order(low, r"%a = narrow %a0 : tf32.* #i_k", r"mma wgmma\.tf32 %a, smem s_b\[0\]")
    agree(tile(text), low)


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2"])
def test_warps_multiply_8_bit_floats_in_short_sums(dtype: str) -> None:
    """Each step of the loop is added in f32; a target without these MMAs, and strict precision, have none."""
    text = matmul(32, 16, 64, 32, 16, 32, dtype, "f32", "f32", b="jk")
    low = lowered(tile(text), WarpPlan(warps=(2, 1)), "sm_89")
    in_order(
        low, r"smem \w+ : f8e\dm\d\[", rf"%cn_part = mma m16n8k32.{dtype[2:]} .* over k ", r"%cn = add %ci, %cn_part"
    )
    agree(tile(text), low)
    module = tile(text)
    for arch, strict in (("sm_80", False), ("sm_89", True)):
        raw = lower_raw(module, plan(module, WarpPlan(warps=(2, 1))), arch, strict)
        assert "mma fma " in ma_format(raw) and "m16n8k32" not in ma_format(raw)


MIXED = [("f8e4m3", "f8e5m2", "f32"), ("f8e5m2", "f8e4m3", "f32"), ("u8", "i8", "i32"), ("i8", "u8", "i32")]


@pytest.mark.parametrize(("a", "b", "out"), MIXED)
@pytest.mark.parametrize("arch", ["sm_89", "sm_90a"])
def test_one_instruction_multiplies_two_types(a: str, b: str, out: str, arch: str, tmp_path: Path) -> None:
    text = SPEC.format(a, out).replace(f"B: {a}", f"B: {b}")
    result = compile_file(Request(tmp_path / "types.naut", arch, text=text))
    names = tuple({"i8": "s8"}.get(x, x.removeprefix("f8")) for x in (a, b))
    assert f".{names[0]}.{names[1]}" in result.cuda_module.code.replace(f".{names[0]}.{names[0]}", "")
    assert f"mma {'wgmma' if arch == 'sm_90a' else 'm16n8k32'}.{names[0]}.{names[1]} " in ma_format(
        result.modules["ma-tile"]
    )


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
    assert f".{instr}.{instr} " in result.cuda_module.code
    assert all(r.spill_stores == 0 for r in compiled.resources)


def test_what_the_engine_does_not_take_is_planned_again(tmp_path: Path) -> None:
    strict = Request(tmp_path / "types.naut", text=SPEC.format("f8e4m3", "f32"), precision="strict")
    text = SPEC.format("i8", "i32").replace("B: i8[N, K]", "B: i8[K, N]").replace("B[j, k]", "B[k, j]")
    turned = Request(tmp_path / "types.naut", text=text)
    for request, instr in ((strict, "m16n8k16.f16"), (turned, "m16n8k32.s8")):
        result, _ = build_cubin(request)
        assert result.context.fallbacks.steps("C") > 0
        assert f"mma {instr} " in ma_format(result.modules["ma-tile"])
