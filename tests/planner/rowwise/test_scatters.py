"""Which reductions with a key become scatters where sizes are known only at launch."""

from __future__ import annotations

import pytest

from nautilus.core.schedule import Schedule
from nautilus.frontend.semantics.check import load_text
from nautilus.planner.rowwise.scatters import plan_scatters
from nautilus.scalar.lowering import lower


@pytest.mark.parametrize(("bound", "found"), [("", ("C",)), (" <= 512", None)])
def test_many_terms_are_expected_at_launch(bound: str, found: tuple[str, ...] | None) -> None:
    text = f"dim N = runtime{bound}, K = 256\ninput x: u8[N]\noutput C: i32[K]\nC[k: K] = sum[n | x[n] == k](1)\n"
    program = lower(load_text(text, keep_runtime=True))
    assert plan_scatters(program, Schedule(), "sm_90a").scatters == found
