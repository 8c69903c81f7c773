"""Chunks of short products are clusters, which need no second kernel."""

from __future__ import annotations

import pytest

from nautilus.core.schedule import WarpPlan
from nautilus.targets.limits import limits
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


def test_clusters_of_a_second_wave_have_a_second_kernel() -> None:
    """32 clusters of 8 blocks, of which a multiprocessor holds two: 30 of them run at the same time."""
    text = """
dim M = 16, N = 4096, K = 4096, W = 128
input X: f16[M, K]
input Q: u4[N, K]
input s: f16[N, K // W]
output Y: f16[M, N]
Y[i, j] = sum[k](X[i, k] * (f16(Q[j, k] - 8) * s[j, k // W]))
"""
    made = travel(text, "sm_90a", until="scalar").result.context.schedule
    assert made is not None and made.splits is not None and [s.splits for s in made.splits] == [8]
    assert all(k.mapping.cluster == 1 for k in made.kernels if isinstance(k.mapping, WarpPlan))


def test_graphics_processing_clusters_run_whole_clusters() -> None:
    target = limits("sm_90a")
    assert (target.clusters(4, 1), target.clusters(8, 2), target.clusters(4, 2)) == (30, 30, 66)
    assert limits("sm_80").clusters(2, 1) == 0


@pytest.mark.parametrize(
    ("condition", "cluster"),
    [("k < len[i]", 1), ("k < end[j]", 1), ("k < 100 * i + 100", 1), ("k < len[0]", 8)],
    ids=["rows", "columns", "positions of rows", "all"],
)
def test_a_condition_on_rows_keeps_the_kernel_between(condition: str, cluster: int) -> None:
    """``recompute-masked`` needs a kernel between chunks and their combination."""
    text = TEXT.format(16).replace("N = 4096", "N = 2048").replace("output", "input len: i32[M]\ninput end: i32[N]\noutput")
    text = text.replace("sum[k]", f"sum[k | {condition}]")
    made = travel(text, "sm_90a", until="ma-tile").result
    names = [k.name for k in made.modules["ma-tile"].kernels]
    assert [k.cluster for k in made.modules["ma-tile"].kernels] == [cluster] * len(names)
    assert names == (["Y"] if cluster > 1 else ["Y_acc_part", "Y_acc_part_masked", "Y"])
