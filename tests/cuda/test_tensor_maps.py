"""Tensor maps of TMA copies: merged axes, boxes, slabs, coordinates, and copies without a map."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nautilus.core.errors import UnsupportedError
from nautilus.core.expr.nodes import Const, Op, Param
from nautilus.core.text.expressions import format_expr
from nautilus.core.tiles import TileAxis
from nautilus.core.types import DType
from nautilus.cuda.host.api import Start
from nautilus.cuda.host.driver_api import _launch
from nautilus.cuda.host.facts import _condition
from nautilus.cuda.host.launcher import plan_bytes
from nautilus.cuda.tensor_maps import Copy, _MapAxis, _step, copy_of, kernel_maps
from nautilus.ma_tile.analysis.digits import Digit
from nautilus.ma_tile.ir.ops import MemModule, TmaLoad, walk_ops
from nautilus.ma_tile.text import format, parse


def loads(shape: str, stage: str, *indices: str, dtype: str = "f16", swizzle: int = 128) -> MemModule:
    """A kernel that loads tiles of X at ``indices``; variables ``b``, ``h``, ``t`` are free."""
    copies = "\n    ".join(f"tma.load s[0] swizzle {swizzle}, X[{index}]" for index in indices)
    return parse(f"""
module m target sm_90a {{
  input X: {dtype}[{shape}]
  kernel k grid 8 warps 4 min_blocks 1 {{
    let b = block // 4
    let h = block % 4
    let t = block % 2
    smem s : {dtype}[{stage}] stages 1 swizzle {swizzle} pad 0 @ 0
    {copies}
  }}
}}
""")


def described(m: MemModule) -> list[Copy]:
    kernel = m.kernels[0]
    return [copy_of(m, kernel, op) for op in walk_ops(kernel.body) if isinstance(op, TmaLoad)]


def one(*arguments: str, dtype: str = "f16", swizzle: int = 128) -> Copy:
    return described(loads(*arguments, dtype=dtype, swizzle=swizzle))[0]


def origin(copy: Copy) -> list[str]:
    return [format_expr(e) for e in copy.origin]


def test_a_matrix() -> None:
    c = one("512, 256", "i: 128, j: 64", "t * 128 + i, h * 64 + j")
    assert (c.map.name, c.map.sizes, c.map.strides, c.map.box) == ("map_X_128_64", (256, 512), (512,), (64, 128))
    assert (c.map.swizzle, len(c.steps), origin(c)) == (128, 1, ["h * 64", "t * 128"])


def test_columns_are_cut_into_slabs_of_the_swizzle() -> None:
    c = one("512, 256", "i: 64, j: 256", "t * 64 + i, j")
    assert (c.map.box, len(c.steps), c.steps[1][0], c.slab_bytes) == ((64, 64), 4, 64, 64 * 128)
    c = one("512, 256", "i: 64, j: 64", "t * 64 + i, j", swizzle=32)
    assert (c.map.box, len(c.steps), c.steps[1][0], c.slab_bytes) == ((16, 64), 4, 16, 64 * 32)
    c = one("512, 256", "i: 64, j: 256", "t * 64 + i, j", dtype="i8")
    assert (c.map.box, len(c.steps), c.slab_bytes, c.map.strides) == ((128, 64), 2, 64 * 128, (256,))


def test_without_a_swizzle_a_row_is_one_slab() -> None:
    c = one("512, 256", "i: 8, j: 256", "t * 8 + i, j", swizzle=0)
    assert (c.map.box, len(c.steps), c.map.box[0]) == ((256, 8), 1, 256)


def test_neighbouring_axes_without_a_tile_axis_are_one_axis() -> None:
    c = one("2, 4, 512, 64", "i: 128, d: 64", "b, h, t * 128 + i, d")
    assert c.map.sizes == (64, 512, 8) and c.map.strides == (128, 65536) and c.map.box == (64, 128, 1)
    assert origin(c) == ["0", "t * 128", "b * 4 + h"]


def test_an_axis_with_a_tile_axis_stays_alone() -> None:
    """Elements beyond it are filled with zeros, so it is never merged into a longer axis."""
    c = one("2, 512, 4, 64", "i: 128, d: 64", "b, t * 128 + i, h, d")
    assert c.map.sizes == (64, 4, 512, 2) and c.map.box == (64, 1, 128, 1)
    assert c.map.strides == (128, 512, 512 * 512)


def test_more_axes_than_a_map_has_are_merged_or_refused() -> None:
    c = one("2, 2, 2, 2, 512, 64", "i: 128, d: 64", "b, h // 2, h % 2, t, i, d")
    assert c.map.sizes == (64, 512, 16) and origin(c)[2] == "b * 8 + h * 2 + t"
    with pytest.raises(UnsupportedError, match="6 axes"):
        one("2, 4, 2, 4, 2, 64", "i: 4, m: 4, d: 64", "b, i, h, m, t, d")


def test_a_tile_axis_of_size_one_is_no_axis() -> None:
    c = one("2, 4, 512, 64", "g: 1, i: 128, d: 64", "b, h + g, i, d")
    assert c.map.box == (64, 128, 1) and origin(c) == ["0", "0", "b * 4 + h"]


def test_one_map_serves_copies_of_one_shape() -> None:
    m = loads("512, 256", "i: 64, j: 64", "t * 64 + i, j", "256 + t * 64 + i, h * 64 + j")
    (found,) = kernel_maps(m, m.kernels[0])
    assert found.name == "map_X_64_64"


@pytest.mark.parametrize("other", ["b, t, h, i, d", "b, t, i, h, d"])
def test_boxes_of_one_shape_along_other_axes_are_other_maps(other: str) -> None:
    m = loads("4, 4, 4, 4, 64", "i: 4, d: 64", "b, i, t, h, d", other)
    maps = kernel_maps(m, m.kernels[0])
    assert len(maps) == 2 and maps[0].sizes != maps[1].sizes


def test_another_swizzle_is_another_map() -> None:
    text = """
