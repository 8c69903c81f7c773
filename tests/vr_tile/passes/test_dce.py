"""``dce``: what it makes of a small module, and that the module computes what it did."""

from nautilus.vr_tile import text
from nautilus.vr_tile.passes.dce import Dce
from tests.vr_tile import samples
from tests.vr_tile.support import check_pass, row


def test_dce(filecheck):
    m = row("""
      %dead = load X[i, j] : f32[i: 4, j: 8]
      %deader = exp %dead : f32[i: 4, j: 8]
      %y, %gone = for a in 0..2 carry(%c = %r, %d = %r) {
        %n = add %c, %r : f32[i: 4]
        %m = mul %d, %n : f32[i: 4]
        yield %n, %m
      }
      %lost = for a in 0..2 carry(%e = %r) {
        %o = mul %e, %r : f32[i: 4]
        yield %o
      }""")
    filecheck(
        text.format(check_pass(m, Dce())),
        """
        // CHECK-NOT: dead
        // CHECK: %y = for a in 0..2 carry(%c = %r) {
        // CHECK-NEXT: %n = add
        // CHECK-NEXT: yield %n
        // CHECK-NEXT: }
        // CHECK-NEXT: store O
        """,
    )


def test_dce_keeps_values_read_by_masks():
    m = text.parse(samples.GATHER)
    assert Dce().apply(m) == m
