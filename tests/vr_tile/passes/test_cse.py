"""``cse``: what it makes of a small module, and that the module computes what it did."""

from nautilus.vr_tile.passes.cse import Cse
from nautilus.vr_tile.passes.hoist import Hoist
from tests.vr_tile.support import body_of, check_pass, elementwise, ops, row


def test_cse(filecheck):
    m = elementwise("""
      %a = load X[i, j] : f32[i: 4, j: 8]
      %u = mul %x, %r : f32[i: 4, j: 8]
      %v = mul %r, %a : f32[i: 4, j: 8]
      %w = sub %u, %r : f32[i: 4, j: 8]
      %z = sub %r, %v : f32[i: 4, j: 8]
      %y = add %w, %z : f32[i: 4, j: 8]""")
    filecheck(
        body_of(check_pass(m, Cse())),
        """
        // CHECK: %x = load X
        // CHECK-NEXT: %r = load R
        // CHECK-NEXT: %u = mul %x, %r
        // CHECK-NEXT: %w = sub %u, %r
        // CHECK-NEXT: %z = sub %r, %u
        // CHECK-NEXT: %y = add %w, %z
        """,
    )


def test_cse_keeps_signed_zeros_and_masks_apart():
    m = elementwise("""
      %p = const 0.0 : f32
      %n = const -0.0 : f32
      %a = load X[i, j] where j < 3 : f32[i: 4, j: 8]
      %b = add %a, %p : f32[i: 4, j: 8]
      %c = add %x, %n : f32[i: 4, j: 8]
      %y = add %b, %c : f32[i: 4, j: 8]""")
    assert check_pass(m, Cse()) == m


def test_cse_respects_scopes():
    m = row("""
      %y = for a in 0..2 carry(%c = %r) {
        %t = mul %r, %r : f32[i: 4]
        %n = add %c, %t : f32[i: 4]
        yield %n
      }
      %z = for a in 0..2 carry(%d = %r) {
        %u = mul %r, %r : f32[i: 4]
        %o = add %d, %u : f32[i: 4]
        yield %o
      }""")
    assert check_pass(m, Cse()) == m  # neither loop's product is in scope of the other
    assert ops(check_pass(m, Hoist(), Cse())).count("mul") == 1
