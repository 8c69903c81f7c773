"""The lowering to MA-tile IR preserves results; the MA-tile interpreter runs the lowered module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nautilus.core.schedule import MappingPlan, WarpPlan
from nautilus.ma_tile.lowering.lower import lower_module
from tests.ma_tile.lowering.support import agree, compiled, count, in_order, lowered, plan, tile
from tests.ma_tile.programs import odd
from tests.ma_tile.programs.tiles import attention, matmul, softmax_rows
from tests.vr_tile.samples import ATTENTION, GATHER

GRIDS = [(1, 1), (4, 1), (2, 2), (8, 1)]


@pytest.mark.parametrize("stages", [0, 1, 2, 3])
@pytest.mark.parametrize("size", [(64, 64), (77, 77), (48, 96)])
def test_attention(size: tuple[int, int], stages: int) -> None:
    low = compiled(attention(*size, 32, 32, 16), WarpPlan(warps=(2, 1), stages=stages))
    assert count(low, r"mma m16n8k16\.f16") == 4


def test_the_probabilities_stay_in_registers() -> None:
    low = compiled(attention(64, 64, 32, 32, 16), WarpPlan(warps=(2, 1)))
    in_order(low, r"%ph1_?\w* = ", r"= mma m16n8k16\.f16 %ph1\w*, smem s_v1", r"st\.shared out_O")
    assert count(low, r"st\.shared s_") == 0


def test_columns_split_between_warps_meet_in_shared_memory() -> None:
    low = compiled(attention(64, 64, 32, 16, 32), WarpPlan(warps=(1, 2), stages=2))
    in_order(low, r"reduce max .* scratch r_", r"st\.shared s_ph1", r"mma .* smem s_ph1")


def test_a_computed_left_operand_becomes_fragments() -> None:
    low = compiled(attention(64, 96, 32, 32, 16, scaled_q=True), WarpPlan(warps=(2, 1)))
    in_order(low, r"%q0 = ld\.global Q.* vec 2", r"mma m16n8k16\.f16 %q\w*, smem s_kt1")
    assert count(low, "smem s_q") == 0


def test_longest_blocks_first() -> None:
    low = compiled(attention(64, 64, 32, 32, 16, heads=3), WarpPlan(warps=(2, 1), raster_order="longest-first"))
    in_order(low, r"let h = block % 3", r"let i0 = .*block // 3")


@pytest.mark.parametrize("stages", [0, 1, 2, 3, 4])
def test_matmul(stages: int) -> None:
    compiled(matmul(128, 64, 96, 64, 32, 32), WarpPlan(warps=(2, 2), stages=stages))


@pytest.mark.parametrize(
    ("text", "mapping"),
    [
        (matmul(64, 64, 64, 64, 32, 32, a="ki", b="jk"), WarpPlan(warps=(2, 2))),
        (matmul(77, 50, 40, 32, 32, 32), WarpPlan(warps=(2, 2))),
        (
            matmul(128, 64, 64, 64, 32, 32),
            WarpPlan(warps=(2, 2), epilogue="direct", raster_order="grouped", raster_group=2),
        ),
        (matmul(96, 64, 32, 32, 32, 32), WarpPlan(warps=(2, 2), raster_order="grouped", raster_group=2)),
        (matmul(40, 33, 20, 32, 32, 16, "f32", "f32"), WarpPlan(warps=(2, 2))),
        (matmul(64, 64, 64, 32, 32, 32, "i8", "i32", "i32", b="jk"), WarpPlan(warps=(2, 2))),
        (matmul(64, 64, 64, 32, 32, 32, "i8", "i32", "i32"), WarpPlan(warps=(2, 2))),
        (matmul(64, 64, 64, 32, 32, 32, "u8", "i32", "i32"), WarpPlan(warps=(1, 4))),
        (matmul(64, 64, 64, 32, 32, 32, "bf16", "bf16"), WarpPlan(warps=(2, 2))),
        (matmul(64, 64, 64, 32, 32, 32, "tf32", "f32"), WarpPlan(warps=(2, 2))),
        (matmul(16, 16, 16, 16, 16, 8, "f64", "f64", "f64"), WarpPlan(warps=(1, 1))),
        (matmul(16, 16, 16, 16, 16, 8, "i32", "i32", "i32"), WarpPlan(warps=(4, 1))),
        (matmul(16, 256, 64, 16, 64, 32), WarpPlan(warps=(4, 1))),
        (matmul(24, 24, 24, 8, 24, 8), WarpPlan(warps=(4, 1))),
    ],
)  # fmt: skip
def test_matmul_of_every_kind(text: str, mapping: MappingPlan) -> None:
    compiled(text, mapping)


def test_a_row_tile_of_16_gets_its_warps_along_the_columns() -> None:
    low = compiled(matmul(16, 256, 64, 16, 64, 32), WarpPlan(warps=(4, 1)))
    in_order(low, "warps 4", r"warp\(i:1x16, j:4x16\)", r"mma m16n8k16\.f16")


@pytest.mark.parametrize("warps", [(1, 1), (2, 1), (1, 4), (4, 1)])
@pytest.mark.parametrize(
    "shape", [(8, 256, 2, 256), (3, 1024, 1, 1024), (5, 77, 2, 128), (5, 7, 1, 8), (6, 333, 1, 512)]
)
def test_softmax(shape: tuple[int, int, int, int], warps: tuple[int, int]) -> None:
    compiled(softmax_rows(*shape), WarpPlan(warps=warps))


def test_one_warp_a_row_needs_no_shared_memory() -> None:
    low = compiled(softmax_rows(8, 1024, 2, 1024), WarpPlan(warps=(2, 1)))
    assert count(low, "barrier|smem") == 0
    in_order(low, r"reg\(j:8x1, j:4x256\) lane\(j:32x8\) warp\(i:2x1\)", "ld.global X.* vec 8", "st.global Y.* vec 8")


def test_several_warps_a_row_meet_in_scratch() -> None:
    low = compiled(softmax_rows(3, 1024, 1, 1024), WarpPlan(warps=(1, 4)))
    in_order(low, "reduce max .* scratch r_m", "reduce sum .* scratch r_s")
    assert count(low, "barrier") == 0  # each reduction has its own scratch


ODD = sorted(n for n in vars(odd) if n.isupper())
GIVEN: dict[str, dict[str, Any]] = {
    "PAGED": {"T": np.array([8, 0, 3, 3, 7, 1])},
    "PAGED_LOOP": {"T": np.array([8, 0, 3, 3, 7, 1])},
    "GATHER_INDEX_LOOP": {"L": np.array([0, 5, 64, 33])},
}


@pytest.mark.parametrize("warps", GRIDS)
@pytest.mark.parametrize("name", ODD)
def test_unusual_shapes(name: str, warps: tuple[int, int]) -> None:
    for stages in (1, 2):
        compiled(getattr(odd, name), WarpPlan(warps=warps, stages=stages), **GIVEN.get(name, {}))


@pytest.mark.parametrize("warps", GRIDS)
def test_small_samples(warps: tuple[int, int]) -> None:
    compiled(ATTENTION, WarpPlan(warps=warps))
    compiled(GATHER, WarpPlan(warps=warps), T=np.array([1, 6, 0, -1, 3]))


def test_lower_module_alone_is_correct() -> None:
    module = tile(attention(64, 64, 32, 32, 16))
    agree(module, lower_module(module, plan(module, WarpPlan(warps=(2, 1))), "sm_80"))


def test_the_result_is_the_same_every_time() -> None:
    module = tile(attention(64, 64, 32, 32, 16))
    assert lowered(module) == lowered(module)


def test_a_computed_left_operand_that_is_contiguous_across_its_rows_is_read_in_vectors() -> None:
    text = """
