"""Numbers of kernels with matrix products, by structure, sizes and target."""

from __future__ import annotations

import pytest

from nautilus.core.schedule import KernelPlan
from nautilus.driver import Request, compile_file
from nautilus.targets.limits import limits
from tests.core.schedule.engines import warp_of, warpgroup_of
from tests.planner.plans import schedule_of
from tests.shipped import ROOT

PRODUCTS = ["matmul/f16", "matmul/bf16", "matmul/nt", "matmul/tn", "matmul/bias_gelu", "matmul/batched"]
CHAINS = ["attention/causal_prefill", "attention/gqa_prefill", "attention/window_prefill", "attention/global_prefill"]


def planned(spec: str, arch: str, **dims: int) -> KernelPlan:
    """The one kernel's plan of a shipped spec."""
    result = compile_file(Request(ROOT / "specs" / f"{spec}.naut", arch, dims, until="scalar"))
    assert result.context.schedule is not None
    (kernel,) = result.context.schedule.kernels
    return kernel


def tiles(k: KernelPlan) -> dict[str, int]:
    return {a.name: a.tile for a in k.axes}


@pytest.mark.parametrize("spec", PRODUCTS)
def test_products_are_wide_where_shared_memory_is(spec: str) -> None:
    k = planned(spec, "sm_90")
    assert (tiles(k)["i"], tiles(k)["j"], tiles(k)["k"]) == (128, 256, 64)
    assert (warp_of(k).warps, k.mapping.stages, warp_of(k).double_buffer_fragments) == ((2, 4), 4, True)
    small = planned(spec, "sm_86")
    assert (tiles(small)["i"], tiles(small)["j"]) == (128, 128) and warp_of(small).warps == (2, 2)


def test_narrow_products_are_no_wider_than_their_columns() -> None:
    k = planned("matmul/batched", "sm_90", M=64, N=64, K=256)  # a longer sum is split
    assert (tiles(k)["i"], tiles(k)["j"]) == (64, 64)


def test_few_blocks_stay_narrow() -> None:
    k = planned("matmul/f16", "sm_90", M=1024, N=1024, K=256)
    assert (tiles(k)["i"], tiles(k)["j"]) == (128, 128)


def test_two_products_share_the_accumulators() -> None:
    k = planned("matmul/swiglu", "sm_90")
    assert (tiles(k)["i"], tiles(k)["j"]) == (128, 128) and warp_of(k).warps == (2, 4)


@pytest.mark.parametrize("spec", CHAINS)
def test_back_to_back_gemms_have_32_rows_a_warp_where_accumulators_fit(spec: str) -> None:
    k = planned(spec, "sm_90")
    assert (tiles(k)["i"], tiles(k)["j"], warp_of(k).warps, k.mapping.min_blocks) == (128, 32, (4, 1), 2)
    assert k.mapping.stages == (1 if k.mapping.raster_order == "natural" else 2)


def test_wide_heads_take_16_rows_a_warp() -> None:
    k = planned("attention/causal_prefill_d256", "sm_90")
    assert (tiles(k)["i"], warp_of(k).warps, k.mapping.min_blocks) == (128, (8, 1), 1)
    assert tiles(planned("attention/causal_prefill_d256", "sm_86"))["i"] == 64


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_120"])
def test_other_types_keep_the_stages_that_fit(arch: str) -> None:
    k = planned("matmul/f32", arch)
    stage = (tiles(k)["i"] + tiles(k)["j"]) * (tiles(k)["k"] * 4 + 16)
    assert 1 <= k.mapping.stages <= 3 and k.mapping.stages * stage <= limits(arch).smem_block


def test_large_products_of_f32_have_stored_parts() -> None:
    k = planned("matmul/f32", "sm_90a")
    assert (tiles(k), k.mapping.engine, k.mapping.stages) == ({"i": 128, "j": 128, "k": 64}, "warpgroup", 2)
    for dims in ({"M": 1024, "N": 1024, "K": 1024}, {"K": 96}):
        assert planned("matmul/f32", "sm_90a", **dims).mapping.engine == "warp"
    strict = compile_file(Request(ROOT / "specs/matmul/f32.naut", "sm_90a", precision="strict", until="scalar"))
    assert strict.context.schedule is not None
    assert [k.mapping.engine for k in strict.context.schedule.kernels] == ["warp"]


