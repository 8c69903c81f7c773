"""Plans of reductions over windows: which groups are windows, their tiles, and threads that compute whole windows."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from nautilus.core.schedule import KernelPlan, WarpPlan
from nautilus.driver import Request, Result, compile_file
from nautilus.ma_tile.ir.ops import GlobalLoad, walk_ops
from nautilus.planner.rowwise.windows import Vectors, result_tiles, warps
from tests.endtoend.support import check, complaints, travel

POOL = """
    dim N = 2000, K = 5
    const M = N - K + 1
    input X: f32[3, N]
    output Y: f32[3, M]
    Y[b, x: M] = max[r: K](X[b, x + r])
"""
STRIDED = """
    dim H = 40, W = 70
    const OH = H // 2, OW = W // 2
    input X: f16[3, H, W]
    output Y: f16[3, OH, OW]
    Y[b, y: OH, x: OW] = max[r: 3, s: 3 | 0 <= 2 * y + r - 1 < H and 0 <= 2 * x + s - 1 < W](
      X[b, 2 * y + r - 1, 2 * x + s - 1])
"""
FILTER = """
    dim H = 20, W = 300, C = 3
    input X: f32[C, H, W]
    input F: f32[C, 3, 3]
    output Y: f32[C, H, W]
    Y[c, y, x] = sum[r, s | 0 <= y + r - 1 < H and 0 <= x + s - 1 < W](X[c, y + r - 1, x + s - 1] * F[c, r, s])
"""
LAST = """
    dim L = 60, C = 90
    input X: f16[L, C]
    input F: f16[C, 4]
    output Y: f16[L, C]
    Y[x, c] = sum[r | x + r >= 3](X[x + r - 3, c] * F[c, r])
"""
LAST_2D = """
    dim H = 9, W = 21, C = 24
    input X: f32[2, H, W, C]
    input F: f32[C, 3, 3]
    output Y: f32[2, H, W, C]
    Y[b, y, x, c] = sum[r, s | 0 <= y + r - 1 < H and 0 <= x + s - 1 < W](X[b, y + r - 1, x + s - 1, c] * F[c, r, s])
"""
CHOSEN = """
    dim T = 256, K = 8, R = 2048, D = 2048
    input Y: bf16[R, D], w: f32[T, K], at: i32[T, K]
    output O: bf16[T, D]
    assume -1 <= at[t, k] < R
    O[t, d] = sum[k | at[t, k] >= 0](w[t, k] * Y[at[t, k], d])
"""
ALIGNED = """
    dim N = 1000
    const M = N // 2
    input X: f32[N]
    output Y: f32[M]
    Y[x: M] = sum[r: 2](X[2 * x + r])
"""

LAUNCHED = """
    dim T = 1100
    scalar W: i32 = 6
    input X: f32[2, T]
    output Y: f32[2, T], L: f32[2]
    Y[b, t] = sum[u | t - W < u and u <= t](X[b, u])
    L[b] = sum[t](Y[b, t])
"""

LONG = """
    dim B = 4, T = 900, C = 264, K = 31
    input X: f16[B, T, C], F: f16[K, C]
    output Y: f16[B, T, C]
    Y[b, t, c] = sum[k | 0 <= t + k - 15 < T](X[b, t + k - 15, c] * F[k, c])
