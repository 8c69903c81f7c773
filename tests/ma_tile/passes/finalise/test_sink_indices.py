"""Indices sink to their first use in any block. Whole programs: ``sink_indices.ma``."""

from __future__ import annotations

from nautilus.ma_tile.ir.ops import IndexOp
from nautilus.ma_tile.passes.finalise.sink_indices import SinkIndices
from nautilus.ma_tile.text.printer import format as ma_format
from nautilus.ma_tile.text.printer import parse

TEXT = """
module m target sm_80 {
  input X: f32[32, 32]
  output Y: f32[32, 32]
  kernel m grid 1 warps 1 min_blocks 1 {
    layout #t = reg(j:32x1) lane(i:32x1) warp(*:1)
    %i = index i : i32[i: 32, j: 32] #t
    %unused = index j : i32[i: 32, j: 32] #t
    %j = index j : i32[i: 32, j: 32] #t
    %x = ld.global X[i, j] vec 1 : f32[i: 32, j: 32] #t
    %s = for k in 0..4 carry(%acc = %x) {
      %n = index j + k : i32[i: 32, j: 32] #t
      %d = add %acc, %acc : f32[i: 32, j: 32] #t
      %f = cast %n : f32[i: 32, j: 32] #t
      %g = cast %j : f32[i: 32, j: 32] #t
      %e = add %d, %f : f32[i: 32, j: 32] #t
      yield %e
    }
    %h = cast %i : f32[i: 32, j: 32] #t
    %y = add %s, %h : f32[i: 32, j: 32] #t
    st.global Y[i, j], %y vec 1
  }
}
"""


def test_order() -> None:
    after = SinkIndices().apply(parse(TEXT, "<test>"))
    lines = [line.strip().split(" = ")[0] for line in ma_format(after).splitlines() if " = " in line]
    at = {name: n for n, name in enumerate(lines)}
    assert at["%x"] < at["%j"] < at["%s"], "in front of the loop, which reads it"
    assert at["%d"] < at["%n"] < at["%f"], "inside of the loop"
    assert at["%e"] < at["%i"] < at["%h"], "behind the loop"
    assert at["%unused"] > at["%y"], "behind everything"
    assert sum(isinstance(op, IndexOp) for op in after.kernels[0].body) == 3
