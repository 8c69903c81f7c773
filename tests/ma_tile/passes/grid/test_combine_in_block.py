"""``combine-in-block``: results stay the same; kernels as they are planned. What it does: ``combine_in_block.ma``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.nodes import Param
from nautilus.core.types import DType
from nautilus.ma_tile.interp.module import run_module
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.grid.combine_in_block import CombineInBlock
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from tests.endtoend.collection.decode import Decode
from tests.ma_tile.programs.combined import PAIR, ROWS, apart, edited, joined, plan, sums


def test_the_result_stays() -> None:
    before = parse(PAIR)
    verify(before)
    for m in (before, joined(before)):
        for seed in range(3):
            np.testing.assert_allclose(run_module(m, ROWS, seed=seed)["Y"], sums(), rtol=1e-5, atol=1e-5)


# -- kernels as they are planned ----------------------------------------------------------------


def test_one_level_of_grouped_queries(filecheck: Callable[[str, str], None]) -> None:
    filecheck(
        ma_format(joined(apart(Decode(130, heads=8, group=4), 1, 4, 16), "O_acc_part")),
        """
        // CHECK: kernel O grid 2 warps 4
        // CHECK: smem s_k_tile : f16[j: 16, d_1: 64] stages 12 swizzle 128
        // CHECK: smem s_q_tile : f16[h_member: 16, d_1: 64] stages 4
        // CHECK: smem part_O_acc_part : f32[h_member: 8, d: 64] stages 4 swizzle 0 pad 16 over s_k_tile @ 0
        // CHECK: smem parts_O_acc_part : f32[j_chunk: 4, h_member: 8, d: 64] stages 1 {{.*}} over s_k_tile @ 0
        // CHECK: role partial warps 0..4 consumers 4 {
        // CHECK: cp.async s_q_tile[consumer] {{.*}}Q[0, h_group * 4 + h_member, 0, d_1]
        // CHECK: cp.async s_k_tile[consumer * 3] {{.*}}K[0, h_group, consumer * 16 + j, d_1]
        // CHECK: for j0 in 0..2
        // CHECK-NEXT: cp.wait 1
        // CHECK-NEXT: barrier (1 + consumer), 32
        // CHECK: cp.async s_k_tile[consumer * 3 + (j0 + 2) % 3]
        // CHECK: mma {{.*}}smem s_q_tile[consumer] swizzle 128, smem s_k_tile[consumer * 3 + j0 % 3]
        // CHECK: barrier{{$}}
        // CHECK-NEXT: %[[FIRST:.*]] = slice %{{.*}} at h_member 0 : f32[h_member: 8]
        // CHECK-NEXT: st.shared part_P_max_part[consumer], %[[FIRST]] vec 1
        // CHECK: st.shared part_O_acc_part[consumer]
        // CHECK-NEXT: }
        // CHECK-NEXT: }
        // CHECK-NEXT: barrier{{$}}
        // CHECK-NEXT: ld.shared parts_P_max_part[0] vec 1 : f32[h_member: 4, j_chunk: 4]
        // CHECK: ld.shared parts_O_acc_part[0] {{.*}}: f32[h_member: 4, j_chunk: 4, d: 64]
        // CHECK: st.global O[0, h_group * 4 + h_member, 0, d]
        """,
    )


def test_two_levels_of_one_head_each(filecheck: Callable[[str, str], None]) -> None:
    """The number of a chunk is made of the block's group and the consumer; another kernel combines the groups."""
    filecheck(
        ma_format(joined(apart(Decode(256, heads=3), 2, 2, 16), "O_acc_part")),
        """
        // CHECK: temp O_acc_part_2: f32[2, 1, 3, 1, 64]
        // CHECK: kernel O_acc_part_2 grid 6 warps 2
        // CHECK: role partial warps 0..2 consumers 2 {
        // CHECK-NEXT: let j_chunk_consumer = j_chunk_chunk * 2 + consumer
        // CHECK: for j0 in j_chunk_consumer // 2 * 4..
        // CHECK: smem s_k_tile[consumer * 3 + (j0 - j_chunk_consumer // 2 * 4) % 3]
        // CHECK: st.shared part_P_sum_part[consumer]
        // CHECK: ld.shared parts_P_max_part[0]
        // CHECK: st.global O_acc_part_2[j_chunk_chunk, 0, h, 0, d]
        // CHECK: kernel O grid
        // CHECK-NOT: roles
        // CHECK: ld.global O_acc_part_2[j_chunk_chunk, 0, h
        """,
    )