module t {
  input K: f16[64, 64]
  input V: f16[64, 64]
  output O: f32[64, 64]
  kernel k grid() axes(d: 64, j: 64, e: 64) {
    %k = load K[j, d] : f16[d: 64, j: 64]
    %w = cast %k : f32[d: 64, j: 64]
    %x = abs %w : f32[d: 64, j: 64]
    %a = cast %x : f16[d: 64, j: 64]
    %v = load V[j, e] : f16[j: 64, e: 64]
    %o = dot %a, %v over j : f32[d: 64, e: 64]
    store O[d, e], %o
  }
}
"""
    low = compiled(text, WarpPlan(warps=(2, 1), stages=1))
    assert count(low, r"ld\.global K.* vec 8") == 1
    in_order(low, r"st\.shared s_a.* vec 8", r"mma m16n8k16\.f16 smem s_a.*, smem s_v")


def test_stores_of_the_widest_type_are_whole_sectors() -> None:
    text = """
module t {
  input X: f16[64, 256]
  output Y: f32[64, 256]
  output Z: f16[64, 256]
  kernel k grid() axes(i: 64, j: 256) {
    %x = load X[i, j] : f16[i: 64, j: 256]
    %y = cast %x : f32[i: 64, j: 256]
    store Y[i, j], %y
    store Z[i, j], %x
  }
}
"""
    low = compiled(text, WarpPlan(warps=(1, 4)))
    assert count(low, r"ld\.global X.* vec 4") == count(low, r"st\.global Y.* vec 4") == 1
    assert count(low, r"lane\(j:32x4") == 1
