"""``combine-in-block``: the work of the consumers, the places of partial results, and kernels that are refused."""

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
from nautilus.ma_tile.text.printer import format as ma_format
from nautilus.ma_tile.text.printer import parse
from nautilus.ma_tile.verify.module import verify
from tests.endtoend.collection.decode import Decode
from tests.ma_tile.programs.combined import PAIR, ROWS, apart, edited, joined, plan, sums


def test_blocks_become_split_k_warps(filecheck: Callable[[str, str], None]) -> None:
    filecheck(
        ma_format(joined(parse(PAIR))),
        """
        // CHECK-NOT: temp
        // CHECK-NOT: kernel part
        // CHECK: kernel whole grid 2 warps 4
        // CHECK-NEXT: let r_block = block
        // CHECK: smem s : f32[r: 16, d: 32] stages 4 swizzle 0 pad 0 @ 0
        // CHECK-NEXT: smem part_T : f32[d: 32] stages 4 swizzle 0 pad 0 @ 8192
        // CHECK-NEXT: smem parts_T : f32[c: 4, d: 32] stages 1 swizzle 0 pad 0 over part_T @ 8192
        // CHECK: roles {
        // CHECK-NEXT: role partial warps 0..4 consumers 4 {
        // CHECK-NEXT: ld.global X[r_block, consumer * 16 + r, d]
        // CHECK-NEXT: st.shared s[consumer], %x
        // CHECK-NEXT: barrier (1 + consumer), 32
        // CHECK-NEXT: ld.shared s[consumer]
        // CHECK-NOT: st.global
        // CHECK: barrier
        // CHECK-NEXT: st.shared part_T[consumer], %{{sum[0-9]*}} vec 1
        // CHECK-NEXT: st.shared part_M[consumer], %{{most[0-9]*}} vec 1
        // CHECK-NEXT: }
        // CHECK-NEXT: }
        // CHECK-NEXT: barrier
        // CHECK-NEXT: %t = ld.shared parts_T[0] vec 1
        // CHECK-NEXT: %m = ld.shared parts_M[0] vec 4
        // CHECK-NOT: ld.global
        // CHECK: st.global Y[r_block, d]
        """,
    )


def test_the_result_stays() -> None:
    before = parse(PAIR)
    verify(before)
    for m in (before, joined(before)):
        for seed in range(3):
            np.testing.assert_allclose(run_module(m, ROWS, seed=seed)["Y"], sums(), rtol=1e-5, atol=1e-5)


def test_the_schedule_decides() -> None:
    m = parse(PAIR)
    assert CombineInBlock().apply(m) is m
    assert CombineInBlock(plan(m)).apply(m) is m
    assert CombineInBlock(plan(m, "part"), combine_in_block=False).apply(m) is m


def test_loads_under_a_mask_are_zero_outside() -> None:
    masked = edited(("M[c, r] vec", "M[c, r] where c < 3 vec"), ("Y[r, d], %y", "Y[r, d], %y where d < 31"))
    out = joined(parse(masked))
    assert "index c < 3 : bool[c: 4]" in ma_format(out)
    x = ROWS["X"].astype(np.float64)
    want = x.sum(1) + np.maximum(x[:, :48].max((1, 2)), 0.0)[:, None]
    np.testing.assert_allclose(run_module(out, ROWS)["Y"][:, :31], want[:, :31], rtol=1e-5, atol=1e-5)


def test_numbers_of_blocks_in_any_order() -> None:
    """The consumers of a block come from blocks that are not adjacent; the part that each computes decides."""
    swapped = edited(("let c = block // 2", "let c = 3 - block % 4"), ("let b = block % 2", "let b = block // 4"))
    np.testing.assert_allclose(run_module(joined(parse(swapped)), ROWS)["Y"], sums(), rtol=1e-5, atol=1e-5)


