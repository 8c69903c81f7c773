"""Sectors of memory that one access of a warp touches."""

from __future__ import annotations

import pytest

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Load, Param, Ref, Var
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.sectors import sectors
from nautilus.ma_tile.ir.instruction_tables import wg_acc_layout
from nautilus.ma_tile.ir.layout import FragLayout, Mode

ACC = wg_acc_layout("i", "j", 64, 64)
ROW = FragLayout((Mode(8, "j", 1),), (Mode(32, "j", 8),), ())
PLAIN = (Var("i"), Var("j"))


def tensor(dtype: DType, rows: int, columns: int) -> Buffer:
    return Buffer("C", dtype, (rows, columns), Space.OUTPUT)


@pytest.mark.parametrize(
    ("dtype", "columns", "layout", "vec", "touched", "part", "size"),
    [
        (DType.F16, 256, ROW, 8, 16, 0, 512),  # whole sectors
        (DType.F16, 264, ROW, 8, 16.5, 1, 512),  # every other row begins in the middle of a sector
        (DType.F16, 256, ROW, 1, 16.5, 16.5, 64),  # elements 16 bytes apart
        (DType.F16, 256, ACC, 2, 8, 8, 128),  # 16 bytes of each of 8 rows
        (DType.F32, 256, ACC, 2, 8, 0, 256),  # whole sectors of each of 8 rows
        (DType.F8E4M3, 256, ACC, 2, 8, 8, 64),
        (DType.F16, 257, ACC, 1, 11, 11, 64),  # every other element of 8 rows, at any place of a sector
    ],
)
def test_an_access(
    dtype: DType, columns: int, layout: FragLayout, vec: int, touched: float, part: float, size: int
) -> None:
    found = sectors(tensor(dtype, 64, columns), PLAIN, layout, vec)
    assert (found.touched, found.part, found.size) == (touched, part, size)
    assert found.waste == touched * 32 / size


def test_an_average_over_the_places_where_a_tile_may_begin() -> None:
    found = sectors(tensor(DType.F16, 64, 257), (Var("block"), Var("j")), ROW, 8)
    assert 16 < found.touched < 17 and found.part == 2 * (found.touched - 16)


def test_turned_axes_and_places_that_are_read() -> None:
    turned = sectors(tensor(DType.F32, 256, 256), (Var("j"), Var("i")), ROW, 1)
    assert (turned.touched, turned.part) == (32, 32)
    for place in (Ref("p", DType.I32), Load("P", (Var("j"),), DType.I32)):
        index = (calc("add", place, 0), Var("i"))
        assert sectors(tensor(DType.F32, 256, 256), index, ROW, 1).touched == 32


def test_places_that_are_read_lie_in_the_row_that_has_them() -> None:
    """32 lanes choose in rows of 8 elements: one row is half a sector, and 8 neighbouring rows are a line."""
    lanes = FragLayout((), (Mode(32, "j", 1),), ())
    rows = FragLayout((), (Mode(4, "j", 1), Mode(8, "i", 1)), ())
    chosen = Ref("r", DType.I32)
    known = {"r": (Var("i"), Var("j"))}
    one = sectors(tensor(DType.F16, 64, 8), (Var("i"), chosen), lanes, 1, known)
    assert one.lines == 1 and one.touched < 2
    assert sectors(tensor(DType.F16, 64, 8), (Var("i"), chosen), rows, 1, known).lines <= 2
    assert sectors(tensor(DType.F16, 64, 1 << 16), (Var("i"), chosen), lanes, 1, known).touched == 32


@pytest.mark.parametrize(
    ("dtype", "vec", "finds"),
    [
        (DType.F32, 4, 16),  # four steps of eight lanes, which find the lines of four rows each
        (DType.BF16, 4, 8),  # two steps of sixteen lanes
        (DType.F32, 1, 4),
    ],
)
def test_lanes_that_share_a_line_find_it_in_every_step(dtype: DType, vec: int, finds: int) -> None:
    rows = FragLayout((Mode(4, "j", 1),), (Mode(4, "i", 1), Mode(8, None)), ())
    found = sectors(tensor(dtype, 64, 256), PLAIN, rows, vec)
    assert (found.lines, found.finds) == (4, finds)


def test_a_place_that_moves_with_sizes_known_at_launch() -> None:
    apart = calc("sub", Param("N", DType.I32), Param("M", DType.I32))
    index = (calc("add", Var("i"), apart), Var("j"))
    assert sectors(tensor(DType.F16, 64, 256), index, ROW, 8) == sectors(tensor(DType.F16, 64, 256), PLAIN, ROW, 8)
