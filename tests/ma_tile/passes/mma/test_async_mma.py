"""``async-mma``: where fences, waits and releases stand, and which loops keep MMAs outstanding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nautilus.core.buffers import Space
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.copies.specialise_warps import SpecialiseWarps
from nautilus.ma_tile.passes.epilogue.tma_stores import TmaStores
from nautilus.ma_tile.passes.grid.persistent_grid import PersistentGrid
from nautilus.ma_tile.passes.mma.async_mma import AsyncMma
from nautilus.ma_tile.passes.mma.pipeline_mma import PipelineMma
from nautilus.ma_tile.passes.mma.register_operands import RegisterOperands
from nautilus.ma_tile.text.printer import format as ma_format
from nautilus.ma_tile.text.printer import parse
from nautilus.ma_tile.verify.module import verify
from tests.ma_tile.programs import kernels as role_programs
from tests.ma_tile.programs.products import backward, chained
from tests.ma_tile.roles import in_order, placed, role, schedule
from tests.shapes import static


def consumers(m: MemModule, overlap: bool = True, rescale: str = "early", **memory: Any) -> str:
    """The code of the consumers; the verifier accepts the kernel."""
    plan = schedule(m, **{"stages": 2, **memory})
    m = PipelineMma(plan, overlap, rescale).apply(m)
    for step in (TmaStores(plan), SpecialiseWarps(plan), PersistentGrid(plan), AsyncMma(plan)):
        m = step.apply(m)
    m = placed(m)
    assert parse(ma_format(m)) == m
    return role(m, "consumers")


def ordered(m: MemModule, **options: Any) -> MemModule:
    out = AsyncMma(**options).apply(m)
    assert parse(ma_format(out)) == out
    verify(out)
    return out


def edited(m: MemModule, *changes: tuple[str, str]) -> MemModule:
    text = ma_format(m)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    out = parse(text)
    verify(out)
    return out


# -- waits and releases -------------------------------------------------------------------------


def test_waits_are_late_and_releases_follow_them(filecheck: Callable[[str, str], None]) -> None:
    filecheck(
        consumers(chained()),
        """
        // CHECK: for t0 in 1..4
        // CHECK-NEXT: mbar.wait full_sk[sk_stage] parity sk_phase
        // CHECK-NEXT: wg.fence
        // CHECK-NEXT: %s_0 = mma wgmma.f16 {{.*}} async
        // CHECK-NEXT: wg.commit
        // CHECK-NEXT: mbar.wait full_sv[sv_stage] parity sv_phase
        // CHECK-NEXT: wg.fence
        // CHECK-NEXT: %on_0 = mma wgmma.f16 {{.*}} async
        // CHECK-NEXT: wg.commit
        // CHECK-NEXT: wg.wait 1 %s_0
        // CHECK-NEXT: mbar.arrive empty_sk[sk_stage] each warp
        // CHECK-NEXT: advance sk
        // CHECK-NEXT: %x0_0 = mul %s_0
        // CHECK-NOT: wg.wait
        // CHECK: exp2
        // CHECK-NOT: wg.wait
        // CHECK: %ln_0 = add
        // CHECK-NEXT: wg.wait 0 %on_0
        // CHECK-NEXT: mbar.arrive empty_sv[sv_stage] each warp
        // CHECK-NEXT: advance sv
        // CHECK-NEXT: %h_0 = narrow
        // CHECK: %os_0 = mul %on_0
        // CHECK-NEXT: yield
        // CHECK: %of0 = mma
        // CHECK-NEXT: wg.commit
        // CHECK-NEXT: wg.wait 0 %of0
        // CHECK-NEXT: mbar.arrive empty_sv[sv_stage]
        """,
    )


def test_work_on_an_accumulator_between_products_is_fenced(filecheck: Callable[[str, str], None]) -> None:
    filecheck(
        consumers(chained(), rescale="late"),
        """
        // CHECK: for t0 in 1..4
        // CHECK: %s_0 = mma {{.*}} async
        // CHECK-NEXT: wg.commit
        // CHECK-NEXT: %os_0 = mul %o_0
        // CHECK-NEXT: mbar.wait full_sv
        // CHECK-NEXT: wg.fence
        // CHECK-NEXT: %on_0 = mma {{.*}} + %os_0 over j async
        // CHECK: wg.wait 0 %on_0
        // CHECK: yield
        """,
    )


def test_without_overlap_each_result_is_waited_for() -> None:
    body = consumers(chained(), overlap=False)
    assert body.count("wg.wait 0") == 2 and "wg.wait 1" not in body


def test_pinned_waits() -> None:
    body = consumers(chained(), volatile_waits=True)
    assert body.count("wg.wait") == body.count("volatile") == 4


def test_a_load_waits_for_who_reads_the_stage(filecheck: Callable[[str, str], None]) -> None:
    """Synchronous loads and one buffer: no op reads the result, but the next load overwrites the operand."""
    m = edited(chained(), ("%x0_0 = mul %s_0, %scale", "tma.load sk[0] swizzle 128, K[j, d]\n%x0_0 = mul %s_0, %scale"))
    filecheck(
        ma_format(ordered(m)),
        """
        // CHECK: %s_0 = mma {{.*}} async
        // CHECK-NEXT: wg.commit
        // CHECK-NEXT: wg.wait 0 %s_0
        // CHECK-NEXT: tma.load sk[0]
        """,
    )


def test_a_barrier_waits_where_this_code_writes_the_operand() -> None:
    m = edited(chained(), ("%x0_0 = mul %s_0", "barrier\n%x0_0 = mul %s_0"))
    in_order(ma_format(ordered(m)), "wg.wait 0 %s_0", "barrier", "mul %s_0")


def test_shared_memory_counts_as_a_barrier_where_threads_store_the_operand() -> None:
    """``synchronize`` may place a barrier before the second load; all consumers must have finished with ``sk`` then."""
    layout = "layout #kd = reg(d:2x1, d:8x8, j:4x16) lane(d:4x2, j:8x1) warp(j:2x8, *:2)\n    smem sq :"
    zeros = "%zk = const 0.0 : f16[j: 64, d: 64] #kd\n    %scale = const"
    m = edited(chained(), ("smem sq :", layout), ("%scale = const", zeros))
    load = "tma.load sk[0] swizzle 128, K[t0 * 64 + j, d]"
    both = [edited(m, (load, new)) for new in (load, "st.shared sk[0] swizzle 128, %zk vec 2")]
    loaded, stored = (ma_format(ordered(PipelineMma().apply(x))) for x in both)
    in_order(loaded, "for t0 in 1..4", "wg.commit", "tma.load sv", "wg.wait 1 %s_0", "mul %s_0")
    in_order(stored, "for t0 in 1..4", "wg.commit", "wg.wait 0 %s_0", "tma.load sv", "mul %s_0")


def test_an_accumulator_that_is_used_again_is_not_updated_in_place() -> None:
    m = edited(chained(), ("%on_0 = mma", "%old = neg %os_0 : f32[i: 64, d: 64] #o\n%on_0 = mma"))
    text = ma_format(ordered(m))
    assert text.count(" async") == 1 and "+ %os_0 over j : f32" in text


def test_outstanding_mmas_stay_as_they_are() -> None:
    m = ordered(chained())
    assert AsyncMma().apply(m) is m


def test_an_epilogue_through_an_operand_costs_no_overlap() -> None:
    m = edited(chained(), ("output O: f32", "output O: f16"))
    body = consumers(m, epilogue="tma-aliased")
    assert "st.matrix sq" in body and "wg.wait 1 %s_0" in body


# -- pipelines --------------------------------------------------------------------------------------


def one_pipeline(stages: int) -> MemModule:
    """Both operands of two MMAs come through one shared buffer, with one pipeline; ``role`` code by hand."""
    m = SpecialiseWarps(schedule(chained(), stages=stages)).apply(PipelineMma().apply(chained()))
    text = ma_format(m)
    for old in ("sk", "sv"):
        for part in ("_stage", "_phase"):
            text = text.replace(f"{old}{part}", f"kv{part}")
        text = text.replace(f"advance {old}\n", "advance kv\n")
        text = text.replace(f"full_{old}", "full_kv").replace(f"empty_{old}", "empty_kv")
    lines = []
    for line in text.splitlines():
        if line.strip().startswith(("mbar full_kv", "mbar empty_kv", "pipeline")) and line in lines:
            continue
        lines.append(line.replace("pipeline sk", "pipeline kv"))
    return parse("\n".join(x for x in lines if not x.strip().startswith("pipeline sv")))


def test_a_pipeline_whose_state_is_needed_advances_at_once(filecheck: Callable[[str, str], None]) -> None:
    m = AsyncMma().apply(one_pipeline(2))
    filecheck(
        role(m, "consumers"),
        """
        // CHECK: for t0 in 1..4
        // CHECK: %s_0 = mma {{.*}} async
        // CHECK-NEXT: wg.commit
        // CHECK-NEXT: let [[L:.*]] = kv_stage
        // CHECK-NEXT: advance kv
        // CHECK-NEXT: mbar.wait full_kv[kv_stage] parity kv_phase
        // CHECK: %on_0 = mma {{.*}} async
        // CHECK: wg.wait 1 %s_0
        // CHECK-NEXT: mbar.arrive empty_kv[[[L]]] each warp
        // CHECK-NEXT: mul %s_0
        // CHECK: wg.wait 0 %on_0
        // CHECK-NEXT: mbar.arrive empty_kv[kv_stage] each warp
        // CHECK-NEXT: advance kv
        """,
    )


def test_a_pipeline_of_one_stage_is_released_before_its_next_wait(filecheck: Callable[[str, str], None]) -> None:
    filecheck(
        role(AsyncMma().apply(one_pipeline(1)), "consumers"),
        """
        // CHECK: for t0 in 1..4
        // CHECK: %s_0 = mma {{.*}} async
        // CHECK-NEXT: wg.commit
        // CHECK-NEXT: wg.wait 0 %s_0
        // CHECK-NEXT: mbar.arrive empty_kv[kv_stage] each warp
        // CHECK-NEXT: advance kv
        // CHECK-NEXT: mbar.wait full_kv[kv_stage]
        """,
    )


# -- outstanding MMAs across iterations -------------------------------------------------------


def test_an_accumulating_loop_keeps_a_group_outstanding(filecheck: Callable[[str, str], None]) -> None:
    filecheck(
        consumers(role_programs.product(), stages=3),
        """
        // CHECK: for t in 0..3
        // CHECK-NEXT: mbar.wait full_a_b[a_b_stage] parity a_b_phase
        // CHECK-NEXT: wg.fence
        // CHECK-NEXT: %next = mma {{.*}} + %acc over k async
        // CHECK-NEXT: wg.commit
        // CHECK-NEXT: advance a_b
        // CHECK-NEXT: wg.wait 1
        // CHECK-NEXT: if t >= 1 {
        // CHECK-NEXT: mbar.arrive empty_a_b[a_b_done_stage] each warp
        // CHECK-NEXT: advance a_b_done
        // CHECK-NEXT: }
        // CHECK-NEXT: yield %next
        // CHECK-NEXT: }
        // CHECK-NEXT: wg.wait 0 %c
        // CHECK-NEXT: mbar.arrive empty_a_b[a_b_done_stage] each warp
        // CHECK-NEXT: advance a_b_done
        // CHECK-NEXT: st.global
        """,
    )


def test_a_loop_that_may_not_run_releases_nothing_then() -> None:
    m = edited(role_programs.product(), ("for t in 0..3", "for t in 0..i0"))
    assert "if i0 >= 1 {" in consumers(m, stages=3)


def test_the_release_pipeline_advances_with_tiles_of_others() -> None:
    m = role_programs.product(m=64 * 264, consumers=1)
    body = consumers(m, stages=3, tile_scheduling="pingpong", warpgroups=2, persistent="static")
    assert "advance a_b by 3" in body and "advance a_b_done by 3" in body


def test_every_pipeline_is_declared_once() -> None:
    plan = schedule(role_programs.product(), stages=3)
    m = AsyncMma(plan).apply(SpecialiseWarps(plan).apply(role_programs.product()))
    assert [(c.name, c.stages) for c in m.kernels[0].pipelines] == [("a_b", 3), ("a_b_done", 3)]


@pytest.mark.parametrize(
    ("change", "memory"),
    [
        ((), {"outstanding_mma": False}),
        ((), {"stages": 1}),
        ((("yield %next", "%more = neg %next : f32[i: 64, j: 64] #acc\nyield %more"),), {}),
    ],
)
def test_loops_that_wait_in_every_iteration(change: tuple[tuple[str, str], ...], memory: dict[str, Any]) -> None:
    body = consumers(edited(role_programs.product(), *change), **{"stages": 3, **memory})
    assert "wg.wait 0 %next" in body and "wg.wait 1" not in body


# -- by the interpreter -------------------------------------------------------------------------


def agree(m: MemModule, **memory: Any) -> None:
    """The kernel with roles and outstanding MMAs computes the results of ``m``, without races and without deadlock."""
    from nautilus.ma_tile.interp.module import run_module

    plan = schedule(m, **memory)
    low = m
    for step in (RegisterOperands, PipelineMma, SpecialiseWarps, PersistentGrid, AsyncMma):
        low = step(plan).apply(low)
    low = placed(low)
    rng = np.random.default_rng(5)
    given = [b for b in m.buffers if b.space is Space.INPUT]
    data = {b.name: rng.standard_normal(static(b.shape)).astype(np.float16) for b in given}
    want, got = run_module(m, data), run_module(low, data)
    for name, x in want.items():
        np.testing.assert_array_equal(got[name], x, err_msg=name)


@pytest.mark.parametrize("rescale", ["early", "late"])
@pytest.mark.parametrize(("stages", "overlap", "resident"), [(1, True, False), (2, True, True), (2, False, False)])
def test_back_to_back_gemms_agree(stages: int, overlap: bool, resident: bool, rescale: str) -> None:
    m = chained(("b", "b + 1"), ("0", "b"), ("b + 1", "4"), grid=2, masked=True)
    agree(m, stages=stages, pipeline_mma=overlap, register_operands=resident, rescale_placement=rescale)


def test_several_levels_of_products_agree() -> None:
    agree(backward(), stages=2)


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("outstanding", [False, True])
def test_accumulating_loops_agree(stages: int, outstanding: bool) -> None:
    agree(role_programs.product(), stages=stages, outstanding_mma=outstanding)
    agree(
        edited(role_programs.product(), ("for t in 0..3", "for t in 0..i0")), stages=stages, outstanding_mma=outstanding
    )


def test_tiles_of_ones_own_agree() -> None:
    m = role_programs.product(m=64 * 5, k=256, consumers=1)
    agree(m, stages=3, tile_scheduling="pingpong", warpgroups=2, persistent="static")


RELEASE = "mbar.arrive empty_sv[sv_stage] each warp\nadvance sv\n"
LAST = "mbar.arrive empty_a_b[a_b_done_stage] each warp\nadvance a_b_done\n"

#: what an order that is wrong in one place breaks (lines without indentation)
FAULTS: dict[str, tuple[Callable[[], MemModule], tuple[tuple[str, str], ...], str]] = {
    "an outstanding result is read": (
        chained,
        ((f"wg.wait 0 %on_0\n{RELEASE}", ""), ("yield %mn_0", f"wg.wait 0 %on_0\n{RELEASE}yield %mn_0")),
        "outstanding",
    ),
    "a stage is released while it is read": (
        chained,
        ((f"wg.wait 0 %on_0\n{RELEASE}", f"{RELEASE}wg.wait 0 %on_0\n"),),
        "overwrite-in-use",
    ),
    "the iteration before is still outstanding": (
        role_programs.product,
        (("wg.wait 1\n", "wg.wait 2\n"),),
        "overwrite-in-use",
    ),
    "no release behind the loop": (role_programs.product, ((f"{LAST}st.global", "st.global"),), "deadlock"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_order_is_reported(fault: str) -> None:
    from nautilus.ma_tile.interp.module import InterpError, run_module

    program, changes, kind = FAULTS[fault]
    m = program()
    plan = schedule(m, stages=2, persistent="static")
    steps = (PipelineMma(plan), SpecialiseWarps(plan), PersistentGrid(plan, 1), AsyncMma(plan))
    for step in steps:
        m = step.apply(m)
    text = "\n".join(line.strip() for line in ma_format(placed(m)).splitlines())
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    m = parse(text)
    rng = np.random.default_rng(1)
    given = [b for b in m.buffers if b.space is Space.INPUT]
    data = {b.name: rng.standard_normal(static(b.shape)).astype(np.float16) for b in given}
    with pytest.raises(InterpError) as info:
        for seed in range(8):
            run_module(m, data, seed=seed)
    assert info.value.kind == kind
