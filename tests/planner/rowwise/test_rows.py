"""Reductions over several axes, kept apart by weights: which axes are tiles, which one is the loop, on every level."""

from __future__ import annotations

import pytest

from nautilus.core.schedule import KernelPlan, WarpPlan
from tests.endtoend.support import compiled, complaints, travel

NEAR = """
    dim B = 3, M = 70, N = 130
    input X: f16[B, M, N]
    output y: f32
    input w: f32[M]
    y = sum[b, i, j](square(f32(X[b, i, j])) * w[i])
"""
LONG = """
    dim M = 3, N = 9001
    input X: f32[M, N]
    output y: f32[M]
    y[m: M] = max[i: 2, j](X[m, j] * (1 + i))
"""
STATISTICS = """
    dim B = 5, C = 2, H = 41, W = 63
    input X: f32[B, C, H, W]
    input w: f32[H]
    output Y: f32[B, C, H, W]
    mu[c] = mean[b, y, x](X[b, c, y, x])
    va[c] = mean[b, y, x](square(X[b, c, y, x] - mu[c]))
    Y[b, c, y, x] = (X[b, c, y, x] - mu[c]) * rsqrt(va[c] + 1e-5) * w[y]
"""
GROUPS = """
    dim B = 2, C = 6, H = 65, W = 63
    input X: f16[B, C, H, W]
    input w: f16[C, H]
    output Y: f16[B, C, H, W]
    mu[n, g: 2] = mean[c: 3, y, x](f32(X[n, g * 3 + c, y, x]))
    va[n, g: 2] = mean[c: 3, y, x](square(X[n, g * 3 + c, y, x] - mu[n, g]))
    Y[n, c, y, x] = (X[n, c, y, x] - mu[n, c // 3]) * rsqrt(va[n, c // 3] + 1e-5) * w[c, y]
"""
COLUMNS = """
    dim B = 3, M = 301, C = 40
    input X: bf16[B, M, C]
    input w: f32[M]
    output y: f32[C]
    y[c] = sum[b, i](f32(X[b, i, c]) * w[i])
"""
GRID = {"n": ("grid", 1), "c_group": ("grid", 1)}


def roles(plan: KernelPlan) -> dict[str, tuple[str, int]]:
    return {a.name: (a.role, a.tile) for a in plan.axes}


def test_reductions_over_different_axes_keep_the_loop_that_they_share() -> None:
    text = """
        dim M = 64, N = 9000, D = 2048
        input Z: f32[M, N]
        input A: f32[M, D]
        output y: f32[M]
        y[i] = logsumexp[j](Z[i, j]) - sum[d](A[i, d] * A[i, d])
    """
    schedule = travel(text, "sm_90a", until="scalar").result.context.schedule
    assert schedule is not None
    assert all(roles(k)["j"] == ("loop", 4096) for k in schedule.kernels if "j" in roles(k))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NEAR, {"i": ("loop", 8), "b": ("tile", 4), "j": ("tile", 256)}),
        (LONG, {"m": ("grid", 1), "i": ("tile", 2), "j": ("loop", 4096)}),
        (STATISTICS, {"c": ("grid", 1), "b": ("loop", 2), "y": ("tile", 64), "x": ("tile", 64)}),
        (GROUPS, GRID | {"c_member": ("loop", 1), "y": ("tile", 128), "x": ("tile", 64)}),
        (COLUMNS, {"c": ("grid", 16), "i": ("loop", 64), "b": ("tile", 4)}),
    ],
)
def test_axes_near_in_memory_are_tiles(text: str, expected: dict[str, tuple[str, int]]) -> None:
    made = travel(text, "sm_90a")
    assert made.result.context.schedule is not None
    (plan,) = made.result.context.schedule.kernels
    assert roles(plan) == expected
    assert complaints(made) == []
    assert all(r.spill_stores == 0 for r in compiled(made))


@pytest.mark.parametrize(
    ("sizes", "tile", "warps"),
    [
        ("M = 8192, N = 8", 64, (1, 1)),
        ("M = 1048576, N = 8", 512, (4, 1)),
        ("M = 300, N = 64", 4, (1, 1)),
        ("M = 64, N = 1024", 4, (4, 1)),
    ],
)
def test_small_kernels_have_a_block_for_each_multiprocessor(sizes: str, tile: int, warps: tuple[int, int]) -> None:
    text = f"dim {sizes}\ninput X: f32[M, N]\noutput Y: f32[M, N]\nY[i, j] = softmax[j](X[i, j])\n"
    made = travel(text, "sm_90a", until="scalar").result.context.schedule
    assert made is not None
    (plan,) = made.kernels
    assert roles(plan)["i"] == ("grid", tile) and isinstance(plan.mapping, WarpPlan) and plan.mapping.warps == warps


@pytest.mark.parametrize(("types", "warps"), [(("bf16", "f8e4m3"), (1, 1)), (("bf16", "bf16"), (1, 4))])
def test_rows_of_bytes_have_few_warps(types: tuple[str, str], warps: tuple[int, int]) -> None:
    """A thread has as many bytes of a row in flight as with wider elements."""
    inputs = "dim N = 14336, K = 4096\ninput x: {}[K]\ninput W: {}[N, K]\noutput y: bf16[N]\n".format(*types)
    made = travel(inputs + "y[j] = sum[k](x[k] * W[j, k])\n", "sm_90a", until="scalar").result.context.schedule
    assert made is not None
    (plan,) = made.kernels
    assert isinstance(plan.mapping, WarpPlan) and plan.mapping.warps == warps


def test_rows_that_are_read_at_positions_in_memory_are_few_in_a_block() -> None:
    text = """
        dim N = 65536, F = 64, T = 100
        input X: f32[N, F], feature: i32[T], limit: f32[T]
        output Y: f32[N]
        assume 0 <= feature[t] < F
        Y[n] = sum[t](1.0 if X[n, feature[t]] > limit[t] else 0.0)
    """
    made = travel(text, "sm_90a", until="scalar").result.context.schedule
    assert made is not None
    (plan,) = made.kernels
    assert roles(plan) == {"n": ("grid", 8), "t": ("tile", 128)}
    assert isinstance(plan.mapping, WarpPlan) and plan.mapping.warps == (4, 1)
