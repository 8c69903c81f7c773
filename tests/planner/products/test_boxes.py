"""Tiles over several axes of a result."""

from __future__ import annotations

from math import prod

import pytest

from nautilus.core.schedule import KernelPlan
from nautilus.planner.products.boxes import Side
from tests.planner.plans import schedule_of

IMAGE = Side("x", (("b", 16, 1), ("y", 56, 1), ("x", 56, 1)))


@pytest.mark.parametrize(
    ("side", "elements", "want"),
    [
        (IMAGE, 128, {"b": 2, "y": 8, "x": 8}),
        (IMAGE, 64, {"b": 1, "y": 8, "x": 8}),
        (Side("x", (("b", 16, 1), ("y", 56, 1), ("x", 128, 1))), 128, {"b": 1, "y": 1, "x": 128}),  # none is wasted
        (Side("x", (("y", 56, 1), ("x", 56, 64))), 128, {"y": 2, "x": 64}),  # whole lines of a slab
        (Side("y", (("y", 4096, 1), ("x", 3, 1))), 128, {"y": 128, "x": 1}),
        (Side("x", (("x", 100, 1),)), 128, {"x": 128}),
    ],
)
def test_tiles(side: Side, elements: int, want: dict[str, int]) -> None:
    assert side.tiles(elements) == want


def test_tiles_along_an_axis_of_any_extent_have_one_element_where_that_wastes_little() -> None:
    late = frozenset({"b"})
    image = (("b", 4096, 1), ("y", 56, 1), ("x", 56, 1))
    assert Side("b", image, late=late).tiles(128) == {"b": 1, "y": 2, "x": 64}
    assert Side("b", (("b", 4096, 1), ("y", 7, 1), ("x", 7, 1)), late=late).tiles(128)["b"] > 1
    assert Side("b", (("b", 4096, 1),), late=late).tiles(128) == {"b": 128}


@pytest.mark.parametrize(("stores", "line"), [(0.0, 2), (0.01, 2), (0.2, 16), (5.0, 16)])
def test_lines_of_the_result_are_whole_sectors(stores: float, line: int) -> None:
    """Lines of 10 are one of 16, with 6 unused, unless the product takes much longer than its stores."""
    found = Side("x", (("y", 256, 1), ("x", 10, 1)), "x", 8, stores).tiles(128)
    assert found["x"] == line


def test_counts() -> None:
    assert IMAGE.extent == 16 * 56 * 56
    assert IMAGE.count(IMAGE.tiles(128)) == IMAGE.extent // 128


def test_lines_of_a_side_are_boxes_along_the_contiguous_axis() -> None:
    image = Side("y", (("y", 256, 1), ("x", 56, 64)))
    assert image.tiles(128) == {"y": 2, "x": 64}  # 128 lines of one element would waste less, but are no box
    assert image.narrow(16).tiles(128) == {"y": 2, "x": 64}
    assert Side("x", (("y", 66, 1), ("x", 66, 64))).narrow(16).tiles(128) == {"y": 8, "x": 16}


def images_of_any_size(count: str) -> KernelPlan:
    text = (
        f"dim B = {count}, C = 128, K = 128, H = runtime, W = runtime\ninput X: f16[B, H, W, C], F: f16[3, 3, C, K]\n"
        "output Y: f16[B, H, W, K]\nY[b, y, x, k] = sum[r, s, c | 0 <= y + r - 1 < H and 0 <= x + s - 1 < W]("
        "X[b, y + r - 1, x + s - 1, c] * F[r, s, c, k])\n"
    )
    (plan,) = [p for p in schedule_of(text).kernels if p.name == "Y"]
    return plan


def test_tiles_of_images_of_any_size_waste_little_of_small_ones() -> None:
    plan = images_of_any_size("16")
    tiles = [plan.axis(x).tile for x in ("b", "y", "x")]
    assert prod(tiles) == 128 and max(tiles) <= 16
    assert all(n % t == 0 for n, t in zip((16, 56, 56), tiles, strict=True))  # nor of larger ones
    assert plan.axis("k").tile == 128  # which have many waves of tiles


def test_a_tile_of_any_number_of_images_of_any_size_has_one_of_them() -> None:
    plan = images_of_any_size("runtime")
    assert [plan.axis(x).tile for x in ("b", "y", "x", "k")] == [1, 8, 16, 128]