@pytest.mark.parametrize(
    ("dtype", "terms", "uneven"),
    [("f32", "k <= i and k <= j", True), ("bf16", "k <= i", True), ("bf16", "i - 1000 <= k and k <= i + 1000", False)],
)
def test_tiles_of_different_lengths_are_fetched_longest_first(dtype: str, terms: str, uneven: bool) -> None:
    text = f"dim N = 4096\ninput L: {dtype}[N, N]\noutput A: {dtype}[N, N]\n"
    made = schedule_of(f"{text}A[i, j] = sum[k | {terms}](L[i, k] * L[j, k])\n").kernels[-1]
    plan = warpgroup_of(made)
    want = ("dynamic", "longest-first", 40) if uneven else ("static", "grouped", 24)
    assert (plan.persistent, plan.raster_order, plan.producer_registers) == want


def test_a_last_step_that_copies_fill_with_zeros_is_no_loop_of_its_own() -> None:
    plans = {k: planned("matmul/f16", "sm_90a", K=k) for k in (4096, 4104)}
    assert [(p.partition, tiles(p)["j"]) for p in plans.values()] == [(True, 256), (False, 256)]
    text = "dim N = 4104\ninput L: bf16[N, N]\noutput A: bf16[N, N]\nA[i, j] = sum[k | k <= i](L[i, k] * L[j, k])\n"
    assert schedule_of(text).kernels[-1].partition  # steps below the diagonal need no mask


def test_short_and_few_rows_keep_the_general_plan() -> None:
    k = planned("attention/causal_decode", "sm_90", N=200)
    assert tiles(k)["i"] == 16
    assert tiles(planned("matmul/f16", "sm_90", K=64))["k"] <= 64


@pytest.mark.parametrize("spec", ["attention/causal_prefill_d256", "attention/global_prefill_d256"])
def test_results_that_have_no_room_leave_through_a_ring(spec: str) -> None:
    k = planned(spec, "sm_90a")
    assert (tiles(k)["i"], tiles(k)["j"], k.mapping.stages) == (128, 64, 2)
    assert (k.mapping.epilogue, warpgroup_of(k).store_columns) == ("tma-staged", 64)
    narrow = planned("attention/causal_prefill", "sm_90a")
    assert (tiles(narrow)["j"], narrow.mapping.epilogue) == (128, "tma")


@pytest.mark.parametrize(
    ("spec", "rows", "ordered", "early"),
    [
        ("attention/causal_prefill", 4096, False, False),
        ("attention/alibi_prefill", 4096, False, False),
        ("attention/causal_prefill_d256", 4096, False, False),
        ("attention/softcap_prefill", 4096, True, True),  # two special functions for each score
        ("attention/causal_prefill_d64", 1024, True, False),  # short products
        ("attention/global_prefill_d64", 4096, True, False),
    ],
)
def test_an_ordered_barrier_serialises_short_products(spec: str, rows: int, ordered: bool, early: bool) -> None:
    m = warpgroup_of(planned(spec, "sm_90a", M=rows, N=rows))
    assert m.ordered_mma == ordered
    assert (m.volatile_waits, m.rescale_placement == "early", not m.outstanding_mma) == (early, early, early)


@pytest.mark.parametrize(
    ("group", "channels", "want"), [(4, 4, (4, 4)), (8, 8, (8, 8)), (64, 6, (64, 8)), (8, 64, (16, 32))]
)
def test_small_groups_of_products_are_not_padded(group: int, channels: int, want: tuple[int, int]) -> None:
    text = f"""
        dim G = 3, K = {group}, C = {channels}, N = 300
        input X: f32[G, C, N]
        input F: f32[G, K, C]
        output Y: f32[G, K, N]
        Y[g, k, x] = sum[c](F[g, k, c] * X[g, c, x])
    """
    schedule = schedule_of(text)
    (kernel,) = schedule.kernels
    assert (tiles(kernel)["k"], tiles(kernel)["c"]) == want


@pytest.mark.parametrize(
    ("dtype", "terms", "side"), [("f32", 4, (64, 64)), ("f16", 16, (64, 64)), ("f32", 32, (128, 64))]
)
def test_products_of_few_terms_have_small_tiles(dtype: str, terms: int, side: tuple[int, int]) -> None:
    text = f"""
        dim M = 4096, N = 4096, K = {terms}
        input X: {dtype}[M, K]
        input W: {dtype}[K, N]
        output Y: {dtype}[M, N]
        Y[i, j] = sum[k](X[i, k] * W[k, j])
    """
    schedule = schedule_of(text)
    (kernel,) = schedule.kernels
    assert (tiles(kernel)["i"], tiles(kernel)["j"]) == side


