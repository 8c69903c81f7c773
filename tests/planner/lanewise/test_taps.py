"""Plans of sums of displaced elements: taps and groups of positions of a thread, and sums that have other plans."""

from __future__ import annotations

from textwrap import dedent

import pytest

from nautilus.ma_tile.ir.ops import WindowOp, walk_ops
from tests.endtoend.support import complaints, travel
from tests.planner.plans import schedule_of

LAST = """
    dim B = {b}, H = {h}, W = {w}, C = {c}
    input X: f16[B, H, W, C], G: f16[B, H, W, C]
    output D: f32[3, 3, C]
    D[r: 3, s: 3, c] = sum[b, y, x | 0 <= y + r - 1 < H and 0 <= x + s - 1 < W](
      X[b, y + r - 1, x + s - 1, c] * G[b, y, x, c])
"""
FIRST = """
    dim B = {b}, H = {h}, W = {w}, C = {c}
    input X: f32[B, C, H, W], G: f32[B, C, H, W]
    output D: f32[C, 3, 3]
    D[c, r: 3, s: 3] = sum[b, y, x | 0 <= y + r - 1 < H and 0 <= x + s - 1 < W](
      X[b, c, y + r - 1, x + s - 1] * G[b, c, y, x])
"""
LAGS = """
    dim N = 4099
    input x: f32[N]
    output R: f32[20]
    R[k: 20] = sum[t | t + k < N](x[t] * x[t + k])
"""
TRANSPOSED = """
    dim B = 16, C = 128, H = 56, W = 56
    input X: f16[B, C, H, W], F: f16[C, 4, 4]
    output Y: f16[B, C, 2 * H, 2 * W]
    Y[b, c, y: 2 * H, x: 2 * W] = sum[i, j, r: 4, s: 4 | y + 1 - r == 2 * i and x + 1 - s == 2 * j](
      X[b, c, i, j] * F[c, r, s])
"""
LARGE, SMALL = {"b": 16, "h": 56, "w": 56, "c": 128}, {"b": 1, "h": 24, "w": 56, "c": 3}


@pytest.mark.parametrize(
    ("text", "tiles"),
    [
        (LAST.format(**LARGE), {("r", 3), ("s", 3), ("c", 128), ("x_in", 8), ("b_y_x", 4)}),
        (FIRST.format(**LARGE), {("r", 3), ("s", 3), ("c", 1), ("x_in", 8), ("b_y_x", 128)}),
        (LAGS, {("k", 10), ("t_in", 8)}),
    ],
    ids=["channels last", "channels first", "lags"],
)
def test_a_thread_has_taps_and_a_group_of_positions(text: str, tiles: set[tuple[str, int]]) -> None:
    assert tiles <= _tiles(text)


@pytest.mark.parametrize("text", [LAST.format(**SMALL), FIRST.format(**SMALL)], ids=["last", "first"])
def test_it_loads_their_windows_once(text: str) -> None:
    made = travel(text)
    kernel = made.result.modules["ma-tile"].kernels[0]
    assert any(isinstance(op, WindowOp) for op in walk_ops(kernel.body))
    assert complaints(made) == []


def test_results_of_small_windows_are_no_taps() -> None:
    assert ("y_residue", 2) in _tiles(TRANSPOSED)


def _tiles(text: str) -> set[tuple[str, int]]:
    """The tile of each axis of every kernel."""
    return {(a.name, a.tile) for k in schedule_of(dedent(text).lstrip()).kernels for a in k.axes}
