"""Plans of products along contiguous results: displacements and modes of a thread, and sums that have other plans."""

from __future__ import annotations

from textwrap import dedent

import pytest

from nautilus.ma_tile.ir.ops import WindowOp, walk_ops
from tests.endtoend.support import complaints, travel
from tests.planner.plans import schedule_of

CORRELATION = """
    dim B = 1, C = 5, H = 6, W = 70, D = 9
    input X: f16[B, C, H, W], Y: f16[B, C, H, W]
    output Z: f16[B, D, D, H, W]
    Z[b, u, v, y, x] = sum[c](
      X[b, c, y, x] * (Y[b, c, y + u - 4, x + v - 4] if 0 <= y + u - 4 < H and 0 <= x + v - 4 < W else 0))
"""
DISPARITY = """
    dim C = 3, H = 4, W = 60, D = 20
    input L: f32[C, H, W], R: f32[C, H, W]
    output Z: f32[D, H, W]
    Z[d, y, x] = sum[c](L[c, y, x] * (R[c, y, x - d] if x >= d else 0))
"""
MODES = """
    dim B = 5, C = 7, E = 6, M = 64
    input X: f32[B, C, M], Y: f32[B, C, M], V: f32[C, E, M], W: f32[C, E, M]
    output P: f32[B, E, M], Q: f32[B, E, M]
    P[b, e, m] = sum[c](X[b, c, m] * V[c, e, m] - Y[b, c, m] * W[c, e, m])
    Q[b, e, m] = sum[c](X[b, c, m] * W[c, e, m] + Y[b, c, m] * V[c, e, m])
"""
MANY = """
    dim B = 512, C = 512, E = 512, M = 32
    input X: f32[B, C, M], V: f32[C, E, M]
    output P: f32[B, E, M]
    P[b, e, m] = sum[c](X[b, c, m] * V[c, e, m])
"""


def test_a_thread_has_all_displacements_and_loads_their_windows_once() -> None:
    made = travel(DISPARITY)
    (kernel,) = made.result.modules["ma-tile"].kernels
    assert any(isinstance(op, WindowOp) for op in walk_ops(kernel.body))
    assert complaints(made) == []


@pytest.mark.parametrize(
    ("text", "tiles"),
    [
        (CORRELATION, {("v", 9), ("c", 1)}),
        (DISPARITY, {("d", 12), ("c", 1)}),
        (MODES, {("b", 4), ("e", 8), ("c", 1)}),
    ],
    ids=["correlation", "disparity", "modes"],
)
def test_tiles(text: str, tiles: set[tuple[str, int]]) -> None:
    assert tiles <= _tiles(text)


def test_many_products_for_each_element_use_matrix_units() -> None:
    assert ("b", 128) in _tiles(MANY)


def _tiles(text: str) -> set[tuple[str, int]]:
    """The tile of each axis of every kernel."""
    return {(a.name, a.tile) for k in schedule_of(dedent(text).lstrip()).kernels for a in k.axes}
