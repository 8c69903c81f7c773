"""What the passes of the MA-tile level do to the text of a kernel, and that it still runs."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from nautilus.core.errors import ScheduleError
from nautilus.core.schedule import WarpPlan
from nautilus.ma_tile.interp.module import InterpError
from nautilus.ma_tile.ir.ops import AsyncWait, Barrier, ForOp, MemModule, walk_ops
from nautilus.ma_tile.ir.traverse import rebuild
from nautilus.ma_tile.lowering.lower import lower_raw
from nautilus.ma_tile.passes.copies.pipeline_copies import PipelineCopies
from nautilus.ma_tile.passes.copies.prefetch_fragments import PrefetchFragments
from nautilus.ma_tile.passes.finalise.allocate_shared import AllocateShared, live_ranges
from nautilus.ma_tile.passes.finalise.dead_fragments import DeadFragments
from nautilus.ma_tile.passes.finalise.synchronize import Synchronize
from nautilus.ma_tile.text import format as ma_format
from tests.ma_tile.lowering.support import agree, compiled, count, in_order, lowered, plan, tile
from tests.ma_tile.programs.tiles import attention, matmul

FLASH = attention(64, 64, 32, 32, 16)
GEMM = matmul(128, 64, 96, 64, 32, 32)


def loops(low: MemModule) -> list[ForOp]:
    return [op for op in walk_ops(low.kernels[0].body) if isinstance(op, ForOp)]


def barriers(op: ForOp) -> int:
    return sum(isinstance(x, Barrier) for x in walk_ops((op,)))


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_pipeline_has_one_barrier_an_iteration(stages: int) -> None:
    low = compiled(GEMM, WarpPlan(warps=(2, 2), stages=stages), carry=False)
    assert [barriers(x) for x in loops(low)] == [1]
    fetch = [
        rf"cp\.wait {stages - 2}\n\s*barrier", rf"if k0 < {4 - stages}",
        rf"cp\.async s_at\[\(k0( \+ {stages - 1})?\) % {stages}\]", r"cp\.commit",
    ]  # fmt: skip
    if stages == 4:  # more than the three iterations have
        fetch = [rf"cp\.commit\n\s*cp\.wait {stages - 1}\n\s*barrier"]
    in_order(
        low, rf"smem s_at : .* stages {stages} ", r"cp\.async s_at\[0\]", r"cp\.commit", r"for k0 in 0\.\.3",
        *fetch, rf"mma .* smem s_at\[k0 % {stages}\]",
    )  # fmt: skip


def test_one_buffer_is_refilled_after_its_last_reader() -> None:
    low = compiled(FLASH, WarpPlan(warps=(2, 1), stages=1))
    assert [barriers(x) for x in loops(low)] == [2, 2]
    in_order(
        low,
        r"cp\.async s_q", r"cp\.async s_kt1\[0\].* K\[h, j, k\]", r"cp\.async s_v1\[0\].* V\[h, j, d\]",
        r"for j0 in .* chain c",
        r"%s1 = mma", r"cp\.wait 0\n\s*barrier", r"cp\.async s_kt1\[0\].* K\[h, j0 \* 16 \+ j \+ 16, k\]",
        r"exp2", r"%on1 = mma", r"cp\.wait 0\n\s*barrier", r"cp\.async s_v1\[0\]", r"yield",
        r"for j0 in .* chain c",
        r"%s2 = mma .* s_kt1",
    )  # fmt: skip


def test_a_chain_keeps_its_pipeline_full_between_its_loops() -> None:
    low = compiled(FLASH, WarpPlan(warps=(2, 1), stages=3))
    first, second = loops(low)
    assert barriers(first) == barriers(second) == 1
    prologue = ma_format(low).split("for j0")[1:]
    assert "cp.async" not in prologue[0].split("yield")[1]  # nothing is issued anew between the loops


def test_masks_of_a_later_loop_reach_the_copies_issued_for_it() -> None:
    low = compiled(attention(77, 77, 32, 32, 16), WarpPlan(warps=(2, 1), stages=2))
    in_order(low, r"cp\.async s_kt1\[\(j0 \+ 1\) % 2\].* where .* or j0 \* 16 \+ j < 61 ")


def test_without_stages_nothing_overlaps() -> None:
    low = compiled(GEMM, WarpPlan(warps=(2, 2), stages=0))
    in_order(low, r"for k0", r"cp\.async s_at", r"cp\.async s_bt", r"cp\.wait 0\n\s*barrier", "mma", "yield")


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("text", [FLASH, GEMM])
def test_every_barrier_and_wait_in_a_loop_is_needed(text: str, stages: int) -> None:
    module = tile(text)
    low = lowered(module, WarpPlan(warps=(2, 1), stages=stages))
    kernel = low.kernels[0]
    inside = [x for loop in loops(low) for x in walk_ops((loop,)) if isinstance(x, Barrier | AsyncWait)]
    for gone in inside:
        body = rebuild(kernel.body, lambda op, gone=gone: () if op is gone else (op,))  # type: ignore[misc]
        with pytest.raises(InterpError):
            agree(module, replace(low, kernels=(replace(kernel, body=body),)))


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_fragments_are_carried_across_iterations(stages: int) -> None:
    low = compiled(GEMM, WarpPlan(warps=(2, 2), stages=stages))
    assert [barriers(x) for x in loops(low)] == [1]
    in_order(
        low,
        r"for k0 in 0\.\.2 carry",
        r"ld\.matrix s_at\[k0 % \d\] swizzle 64 at k 16", r"mma .*%s_at_f2, %s_bt_f2 \+ %ci", r"cp\.commit",
        rf"cp\.wait {stages - 2}\n\s*barrier",
        rf"ld\.matrix s_at\[\(k0 \+ 1\) % {stages}\] swizzle 64 at k 0", r"mma .*%s_at_f3, %s_bt_f3",
        r"yield", r"ld\.matrix .* at k 16", r"mma", r"%c = mma",
    )  # fmt: skip


def test_synchronize_is_idempotent() -> None:
    low = lowered(tile(FLASH), WarpPlan(warps=(2, 1), stages=2))
    assert Synchronize().apply(low) == low


def test_the_epilogue_shares_bytes_with_dead_operands() -> None:
    low = compiled(GEMM, WarpPlan(warps=(2, 2), stages=2))
    kernel = low.kernels[0]
    ranges = live_ranges(kernel)
    out = next(s for s in kernel.smem if s.name == "out_C")
    pipelined = [s for s in kernel.smem if s is not out]
    assert kernel.smem_bytes == sum(s.bytes for s in pipelined)
    assert all(ranges[s.name][1] < ranges[out.name][0] for s in pipelined)


def test_too_much_shared_memory_is_refused_with_numbers() -> None:
    module = tile(GEMM)
    raw = lower_raw(module, plan(module, WarpPlan(warps=(2, 2))), "sm_80")
    needed = r"kernel C: \d+ bytes of shared memory are needed, but a block may have 4096"
    with pytest.raises(ScheduleError, match=needed):
        AllocateShared(limit=4096).apply(raw)


def test_swizzled_buffers_are_aligned_to_their_pattern() -> None:
    low = lowered(tile(attention(64, 64, 64, 32, 16)), WarpPlan(warps=(2, 1)))
    for s in low.kernels[0].smem:
        assert s.swizzle == 0 or s.offset % (8 * s.swizzle) == 0


def test_fragments_are_read_ahead_where_both_operands_are_shared() -> None:
    low = PrefetchFragments(prefetch_fragments=2).apply(lowered(tile(FLASH), WarpPlan(warps=(2, 1))))
    assert count(low, "ahead 2") == 2


def test_dead_fragments_go() -> None:
    module = tile(FLASH)
    raw = lower_raw(module, plan(module, WarpPlan(warps=(2, 1))), "sm_80")
    text = ma_format(DeadFragments().apply(raw))
    for name in re.findall(r"layout #(\w+) =", text):
        assert len(re.findall(rf"#{name}\b", text)) > 1


def test_passes_have_names_and_leave_finished_kernels_alone() -> None:
    low = lowered(tile(GEMM), WarpPlan(warps=(2, 2), stages=2))
    assert PipelineCopies(stages=2).name == "pipeline-copies"
    assert PipelineCopies(stages=2).apply(low) == low
