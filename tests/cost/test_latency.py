"""What the warps of plain loads wait for, and the time of kernels with few loads outstanding."""

from __future__ import annotations

import pytest

from nautilus.cost.model import estimate
from nautilus.cost.work import count
from nautilus.ma_tile.text import parse

#: 64 blocks add up 8192 rows of a matrix, each 64 columns of it, in steps of 8 vectors a thread
COLUMNS = """module columns target sm_90a {
  input X: f32[8192, 4096]
  output y: f32[4096]
  kernel y grid 64 warps 4 min_blocks 1 {
    let b = block
    layout #t = reg(n:4x1, m:8x8) lane(n:16x4, m:2x1) warp(m:4x2)
    layout #n = reg(n:4x1) lane(n:16x4, *:2) warp(*:4)
    %z = const 0.0 : f32[n: 64] #n
    %s = for i in 0..128UNROLL carry(%a = %z) {
      %x = ld.global X[i * 64 + m, b * 64 + n] vec 4 : f32[m: 64, n: 64] #t
      FUNCTION
      %c = add %a, %a : f32[n: 64] #n
      yield %c
    }
    st.global y[b * 64 + n], %s vec 4
  }
}"""


def columns(function: str = "add %x, %x", unroll: str = "") -> str:
    return COLUMNS.replace("FUNCTION", f"%f = {function} : f32[m: 64, n: 64] #t").replace("UNROLL", unroll)


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        (columns(), 128),  # eight loads arrive together
        (columns(unroll=" unroll 4"), 32),  # and those of four iterations
        (columns("sin %x"), 128 * 8),  # no load moves across a branch
        (columns("sqrt_approx %x"), 128),
    ],
)
def test_how_often_a_warp_waits_for_loads(text: str, waits: float) -> None:
    module = parse(text)
    assert count(module, module.kernels[0]).waits.loads == pytest.approx(waits, rel=0.02)


def test_few_blocks_with_few_loads_outstanding_do_not_reach_the_rate_of_the_memory() -> None:
    """On an H200, 134 MB in halves of this size took 158 us, in two passes of 128 steps."""
    plain, unrolled = (estimate(parse(columns(unroll=u)), "sm_90a").seconds for u in ("", " unroll 4"))
    assert 60e-6 < plain < 110e-6 and unrolled < 0.7 * plain
