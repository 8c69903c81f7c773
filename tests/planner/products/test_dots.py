"""Products of many small matrices are no matrix products to the planner: a tile has elements of several of them."""

from __future__ import annotations

import pytest

from tests.endtoend.support import complaints, travel

DEPTHWISE = """
    dim B = 2, H = {h}, C = 32, D = {d}, R = {r}
    input X: f16[B, H + R - 1, C], F: f16[R, C, D]
    output Y: f16[B, H, C, D]
    Y[b, y: H, c, k] = sum[r](X[b, y + r, c] * F[r, c, k])
"""
SMALL = """
    dim B = {b}, M = {m}, N = {m}, K = {k}
    input A: f32[B, M, K], C: f32[B, K, N]
    output Y: f32[B, M, N]
    Y[b, i, j] = sum[k](A[b, i, k] * C[b, k, j])
"""
# Scores of the heads of a group: few rows, but a product of as many columns as there are positions.
GROUPED = """
    dim B = 64, H = 4, N = 8192, D = 64
    input Q: f16[B, H, D], K: f16[B, N, D]
    output S: f16[B, H, N]
    S[b, h, j] = sum[d](Q[b, h, d] * K[b, j, d])
"""


def batched(text: str, axis: str) -> bool:
    """Whether the tile of the kernel of ``text`` has several elements along ``axis``, which numbers the matrices."""
    schedule = travel(text, "sm_90a", until="scalar").result.context.schedule
    assert schedule is not None
    return schedule.kernels[-1].axis(axis).tile > 1


@pytest.mark.parametrize(
    ("text", "axis", "expected"),
    [
        (DEPTHWISE.format(h=64, d=2, r=3), "c", True),
        (DEPTHWISE.format(h=64, d=4, r=3), "c", True),
        (DEPTHWISE.format(h=64, d=16, r=16), "c", False),
        (SMALL.format(b=8192, m=8, k=8), "b", True),
        (GROUPED, "b", False),
        (SMALL.format(b=8192, m=8, k=128), "b", False),
        (SMALL.format(b=8192, m=16, k=16), "b", False),
    ],
)
def test_tiles_have_elements_of_several_small_products(text: str, axis: str, expected: bool) -> None:
    assert batched(text, axis) is expected


@pytest.mark.parametrize("text", [DEPTHWISE.format(h=9, d=2, r=3), SMALL.format(b=1030, m=3, k=4)])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(text: str, arch: str) -> None:
    assert complaints(travel(text, arch)) == []
