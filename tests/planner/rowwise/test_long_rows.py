"""Rows that are read again, longer than the general rule allows; large operands that many results share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from nautilus.core.schedule import KernelPlan, WarpPlan
from nautilus.cuda.module import CudaModule
from nautilus.driver import Request, build_cubin
from nautilus.runtime import nvrtc
from nautilus.runtime.nvrtc import Compiled
from tests.endtoend.support import complaints, travel

SOFTMAX = """
    dim M = 64, N = {n}
    input X: {dtype}[M, N]
    output Y: {dtype}[M, N]
    Y[i, j] = softmax[j](X[i, j])
"""
WEIGHTED = """
    dim M = 64, N = {n}
    input X: f32[M, N]
    input w: f32[N]
    output Y: f32[M, N]
    Y[i, j] = X[i, j] * rsqrt(mean[k: N](X[i, k] * X[i, k]) + 1e-6) * w[j]
"""
SUM = """
    dim M = 4096, N = {n}
    input X: f32[M, N]
    output y: f32[M]
    y[i] = sum[j](X[i, j])
"""
DIVERGENCE = """
    dim M = 4096, N = {n}
    input P: f16[M, N]
    input Q: f16[M, N]
    output d: f32[M]
    d[i] = sum[j](softmax[j](P[i, j]) * (log_softmax[j](P[i, j]) - log_softmax[j](Q[i, j])))
"""
POSITIONS = """
    dim B = {b}, S = {s}, D = 64
    input X: f32[B, S, D]
    input P: f32[S, D]
    output Y: f32[B, S, D]
    Y[b, s, d] = X[b, s, d] + P[s, d]
"""


def plan_of(text: str) -> KernelPlan:
    schedule = travel(text, "sm_90a", until="scalar").result.context.schedule
    assert schedule is not None
    return schedule.kernels[-1]


def shape(plan: KernelPlan) -> tuple[str, int, int]:
    """Role and tile of the last axis, and the number of warps."""
    assert isinstance(plan.mapping, WarpPlan)
    return plan.axes[-1].role, plan.axes[-1].tile, plan.mapping.warps[0] * plan.mapping.warps[1]


@pytest.mark.parametrize(
    ("text", "n", "expected"),
    [
        (SOFTMAX, 8192, ("tile", 8192, 8)),
        (SOFTMAX, 16384, ("tile", 16384, 8)),
        (SOFTMAX, 16000, ("tile", 16384, 8)),
        (SOFTMAX, 32768, ("tile", 32768, 16)),
        (DIVERGENCE, 32000, ("loop", 4096, 4)),
        (SOFTMAX, 12288, ("loop", 4096, 4)),  # a quarter of a tile would be unused
        (SOFTMAX.replace("M = 64", "M = 512"), 40960, ("loop", 8192, 8)),
        (SOFTMAX, 65536, ("loop", 16384, 16)),
        (WEIGHTED, 16384, ("tile", 16384, 8)),
        (WEIGHTED, 32768, ("loop", 16384, 16)),  # two operands have no room in registers
        (SUM, 65536, ("loop", 4096, 4)),  # one pass
    ],
)
def test_rows_of_f32(text: str, n: int, expected: tuple[str, int, int]) -> None:
    assert shape(plan_of(text.format(n=n, dtype="f32"))) == expected


@pytest.mark.parametrize(("rows", "role"), [(8192, "loop"), (64, "tile")])  # few rows in a loop are slower
def test_a_row_whose_registers_spill_is_a_loop(rows: int, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"""
        dim M = {rows}, N = 32000
        input X: bf16[M, N]
        output H: f32[M]
        P[i, j] = softmax[j](X[i, j])
        H[i] = -sum[j](P[i, j] * log(P[i, j] + 1e-9))
    """
    build, seen = nvrtc.build, list[str]()

    def spilling(module: CudaModule, arch: str) -> Compiled:
        """The first text that is assembled spills, as long rows do in some versions of ptxas."""
        made = build(module, arch)
        seen.append(module.text)
        return (
            made
            if len(seen) > 1
            else replace(made, resources=tuple(replace(r, spill_stores=96) for r in made.resources))
        )

    monkeypatch.setattr(nvrtc, "build", spilling)
    result, _ = build_cubin(Request(Path("given.naut"), "sm_90a", text=dedent(text).lstrip()))
    assert result.context.schedule is not None and seen
    assert [k.axes[-1].role for k in result.context.schedule.kernels] == [role]


def test_results_share_the_elements_of_a_large_operand() -> None:
    plan = plan_of(POSITIONS.format(b=32, s=65536))
    assert [a.tile for a in plan.axes] == [16, 4, 64]
    assert plan_of(POSITIONS.format(b=32, s=128)).axes[0].tile == 1  # a small one stays in the cache


@pytest.mark.parametrize("text", [SOFTMAX.format(n=16000, dtype="f16"), POSITIONS.format(b=3, s=16421)])
def test_their_values(text: str) -> None:
    assert complaints(travel(text.replace("M = 64", "M = 3"), "sm_90a")) == []
