"""Lowering for the engine ``warpgroup``: warpgroup MMAs, TMA loads, consumers that share rows."""

from __future__ import annotations

import re

import pytest

from nautilus.core.errors import ScheduleError
from nautilus.core.schedule import MappingPlan, WarpgroupPlan
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.lowering.consumers import split_axis
from nautilus.ma_tile.lowering.lower import lower_raw
from nautilus.ma_tile.lowering.warpgroup import lower_warpgroup_kernel
from nautilus.ma_tile.passes.finalise.allocate_shared import AllocateShared
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse as ma_parse
from nautilus.ma_tile.verify.module import verify as ma_verify
from nautilus.vr_tile.ir import DotOp, StoreOp, TileModule, walk_ops
from nautilus.vr_tile.text import parse as vr_parse
from tests.ma_tile.lowering.support import agree, count, in_order, plan, tile
from tests.ma_tile.programs import warpgroup_tiles as programs
from tests.ma_tile.programs.tiles import attention, matmul, softmax_rows

TWO = WarpgroupPlan(warpgroups=2)
ONE = WarpgroupPlan(warpgroups=1)
OWN = WarpgroupPlan(warpgroups=2, tile_scheduling="pingpong")
PRODUCT = """
module spec {
  input A: f16[64, 32]
  input B: f16[32, 64]
  output C: f32[64, 64]
  output D: f32[64, 32]
  kernel C grid() axes(i: 64, j: 32, k: 64) {
    %a = load A[i, j] : f16[i: 64, j: 32]
    %b = load B[j, k] : f16[j: 32, k: 64]
    %c = dot %a, %b over j : f32[i: 64, k: 64]
    %f = cast %a : f32[i: 64, j: 32]
    store C[i, k], %c
    store D[i, j], %f
  }
}
"""


def synchronous(module: TileModule, mapping: MappingPlan = TWO) -> MemModule:
    """Lowered, with its buffers placed, and verified."""
    low = AllocateShared().apply(lower_raw(module, plan(module, mapping), "sm_90a"))
    assert ma_parse(ma_format(low)) == low
    ma_verify(low)
    return low


def fault(text: str, mapping: WarpgroupPlan = TWO, target: str = "sm_90a") -> str:
    """Why the engine refuses the one kernel of ``text``; ``""``: it does not."""
    module = tile(text)
    buffers = {b.name: b for b in module.buffers}
    try:
        lower_warpgroup_kernel(module.kernels[0], buffers, mapping, target)
    except ScheduleError as error:
        return error.reason
    return ""


@pytest.mark.parametrize(("mapping", "columns", "slot"), [(ONE, 64, "0"), (TWO, 128, "consumer")])
def test_few_rows_are_columns_of_the_instruction(mapping: WarpgroupPlan, columns: int, slot: str) -> None:
    module = tile(matmul(20, 2 * columns, 128, 24, columns, 64, b="jk"))
    low = synchronous(module, mapping)
    in_order(
        low,
        r"layout #acc_i_j = reg\(i:2x1, j:2x8, i:3x8, j:1x64\)",
        r"smem s_bt : f16\[j: 64, k: 64\] stages \d swizzle 128",
        rf"mma wgmma\.f16 smem s_bt\[{slot}\] swizzle 128, smem s_at\[0\] swizzle 128",
    )
    agree(module, low)


def test_attention_shared_by_two_warpgroups() -> None:
    low = synchronous(tile(attention(256, 256, 64, 128, 64)))
    in_order(
        low,
        r"warps 8 min_blocks 1 consumers 2",
        r"smem s_q : f16\[i: 64, k: 64\] stages 2 swizzle 128",
        r"smem s_kt1 : f16\[j: 64, k: 64\] stages 1 swizzle 128",
        r"tma\.load s_q\[consumer\] swizzle 128, Q\[h, i0 \* 128 \+ consumer \* 64 \+ i, k\]",
        r"= for j0 in .* chain c",
        r"tma\.load s_kt1\[0\] swizzle 128, K\[h, j0 \* 64 \+ j, k\]",
        r"= mma wgmma\.f16 smem s_q\[consumer\] swizzle 128, smem s_kt1\[0\] swizzle 128 over k : f32\[i: 64, j: 64\]",
        r"%ph1_1 = convert %ph1",
        r"tma\.load s_v1",
        r"= mma wgmma\.f16 %ph1_1, smem s_v1\[0\] swizzle 128 \+ %oa1 over j",
        r"= for j0 in .* chain c",
        r"tma\.load s_kt1",
        r"%c2 = index j0 \* 64 \+ j <= i0 \* 128 \+ consumer \* 64 \+ i",
        r"st\.global O\[h, i0 \* 128 \+ consumer \* 64 \+ i, d\], %r vec 2",
    )
    assert count(low, "smem s_") == 3 + 4 * 2 - 2  # declarations; the probabilities are no shared operand
    assert count(low, r"barrier|cp\.|mbar|st\.shared|ld\.shared|scratch") == 0


