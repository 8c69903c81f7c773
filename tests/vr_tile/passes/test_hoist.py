"""``hoist``: what it makes of a small module, and that the module computes what it did."""

from __future__ import annotations

from nautilus.vr_tile import text
from nautilus.vr_tile.passes.cse import Cse
from nautilus.vr_tile.passes.dce import Dce
from nautilus.vr_tile.passes.hoist import Hoist
from tests.vr_tile import programs
from tests.vr_tile.support import check_pass, lowered


def test_hoist_keeps_a_chain_together() -> None:
    m = check_pass(lowered(programs.ATTENTION), Cse(), Hoist(), Cse(), Dce())
    lines = [line.strip() for line in text.format(m).splitlines()]
    first = next(i for i, line in enumerate(lines) if "chain c0" in line)
    end = lines.index("}", first)
    assert "chain c0" in lines[end + 1]
    assert sum("load Q" in line for line in lines) == 1
