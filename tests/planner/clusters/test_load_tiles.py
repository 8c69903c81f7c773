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
        (4097, 4104, 4104, (256, 192, "cooperative"), 2),  # 17 tiles of rows, and one outside, make nine pairs
    ],
)
def test_the_tile_with_fewest_rows_to_load(m: int, n: int, k: int, tile: tuple[int, int, str], cluster: int) -> None:
    (kernel,) = schedule_of(PRODUCT.format(m=m, n=n, k=k)).kernels
    plan, sizes = kernel.mapping, {a.name: a.tile for a in kernel.axes}
    assert isinstance(plan, WarpgroupPlan)
    assert ((sizes["i"], sizes["j"], plan.tile_scheduling), plan.cluster) == (tile, cluster)


def test_a_product_of_8_bit_floats_keeps_a_tile_with_registers_for_two_sums() -> None:
    """Its tile has two sets of accumulators, for which larger ones have no registers."""
    text = PRODUCT.replace("bf16[M, K], B: bf16[K, N]", "f8e4m3[M, K], B: f8e4m3[N, K]").replace("B[k, j]", "B[j, k]")
    text = text.replace("A[i, k] * B[j, k]", "f32(A[i, k]) * f32(B[j, k])").replace("C: bf16", "C: f16")
    (kernel,) = schedule_of(text.format(m=4096, n=4096, k=4112)).kernels
    assert isinstance(kernel.mapping, WarpgroupPlan) and kernel.mapping.cluster == 2
    assert [a.tile for a in kernel.axes] == [128, 128, 128]
