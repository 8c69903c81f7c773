"""Reductions with keys become scatters where their terms may be many."""

import pytest

from tests.planner.plans import schedule_of


@pytest.mark.parametrize(("size", "scattered"), [("runtime", True), ("runtime <= 2048", False), ("2048", False)])
def test_sizes_that_are_known_only_at_launch(size: str, scattered: bool) -> None:
    """Few terms cost some launches more, and the masked form of many terms may take any time."""
    text = f"dim N = {size}, B = 1024\ninput k: i32[N]\noutput H: i32[B]\nH[b: B] = sum[i | k[i] == b](1)\n"
    schedule = schedule_of(text)
    assert bool(schedule.scatters) is scattered
