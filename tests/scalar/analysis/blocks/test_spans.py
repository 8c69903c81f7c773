"""The blocks that spans give are a superset of the live ones and a subset of the full ones, by enumeration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Expr
from nautilus.core.index.linear import build, constant
from nautilus.core.types import DType
from nautilus.scalar.analysis.blocks.cover import full_part, live_hull
from nautilus.scalar.analysis.blocks.spans import Span, spans
from nautilus.scalar.analysis.blocks.tensor_ends import Readable
from tests.cases import some
from tests.scalar.analysis.blocks.conditions import blocks, masks, parse, tiled

ROWS, COLUMNS = 6, 9  # blocks


def inside(s: Span, i0: int) -> np.ndarray:
    """Which blocks of row ``i0`` are in ``s``."""

    def value(x: Any) -> int:
        return int(evaluate(build(x, DType.I32), {"i0": np.int32(i0)}))

    j0 = np.arange(COLUMNS)
    found = (j0 >= max(map(value, s.lo), default=0)) & (j0 < min(map(value, s.hi), default=COLUMNS))
    return found & all(value(w) >= 0 for w in s.when)


def union(parts: Iterable[Span], i0: int) -> np.ndarray:
    found = np.zeros(COLUMNS, bool)
    for s in parts:
        found |= inside(s, i0)
    return found


def check(mask: Expr, tile: tuple[int, int]) -> tuple[int, int, int, int]:
    """Blocks that are visited, live, known to be full, and full, of all rows together."""
    live, full = blocks(mask, (ROWS * tile[0], COLUMNS * tile[1]), tile)
    ranges = {"i0": (0, ROWS - 1)}
    found = spans(tiled(mask, *tile), "j0", {"i": tile[0], "j": tile[1]}, ranges, Readable({}, {}))
    whole = Span((constant(0),), (constant(COLUMNS),))
    hull, part = live_hull(found.live, whole, ranges), full_part(found.full, whole, ranges)
    counts = np.zeros(4, int)
    for i0 in range(ROWS):
        may, must = union(found.live, i0), union(found.full, i0)
        assert not (live[i0] & ~may).any(), f"row {i0}: a live block is left out"
        assert not (must & ~full[i0]).any(), f"row {i0}: a block is not full"
        visited = inside(hull, i0)
        assert not (may & ~visited).any(), f"row {i0}: the hull leaves out a block"
        bare = np.zeros(COLUMNS, bool) if part is None else inside(part, i0)
        assert not (bare & ~must).any(), f"row {i0}: the full part has another block"
        counts += [visited.sum(), live[i0].sum(), bare.sum(), full[i0].sum()]
    return tuple(map(int, counts))  # type: ignore[return-value]


@settings(max_examples=some(100, 300), deadline=None)
@given(masks, st.sampled_from([(4, 4), (8, 4), (4, 8), (5, 3), (1, 4), (4, 1)]))
def test_random_masks(text: str, tile: tuple[int, int]) -> None:
    check(parse(text), tile)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("j <= i", (21, 21, 15, 15)),
        ("j < 10 or j <= i", (24, 24, 18, 18)),
        ("abs(i - j) <= 5", (27, 27, 6, 6)),
        ("i // 8 >= j // 8", (24, 24, 24, 24)),
        ("i // 8 == j // 8", (12, 12, 12, 12)),
        ("i // 10 == j // 10", (20, 20, 10, 10)),
        ("abs(i // 6 - j // 6) <= 1 and abs(i % 6 - j % 6) <= 1", (30, 27, 0, 0)),
        ("(i - j) % 2 == 0", (54, 54, 0, 0)),
        ("j != i", (54, 54, 33, 48)),
        ("not (j > i or i - j > 9)", (18, 18, 5, 5)),
        ("j <= min(i, 15) and j >= max(i - 8, 4)", (9, 9, 3, 3)),
        ("(j < 10 and i < 10) or (j >= 10 and j <= i)", (18, 18, 4, 7)),
        ("j < 4 or i - j <= 5", (54, 51, 39, 44)),
    ],
)
def test_blocks_of_common_masks(text: str, want: tuple[int, int, int, int]) -> None:
    """Visited, live, without a mask, full; of 6 rows of 9 blocks of 4 x 4 points."""
    assert check(parse(text), (4, 4)) == want
