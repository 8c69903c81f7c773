"""The work of one consumer where consumers divide an axis that products contract."""

from __future__ import annotations

from nautilus.ma_tile.lowering.consumers import split_axis
from nautilus.vr_tile.ir import DotOp, StoreOp, walk_ops
from nautilus.vr_tile.text import parse

PRODUCT = """
module spec {
  input A: f16[64, 32]
  input B: f16[32, 64]
  output C: f32[64, 64]
  output D: f32[64, 32]
  kernel C grid() axes(i: 64, j: 32, k: 64) {
    %a = load A[i, j] : f16[i: 64, j: 32]
    %b = load B[j, k] : f16[j: 32, k: 64]
    %c = dot %a, %b over j : f32[i: 64, k: 64]
    %f = cast %a : f32[i: 64, j: 32]
    store C[i, k], %c
    store D[i, j], %f
  }
}
"""


def test_a_contraction_along_the_divided_axis_is_a_sum_over_all_parts() -> None:
    """What is stored has the columns of the consumer alone; a product needs those of all consumers."""
    own = split_axis(parse(PRODUCT).kernels[0], "j", 2)
    ops = list(walk_ops(own.kernel.body))
    assert [(d.result.name, d.acc and d.acc.name, d.a.name, d.b.name) for d in ops if isinstance(d, DotOp)] == [
        ("c_part_0", None, "a_part_0", "b_part_0"),
        ("c", "c_part_0", "a_part_1", "b_part_1"),
    ]
    assert own.dots == {"c_part_0": "c", "c": "c"} and own.parts["b_part_1"] == ("b", 1)
    assert [s.value.type.shape for s in ops if isinstance(s, StoreOp)] == [(64, 64), (64, 16)]