"""


def compiled(text: str, arch: str = "sm_90a") -> Result:
    return compile_file(Request(Path("given.naut"), arch, text=text))


def plan_of(result: Result) -> KernelPlan:
    """The plan of the only kernel."""
    assert result.context.schedule is not None
    (plan,) = result.context.schedule.kernels
    return plan


@pytest.mark.parametrize(
    "text",
    [POOL, STRIDED, FILTER, LAST, LAST_2D, ALIGNED],
    ids=["pool", "strided", "filter", "last", "last-2d", "two"],
)
def test_a_thread_computes_whole_windows(text: str) -> None:
    result = compiled(text)
    plan = plan_of(result)
    (kernel,) = result.modules["ma-tile"].kernels
    reduced = {a.name for a in plan.axes if a.role == "tile"}
    assert isinstance(plan.mapping, WarpPlan) and reduced
    places = [m.axis for f in kernel.layouts.values() for m in (*f.lane, *f.warp)]
    assert reduced.isdisjoint(places)


@pytest.mark.parametrize(
    "text",
    [POOL, STRIDED, FILTER, LAST, LAST_2D, ALIGNED, LAUNCHED.replace("1100", "40")],
    ids=["pool", "strided", "filter", "last", "last-2d", "two", "launched"],
)
def test_every_level_agrees(text: str) -> None:
    check(text, "sm_80")


@pytest.mark.parametrize(
    "line",
    ["Y[i] = sum[j](X[i, j])", "Y[i] = sum[j](X[j, i])", "Y[i] = sum[j: 7](Z[i * 7 + j])"],
    ids=["rows", "columns", "groups"],
)
def test_other_short_reductions_are_no_windows(line: str) -> None:
    used = "input X: f32[7, 7]" if "X" in line else "input Z: f32[49]"
    plan = plan_of(compiled(f"{used}\noutput Y: f32[7]\n{line}\n"))
    assert [a.tile for a in plan.axes if a.name == "j"] == [8]


def test_tiles_leave_few_positions_unused() -> None:
    assert result_tiles(["x", "y"], {"x": 510, "y": 510}, 9) == {"x": 512, "y": 2}
    assert result_tiles(["x", "y"], {"x": 262, "y": 300}, 9)["x"] <= 64
    assert result_tiles(["x"], {"x": 65537}, 8) == {"x": 1024}
    assert result_tiles(["x", "y"], {"x": 62, "y": 62}, 27) == {"x": 64, "y": 8}


def test_warps_have_few_terms_a_thread() -> None:
    assert warps(1024, 4) == 4 and warps(1024, 9) == 8 and warps(512, 27) == 16 and warps(32, 2) == 4


def test_a_thread_has_windows_of_several_positions_along_vectors() -> None:
    vectors = Vectors("c", "x", 8)
    assert vectors.tiles({"b": 8, "x": 4096, "c": 4096}, 4) == ({"b": 1, "x": 8, "c": 1024}, 4)
    assert vectors.tiles({"x": 4096, "c": 64}, 4) == ({"x": 128, "c": 64}, 4)
    assert vectors.tiles({"x": 3, "c": 16}, 16) == ({"x": 4, "c": 16}, 1)
    chosen = Vectors("c", "x", 8, apart=True)  # rows that another tensor chooses have no element in common
    assert chosen.tiles({"x": 4096, "c": 4096}, 8) == ({"x": 2, "c": 1024}, 4)
    lines = Vectors("c", "x", 8, "y")  # a block has windows of several lines
    assert lines.tiles({"y": 56, "x": 56, "c": 256}, 9) == ({"y": 4, "x": 4, "c": 256}, 4)
    filters = Vectors("c", "x", 8, "y", members="m")  # a thread has the results of all filters of a channel
    assert filters.tiles({"y": 28, "x": 28, "c": 128, "m": 2}, 9) == ({"y": 2, "x": 8, "c": 128, "m": 2}, 4)
    (kernel,) = compiled(LAST.replace("90", "1024")).modules["ma-tile"].kernels
    held = {str(f) for f in kernel.layouts.values()}
    assert "reg(c:8x1, u:11x1) lane(c:32x8) warp(c:4x256)" in held  # eight windows of four elements


def test_rows_that_another_tensor_chooses_are_few() -> None:
    """They have no elements in common, and each one has a condition of its own."""
    schedule = compiled(CHOSEN).context.schedule
    assert schedule is not None and schedule.kernels[0].axis("t").tile == 2


@pytest.mark.parametrize(
    ("reduction", "held"),
    [
        ("sum[r: 3, s: 3](X[b, y + r, x + s])", 16),
        ("sum[r: 3, s: 3](X[b, y + r, x + s] * Z[b, y + r, x + s])", 4),  # registers hold those of neighbours alone
        ("sum[s: 4](X[b, y, x + s])", 8),  # with neighbours alone a thread would have few terms
    ],
)
def test_a_thread_has_as_many_results_as_registers_hold_windows(reduction: str, held: int) -> None:
    used = "".join(f"input {n}: f32[4, 66, 1027]\n" for n in "XZ" if f"{n}[" in reduction)
    plan = plan_of(compiled(f"{used}output Y: f32[4, 64, 1024]\nY[b, y: 64, x] = {reduction}\n"))
    assert isinstance(plan.mapping, WarpPlan)
    assert prod(a.tile for a in plan.axes if a.role == "grid") == 32 * held * prod(plan.mapping.warps)


@pytest.mark.parametrize(
    ("term", "several"),
    [("sum[t: 64](X[b, 4 * m + t])", True), ("max[t: 16](X[b, 2 * m + 3 * t])", False)],  # few are in two windows
)
def test_a_thread_has_neighbours_whose_windows_step_over_few_of_their_elements(term: str, several: bool) -> None:
    text = f"input X: f32[8, 5000]\noutput Y: f32[8, 1024]\nY[b, m: 1024] = {term}\n"
    plan = plan_of(compiled(text))
    assert isinstance(plan.mapping, WarpPlan)
    results = prod(a.tile for a in plan.axes if a.role == "grid") // (32 * prod(plan.mapping.warps))
    assert (results >= 4) == several


BAND = """
    input D: f32[4096, 9], X: f32[2, 4104]
    output Y: f32[2, 4096]
    Y[b, i] = sum[d](D[i, d] * X[b, i + d])