def test_pingpong_warpgroups_are_left_to_a_pass() -> None:
    low = synchronous(tile(attention(256, 256, 64, 64, 64)), OWN)
    assert (low.kernels[0].consumers, low.kernels[0].warps) == (1, 4)
    assert count(low, r"\bconsumer\b") == 0
    in_order(low, r"smem s_q : f16\[i: 64, k: 64\] stages 1", r"tma\.load s_q\[0\]")


def test_a_warpgroup_may_own_128_rows() -> None:
    low = synchronous(tile(matmul(256, 64, 64, 256, 64, 64)))
    in_order(low, r"reg\(j:2x1, i:2x8, j:8x8, i:2x64\)", r"smem s_at : f16\[i: 128, k: 64\] stages 2")


@pytest.mark.parametrize(("a", "rows"), [("ik", "i: 64, k: 64"), ("ki", "k: 64, i: 64")])
@pytest.mark.parametrize(("b", "columns"), [("kj", "k: 64, j: 96"), ("jk", "j: 96, k: 64")])
def test_operands_keep_their_order_in_memory(a: str, rows: str, b: str, columns: str) -> None:
    low = synchronous(tile(matmul(128, 96, 128, 128, 96, 64, a=a, b=b)))
    width = 64 if b == "kj" else 128
    in_order(low, rf"s_at : f16\[{rows}\] stages 2 swizzle 128", rf"s_bt : f16\[{columns}\] stages 1 swizzle {width}")


@pytest.mark.parametrize(
    ("dtype", "out", "acc", "instr"),
    [
        ("bf16", "bf16", "f32", "bf16"),
        ("tf32", "f32", "f32", "tf32"),
        ("f8e4m3", "f32", "f32", "e4m3"),
        ("i8", "i32", "i32", "s8"),
        ("u8", "i32", "i32", "u8"),
    ],
)
def test_other_types_are_contiguous_along_the_contraction(dtype: str, out: str, acc: str, instr: str) -> None:
    low = synchronous(tile(matmul(128, 64, 128, 128, 64, 64, dtype, out, acc, b="jk")))
    in_order(low, rf"mma wgmma\.{instr} smem s_at\[consumer\]")
    if dtype != "bf16":
        assert "B is not contiguous along k" in fault(matmul(128, 64, 128, 128, 64, 64, dtype, out, acc, b="kj"))


def test_masks_that_are_the_buffer_s_bounds_go() -> None:
    low = synchronous(tile(matmul(77, 130, 72, 128, 64, 64, b="jk")))
    loads = re.findall(r"tma\.load .*", ma_format(low))
    assert loads and not any("where" in x for x in loads)
    in_order(low, r"st\.global C.* where i0 \* 128 \+ consumer \* 64 \+ i < 77 and j0 \* 64 \+ j < 130")


def test_a_mask_inside_the_buffer_is_refused() -> None:
    text = matmul(128, 64, 64, 128, 64, 64, b="jk").replace("B[j0 * 64 + j, k0 * 64 + k]", "B[j, k] where j < 40")
    assert "the mask of the load from B is not the buffer's own bounds" in fault(text)


def test_steps_that_are_loaded_as_zeros_are_not_multiplied() -> None:
    module = tile(matmul(256, 64, 40, 128, 64, 64).replace("k0 * 64 + k", "k"))
    low = synchronous(module)
    in_order(low, r"= mma wgmma\.f16 .* over k terms 48 ")
    agree(module, low)


