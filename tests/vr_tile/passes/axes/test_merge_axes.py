"""``merge-axes``: which ops are the same computations with merged axes."""

from __future__ import annotations

import pytest

from nautilus.vr_tile.ir import DotOp, ReduceOp, StoreOp
from nautilus.vr_tile.passes.axes.merge_axes import _keeps
from nautilus.vr_tile.text import parse

TEXT = """
module t {
  input X: f16[8, 8, 4]
  input F: f16[4, 6]
  output Y: f32[8, 8, 6]
  output Z: f32[8, 6]
  kernel k grid() axes(y: 8, x: 8, k: 6, c: 4) {
    %x = load X[y, x, c] : f16[y: 8, x: 8, c: 4]
    %f = load F[c, k] : f16[c: 4, k: 6]
    %z = dot %x, %f over c : f32[y: 8, x: 8, k: 6]
    %r = reduce sum %z over y : f32[x: 8, k: 6]
    store Y[y, x, k], %z
    store Z[x, k], %r
  }
}
"""


@pytest.mark.parametrize(
    ("group", "kept"),
    [
        ("yx", [True, False, True, False]),
        ("xk", [False, True, True, True]),
        ("xc", [False, True, False, False]),
        ("yc", [False, False, False, True]),
    ],
)
def test_ops_that_stay_the_same(group: str, kept: list[bool]) -> None:
    ops = parse(TEXT).kernels[0].body
    found = [_keeps(op, set(group)) for op in ops if isinstance(op, DotOp | ReduceOp | StoreOp)]
    assert found == kept
