"""Placements of computed operands in shared memory, and the lanes that store them."""

from __future__ import annotations

import pytest

from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.ma_tile.ir.layout import FragLayout, SmemLayout, tile_shape, wavefronts
from nautilus.ma_tile.lowering.layouts import spread
from nautilus.ma_tile.lowering.staging import shared_vec, spill_place, with_fewest_conflicts

J, D = TileAxis("j", 16), TileAxis("d", 128)


def stored(layout: FragLayout, type_: TileType, k: str) -> int:
    where = spill_place(type_, layout, "m16n8k8.tf32", k)
    place = SmemLayout(*tile_shape(where.axes), type_.dtype, where.swizzle, where.pad)
    return wavefronts(place, where.axes, layout, shared_vec(layout, where.axes, type_.dtype))


@pytest.mark.parametrize(("k", "most"), [("d", 1), ("j", 2)])
def test_lanes_that_hold_long_runs_have_different_rows(k: str, most: int) -> None:
    """16 bytes of each lane are a quarter of a wavefront; rows without a swizzle are 32 bytes apart in the banks."""
    type_ = TileType(DType.TF32, (J, D))
    layout = spread((J, D), 16, 1)
    fewest = J.size * D.size * DType.TF32.bytes // 128
    assert stored(layout, type_, k) == 4 * fewest
    assert stored(with_fewest_conflicts(layout, type_, "m16n8k8.tf32", k), type_, k) == most * fewest


def test_neighbouring_lanes_have_neighbours_of_a_row_where_no_thread_has() -> None:
    c, x = TileAxis("c", 32), TileAxis("x", 64)
    found = spill_place(TileType(DType.F16, (x, c)), spread((c, x), 1, 4), "m16n8k16.f16", "c")
    assert [a.name for a in found.axes] == ["c", "x"]
