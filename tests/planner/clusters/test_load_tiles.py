"""Tiles of products whose loads take longer than the matrix units."""

from __future__ import annotations

import pytest

from nautilus.core.schedule import WarpgroupPlan
from tests.planner.plans import schedule_of

PRODUCT = """dim M = {m}, N = {n}, K = {k}
input A: bf16[M, K], B: bf16[K, N]
output C: bf16[M, N]
C[i, j] = sum[k](A[i, k] * B[k, j])
"""


@pytest.mark.parametrize(
    ("m", "n", "k", "tile", "cluster"),
    [
        (4096, 4104, 4104, (256, 192, "cooperative"), 2),  # rows of both operands lie in two lines
        (4096, 4160, 4104, (256, 192, "cooperative"), 1),  # those of one
        (4096, 4160, 4160, (128, 128, "pingpong"), 1),  # none: eight whole waves
        (4097, 4104, 4104, (256, 192, "cooperative"), 1),  # 17 tiles of rows share no loads
    ],
)
def test_the_tile_with_fewest_rows_to_load(m: int, n: int, k: int, tile: tuple[int, int, str], cluster: int) -> None:
    (kernel,) = schedule_of(PRODUCT.format(m=m, n=n, k=k)).kernels
    plan, sizes = kernel.mapping, {a.name: a.tile for a in kernel.axes}
    assert isinstance(plan, WarpgroupPlan)
    assert ((sizes["i"], sizes["j"], plan.tile_scheduling), plan.cluster) == (tile, cluster)
