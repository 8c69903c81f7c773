"""Chunks of short products are clusters, which need no second kernel."""

from __future__ import annotations

import pytest

from nautilus.core.schedule import WarpPlan
from tests.endtoend.support import travel

TEXT = """
dim M = {}, N = 4096, K = 4096
input X: f16[M, K]
input W: f16[N, K]
output Y: f16[M, N]
Y[i, j] = sum[k](X[i, k] * W[j, k])
"""


@pytest.mark.parametrize(
    ("m", "arch", "cluster"), [(16, "sm_90a", 4), (16, "sm_80", 1)], ids=["few rows", "a target without clusters"]
)
def test_chunks_of_few_rows_are_clusters(m: int, arch: str, cluster: int) -> None:
    kernels = travel(TEXT.format(m), arch).result.modules["ma-tile"].kernels
    assert [k.cluster for k in kernels][:1] == [cluster]
    assert cluster == 1 or len(kernels) == 1


def test_several_tiles_of_rows_have_a_second_kernel() -> None:
    made = travel(TEXT.format(100), "sm_90a", until="scalar").result.context.schedule
    assert made is not None and all(k.mapping.cluster == 1 for k in made.kernels if isinstance(k.mapping, WarpPlan))
