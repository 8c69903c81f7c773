"""``simplify-masks``: what it makes of a small module, and that the module computes what it did."""

from nautilus.vr_tile import text
from nautilus.vr_tile.passes.dce import Dce
from nautilus.vr_tile.passes.simplify_masks import SimplifyMasks
from tests.vr_tile.support import body_of, check_pass, module, row


def test_simplify_masks(filecheck):
    m = module(
        """
      %x = load X[g * 2 + i, j] where g * 2 + i < 4 and j < 8 : f32[i: 4, j: 8]
      %y = load X[i, j] where i < 4 and 0 <= j : f32[i: 4, j: 8]
      %c = index i + j >= 0 : bool[i: 4, j: 8]
      %z = select %c, %x, %y : f32[i: 4, j: 8]
      store O[g * 2 + i, j], %z where g * 2 + i < 4 and i < 9""",
        grid="g: 2",
    )
    new = check_pass(m, SimplifyMasks(), Dce())
    filecheck(
        body_of(new),
        """
        // CHECK: %x = load X[g * 2 + i, j] where g * 2 + i < 4 : f32
        // CHECK-NEXT: store O[g * 2 + i, j], %x where g * 2 + i < 4{{$}}
        """,
    )


def test_simplify_masks_uses_loop_bounds():
    m = row("""
      %y = for a in 0..8 carry(%c = %r) {
        %n = for b in a..8 carry(%d = %c) {
          %t = load X[i, b - a] where b >= a and b - a < 8 : f32[i: 4]
          %o = add %d, %t : f32[i: 4]
          yield %o
        }
        yield %n
      }""")
    assert "where" not in text.format(check_pass(m, SimplifyMasks()))
