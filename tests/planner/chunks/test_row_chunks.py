"""Sums of columns beside statistics of rows: gradients of norms read their operands once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from nautilus.core.schedule import AxisPlan, KernelPlan, PackPlan, Schedule, SplitPlan, WarpPlan
from nautilus.driver import Request, compile_file
from tests.endtoend.support import at_all_levels, complaints

LAYER_NORM = """
    dim M = 32768, D = 1024
    input x: f16[M, D], g: f16[M, D], w: f32[D]
    output dx: f16[M, D]
    output dw: f32[D]
    output db: f32[D]
    mu[m] = mean[d](f32(x[m, d]))
    rs[m] = rsqrt(mean[d](square(f32(x[m, d]) - mu[m])) + 1e-5)
    xh[m, d] = (x[m, d] - mu[m]) * rs[m]
    wg[m, d] = g[m, d] * w[d]
    dx[m, d] = rs[m] * (wg[m, d] - mean[k: D](wg[m, k]) - xh[m, d] * mean[k: D](wg[m, k] * xh[m, k]))
    dw[d] = sum[m](g[m, d] * xh[m, d])
    db[d] = sum[m](f32(g[m, d]))
"""


def schedule_of(text: str) -> Schedule:
    """The schedule of the rules and the cost model."""
    found = compile_file(Request(Path("given.naut"), "sm_90a", text=text, until="ma-tile")).context.schedule
    assert found is not None
    return found


def test_one_kernel_reads_the_tensors() -> None:
    """With kernels of rows and of columns, both tensors are read twice."""
    found = schedule_of(LAYER_NORM)
    assert found.packs == (PackPlan("dw", "m", 64),)
    assert found.splits == (SplitPlan("dw", "m_group", 512, 1), SplitPlan("db", "m_group", 512, 1))
    (first, *rest) = found.kernels
    assert {"dx", "dw_part", "db_part"} <= set(first.ops)
    assert [(a.name, a.role, a.tile) for a in first.axes] == [
        ("m_group", "grid", 1), ("m_member", "loop", 1), ("d", "tile", 1024),
    ]  # fmt: skip
    assert [k.ops for k in rest] == [("dw",), ("db",)]


@pytest.mark.parametrize(
    "text",
    [
        LAYER_NORM.replace("M = 32768", "M = 256"),  # fits in L2, where a second read is no cost
        LAYER_NORM.replace("M = 32768", "M = 32771"),  # no groups of equal size
        LAYER_NORM.replace("[d] = sum[m](", "[d] = sum[m | m < 100]("),
    ],
)
def test_others_keep_their_kernels(text: str) -> None:
    assert not any(p.axis == "m" for p in schedule_of(text).packs or ())


ROWS = ("mu_sum", "rs_sum", "dx_sum", "dx_sum_2", "dx", "dw_part", "db_part")
DIRECT = WarpPlan(warps=(1, 2), stages=1, epilogue="direct")


def test_the_results_are_right() -> None:
    text = LAYER_NORM.replace("M = 32768, D = 1024", "M = 30, D = 37")
    axes = AxisPlan("m_group", "grid", 1), AxisPlan("m_member", "loop", 2), AxisPlan("d", "tile", 64)
    ends = AxisPlan("d", "grid", 16), AxisPlan("m_group", "tile", 8)
    schedule = Schedule(
        inline=("mu", "rs", "xh", "wg"),
        packs=(PackPlan("dw", "m", 6),),
        splits=(SplitPlan("dw", "m_group", 5, 1), SplitPlan("db", "m_group", 5, 1)),
        kernels=(
            KernelPlan("rows", ROWS, axes, (ROWS,), mapping=DIRECT),
            KernelPlan("dw", ("dw",), ends, (("dw",),), mapping=replace(DIRECT, warps=(1, 1))),
            KernelPlan("db", ("db",), ends, (("db",),), mapping=replace(DIRECT, warps=(1, 1))),
        ),
    )
    made = at_all_levels(Request(Path("given.naut"), "sm_90a", text=dedent(text).lstrip(), schedule=schedule))
    wrong = complaints(made, stages=("scalar", "vr-tile", "ma-tile"))
    assert not wrong, "\n".join(wrong)
