"""``div-to-rcp``: what it makes of a small module, and that the module computes what it did."""

from nautilus.vr_tile.passes.dce import Dce
from nautilus.vr_tile.passes.div_to_rcp import DivToRcp
from tests.vr_tile.support import body_of, check_pass, elementwise, ops


def test_div_to_rcp(filecheck):
    m = elementwise("""
      %a = const 3.0 : f32
      %b = const 4.0 : f32
      %t = div %x, %r : f32[i: 4, j: 8]
      %u = div %t, %x : f32[i: 4, j: 8]
      %v = div %u, %a : f32[i: 4, j: 8]
      %y = div %v, %b : f32[i: 4, j: 8]""")
    filecheck(
        body_of(check_pass(m, DivToRcp(), Dce())),
        """
        // CHECK: [[R:%[0-9]+]] = rcp %r : f32[i: 4]
        // CHECK-NEXT: [[T:%[0-9]+]] = mul %x, [[R]]
        // CHECK-NEXT: %u = div [[T]], %x
        // CHECK-NEXT: const 0.3333333333333333 : f32
        // CHECK: const 0.25 : f32
        """,
    )
    assert ops(check_pass(m, DivToRcp("strict"), Dce())).count("div") == 3  # only the power of two is exact
