"""Reductions with keys become scatters where their terms may be many."""

import pytest

from tests.planner.plans import schedule_of


@pytest.mark.parametrize(("size", "scattered"), [("runtime", True), ("runtime <= 2048", False), ("2048", False)])
def test_sizes_that_are_known_only_at_launch(size: str, scattered: bool) -> None:
    """Few terms cost some launches more, and the masked form of many terms may take any time."""
    text = f"dim N = {size}, B = 1024\ninput k: i32[N]\noutput H: i32[B]\nH[b: B] = sum[i | k[i] == b](1)\n"
    schedule = schedule_of(text)
    assert bool(schedule.scatters) is scattered


def test_keys_in_front_of_another_axis() -> None:
    """The masked form reads all terms for every key; terms without a position of their own meet before the scatter."""
    text = "dim B = 8, H = 8, L = 512, K = 32\ninput X: f32[B, H, L, L], k: i32[L, L]\noutput Y: f32[K, H]\n"
    text += "Y[n, h] = sum[b, i, j | k[i, j] == n](X[b, h, i, j])\n"
    assert schedule_of(text).scatters == ("Y",)
