"""Variances whose elements do not stay on chip: one kernel has the chunks, a small one combines them."""

from __future__ import annotations

from typing import Any

import pytest

from nautilus.scalar.passes.axes import chunk_moments
from tests.endtoend.support import check, travel

IMAGES = """
    dim B = {b}, C = {c}, H = {h}, W = {w}
    input X: f32[B, C, H, W]
    output Y: f32[B, C, H, W]
    mu[b, g: C // 2] = mean[c: 2, y, x](X[b, g * 2 + c, y, x])
    va[b, g: C // 2] = mean[c: 2, y, x](square(X[b, g * 2 + c, y, x] - mu[b, g]))
    Y[b, c, y, x] = (X[b, c, y, x] - mu[b, c // 2]) * rsqrt(va[b, c // 2] + 1e-5)
"""

COLUMNS = """
    dim M = 8192, N = 1024
    input X: f32[M, N]
    output m: f32[N], v: f32[N]
    m[j] = mean[i](X[i, j])
    v[j] = mean[i]((X[i, j] - m[j]) ** 2)
"""


def test_a_chunk_is_a_tile_of_its_own_kernel() -> None:
    schedule = travel(IMAGES.format(b=16, c=16, h=512, w=512), "sm_90a", until="scalar").result.context.schedule
    assert schedule is not None
    first, second, _ = schedule.kernels
    assert first.ops == ("mu_sum_chunk", "va_sum_chunk") and second.ops == ("mu_sum", "va_sum")
    assert all(a.role != "loop" for a in first.axes) and len(first.phases) == 2


def test_chunks_of_the_columns_of_a_sector_are_a_tile() -> None:
    """The mean is an output of its own."""
    schedule = travel(COLUMNS, "sm_90a", until="scalar").result.context.schedule
    assert schedule is not None
    first, second = schedule.kernels
    assert first.ops == ("m_sum_chunk", "v_sum_chunk") and {"m_sum", "v_sum"} <= {*second.ops}
    assert first.axis("j").tile == 8 and first.axis("i").role == "tile"


def test_sums_that_stay_in_l2_are_not_cut() -> None:
    schedule = travel(IMAGES.format(b=16, c=16, h=64, w=64), "sm_90a", until="scalar").result.context.schedule
    assert schedule is not None
    assert not any("chunk" in op for k in schedule.kernels for op in k.ops)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_all_levels_agree_on_chunks(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, Any] = {"BLOCK_REGISTERS": 8, "CACHED": 0, "SHORTEST": 2, "TILE": 32}
    for name, value in limits.items():
        monkeypatch.setattr(chunk_moments, name, value)
    made = check(IMAGES.format(b=2, c=4, h=5, w=7), arch)
    schedule = made.result.context.schedule
    assert schedule is not None and any("va_sum_chunk" in k.ops for k in schedule.kernels)
