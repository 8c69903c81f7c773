"""A tile that no block can hold is refused before its layout is made, and the rules then plan smaller tiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nautilus.core.errors import ScheduleError
from nautilus.core.schedule import AxisPlan, KernelPlan, Schedule, WarpPlan
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.lowering.lower import lower_raw
from tests.ma_tile.lowering.support import plan, tile
from tests.ma_tile.programs.tiles import matmul

TEXT = "dim M = 2048, N = 2048\ninput X: f32[M, N]\noutput Y: f32[M, N]\nY[i, j] = exp(X[i, j])\n"


def test_a_tile_of_more_elements_than_registers_is_refused() -> None:
    axes = (AxisPlan("i", "grid", 1024), AxisPlan("j", "grid", 1024))
    given = Schedule(kernels=(KernelPlan("Y", ("Y",), axes, (("Y",),)),))
    request = Request(Path("given.naut"), "sm_80", text=TEXT, schedule=given)
    with pytest.raises(ScheduleError, match="1048576 elements") as error:
        compile_file(request)
    assert error.value.kernel == "Y" and error.value.excess == pytest.approx(1024 / 255)
    small = tuple(replace(a, tile=32) for a in axes)
    kernels = (replace(given.kernels[0], axes=small),)
    assert compile_file(replace(request, schedule=replace(given, kernels=kernels))).cuda_module.code


def test_a_large_operand_of_a_product_is_in_shared_memory() -> None:
    """A tile of 576 x 64 elements has more than a block has registers, which hold 16 contracted elements at a time."""
    module = tile(matmul(16, 64, 576, 16, 64, 576))
    low = lower_raw(module, plan(module, WarpPlan(warps=(1, 4), stages=0)), "sm_90a")
    assert {tuple(a.size for a in s.axes) for k in low.kernels for s in k.smem} >= {(576, 64)}
