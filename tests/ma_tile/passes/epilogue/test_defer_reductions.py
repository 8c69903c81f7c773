"""``defer-reductions``: a fused kernel still runs; a sum that stays open is an error. See ``defer_reductions.ma``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nautilus.core.errors import VerifyError
from nautilus.core.schedule import WarpPlan
from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.ir.ops import MemModule, ReduceOp, walk_ops
from nautilus.ma_tile.lowering.lower import lower_raw
from nautilus.ma_tile.passes.epilogue.defer_reductions import DeferReductions
from nautilus.ma_tile.passes.finalise.allocate_shared import AllocateShared
from nautilus.ma_tile.passes.finalise.synchronize import Synchronize
from nautilus.ma_tile.verify.module import verify
from tests.ma_tile.faults import edit_ops
from tests.ma_tile.lowering.support import agree, in_order, inputs, plan, tile
from tests.ma_tile.programs.tiles import attention

FLASH = attention(64, 64, 32, 32, 16)


def deferred(source: str, warps: tuple[int, int] = (2, 1)) -> MemModule:
    """Lowered without overlap, running sums deferred; compared with the VR-tile program."""
    module = tile(source)
    raw = lower_raw(module, plan(module, WarpPlan(warps=warps)), "sm_80")
    low = Synchronize().apply(AllocateShared().apply(DeferReductions().apply(raw)))
    agree(module, low)
    return low


def sums(low: MemModule) -> list[ReduceOp]:
    return [op for op in walk_ops(low.kernels[0].body) if isinstance(op, ReduceOp) and op.combiner == "sum"]


def test_a_running_sum_finishes_after_the_last_loop() -> None:
    low = deferred(FLASH)
    in_order(
        low,
        r"for j0 in .* chain c", r"reduce max .* over j :", r"reduce sum .* over j into j_lane :", r"yield",
        r"for j0 in .* chain c", r"reduce sum .* over j into j_lane :", r"yield",
        r"reduce sum %lf_j_lane over j_lane : f32\[i: 32\]",
    )  # fmt: skip
    assert [op.into for op in sums(low)] == ["j_lane", "j_lane", None]
    assert DeferReductions().apply(low) == low


def test_a_sum_that_never_finishes_is_noticed() -> None:
    """The last step cut down to the registers: lanes disagree about an element that they all hold."""
    low = deferred(FLASH)
    last = sums(low)[-1]
    broken = edit_ops(low, lambda op: op == last, lambda _: (replace(last, into="t"),))
    with pytest.raises(VerifyError, match="keeps the other axes"):
        verify(broken)
    with pytest.raises(InterpError, match="reduce sum %lf_j_lane"):
        run_module(broken, inputs(tile(FLASH)))
