"""Which loads are boxes that the TMA unit can move, and how a tile is cut between consumers."""

from __future__ import annotations

import pytest

from nautilus.core.text.expressions import format_expr
from nautilus.core.tiles import TileAxis
from nautilus.ma_tile.analysis.tma_boxes import TmaBox, tma_box
from nautilus.ma_tile.lowering.consumers import split_axis
from nautilus.vr_tile import ir as vr
from nautilus.vr_tile.text import parse


def planned(
    index: str, where: str = "", shape: str = "4, 300, 64", tile: str = "i: 128, k: 64", dtype: str = "f16",
    combined: frozenset[str] | None = None,
) -> TmaBox | str:  # fmt: skip
    """The box of one load, or why there is none."""
    module = parse(f"""
module one {{
  input A: {dtype}[{shape}]
  output C: f32[4]
  param first: i32
  param M: i32 <= 300 device
  kernel C grid(h: 4, i0: 3) axes({tile}) {{
    %p = load A[h, 0, 0] : {dtype}
    %a = load A[{index}] {f"where {where}" if where else ""} : {dtype}[{tile}]
  }}
}}
""")
    kernel = module.kernels[0]
    op = next(op for op in vr.walk_ops(kernel.body) if isinstance(op, vr.LoadOp) and op.result.name == "a")
    found = tma_box(
        module.buffers[0], op.result.type.axes, op.index, op.mask, {"h": (0, 3), "i0": (0, 2)}, combined=combined
    )
    return found if isinstance(found, TmaBox) else found.reason


def test_a_box() -> None:
    assert planned("h, i0 * 128 + i, k", "i0 * 128 + i < 300") == TmaBox((TileAxis("i", 128), TileAxis("k", 64)), 128)


def test_the_contiguous_axis_comes_last() -> None:
    assert planned("h, k, i", "i < 64 and k < 300") == TmaBox((TileAxis("k", 64), TileAxis("i", 128)), 128)


@pytest.mark.parametrize(("columns", "swizzle"), [(64, 128), (32, 64), (16, 32), (96, 64), (48, 32)])
def test_the_widest_swizzle_that_divides_rows(columns: int, swizzle: int) -> None:
    found = planned("h, i, k", "k < 64", tile=f"i: 128, k: {columns}")
    assert isinstance(found, TmaBox) and found.swizzle == swizzle


@pytest.mark.parametrize("first", ["h * 8", "8", "i0 * 16 + h * 8", "-8"])
def test_tiles_start_at_multiples_of_16_bytes_of_a_row(first: str) -> None:
    assert isinstance(planned(f"h, i, {first} + k"), TmaBox)
    assert isinstance(planned(f"h, i, {first} + k", dtype="f32"), TmaBox)
    half = first.replace("8", "4").replace("16", "8")
    assert isinstance(planned(f"h, i, {half} + k", dtype="f32"), TmaBox)
    assert planned(f"h, i, {half} + k") == "tiles of A do not start at multiples of 16 bytes of its rows"
    assert isinstance(planned(f"h, {half} + i, k"), TmaBox)


@pytest.mark.parametrize(
    "where",
    [
        "i0 * 128 + i < 300",
        "i0 * 128 + i - 8 < 300",  # weaker: true wherever the element is inside
        "i0 * 128 + i >= 0 and i0 * 128 + i < 300",
        "300 > i0 * 128 + i and k < 64",
        "h < 4",
    ],
)
def test_masks_that_say_inside_the_buffer(where: str) -> None:
    assert isinstance(planned("h, i0 * 128 + i, k", where), TmaBox)


def test_a_position_that_a_scalar_bounds() -> None:
    """Nothing is known of the scalar, so that its sum with a constant may wrap: the mask names the index itself."""
    start = "max(2 - (first + 62) // 64, 1)"
    index = f"select(i0 < {start}, i0 - {start} + 1, i0) * 128 + i"
    assert isinstance(planned(f"h, {index}, k", f"{index} >= 0 and {index} < 300"), TmaBox)
    said = "the mask of the load from A is not the buffer's own bounds"
    assert planned(f"h, {index}, k", f"{index} < 300 and i0 * 128 + i < first + 200") == said