def test_terms_of_a_dot_are_multiplied_and_no_more() -> None:
    text = matmul(256, 64, 64, 128, 64, 64).replace("over k :", "over k terms 40 :")
    module = tile(text)
    low = synchronous(module)
    in_order(low, r"= mma wgmma\.f16 .* over k terms 48 ")
    with pytest.raises(AssertionError):  # the terms after them are no zeros here
        agree(module, low)


def test_a_computed_left_operand_stays_in_registers() -> None:
    low = synchronous(tile(attention(256, 256, 64, 128, 64, scaled_q=True)))
    in_order(low, r"%q0 = ld\.global Q.* vec 2", r"%q_1 = convert %q", r"mma wgmma\.f16 %q_1, smem s_kt1")
    assert count(low, "smem s_q") == 0


def test_loaded_and_scaled_for_one_product_it_is_loaded_as_the_instruction_reads_it() -> None:
    low = synchronous(tile(programs.SCALED_LEFT))
    in_order(
        low, r"#k_i = reg\(k:4x1,", r"%a0 = ld\.global A.* vec 4 : f8e4m3.* #k_i", r"mma wgmma\.e4m3 %a, smem s_b0"
    )


def test_a_sum_along_rows_makes_them_columns() -> None:
    low = synchronous(tile(programs.COLUMN_SUMS), ONE)
    in_order(
        low, r"smem s_b0 ", r"mma wgmma\.f16 smem s_b0.*, smem s_a.* : f32\[i: 128, j: 64\]", "reduce sum %s over i"
    )


def test_rounding_to_tf32_of_halves_is_seen_through() -> None:
    low = synchronous(tile(programs.CHAIN))
    products = r"= mma wgmma\.f16 smem s_a\[consumer\]", r"= mma wgmma\.f16 %h_1, smem s_c"
    in_order(low, products[0], r"%h_1 = convert %h : f16", products[1])
    assert count(low, "tf32") == 0


def test_the_first_warpgroup_stores_what_all_have() -> None:
    low = synchronous(tile(programs.COLUMN_OUTPUT))
    first = r"st\.global C\[i0 \* 128 \+ consumer \* 64 \+ i"
    in_order(low, first, r"if consumer == 0 \{", r"st\.global W\[j\]", r"\}")
    assert count(synchronous(tile(programs.COLUMN_OUTPUT), OWN), r"if ") == 0


def test_side_inputs_come_straight_to_accumulators() -> None:
    low = synchronous(tile(programs.EPILOGUE))
    in_order(low, r"%b = ld\.global bias\[j\] vec 2 : f16\[j: 64\] #j", r"%r = ld\.global R.* vec 2 : .* #acc_i_j")


@pytest.mark.parametrize(
    ("text", "mapping", "reason"),
    [
        (softmax_rows(256, 64, 128, 64), TWO, "no matrix product"),
        (matmul(128, 64, 64, 128, 64, 64, "f32", "f32"), TWO, r"product %cn .* of f32 and f32, 64 deep, has no"),
        (matmul(128, 64, 64, 128, 64, 8), TWO, "8 deep, has no warpgroup instruction"),
        (matmul(96, 64, 64, 96, 64, 64), TWO, "has 96 rows along i, which 2 consumers of 64 or 128 rows cannot cover"),
        (matmul(128, 64, 64, 128, 64, 64), ONE, ""),
        (matmul(128, 60, 64, 128, 60, 64), TWO, "has 60 columns along j, not a multiple of 8"),
        (matmul(128, 320, 64, 128, 320, 64), TWO, ""),
        (matmul(128, 320, 64, 128, 320, 64, b="jk"), TWO, "the tile of B has more than 256 rows"),
        (matmul(128, 512, 64, 128, 512, 64), TWO, "takes 256 registers of each thread for its result"),
        (matmul(128, 130, 64, 128, 64, 64), TWO, "right operand, %bt, .* rows of B are 260 bytes"),
        (matmul(128, 72, 64, 128, 72, 64), TWO, "rows of the tile of B are 144 bytes, not a multiple of 32"),
        (programs.COMPUTED_RIGHT, TWO, "right operand, %h, that is computed, not loaded"),
        (programs.TWO_ROW_AXES, TWO, "has rows along j, %s along i: consumers share one axis"),
        (programs.TWO_ROW_AXES, ONE, ""),
        (programs.OVER_ROWS, TWO, "%t combines along i, which the consumers divide"),
        (programs.OVER_ROWS, ONE, "%t is combined along rows, between warps of a consumer"),
        (programs.TRANSPOSED_USE, ONE, "would move between threads of a consumer"),
        (programs.BEGINNING, TWO, ""),
        (programs.GATHERED, TWO, "where the load from B starts depends on loaded values"),
        (programs.STRIDED, TWO, "does not step along its axes one by one"),
    ],
)  # fmt: skip
def test_faults(text: str, mapping: WarpgroupPlan, reason: str) -> None:
    found = fault(text, mapping)
    assert re.search(reason, found) if reason else not found, found


