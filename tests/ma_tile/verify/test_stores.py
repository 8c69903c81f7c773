"""``st.rows`` needs rows that are contiguous throughout, because each thread stores elements of its neighbours."""

from __future__ import annotations

import pytest

from nautilus.core.errors import VerifyError
from nautilus.ma_tile.text.printer import parse
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


def test_rows_that_begin_anywhere() -> None:
    verify(parse(ROWS.replace("SHAPE", "16, 67").replace("INDEX", "i, j + 1")))


@pytest.mark.parametrize(("shape", "index"), [("16, 8, 9", "i, j // 8, j % 8"), ("16, 128", "i, j * 2")])
def test_rows_that_are_contiguous_in_parts(shape: str, index: str) -> None:
    with pytest.raises(VerifyError) as info:
        verify(parse(ROWS.replace("SHAPE", shape).replace("INDEX", index)))
    assert info.value.rule == "rows are contiguous in the tensor"