@pytest.mark.parametrize(
    "where", ["i0 * 128 + i < 299", "i0 * 128 + i >= 1", "k < 63", "h < 3", "i <= k", "i0 * 128 + i < 300 and k != 3"]
)
def test_masks_that_say_more(where: str) -> None:
    assert planned("h, i0 * 128 + i, k", where) == "the mask of the load from A is not the buffer's own bounds"


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        ("h, i0 * 128 + i * 2, k", "does not step along its axes one by one"),
        ("h, i0 * 128 - i, k", "does not step along its axes one by one"),
        ("h, i // 2, k", "does not step along its axes one by one"),
        ("h, i + k, k", "does not step along its axes one by one"),
        ("h, k, k", "does not step along its axes one by one"),
        ("h, i, 0", "is not a matrix"),
        ("i, k, 0", "the contiguous axis of A is not one of the tile's"),
        ("h, %p, k", "depends on loaded values"),
    ],
)
def test_what_is_no_box(index: str, reason: str) -> None:
    found = planned(index)
    assert isinstance(found, str) and reason in found


def test_a_map_ends_at_a_size_in_device_memory_only_where_what_lies_beyond_stays_apart() -> None:
    given = "h, i0 * 128 + i, k", "i0 * 128 + i < M", "4, M, 64"
    assert isinstance(planned(*given, combined=frozenset({"k"})), TmaBox)
    for combined in (frozenset({"k", "i"}), None):
        assert "is in device memory" in str(planned(*given, combined=combined))
    assert "is in device memory" in str(planned("h, i, k", shape="M, 300, 64", combined=frozenset()))


def test_limits_of_tensor_maps() -> None:
    assert planned("h, i, k", shape="4, 300, 68") == "rows of A are 136 bytes, not a multiple of 16"
    assert planned("h, i, k", tile="i: 264, k: 64") == "the tile of A has more than 256 rows"
    assert planned("h, i, k", tile="i: 128, k: 72") == "rows of the tile of A are 144 bytes, not a multiple of 32"
    assert planned("h, i, k, 0, 0, 0", shape="4, 300, 64, 2, 2, 2") == "A has 6 axes, more than 5"


def test_units_number_the_rows_of_the_whole_tile() -> None:
    kernel = parse("""
module rows {
  input A: f16[300, 64]
  output C: f16[300, 64]
  output D: f32[64]
  kernel C grid(i0: 3) axes(i: 128, j: 64) {
    %c = index i <= j and j < 3 : bool[i: 128, j: 64]
    %n = index j * 2 : i32[j: 64]
    %o = for k0 in 0..i0 carry(%x = %n) {
      %a = load A[i0 * 128 + i, j] where i0 * 128 + i < 300 : f16[i: 128, j: 64]
      store C[i0 * 128 + i, j], %a where i0 * 128 + i < 300
      yield %x
    }
  }
}
""").kernels[0]
    own = split_axis(kernel, "i", 2).kernel
    assert [(a.name, a.size) for a in own.axes] == [("i", 64), ("j", 64)]
    load = next(op for op in vr.walk_ops(own.body) if isinstance(op, vr.LoadOp))
    assert [format_expr(e) for e in load.index] == ["i0 * 128 + consumer * 64 + i", "j"]
    assert load.mask is not None and format_expr(load.mask) == "i0 * 128 + consumer * 64 + i < 300"
    assert load.result.type.shape == (64, 64)
    condition, number = (op for op in own.body if isinstance(op, vr.IndexOp))
    assert format_expr(condition.expr) == "consumer * 64 + i <= j and j < 3"
    assert number == next(op for op in kernel.body if op == number)  # what has no rows is as it was
