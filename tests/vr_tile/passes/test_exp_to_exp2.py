"""``exp-to-exp2``: what it makes of a small module, and that the module computes what it did."""

from nautilus.vr_tile.passes.dce import Dce
from nautilus.vr_tile.passes.exp_to_exp2 import ExpToExp2
from tests.vr_tile.support import body_of, check_pass, elementwise


def test_exp_to_exp2(filecheck):
    m = elementwise("""
      %e = exp %x : f32[i: 4, j: 8]
      %a = abs %x : f32[i: 4, j: 8]
      %l = log %a : f32[i: 4, j: 8]
      %y = add %e, %l : f32[i: 4, j: 8]""")
    new = check_pass(m, ExpToExp2(), Dce())
    filecheck(
        body_of(new),
        """
        // CHECK: [[K:%[0-9]+]] = const 1.4426950408889634 : f32
        // CHECK: [[T:%[0-9]+]] = mul %x, [[K]]
        // CHECK: exp2 [[T]]
        // CHECK: log2 %a
        """,
    )
    assert ExpToExp2(precision="strict").apply(m) == m