"""
MEAN = """
    input X: f32[256, 512]
    output Y: f32[256, 512], Z: bool[256, 512]
    Y[b, i] = mean[k: 21 | abs(k - 10) > 2 and 0 <= i + k - 10 < 512](X[b, i + k - 10] ** 2)
    Z[b, i] = X[b, i] ** 2 > 12 * Y[b, i]
"""


@pytest.mark.parametrize(("text", "lane"), [(BAND, "i:32x1"), (MEAN, "i:16x1")], ids=["band", "mean"])
def test_lanes_are_neighbours_where_positions_have_more_than_windows(text: str, lane: str) -> None:
    """A lane with neighbours would read more lines of the band, and would count the terms of more positions."""
    (kernel,) = compiled(text).modules["ma-tile"].kernels
    loads = [op for op in walk_ops(kernel.body) if isinstance(op, GlobalLoad) and len(op.result.type.axes) > 1]
    assert {str(kernel.layouts[op.result.layout].lane[0]) for op in loads} == {lane}


def test_loads_have_the_order_of_memory() -> None:
    """The taps of a channel are neighbours in memory: a thread loads four of them at once."""
    (kernel,) = compiled(LAST.replace("90", "512")).modules["ma-tile"].kernels
    (weights,) = [op for op in kernel.body if isinstance(op, GlobalLoad) and op.buffer == "F"]
    assert weights.vec == 4
    assert str(kernel.layouts[weights.result.layout]).startswith("reg(r:4x1, c:8x1)")


def test_taps_in_front_of_a_product_have_no_tile_of_the_product() -> None:
    text = """
        dim C = 64, K = 64, W = 256
        const OW = W - 2
        input X: f32[C, W]
        input F: f32[C, 3]
        input G: f32[K, C]
        output Y: f32[K, OW]
        D[c, x: OW] = sum[r](X[c, x + r] * F[c, r])
        Y[k, x] = sum[c](D[c, x] * G[k, c])
    """
    result = compiled(text)
    assert result.context.schedule is not None
    taps = [a.tile for k in result.context.schedule.kernels for a in k.axes if a.name == "r"]
    assert taps and max(taps) <= 4


def test_lines_of_windows_have_tiles_that_fit() -> None:
    assert result_tiles(["x", "y", "c"], {"x": 56, "y": 56, "c": 64}, 9) == {"x": 32, "y": 8, "c": 4}
    assert result_tiles(["x", "y", "c"], {"x": 28, "y": 28, "c": 64}, 9) == {"x": 32, "y": 32, "c": 1}


def test_a_mean_without_the_padding_is_one_window() -> None:
    """The number of its elements is no reduction of its own."""
    text = """
        dim C = 32, H = 56
        input X: f16[C, H, H]
        output Y: f16[C, H, H]
        def in(p) = 0 <= p and p < H
        Y[c, y, x] = mean[r: 3, s: 3 | in(y + r - 1) and in(x + s - 1)](X[c, y + r - 1, x + s - 1])
    """
    plan = plan_of(compiled(text))
    assert {a.name: a.tile for a in plan.axes if a.tile > 1} == {"c": 4, "y": 8, "x": 32, "r": 3, "s": 3}


WIDE = """
    dim C = 3, H = 37, W = 70
    input X: f16[C, H, W]
    input F: f32[C, 5, 7]
    output Y: f16[C, H, W]
    Y[c, y, x: W] = sum[r, s | 0 <= y + r - 2 < H and 0 <= x + s - 3 < W](X[c, y + r - 2, x + s - 3] * F[c, r, s])