@pytest.mark.parametrize(("rows", "warpgroups"), [(1024, 2), (2048, 2), (4096, 3), (32768, 3)])
def test_narrow_accumulators_have_the_warpgroups_that_need_less_time(rows: int, warpgroups: int) -> None:
    """16 heads: 176 tiles of 192 rows would need two waves of 132 blocks, as 256 tiles of 128 rows do."""
    k = planned("attention/global_prefill", "sm_90a", H=16, D=64, M=rows, N=rows)
    assert warpgroup_of(k).warpgroups == warpgroups and tiles(k)["i"] == 64 * warpgroups


@pytest.mark.parametrize(
    ("bias", "heads", "rows", "warpgroups", "inner"),
    [("R[h, i, j]", 8, 1024, 2, "b"), ("R[h, i, j]", 8, 512, 2, "i"), ("T[h, j - i + M]", 16, 2048, 2, "i"),
     ("T[h, (j - i + M) // 2]", 16, 2048, 3, "i")],
)  # fmt: skip
def test_tiles_beside_products_take_registers_and_may_be_shared(
    bias: str, heads: int, rows: int, warpgroups: int, inner: str
) -> None:
    """Blocks that read one tile of a bias of 32 MB are neighbours."""
    (kernel,) = schedule_of(f"""
        dim B = 4, H = {heads}, M = {rows}, D = 64
        input Q: f16[B, H, M, D], K: f16[B, H, M, D], V: f16[B, H, M, D], R: f32[H, M, M], T: f32[H, 2 * M]
        output O: f16[B, H, M, D]
        S[b, h, i, j] = sum[d](Q[b, h, i, d] * K[b, h, j, d]) + {bias}
        O[b, h, i, d] = sum[j](softmax[j](S[b, h, i, j]) * V[b, h, j, d])
    """).kernels
    assert warpgroup_of(kernel).warpgroups == warpgroups
    assert [a.name for a in kernel.axes if a.role == "grid"][-1] == inner


FEW = """
dim B = 32, H = 8, G = {group}, M = {rows}, N = 8192, D = 128
input Q: bf16[B, M, H, G, D]
input K: bf16[B, N, H, D]
input V: bf16[B, N, H, D]
output O: bf16[B, M, H, G, D]
S[b, h, g, i, j] = sum[d](Q[b, i, h, g, d] * K[b, j, h, d])
O[b, i, h, g, d] = sum[j](softmax[j | j <= N - M + i](S[b, h, g, i, j]) * V[b, j, h, d])
"""


@pytest.mark.parametrize(("group", "rows", "expected"), [(8, 4, (8, 4, 2)), (5, 8, (8, 8, 4)), (16, 4, (16, 4, 4))])
def test_heads_of_a_group_and_a_few_positions_are_rows_of_one_tile(
    group: int, rows: int, expected: tuple[int, int, int]
) -> None:
    """They read the same keys, which a tile of one of these axes would read again for each element of the other."""
    text = FEW.format(group=group, rows=rows)
    made = schedule_of(text)
    (k,) = made.kernels
    assert (tiles(k)["g"], tiles(k)["i"], warp_of(k).warps[0]) == expected


def test_tiles_of_grouped_filters_lie_along_contiguous_positions() -> None:
    """Along the 32 images, each element of a tile would be loaded from a sector of its own."""
    text = (
        "dim B = 32, G = 32, D = 8, H = 28\ninput X: f16[B, G * D, H, H]\ninput W: f16[G * D, D, 3, 3]\n"
        "output Y: f16[B, G * D, H, H]\nY[b, f, y, x] = sum[d, r, s](W[f, d, r, s] * (X[b, f // D * D + d, y + r - 1, "
        "x + s - 1] if 0 <= y + r - 1 < H and 0 <= x + s - 1 < H else 0))\n"
    )
    schedule = schedule_of(text)
    found = tiles(schedule.kernels[-1])
    assert found["x"] == 32 and found["b"] == 1


def test_columns_of_a_small_operand_are_those_that_are_contiguous_in_the_result() -> None:
    text = "dim X = {0}, J = 16, S = 16, K = 16, Z = 16\ninput P: f16[X, J, S], D: f16[S, K, Z]\n"
    text += "output Y: f16[X, Z, J, K]\nY[x, z, j, k] = sum[s](P[x, j, s] * D[s, k, z])\n"
    (many,), (few,) = (schedule_of(text.format(x), "sm_80").kernels for x in (4096, 8))
    assert (many.axis("k").tile, many.axis("z").tile) == (16, 1)
    assert (few.axis("k").tile, few.axis("z").tile) == (1, 16)
