"""``chunk-scans``: which scans run across the rows of their largest tensor. What it makes: ``chunk_scans.scalar``."""

from __future__ import annotations

import pytest

from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.axes.chunk_scans import _across
from nautilus.scalar.rewriting import find_defs


@pytest.mark.parametrize(
    ("value", "across"),
    [
        ("X[i, k]", False),
        ("X[k, i]", True),
        ("X[k, 0]", False),
        ("X[k, i] * Z[i, c, k]", False),
        ("X[i, k] * Z[k, i, c]", True),
        ("X[i, k] * Z[i, c, 0] * g", False),
        ("X[i, k] * Z[i, i, c]", False),
        ("Z[i, i, c]", False),
    ],
)
def test_the_largest_tensor_that_has_the_axis_says_whether_rows_lie_across_it(value: str, across: bool) -> None:
    text = "dim N = 6\ninput X: f32[N, N], Z: f32[N, N, N]\nscalar g: f32 = 2\noutput Y: f32[N, N, N], U: f32\n"
    spec = load_text(f"{text}Y[i, c, j] = sum[k: N | k <= j]({value})\nU = X[0, 0] + Z[0, 0, 0] + g\n")
    (d,) = (d for d in find_defs(lower(spec)).values() if d.is_reduction)
    assert _across(d, "k") is across
