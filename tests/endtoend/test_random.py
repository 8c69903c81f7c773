"""Random valid specs at every level. The seed is the test's parameter; NAUTILUS_FUZZ=N tries N of them."""

from __future__ import annotations

import os

import pytest

from tests.endtoend.fuzz import program
from tests.endtoend.support import check, complaints, travel

SEEDS = range(int(os.environ.get("NAUTILUS_FUZZ", "40")))
COMPILED = 4  # NVRTC compiles one of so many


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_spec(seed: int) -> None:
    text = program(seed)
    if seed % COMPILED == 0:
        check(text)
    else:
        wrong = complaints(travel(text, "sm_90" if seed % 2 else "sm_80"))
        assert not wrong, "\n".join([*wrong, text])
