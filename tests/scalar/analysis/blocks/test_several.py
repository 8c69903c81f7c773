"""One loop over several ranges visits every live block once, in ascending order, by enumeration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Expr
from nautilus.core.index.linear import build, constant
from nautilus.core.types import DType
from nautilus.scalar.analysis.blocks.several import concatenation, live_ranges
from nautilus.scalar.analysis.blocks.spans import Span, spans
from nautilus.scalar.analysis.blocks.tensor_ends import Readable
from tests.cases import some
from tests.scalar.analysis.blocks.conditions import blocks, masks, parse, tiled

ROWS, COLUMNS = 6, 9  # blocks


def value(x: Any, **env: int) -> int:
    e = x if not hasattr(x, "terms") else build(x, DType.I32)
    return int(evaluate(e, {name: np.int32(v) for name, v in env.items()}))


def check(mask: Expr, tile: tuple[int, int]) -> tuple[int, int, int, int]:
    """The number of ranges, and blocks that are visited, live, and visited without the mask, of all rows together."""
    live, full = blocks(mask, (ROWS * tile[0], COLUMNS * tile[1]), tile)
    ranges = {"i0": (0, ROWS - 1)}
    found = spans(tiled(mask, *tile), "j0", {"i": tile[0], "j": tile[1]}, ranges, Readable({}, {}))
    parts = live_ranges(found.live, Span((constant(0),), (constant(COLUMNS),)), ranges)
    loop = concatenation(parts, ranges)
    block, bare = loop.block("j0"), loop.full(found.full, ranges)
    counts = [0, 0, 0]
    for i0 in range(ROWS):
        (lo,), (hi,) = loop.visit.lo, loop.visit.hi
        steps = range(value(lo, i0=i0), value(hi, i0=i0))
        visited = [value(block, i0=i0, j0=v) for v in steps]
        assert visited == sorted(set(visited)), f"row {i0}: {visited}"
        assert all(0 <= b < COLUMNS for b in visited), f"row {i0}: {visited}"
        assert set(np.flatnonzero(live[i0]).tolist()) <= set(visited), f"row {i0}: a live block is left out"
        inside = [] if bare is None else [
            b for v, b in zip(steps, visited, strict=True)
            if value(bare.lo[0], i0=i0) <= v < value(bare.hi[0], i0=i0)
        ]  # fmt: skip
        assert all(full[i0, b] for b in inside), f"row {i0}: a block is not full"
        counts = [a + b for a, b in zip(counts, (len(visited), int(live[i0].sum()), len(inside)), strict=True)]
    return len(parts), *counts  # type: ignore[return-value]


@settings(max_examples=some(100, 300), deadline=None)
@given(
    st.one_of(masks, st.builds("({}) or ({})".format, masks, masks)),
    st.sampled_from([(4, 4), (8, 4), (4, 8), (5, 3), (1, 4)]),
)
def test_random_masks(text: str, tile: tuple[int, int]) -> None:
    check(parse(text), tile)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("j <= i", (1, 21, 21, 15)),
        ("j <= i and (j < 4 or i - j <= 4)", (2, 15, 15, 5)),
        ("j < 4 or i - j <= 4", (1, 54, 48, 39)),
        ("j // 4 == 3 or i // 4 == j // 4", (3, 11, 11, 6)),
        ("j < 6 or i < 6 or abs(i - j) <= 2", (1, 40, 37, 14)),
        ("j < 4 or j >= 32 or i // 8 == j // 8", (3, 22, 22, 10)),
    ],
)
def test_ranges_of_common_masks(text: str, want: Any) -> None:
    """Ranges, and blocks visited, live, and without a mask; of 6 rows of 9 blocks of 4 x 4 points."""
    assert check(parse(text), (4, 4)) == want
