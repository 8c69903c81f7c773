"""Products whose neighbouring blocks share loads, because rows of operands lie in two lines of memory."""

from __future__ import annotations

import pytest

from nautilus.core.schedule import WarpgroupPlan
from nautilus.targets.memory_rates import split_rows
from tests.planner.plans import schedule_of

PRODUCT = """dim P = {p}, M = {m}, N = {n}, K = {k}
input A: {t}[{a}], B: {t}[{b}]
output C: f32[P, M, N]
C[p, i, j] = sum[k](A[{x}] * B[{y}])
"""
ALONG, ACROSS = ("P, M, K", "P, N, K", "p, i, k", "p, j, k"), ("P, M, K", "P, K, N", "p, i, k", "p, k, j")
APART = ("K, P, M", "K, P, N", "k, p, i", "k, p, j")


@pytest.mark.parametrize(
    ("sizes", "places", "dtype", "cluster"),
    [
        ((1, 4096, 4096, 4104), ALONG, "f16", 2),
        ((1, 4096, 4096, 4104), ACROSS, "f16", 1),  # rows of one operand alone
        ((1, 4096, 4104, 4104), ACROSS, "bf16", 2),  # tiles of two warpgroups apart
        ((1, 4096, 4096, 4160), ALONG, "f16", 1),  # rows of 65 lines
        ((1, 4096, 4096, 4097), ALONG, "f16", 1),  # rows that are stored in 65 lines
        ((3, 1024, 2048, 1096), ALONG, "f16", 2),
        ((1, 4000, 4000, 1024), APART, "f16", 2),
        ((1, 1152, 8192, 4104), ALONG, "f16", 2),  # nine tiles of rows, and one outside
        ((1, 4096, 4096, 4112), ALONG, "i8", 2),
    ],
)
def test_blocks_share_loads_that_take_longer_than_products(
    sizes: tuple[int, int, int, int], places: tuple[str, str, str, str], dtype: str, cluster: int
) -> None:
    """H200, 4096 x 4096 x 4104 with both operands along k: 282 us alone and 199 in pairs; one operand 191 and 194."""
    p, m, n, k = sizes
    a, b, x, y = places
    text = PRODUCT.format(p=p, m=m, n=n, k=k, a=a, b=b, x=x, y=y, t=dtype)
    text = text.replace("f32[P", "i32[P").replace("A[p, i, k]", "i32(A[p, i, k])") if dtype == "i8" else text
    mappings = [kernel.mapping for kernel in schedule_of(text).kernels]
    assert [m.cluster for m in mappings if isinstance(m, WarpgroupPlan)] == [cluster]


def test_rows_in_two_lines() -> None:
    assert split_rows(128, [8208]) == 7 / 8 and split_rows(128, [8320]) == 0
    assert split_rows(64, [96]) == 1 / 4 and split_rows(64, [64]) == 0 and split_rows(128, [256], 2) == 1


@pytest.mark.parametrize(("size", "cluster"), [("runtime <= 65536", 2), ("device <= 65536", 1)])
def test_blocks_of_a_grid_that_the_host_knows_at_launch_share_loads(size: str, cluster: int) -> None:
    """Of a size in the memory of the device it launches blocks for the bound."""
    a, b, x, y = ALONG
    text = PRODUCT.format(p=1, m="M", n=4096, k=4104, a=a, b=b, x=x, y=y, t="f16").replace("M = M", f"M = {size}")
    (kernel,) = schedule_of(text).kernels
    assert isinstance(kernel.mapping, WarpgroupPlan) and kernel.mapping.cluster == cluster