def test_warps_share_no_bytes() -> None:
    """Only what is written after the block's barrier shares bytes with the stages of pipelines."""
    m = joined(apart(Decode(130, heads=8, group=4), 1, 4, 16), "O_acc_part")
    own = [s for k in m.kernels for s in k.smem if s.over is None]
    for a in own:
        assert not any(a.offset < b.offset + b.bytes and b.offset < a.offset + a.bytes for b in own if b != a)


# -- refusals -----------------------------------------------------------------------------------


def test_results_that_others_read_too_are_refused() -> None:
    message = "its results are not read by one other kernel alone"
    m = parse(PAIR)
    with pytest.raises(ScheduleError, match=message):
        CombineInBlock(plan(m, "whole")).apply(m)  # no kernel reads an output
    third = replace(m.kernels[1], name="third")
    m = MemModule(m.name, m.target, m.buffers, m.params, (*m.kernels, third))
    with pytest.raises(ScheduleError, match=message):
        CombineInBlock(plan(m, "part")).apply(m)


def test_a_reader_with_consumers_is_refused() -> None:
    """Its layouts do not fit two consumers, so the verifier would refuse it as a case of the file."""
    m = parse(edited(("warps 4 min_blocks 1", "warps 4 min_blocks 1 consumers 2")))
    with pytest.raises(ScheduleError, match="kernel whole already has roles, consumers or mbarriers"):
        CombineInBlock(plan(m, "part")).apply(m)


#: the pair for a number of batches that is known at launch only
AT_LAUNCH = (
    ("input X: f32[2,", "input X: f32[B,"),
    ("temp T: f32[4, 2,", "temp T: f32[4, B,"),
    ("temp M: f32[4, 2]", "temp M: f32[4, B]"),
    ("output Y: f32[2, 32]", "output Y: f32[B, 32]\n  param B: i32 <= 64"),
    ("grid 8", "grid 4 * B"),
    ("grid 2", "grid B"),
    ("block // 2", "block // B"),
    ("block % 2", "block % B"),
)


def test_the_number_of_blocks_may_be_known_at_launch_only() -> None:
    m = parse(edited(*AT_LAUNCH))
    verify(m)
    whole = joined(m)
    assert [str(k.blocks) for k in whole.kernels] == [str(Param("B", DType.I32, most=64))]
    rows = {"X": np.concatenate([ROWS["X"], ROWS["X"][:1] + 1])}
    for module in (m, whole):
        got = run_module(module, rows, {"B": 3})["Y"]
        np.testing.assert_allclose(got[:2], sums(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "edit",
    [
        ("let b = block % B", "let b = block % (2 * B) // 2"),  # no digit
        ("let c = block // B", "let c = block % 4"),  # blocks whose digits are not independent
    ],
)
def test_blocks_that_are_not_the_parts_are_refused(edit: tuple[str, str]) -> None:
    m = parse(edited(*AT_LAUNCH, edit))
    with pytest.raises(ScheduleError, match="its blocks are not the consumers of the blocks that read them"):
        CombineInBlock(plan(m, "part")).apply(m)


def test_grids_that_do_not_divide_are_refused() -> None:
    m = parse(PAIR)
    m = replace(m, kernels=(replace(m.kernels[0], blocks=Param("N", DType.I32)), m.kernels[1]))
    with pytest.raises(ScheduleError, match="cannot be divided into two or more"):
        CombineInBlock(plan(m, "part")).apply(m)
