"""``vector-steps``: how accesses follow the steps. What the pass makes: ``vector_steps.ma``."""

from __future__ import annotations

from pathlib import Path

from nautilus.ma_tile.ir.ops import GlobalLoad, walk_ops
from nautilus.ma_tile.passes.steps.vector_steps import _slope
from nautilus.ma_tile.text import parse

INPUT = Path(__file__).parents[2] / "inputs" / "slopes.ma"
#: the reads of its loads in their order, and how they follow the steps
LOADS = {
    "X[i, t]": 1,
    "X[i, t + 3]": 1,
    "X[i, 31 - t]": -1,
    "X[i, 2 * t]": 0,
    "X[i, i]": 0,
    "X[i, t // 2]": 0,
    "X[i, t + t // 2]": 0,
    "X[t, t]": 0,
    "X[t, i]": 0,
    "N[]": 0,
}


def test_slopes() -> None:
    module = parse(INPUT.read_text(), "t")
    found = [x for x in walk_ops(module.kernels[0].body) if isinstance(x, GlobalLoad)]
    assert dict(zip(LOADS, (_slope(x, "t") for x in found), strict=True)) == LOADS