def test_parts_larger_than_what_is_read_stay_in_registers() -> None:
    """As rows of a matrix instruction that no head has."""
    more = (
        ("temp T: f32[4, 2, 32]", "temp T: f32[4, 2, 2, 32]"),
        ("%sum = reduce sum %y over r : f32[d: 32] #d\n    %most",
         "%two = ld.global X[b, c * 16 + e, d] vec 1 : f32[e: 2, d: 32] #e\n    %most"),
        ("T[c, b, d], %sum vec", "T[c, b, e, d], %two where e < 1 vec"), ("T[c, r, d]", "T[c, r, 0, d]"),
        ("    layout #d = reg() lane(d:32x1) warp()\n", "    layout #e = reg(e:2x1) lane(d:32x1) warp()\n"),
    )  # fmt: skip
    out = joined(parse(edited(*more)))
    assert "smem part_T : f32[e: 1, d: 32] stages 4" in ma_format(out)
    assert "slice %two at e 0 : f32[e: 1, d: 32]" in ma_format(out)
    x = ROWS["X"].astype(np.float64)
    want = x[:, ::16].sum(1) + x.max((1, 2))[:, None]
    np.testing.assert_allclose(run_module(out, ROWS)["Y"], want, rtol=1e-5, atol=1e-5)


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


def test_nothing_of_a_warp_lies_over_anothers() -> None:
    """Only buffers that are written after the block's barrier share bytes with the stages of pipelines."""
    m = joined(apart(Decode(130, heads=8, group=4), 1, 4, 16), "O_acc_part")
    own = [s for k in m.kernels for s in k.smem if s.over is None]
    for a in own:
        assert not any(a.offset < b.offset + b.bytes and b.offset < a.offset + a.bytes for b in own if b != a)


# -- refusals -----------------------------------------------------------------------------------

_STORE = "    st.global T[c, b, d], %sum vec 1\n"
_LOAD = "    %t = ld.global T[c, r, d] vec 1 : f32[c: 4, d: 32] #all\n"
_COPIED = (
    "    smem z : f32[c: 4, d: 32] stages 1 swizzle 0 pad 0 @ 0\n"
    "    layout #copy = reg(c:4x1) lane(d:32x1) warp(*:4)\n"
    "    cp.async z[0], T[c, r, d] vec 1 threads #copy\n    cp.commit\n    cp.wait 0\n    barrier\n"
    "    %t = ld.shared z[0] vec 1 : f32[c: 4, d: 32] #all\n"
)

