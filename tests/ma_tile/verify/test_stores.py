"""Vectors move at the address of their first element, so all of them are neighbours in memory, and those of ``st.rows``
in all of a row, because each thread stores elements of its neighbours."""

from __future__ import annotations

import pytest

from nautilus.core.errors import VerifyError
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify

ROWS = """
module stored target sm_90a {
  input X: f16[16, 64]
  output Y: f16[SHAPE]
  kernel stored grid 1 warps 4 min_blocks 1 {
    layout #in = reg(j:8x1) lane(j:8x8, i:4x1) warp(i:4x4)
    smem s : f16[i: 16, j: 64] stages 1 swizzle 0 pad 16 @ 0
    %x = ld.global X[i, j] vec 8 : f16[i: 16, j: 64] #in
    st.shared s[0], %x vec 8
    barrier
    st.rows s[0], Y[INDEX] threads #in
  }
}
"""


#: An element of a table for each of eight neighbours, and a vector of the row that it names.
GATHER = """
module gathered target sm_90a {
  input X: f16[16, 64]
  input at: i32[16, 8]
  output Y: f16[16, 64]
  kernel gathered grid 1 warps 4 min_blocks 1 {
    layout #in = reg(j:8x1) lane(j:8x8, i:4x1) warp(i:4x4)
    %at = ld.global at[i, j // 8] vec 1 : i32[i: 16, j: 64] #in
    %x = ld.global X[%at, j] vec 8 : f16[i: 16, j: 64] #in
    st.global Y[i, j], %x vec 8
  }
}
"""


def test_vectors_of_a_row_that_an_element_names() -> None:
    verify(parse(GATHER))
    with pytest.raises(VerifyError) as info:
        verify(parse(GATHER.replace("j // 8]", "j // 4 % 8]")))
    assert info.value.rule == "vectors are aligned neighbours in memory under one condition"


def test_vectors_behind_a_variable() -> None:
    """What divides a variable is known from its expression."""
    text = GATHER.replace("%x = ld.global X[%at, j]", "let first = consumer * 8\n    %x = ld.global X[%at, first + j]")
    verify(parse(text))
    with pytest.raises(VerifyError):
        verify(parse(text.replace("consumer * 8", "consumer * 4")))


def test_vectors_in_rows_that_are_not_aligned() -> None:
    with pytest.raises(VerifyError) as info:
        verify(parse(ROWS.replace("pad 16", "pad 8").replace("SHAPE", "16, 67").replace("INDEX", "i, j + 1")))
    assert info.value.rule == "vectors are aligned in every row of a stage"


def test_rows_that_begin_anywhere() -> None:
    verify(parse(ROWS.replace("SHAPE", "16, 67").replace("INDEX", "i, j + 1")))


@pytest.mark.parametrize(("shape", "index"), [("16, 8, 9", "i, j // 8, j % 8"), ("16, 128", "i, j * 2")])
def test_rows_that_are_contiguous_in_parts(shape: str, index: str) -> None:
    with pytest.raises(VerifyError) as info:
        verify(parse(ROWS.replace("SHAPE", shape).replace("INDEX", index)))
    assert info.value.rule == "rows are contiguous in the tensor"


#: Vectors at the nearest position of a row.
NEAREST = """
module nearest target sm_90a {
  input X: f32[16, 64]
  output Y: f32[16, 64]
  kernel nearest grid 1 warps 4 min_blocks 1 {
    layout #in = reg(j:4x1) lane(j:16x4, i:2x1) warp(i:4x2)
    %x = ld.global X[i, min(max(j - 4, 8), 63)] vec 4 nearest : f32[i: 8, j: 64] #in
    st.global Y[i, j], %x vec 4
  }
}
"""


@pytest.mark.parametrize(
    ("old", "new"), [("j - 4", "j - 3"), (", 8)", ", 6)"), ("63", "62"), ("vec 4 nearest", "vec 4"), ("j - 4", "j * 4")]
)
def test_vectors_at_the_nearest_position(old: str, new: str) -> None:
    verify(parse(NEAREST))
    with pytest.raises(VerifyError) as info:
        verify(parse(NEAREST.replace(old, new)))
    assert info.value.rule == "vectors are aligned neighbours in memory under one condition"


def test_nearest_vectors_have_several_elements() -> None:
    with pytest.raises(VerifyError) as info:
        verify(parse(NEAREST.replace("vec 4 nearest", "vec 1 nearest")))
    assert info.value.rule == "nearest vectors are plain ones of several elements"
