"""Chunks of short products are clusters, which need no second kernel."""

from __future__ import annotations

import pytest

from nautilus.core.schedule import WarpPlan
from tests.endtoend.support import travel

TEXT = """
dim M = {m}, N = 4096, K = 4096
input X: f16[M, K]
input W: f16[N, K]
output Y: f16[M, N]
Y[i, j] = sum[k](X[i, k] * W[j, k]){more}
"""


@pytest.mark.parametrize(
    ("m", "arch", "clusters"),
    [(16, "sm_90a", (4, 1)), (16, "sm_80", (1, 1)), (200, "sm_90a", ())],
    ids=["few rows", "no clusters", "several tiles of rows"],
)
def test_chunks_of_few_rows_are_clusters(m: int, arch: str, clusters: tuple[int, ...]) -> None:
    made = travel(TEXT.format(m=m, more=""), arch).result
    assert made.context.schedule is not None
    found = [k.mapping.cluster for k in made.context.schedule.kernels if isinstance(k.mapping, WarpPlan)]
    assert not clusters or tuple(found) == clusters
    assert [k.cluster for k in made.modules["ma-tile"].kernels] == ([4] if clusters == (4, 1) else [1] * len(found) or [1])