REFUSED: dict[str, tuple[tuple[tuple[str, str], ...], str]] = {
    "not several": ((("grid 8", "grid 2"),), "2 blocks cannot be divided into two or more for each of 2"),
    "not equally many": (
        (("kernel whole grid 2", "kernel whole grid 3"),),
        "8 blocks cannot be divided into two or more for each of 3",
    ),
    "roles": (
        (("warps 4 min_blocks 1", "warps 4 min_blocks 1 consumers 2"),),
        "kernel whole already has roles, consumers or mbarriers",
    ),
    "scratch": (
        (("over r, d : f32[]", "over r, d scratch s : f32[]"),),
        "its warps exchange values through scratch memory",
    ),
    "warps": (
        (("grid 2 warps 4", "grid 2 warps 2"), ("warp(*:4)", "warp(*:2)")),
        "4 consumers of 1 warps, but whole has 2 warps",
    ),
    "barriers": (
        (("grid 8", "grid 32"), ("f32[4, 2", "f32[16, 2"), ("c:4x1", "c:16x1"), ("c: 4", "c: 16"),
         ("64, 32", "256, 32"), ("warps 4", "warps 16"), ("*:4", "*:16")),
        "16 consumers need more named barriers than a block has",
    ),
    "two stores": (((_STORE, _STORE * 2),), "T is stored more than once"),
    "a store in a condition": (((_STORE, f"    if c < 2 {{\n{_STORE}    }}\n"),), "T is stored more than once"),
    "a copy": (((_LOAD, _COPIED),), "T is copied, not loaded"),
    "two loads": (
        ((_LOAD, _LOAD + _LOAD.replace("%t", "%u").replace("T[c, r", "T[c, 1 - r")),), "T is loaded in several ways",
    ),
    "computed": (
        ((_STORE, "    %n = const 0 : i32 #one\n" + _STORE.replace("[c, b", "[c + %n, b")),),
        "the position of T depends on computed values",
    ),
    "reversed": ((("T[c, b, d]", "T[c, b, 31 - d]"),), "an index of T is not `base` or `base + AXIS`"),
    "an axis twice": ((("T[c, r, d]", "T[c, c // 4 + r, d]"),), "an index of T is not `base` or `base + AXIS`"),
    "a diagonal": ((("M[c, r] vec", "M[c, r + c] where r + c < 2 vec"),), "an axis occurs in two indices of M"),
    "not all parts": (
        ((_LOAD, _LOAD.replace("c: 4", "c: 2").replace("#all", "#two")),
         ("    layout #c =", "    layout #two = reg(c:2x1) lane(d:32x1) warp(*:4)\n    layout #c =")),
        "T does not hold one partial result per consumer",
    ),
    "one part": (
        (("    %m = ld.global M[c, r] vec 1 : f32[c: 4] #c\n", "    %m = ld.global M[0, r] vec 1 : f32[] #one\n"),
         ("reduce max %m over c : f32[]", "add %m, %m : f32[]")),
        "a block reads another part of M than its consumers write",
    ),
    "fewer rows": (
        (("T[c, b, d], %sum", "T[c, b, z], %few"),
         ("    %sum = reduce sum %y", "    %few = const 0.0 : f32[z: 16] #z\n    %sum = reduce sum %y"),
         ("    smem s :", "    layout #z = reg() lane(z:16x1, *:2) warp()\n    smem s :")),
        "16 rows of T are written, but 32 are read",
    ),
    "another part": ((("M[c, r]", "M[c, 1 - r]"),), "a block reads another part of M than its consumers write"),
    "a variable of the kernel's own": (
        ((_STORE, "    let q = b * 1\n    let p = 0 * b\n" + _STORE.replace("[c, b", "[c, q + p")),),
        "the position of T depends on ",
    ),
    "unknown": (
        (("let b = block % 2", "let b = block % 2\n    let z = block // 4"),),
        "no partial result determines grid variable z",
    ),
    "other blocks": (
        (("let r = block", "let r = 0"),), "its blocks are not the consumers of the blocks that read them",
    ),
    "shared memory": (
        (("stages 1 swizzle 0 pad 0 @ 0", "stages 31 swizzle 0 pad 0 @ 0"),), "bytes of shared memory are needed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    changes, message = REFUSED[name]
    m = parse(edited(*changes))
    with pytest.raises(ScheduleError) as error:
        CombineInBlock(plan(m, "part")).apply(m)
    assert message in str(error.value)
    assert error.value.kernel == ("whole" if name == "shared memory" else "part")


def test_results_that_others_read_too_are_refused() -> None:
    message = "its results are not read by one other kernel alone"
    m = parse(PAIR)
    with pytest.raises(ScheduleError, match=message):
        CombineInBlock(plan(m, "whole")).apply(m)  # nobody reads an output
    third = replace(m.kernels[1], name="third")
    m = MemModule(m.name, m.target, m.buffers, m.params, (*m.kernels, third))
    with pytest.raises(ScheduleError, match=message):
        CombineInBlock(plan(m, "part")).apply(m)


def test_grids_of_the_launch_are_refused() -> None:
    m = parse(PAIR)
    m = replace(m, kernels=(replace(m.kernels[0], blocks=Param("N", DType.I32)), m.kernels[1]))
    with pytest.raises(ScheduleError, match="the number of blocks is known at launch only"):
        CombineInBlock(plan(m, "part")).apply(m)
