"""Products of few rows stream the other operand in narrow tiles, with as many stages as shared memory holds."""

from __future__ import annotations

import pytest

from nautilus.core.schedule import KernelPlan, WarpgroupPlan, WarpPlan
from tests.endtoend.support import travel

TEXT = """
dim M = {}, N = {}, K = 4096
input X: {}[M, K]
input W: {}[N, K]
output Y: f16[M, N]
Y[i, j] = sum[k](X[i, k] * W[j, k])
"""


def planned(m: int, n: int = 4096, left: str = "f16", right: str = "f16", arch: str = "sm_90a") -> KernelPlan:
    """The first kernel of a product of ``m`` rows and ``n`` columns."""
    schedule = travel(TEXT.format(m, n, left, right), arch, until="scalar").result.context.schedule
    assert schedule is not None
    return schedule.kernels[0]


@pytest.mark.parametrize(
    ("m", "rows", "columns"), [(17, 24, 64), (48, 48, 64), (64, 64, 32), (128, 128, 32), (200, 104, 64)]
)
def test_tiles_have_the_rows_that_there_are(m: int, rows: int, columns: int) -> None:
    """Rows that a tensor does not have are slow to load, so the instruction has them as its columns."""
    plan = planned(m)
    assert (plan.axis("i").tile, plan.axis("j").tile) == (rows, columns)
    assert isinstance(plan.mapping, WarpgroupPlan) and plan.mapping.warpgroups == 1
    assert plan.mapping.stages * 128 * (rows + columns) > 192 << 10


def test_sixteen_rows_are_clusters_of_warps() -> None:
    plan = planned(16)
    assert isinstance(plan.mapping, WarpPlan)
    assert (plan.axis("j").tile, plan.mapping.stages, plan.mapping.cluster) == (64, 14, 2)


def test_blocks_of_a_second_wave_share_multiprocessors() -> None:
    assert [planned(32, n).mapping.min_blocks for n in (8192, 14336)] == [1, 2]


def test_bytes_have_steps_of_whole_rows() -> None:
    assert planned(16, left="f8e4m3", right="f8e4m3").axis("k").tile == 128
    assert planned(17, left="i8", right="i8").axis("i").tile == 32


@pytest.mark.parametrize(
    ("m", "right", "arch"), [(256, "f16", "sm_90a"), (17, "i8", "sm_90a"), (17, "f16", "sm_80")],
    ids=["many rows", "converted operands", "a target without warpgroups"],
)  # fmt: skip
def test_other_products_keep_their_rules(m: int, right: str, arch: str) -> None:
    plan = planned(m, right=right, arch=arch)
    assert isinstance(plan.mapping, WarpPlan) or plan.mapping.warpgroups == 2
