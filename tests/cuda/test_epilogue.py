"""The printed CUDA of epilogues in chunks: slices, volatile loads, zero-initialised accumulators, no spills."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nautilus.cuda.emit import emit_module
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.finalise.initialise_mbarriers import InitialiseMbarriers
from nautilus.ma_tile.passes.finalise.limit_unrolling import LimitUnrolling
from nautilus.ma_tile.passes.finalise.request_registers import RequestRegisters
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from nautilus.runtime.nvrtc import compile_cuda
from tests.cuda.test_shipped import unused
from tests.ma_tile.ir.test_slices import module
from tests.ma_tile.programs.epilogues import biased, gated, through

LARGE = {"m": 4096, "n": 4096, "k": 4096}
PLAN: dict[str, Any] = {"persistent": "static", "stages": 4}


def built(m: MemModule) -> str:
    """The text of ``m``, which must compile for sm_90a without spills, warnings and serialised wgmma."""
    text = emit_module(RequestRegisters().apply(LimitUnrolling().apply(InitialiseMbarriers().apply(m))))
    done = compile_cuda(text, "sm_90a")
    assert "warning" not in done.log.lower() and "(C7" not in done.log, done.log
    assert all(r.spill_stores == r.spill_loads == r.stack_bytes == 0 for r in done.resources), done.log
    assert unused(text) == []
    return text


def test_text(filecheck: Callable[..., None]) -> None:
    filecheck(
        built(through(biased(rows=128, **LARGE), **{**PLAN, "stages": 3})),
        """
        CHECK: float [[ACC:zero_start]][128];
        CHECK-NEXT: #pragma unroll 1
        CHECK-NEXT: for (int [[T:t[_0-9]*]] = 0;
        CHECK: wgmma_m64n128_f16_st(&[[ACC]][0], desc_a, desc_b, [[T]] != 0);
        CHECK-NEXT: wgmma_m64n128_f16_st(&[[ACC]][0], desc_a + 2, desc_b + 128, 1);
        CHECK: wgmma_m64n128_f16_st(&[[ACC]][64], desc_a + 512, desc_b, [[T]] != 0);
        CHECK: load_pinned_4(bias +
        CHECK: float c0_0[64];
        CHECK: c0_0[r] = [[ACC]][r];
        CHECK: stmatrix_x4(
        CHECK: fence_proxy();
        CHECK-NEXT: if (threadIdx.x % 128 == 0) {
        CHECK-NEXT: tma_wait_read<0>();
        CHECK-NEXT: }
        CHECK-NEXT: named_barrier(1 + consumer, 128);
        CHECK: tma_store_2d(
        CHECK-NOT: load_pinned_4(bias +
        CHECK: c0_0_64[r] = [[ACC]][r + 64];
        CHECK: load_pinned_4(bias +
        """,
    )


@pytest.mark.parametrize(
    ("make", "sizes", "plan"),
    [
        (biased, {"columns": 256, **LARGE}, {}),
        (gated, {"columns": 128, **LARGE}, {}),
        (
            biased,
            {"columns": 128, "rows": 128, "consumers": 1, **LARGE},
            {"tile_scheduling": "pingpong", "ordered_mma": True, "stages": 5},
        ),
        (biased, {"columns": 192, "m": 1000, "n": 1064, "k": 192}, {}),
    ],
)
def test_compiles_without_a_spill(make: Callable[..., MemModule], sizes: dict[str, Any], plan: dict[str, Any]) -> None:
    text = built(through(make(**sizes), **{**PLAN, **plan}))
    assert "load_pinned" in text or make is gated


@pytest.mark.parametrize("right", ["slice %x at j 32", "slice %x at j 64"])
def test_slices_of_packed_registers(right: str, filecheck: Callable[..., None]) -> None:
    m = module(f"{right} : f16[i: 128, j: 32] #part", "vec 2 volatile")
    verify(m)
    first = int(right.split()[-1]) // 4
    filecheck(
        built(m),
        f"""
        CHECK: u32 y[16];
        CHECK-NEXT: y[0] = x[{first}];
        CHECK: y[8] = x[{first + 32}];
        """,
    )


@pytest.mark.parametrize(("dtype", "vec", "call"), [("f32", 4, "16"), ("f32", 2, "8"), ("f16", 1, "2"), ("i8", 1, "1")])
def test_pinned_loads_of_every_width(dtype: str, vec: int, call: str) -> None:
    m = parse(f"""
module volatile target sm_90a {{
  input X: {dtype}[128]
  output Y: {dtype}[128]
  kernel volatile grid 1 warps 1 min_blocks 1 {{
    layout #l = reg(j:4x1) lane(j:32x4) warp()
    %x = ld.global X[j] where j < 100 vec {vec} volatile : {dtype}[j: 128] #l
    st.global Y[j], %x vec 1
  }}
}}
""")
    verify(m)
    assert f"load_pinned_{call}(" in built(m)