module m target sm_90a {
  input X: f16[64, 64]
  kernel k grid 1 warps 4 min_blocks 1 {
    smem s : f16[i: 64, j: 64] stages 1 swizzle 128 pad 0 @ 0
    smem u : f16[i: 64, j: 64] stages 1 swizzle 0 pad 0 @ 8192
    tma.load s[0] swizzle 128, X[i, j]
    tma.load u[0] swizzle 0, X[i, j]
  }
}
"""
    m = parse(text)
    assert [x.swizzle for x in kernel_maps(m, m.kernels[0])] == [128, 0]


@pytest.mark.parametrize(
    ("shape", "stage", "index", "why"),
    [
        ("512, 512, 64", "i: 512, j: 64", "b, i, j", "a box of 512 along one axis"),
        ("512, 100", "i: 64, j: 64", "i, j", "rows that are no multiple of 16 bytes"),
        ("512, 256", "i: 64, j: 96", "i, j", "columns that do not fill slabs of 128 bytes"),
        ("64, 512", "i: 64, j: 64", "j, i", "a tile that is no box of the buffer"),
    ],
)
def test_refused(shape: str, stage: str, index: str, why: str) -> None:
    with pytest.raises(UnsupportedError, match=why):
        one(shape, stage, index)


def test_a_narrow_row_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="a row of the tile that is no multiple of 16 bytes"):
        one("512, 64", "i: 64, j: 4", "i, j", swizzle=0)


def test_slabs_are_apart_by_the_digits_of_their_columns() -> None:
    axes = [_MapAxis(0, 0, None), _MapAxis(1, 1, Digit("k", 1, 4)), _MapAxis(2, 2, Digit("k", 4, 8)),
            _MapAxis(3, 3, Digit("m", 1, 8))]  # fmt: skip
    smem: Any = SimpleNamespace(axes=(TileAxis("m", 8), TileAxis("k", 32)))
    assert [_step(n, axes, smem) for n in (0, 3, 6, 31)] == [(0, 0, 0, 0), (0, 3, 0, 0), (0, 2, 1, 0), (0, 3, 7, 0)]


def test_blocks_of_a_cluster_load_whole_slabs_or_rows_of_each() -> None:
    def part(stage: str, index: str, blocks: int) -> Copy:
        m = parse(format(loads("512, 256", stage, index)).replace(f"X[{index}]", f"X[{index}] multicast {blocks}"))
        return described(m)[0]

    c = part("i: 64, j: 256", "t * 64 + i, j", 2)  # four slabs of 64 columns, two for each block
    assert (c.map.box, len(c.steps), c.slab_bytes) == ((64, 64), 2, 8192)
    assert (c.part_axis, c.part_size, c.part_bytes) == (0, 128, 2 * 8192)
    c = part("i: 64, j: 64", "t * 64 + i, j", 4)  # one slab, 16 rows for each block
    assert (c.map.box, len(c.steps), c.slab_bytes) == ((64, 16), 1, 8192)
    assert (c.part_axis, c.part_size, c.part_bytes) == (1, 16, 8192 // 4)


def test_a_launch_has_no_attribute_where_its_kernel_needs_none() -> None:
    lines = [_launch(Start(2, "k", "8", 128, 0, name, ("a",), "stream")) for name in ("", "cooperative")]
    assert "start(plan.kernel_handles[2], 8, 128, 0, 0, arguments, stream)" in lines[0][2] and lines[0] != lines[1]


def test_shifts_of_numbers_given_at_launch() -> None:
    for op, text in (("shift_left", "<<"), ("shift_right", ">>")):
        for n in (0, 31):
            e = Op(op, (Param("n", DType.I32), Const(n, DType.I32)), DType.I32)
            assert _condition(e, {"n": "n"}) == f"((long long)n {text} {n})"
        for n in (-1, 32, 40):
            with pytest.raises(UnsupportedError, match="in a fact about numbers given at launch"):
                _condition(Op(op, (Param("n", DType.I32), Const(n, DType.I32)), DType.I32), {"n": "n"})


def test_a_plan_has_room_for_all_pointers_and_numbers() -> None:
    text = "module m target sm_80 {\n" + "".join(f"  input X{n}: f32[4]\n" for n in range(9)) + "}\n"
    assert plan_bytes(parse(text)) >= 8 * (4 + 9)
