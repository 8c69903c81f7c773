"""``hoist``: what it makes of a small module, and that the module computes what it did."""

from nautilus.vr_tile import text
from nautilus.vr_tile.passes.cse import Cse
from nautilus.vr_tile.passes.dce import Dce
from nautilus.vr_tile.passes.hoist import Hoist
from tests.vr_tile import programs
from tests.vr_tile.support import check_pass, lowered, row


def test_hoist(filecheck):
    m = row("""
      %y = for a in 0..2 carry(%c = %r) {
        %t = load R[i] : f32[i: 4]
        %u = mul %t, %t : f32[i: 4]
        %v = load X[i, a] : f32[i: 4]
        %w = index i < a : bool[i: 4]
        %z = select %w, %u, %v : f32[i: 4]
        %n = add %c, %z : f32[i: 4]
        yield %n
      }""")
    filecheck(
        text.format(check_pass(m, Hoist())),
        """
        // CHECK: %t = load R
        // CHECK-NEXT: %u = mul %t, %t
        // CHECK-NEXT: %y = for
        // CHECK-NEXT: %v = load X
        // CHECK-NEXT: %w = index
        """,
    )


def test_hoist_keeps_a_chain_together():
    m = check_pass(lowered(programs.ATTENTION), Cse(), Hoist(), Cse(), Dce())
    lines = [line.strip() for line in text.format(m).splitlines()]
    first = next(i for i, line in enumerate(lines) if "chain c0" in line)
    end = lines.index("}", first)
    assert "chain c0" in lines[end + 1]
    assert sum("load Q" in line for line in lines) == 1
