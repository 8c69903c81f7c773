"""``synchronize``: every wait and barrier that it places for a product is needed (cases of ``synchronize.ma``)."""

from __future__ import annotations

from pathlib import Path

import pytest

from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.passes.finalise.synchronize import Synchronize
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from nautilus.passes.pipelines import MA_TILE
from tests.ir_files import Case, cases, random_inputs

EVERY = cases(Path(__file__).with_name("synchronize.ma").read_text(), MA_TILE)
# whole products: a block of those in parts has a few iterations only, and a loop with two ends fewer than a product
PARTS = ("let part", "..min(")
CASES = [c for c in EVERY if not c.has("UNCHANGED") and " = mma " in c.text and not any(w in c.text for w in PARTS)]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.title)
def test_no_wait_and_no_barrier_can_go(case: Case) -> None:
    before = parse(case.text)
    lines = ma_format(Synchronize().apply(before)).splitlines()
    placed = [n for n, line in enumerate(lines) if line.strip().startswith(("barrier", "cp.wait"))]
    assert len(placed) >= 4
    needless: list[int] = []
    for n in placed:
        try:
            run_module(parse("\n".join(lines[:n] + lines[n + 1 :])), random_inputs(before))
        except InterpError:
            continue
        needless.append(n)
    # The pass does not know that the last iteration issues no copy.
    behind = [n for n in placed if n > lines.index("    }")]
    assert [n for n in needless if "barrier" in lines[n] or n not in behind] == []


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.title)
def test_without_synchronisation_the_kernel_is_wrong_and_with_it_is_right(case: Case) -> None:
    before = parse(case.text)
    inputs = random_inputs(before)
    with pytest.raises(InterpError):
        run_module(before, inputs)
    want = inputs["A"] @ inputs["B"]
    for seed in range(3):
        got = run_module(Synchronize().apply(before), inputs, seed=seed)["C"]
        assert abs(got - want).max() < 1e-3