def test_a_left_operand_loaded_once_may_lie_anywhere() -> None:
    low = synchronous(tile(programs.STRIDED_LEFT))
    in_order(low, r"%a = ld\.global A\[i % 2, .*\] vec 1 : .* #k_i", "for j0", r"mma wgmma\.f16 %a, smem s_b")


def test_refusals_are_schedule_errors() -> None:
    module = tile(matmul(96, 64, 64, 96, 64, 64))
    with pytest.raises(ScheduleError, match=r"kernel C: product %cn \[i: 96, j: 64\] over k has 96 rows"):
        lower_raw(module, plan(module, TWO), "sm_90a")
    assert "targets with warpgroup MMAs, not sm_80" in fault(matmul(128, 64, 64, 128, 64, 64), TWO, "sm_80")


THREE = WarpgroupPlan(warpgroups=3)


@pytest.mark.parametrize(
    ("text", "mapping"),
    [
        (attention(77, 77, 64, 128, 64), TWO),
        (attention(130, 200, 64, 192, 32), THREE),
        (attention(77, 130, 64, 64, 64, heads=2), OWN),
        (attention(256, 256, 64, 128, 64, scaled_q=True), TWO),
        (matmul(77, 64, 72, 128, 64, 64), TWO),
        (matmul(300, 130, 72, 256, 64, 64, b="jk"), TWO),
        (matmul(136, 72, 80, 128, 96, 64, a="ki"), TWO),
        (matmul(136, 72, 80, 64, 96, 64, "bf16", "bf16", a="ki", b="jk"), ONE),
        (matmul(128, 64, 128, 128, 64, 64, "i8", "i32", "i32", b="jk"), TWO),
        (matmul(128, 64, 72, 128, 64, 64, "tf32", "f32", b="jk"), TWO),
        (programs.CHAIN, TWO),
        (programs.EPILOGUE, TWO),
        (programs.SCALED_LEFT, TWO),
        (programs.COLUMN_OUTPUT, TWO),
        (programs.COLUMN_SUMS, ONE),
        (programs.STRIDED_LEFT, TWO),
        (programs.TWO_ROW_AXES, ONE),
    ],
)  # fmt: skip
def test_it_computes_what_the_tiles_say(text: str, mapping: MappingPlan) -> None:
    module = tile(text)
    agree(module, synchronous(module, mapping))


def test_rows_of_the_wrong_warpgroup_are_noticed() -> None:
    module = tile(matmul(128, 64, 64, 128, 64, 64))
    low = synchronous(module)
    wrong = ma_parse(ma_format(low).replace("A[i0 * 128 + consumer * 64", "A[i0 * 128 + consumer * 32"))
    assert wrong != low
    with pytest.raises(AssertionError, match="Mismatched elements"):
        agree(module, wrong)


def test_a_contraction_along_the_divided_axis_is_a_sum_over_all_parts() -> None:
    """What is stored has the columns of the consumer alone; a product needs those of all consumers."""
    own = split_axis(vr_parse(PRODUCT).kernels[0], "j", 2)
    ops = list(walk_ops(own.kernel.body))
    assert [(d.result.name, d.acc and d.acc.name, d.a.name, d.b.name) for d in ops if isinstance(d, DotOp)] == [
        ("c_part_0", None, "a_part_0", "b_part_0"),
        ("c", "c_part_0", "a_part_1", "b_part_1"),
    ]
    assert own.dots == {"c_part_0": "c", "c": "c"} and own.parts["b_part_1"] == ("b", 1)
    assert [s.value.type.shape for s in ops if isinstance(s, StoreOp)] == [(64, 64), (64, 16)]