"""


def test_lines_of_large_windows_are_a_loop() -> None:
    """A thread that held all terms of a window would have one result, whose window it shares with no other."""
    plan = plan_of(compiled(WIDE))
    assert [(a.name, a.role) for a in plan.axes][-2:] == [("r", "loop"), ("s", "tile")]
    check(WIDE, "sm_90a")


def test_windows_whose_results_are_reduced_along_a_row_are_a_kernel_of_their_own() -> None:
    text = """
        dim H = 20, W = 24, C = 96
        input X: f16[H, W, C]
        input F: f16[3, 3, C]
        output Y: f16[H, W, C]
        def in(y, x) = 0 <= y and y < H and 0 <= x and x < W
        D[y: H, x: W, c] = sum[r, s | in(y + r - 1, x + s - 1)](X[y + r - 1, x + s - 1, c] * F[r, s, c])
        Y[y, x, c] = layer_norm[c](D[y, x, c], 1e-6)
    """
    schedule = compiled(text).context.schedule
    assert schedule is not None
    assert [k.name for k in schedule.kernels] == ["D", "Y"]
    assert {a.name: a.tile for a in schedule.kernels[0].axes}["c"] == 32  # three tiles, and not two of 64


SEPARATE = """
    dim B = 2, H = 23, W = 37
    input X: {dtype}[B, H, W]
    input g: f32[5]
    output Y: {dtype}[B, H, W]
    output M: {dtype}[B, H, W]
    def padded(b, y, x) = X[b, y, x] if 0 <= y < H and 0 <= x < W else 0
    Y[b, y: H, x: W] = sum[r: 5, s: 5](g[r] * g[s] * padded(b, y + r - 2, x + s - 2))
    M[b, y, x] = max[r: 5, s: 3 | 2 <= y + r < H + 2 and 1 <= x + s < W + 1](X[b, y + r - 2, x + s - 1])
"""


def test_lanes_are_neighbours_in_windows_of_a_width_that_is_known_at_launch() -> None:
    """The store at the end has no vectors, which would spread the loads of all terms over more sectors."""
    first, *totals = compiled(LAUNCHED).modules["ma-tile"].kernels
    assert {str(f) for f in first.layouts.values()} >= {"reg(t:4x128) lane(t:32x1) warp(t:4x32)"}
    assert first.name == "Y" and totals


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_windows_of_two_axes_are_reduced_one_after_another(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nautilus.scalar.passes.windows.separate_windows.SHARE", 1e9)
    made = travel(SEPARATE.format(dtype=dtype), "sm_90a")
    names = {b.name for b in made.result.modules["ma-tile"].buffers}
    assert sum(name.endswith("_row") for name in names) == 2
    assert complaints(made) == []


def test_long_windows_of_vectors_are_a_loop_over_their_terms() -> None:
    """31 terms of eight channels, as many as a thread has, would take 372 registers."""
    plan = plan_of(compiled(LONG))
    held = {a.name: (a.role, a.tile) for a in plan.axes}
    assert held["k"] == ("loop", 1) and held["t"][1] >= 8


def test_windows_with_few_positions_are_no_such_loop() -> None:
    few = LONG.replace("T = 900", "T = 4").replace("0 <= t + k - 15 < T", "t + k >= 0").replace("t + k - 15", "t + k")
    few = few.replace("X: f16[B, T, C]", "X: f16[B, T + K, C]")
    assert all(a.role != "loop" or a.tile != 1 for a in plan_of(compiled(few)).axes)


@pytest.mark.parametrize("term", ["X[t * K + k, c]", "X[2 * t + k, c] * W[k]", "X[R[t, k], c]"])
def test_sums_whose_vectors_few_positions_share_are_no_such_loop(term: str) -> None:
    """Blocks, blocks of which each overlaps one other, and gathered rows: a thread would read no vector again."""
    text = "dim T = 900, K = 31, C = 64\ninput X: f16[40000, C], W: f32[K], R: i32[T, K]\noutput Y: f16[T, C]\n"
    text += "assume 0 <= R[t, k] < 40000\n"
    text = text.replace("K = 31", "K = 4") if "2 * t" in term else text
    text += f"Y[t, c] = sum[k: K]({term})\n"
    assert all(a.role != "loop" or a.tile != 1 for a in plan_of(compiled(text)).axes)
