"""Chunks of short products are clusters, which need no second kernel."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from nautilus.core.schedule import Schedule, SplitPlan, WarpPlan
from nautilus.driver import Request, compile_file
from nautilus.passes.manager import Context
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
    ("m", "arch", "cluster"), [(16, "sm_90a", 2), (16, "sm_80", 1)], ids=["few rows", "a target without clusters"]
)
def test_chunks_of_few_rows_are_clusters(m: int, arch: str, cluster: int) -> None:
    kernels = travel(TEXT.format(m), arch).result.modules["ma-tile"].kernels
    assert [k.cluster for k in kernels][:1] == [cluster]
    assert cluster == 1 or len(kernels) == 1


def test_several_tiles_of_rows_have_a_second_kernel() -> None:
    made = travel(TEXT.format(100), "sm_90a", until="scalar").result.context.schedule
    assert made is not None and all(k.mapping.cluster == 1 for k in made.kernels if isinstance(k.mapping, WarpPlan))


@pytest.mark.parametrize(("n", "cluster"), [(2048, 1), (1024, 8)], ids=["16 clusters", "8 clusters"])
def test_clusters_of_a_second_wave_have_a_second_kernel(n: int, cluster: int) -> None:
    """A block has a multiprocessor for itself, so that 14 clusters of 8 blocks run at the same time."""
    text = TEXT.format(16).replace("N = 4096", f"N = {n}").lstrip()
    schedule = Schedule(splits=(SplitPlan("Y_acc", "k", 8, 64),))
    request = Request(Path("given.naut"), "sm_90a", text=text, schedule=schedule, until="scalar")
    made = compile_file(request).context.schedule
    assert made is not None
    assert [k.mapping.cluster for k in made.kernels if isinstance(k.mapping, WarpPlan)] == [cluster, 1]


@pytest.mark.parametrize("dtype", ["u4", "i8", "f8e4m3"])
def test_chunks_of_operands_that_warps_convert_have_a_second_kernel(dtype: str) -> None:
    text = TEXT.format(16).replace("W: f16", f"W: {dtype}").replace("W[j, k]", "f16(W[j, k])")
    schedule = Schedule(splits=(SplitPlan("Y_acc", "k", 2, 64),))
    request = Request(Path("given.naut"), "sm_90a", text=text.lstrip(), schedule=schedule, until="scalar")
    made = compile_file(request).context.schedule
    assert made is not None and len(made.kernels) == 2
    assert all(k.mapping.cluster == 1 for k in made.kernels if isinstance(k.mapping, WarpPlan))


def test_graphics_processing_clusters_run_whole_clusters() -> None:
    target = limits("sm_90a")
    assert (target.clusters(4, 1), target.clusters(8, 1), target.clusters(8, 2)) == (30, 14, 30)
    assert limits("sm_80").clusters(2, 1) == 0


@pytest.mark.parametrize(
    ("condition", "terms", "cluster"),
    [("k < len[i]", 4096, 1), ("k < end[j]", 4096, 1), ("k < 100 * i + 100", 4096, 1), ("k < len[0]", 1024, 4)],
    ids=["rows", "columns", "positions of rows", "all"],
)
def test_a_condition_on_rows_keeps_the_kernel_between(condition: str, terms: int, cluster: int) -> None:
    """``recompute-masked`` needs a kernel between chunks and their combination."""
    text = (
        TEXT.format(16)
        .replace("K = 4096", f"K = {terms}")
        .replace("output", "input len: i32[M]\ninput end: i32[N]\noutput")
    )
    text = text.replace("sum[k]", f"sum[k | {condition}]")
    made = travel(text, "sm_90a", until="ma-tile").result
    names = [k.name for k in made.modules["ma-tile"].kernels]
    assert [k.cluster for k in made.modules["ma-tile"].kernels] == [cluster] * len(names)
    assert names == (["Y"] if cluster > 1 else ["Y_acc_part", "Y_acc_part_masked", "Y"])


def compiled(text: str) -> Context:
    """``text``, whose product ``P`` has four chunks."""
    schedule = Schedule(splits=(SplitPlan("P", "k", 4, 64),))
    request = Request(Path("given.naut"), "sm_90a", text=dedent(text).lstrip(), schedule=schedule, until="ma-tile")
    return compile_file(request).context


@pytest.mark.parametrize("result", ["softmax[j](P[i, j])", "P[i, j] * rsqrt(mean[j](P[i, j] ** 2))"])
def test_a_reader_of_whole_rows_keeps_its_plan(result: str) -> None:
    """A block has all columns of a row, which several blocks compute, so no cluster is tried and given up."""
    context = compiled(TEXT.format(16).replace("Y[i, j] =", "P[i, j] =") + f"Y[i, j] = {result}\n")
    assert context.schedule is not None and not context.fallbacks.taken
    first, last = context.schedule.kernels
    assert isinstance(first.mapping, WarpPlan) and first.mapping.cluster == 1 and last.axis("j").role == "tile"


def test_one_of_two_products_is_a_cluster_with_their_reader() -> None:
    text = TEXT.format(16).replace("output", "input U: f16[N, K]\noutput").replace("sum[k]", "silu(sum[k]")
    text = text.rstrip() + ") * sum[k](X[i, k] * U[j, k])\n"
    context = travel(text, "sm_90a", until="ma-tile").result.context
    assert context.schedule is not None and not context.fallbacks.taken
    mappings = [k.mapping for k in context.schedule.kernels]
    assert [m.cluster for m in mappings if isinstance(m, WarpPlan)].count(1) == len(mappings) - 1


def test_a_number_of_blocks_of_the_launch_has_clusters() -> None:
    text = """
    dim B = runtime <= 8, M = 16, N = 256, K = 4096
    input X: f16[B, M, K]
    input W: f16[B, K, N]
    output Y: f16[B, M, N]
    P[b, i, j] = sum[k](X[b, i, k] * W[b, k, j])
    Y[b, i, j] = P[b, i, j]
    """
    schedule = compiled(text).schedule
    assert schedule is not None
    assert [k.mapping.cluster for k in schedule.kernels if isinstance(k.mapping, WarpPlan)] == [4, 1]
