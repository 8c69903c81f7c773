"""Default packs and splits: where they are faster, how many there are, and what the batch-invariant switch fixes."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from nautilus.core.fallbacks import LIGHTER, UNFUSED, WITHOUT, Fallbacks
from nautilus.core.schedule import KernelPlan, Schedule, SplitPlan
from nautilus.driver import Request, compile_file
from nautilus.frontend.semantics.check import load_text
from nautilus.planner import streaming
from nautilus.planner.cuts import default_packs, default_splits, plan_packs, plan_splits
from nautilus.planner.kernels import default_schedule
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.pack import Pack
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.passes.split_k_update import SplitKUpdate
from nautilus.targets.limits import limits
from nautilus.tune.search.trial_lowering import trials_of
from tests.core.schedule.engines import warp_of
from tests.planner.plans import schedule_of
from tests.scalar.programs.build import attention, causal
from tests.scalar.programs.small import argmax, column_sums, logsumexp, matmul, softmax, swiglu
from tests.shipped import SPECS


def decode(batch: int, n: int, heads: int = 64, groups: int = 8) -> Program:
    """One query a sequence; the builder has one sequence, so more of them are more heads."""
    return attention(1, n, 128, heads=heads * batch, groups=groups, guard=causal(n - 1))


def packs(program: Program) -> list[tuple[str, str, int]]:
    return [(p.op, p.axis, p.size) for p in default_packs(program)]


def splits(program: Program, arch: str = "sm_90a", invariant: bool = False) -> tuple[SplitPlan, ...]:
    """What is cut after the default packs."""
    return default_splits(Pack(plan_packs(program)).apply(program), arch, invariant=invariant)


def counts(program: Program, arch: str = "sm_90a", invariant: bool = False) -> dict[str, int]:
    """How often each reduction is cut: in how many chunks that share no range."""
    return {s.op: s.splits // s.interleave for s in reversed(splits(program, arch, invariant))}


def interleaved_splits(program: Program, arch: str = "sm_90a", invariant: bool = False) -> set[tuple[int, int, int]]:
    """(groups, warps of each, elements of a tile) of every reduction with an interleaved split."""
    return {
        (s.splits // s.interleave, s.interleave, s.tile) for s in splits(program, arch, invariant) if s.interleave > 1
    }


def test_heads_that_share_keys_are_packed_where_rows_are_few() -> None:
    assert packs(decode(8, 4096)) == [("S_sum", "h", 8)]
    assert packs(attention(4, 4096, 128, heads=64, groups=8)) == [("S_sum", "h", 8)]
    assert packs(attention(17, 4096, 128, heads=64, groups=8)) == []  # 17 tiles of heads, 16 of queries
    assert packs(attention(16, 8192, 128, heads=64, groups=4)) == [("S_sum", "h", 4)]  # one tile of 64 rows
    assert packs(attention(17, 8192, 128, heads=64, groups=4)) == []
    assert packs(attention(16, 4096, 128, heads=64, groups=4)) == []  # too few keys
    assert packs(attention(4096, 4096, 128, heads=64, groups=8)) == []


def test_nothing_to_pack() -> None:
    one = Simplify().apply(attention(1, 4096, 128, heads=8, groups=8))
    assert packs(one) == []  # one key head: h // 8 is 0, h is a row already
    for program, _ in (matmul(8, 64, 64), swiglu(8, 64, 64), softmax(8, 64), argmax(8, 64)):
        assert packs(program) == []


ENDS = ("P_max", "P_sum", "O_acc")


@pytest.mark.parametrize(
    ("batch", "n", "groups", "own"),
    [
        (8, 1024, 1, 4),
        (8, 4096, 1, 4),
        (
            8,
            65536,
            2,
            4,
        ),  # 64 blocks do not use the whole bandwidth, and the loop gains more than a second kernel costs
        (16, 65536, 1, 4),
        (1, 65536, 16, 4),
        (1, 4096, 16, 4),
        (64, 512, 1, 2),  # two blocks share a multiprocessor
    ],
)
def test_warps_and_groups_of_a_split(batch: int, n: int, groups: int, own: int) -> None:
    """Eight key heads a sequence, 16 KB a step of a warp. More groups need a second kernel, which must gain more."""
    found = splits(decode(batch, n))
    first, second = found[:3], found[3:]
    assert [(s.op, s.axis, s.splits, s.tile, s.interleave) for s in first] == [
        (name, "j", groups * own, 32, own) for name in ENDS
    ]
    # the combination is cut again, one group of it for each block of split-K warps
    assert [(s.op, s.axis, s.splits, s.tile, s.interleave) for s in second] == (
        [] if groups == 1 else [(name, "j_chunk", groups, own, 1) for name in ENDS]
    )


def test_a_reduction_too_short_for_split_k_warps_is_not_cut() -> None:
    assert splits(decode(1, 128)) == () and splits(decode(1, streaming.SHORTEST - 1)) == ()
    assert interleaved_splits(decode(1, streaming.SHORTEST)) == {(1, 4, 32)}


def test_split_k_warps_and_their_pipelines_fit_the_target() -> None:
    assert interleaved_splits(decode(4, 384), "sm_80") == {(1, 4, 32)}
    assert interleaved_splits(decode(4, 384), "sm_86") == {(1, 2, 32)}  # 99 KB hold no more than two pipelines
    for arch in ("sm_80", "sm_86", "sm_90a"):
        program = Pack(plan_packs(decode(4, 4096))).apply(decode(4, 4096))
        cut = SplitKUpdate(plan_splits(program, arch=arch)).apply(program)
        made = default_schedule(cut, arch).kernels[0]
        own = next(iter(interleaved_splits(decode(4, 4096), arch)))[1]
        assert warp_of(made).combine_in_block and warp_of(made).warps == (1, 1) and made.mapping.stages >= 2
        assert own * made.mapping.stages * 32 * 2 * 128 * 2 <= limits(arch).smem_block


def test_a_group_is_a_whole_number_of_rounds_of_its_warps() -> None:
    """Otherwise a block would need conditions where it reaches into the range of the next one."""
    for n in (4096, 4128, 5000, 16384 + 32, 40000):
        for groups, own, step in interleaved_splits(decode(1, n)):
            assert -(-n // (own * step)) % groups == 0


def test_more_rows_than_a_smallest_tile_are_no_split_k_warps() -> None:
    """The older rule holds for them: independent chunks, whole tiles of the loop."""
    program = attention(32, 16384, 128, heads=8, guard=causal(16383))
    found = splits(program, "sm_80")
    (plan,) = default_schedule(program, "sm_80").kernels
    assert found and not any(s.interleave > 1 for s in found)
    assert {s.tile for s in found} <= {plan.axis("j").tile}


def test_a_few_long_rows_are_cut() -> None:
    assert set(counts(logsumexp(4, 200_000)[0])) == {"M", "S"}
    assert set(counts(argmax(4, 200_000)[0])) == {"M", "Y"}  # the position reads the maximum: a second kernel
    assert set(counts(column_sums(20_000, 64)[0])) == {"Y"}
    assert counts(logsumexp(2048, 9000)[0]) == {}  # blocks enough
    assert counts(logsumexp(8, 4096)[0]) == {}  # a second kernel would cost more than it gains


def test_what_is_written_along_the_walk_is_not_cut() -> None:
    assert counts(softmax(40, 200_000)[0]) == {}
    assert set(counts(logsumexp(40, 200_000)[0])) == {"M", "S"}
    assert set(counts(softmax(4, 200_000)[0])) == {"M", "S"}  # the result has a kernel of its own, which fills the GPU
    assert counts(matmul(64, 64, 16384)[0]) == {}  # rows and columns: this rule does not apply


def test_the_switch_fixes_chunks_by_the_length_alone() -> None:
    assert len({splits(decode(b, 4096)) for b in (1, 8, 64)}) > 1
    for n, groups in ((512, 1), (4096, 4), (65536, 16)):
        found = {splits(decode(batch, n), invariant=True) for batch in (1, 2, 8, 64)}
        assert len(found) == 1
        assert interleaved_splits(decode(8, n), invariant=True) == {(groups, 4, 32)}


SHARED = """dim B = 64, H = 32, G = 8, M = {m}, N = {n}, D = 128
input Q: f16[B, H, D], K: f16[M, G, D], L: f16[B, N, G, D]
output S: f32[B, H, M], T: f32[B, H, N]
S[b, h, i] = sum[d](Q[b, h, d] * K[i, h // (H // G), d])
T[b, h, j] = sum[d](Q[b, h, d] * L[b, j, h // (H // G), d])
"""


@pytest.mark.parametrize(("m", "n", "found"), [(8192, 512, [("S", "h", 4)]), (65536, 512, [])])
def test_of_products_with_few_and_many_rows_those_decide_that_read_more(
    m: int, n: int, found: list[tuple[str, str, int]]
) -> None:
    assert packs(lower(load_text(SHARED.format(m=m, n=n)))) == found


def test_a_schedule_that_decides_is_left_alone() -> None:
    program = decode(1, 4096)
    for given in (Schedule(packs=(), splits=()), Schedule(kernels=(KernelPlan("O", (), ()),))):
        assert plan_packs(program, given) is given
        assert plan_splits(program, given) is given
    found = plan_splits(program, Schedule(factor=False))
    assert found.splits and not found.factor
    assert replace(found, splits=None) == Schedule(factor=False)


@pytest.mark.parametrize(("batch", "ends"), [(8, ["O_acc_part", "O"]), (1, ["O_acc_part", "O_acc_part_2", "O"])])
def test_cut_programs_plan_as_a_kernel_for_each_level(batch: int, ends: list[str]) -> None:
    program = Pack(plan_packs(decode(batch, 4096))).apply(decode(batch, 4096))
    new = SplitKUpdate(plan_splits(program)).apply(program)
    kernels = default_schedule(new).kernels
    assert [k.ops[-1] for k in kernels] == ends
    assert [warp_of(k).combine_in_block for k in kernels] == [True, *(False for _ in ends[1:])]
    # the combining kernel has as many threads as the split-K warps together
    assert prod(warp_of(kernels[1]).warps) == 4
    assert default_packs(new) == ()


@pytest.mark.parametrize(
    ("batch", "n", "heads", "clusters"),
    [
        (8, 4096, 64, [1, 1]),  # one group
        (8, 16384, 64, [1, 2, 1]),
        (8, 65536, 64, [1, 2, 1]),
        (16, 65536, 32, [1, 2, 1]),
        (4, 16384, 64, [1, 1, 1]),  # four groups: a second kernel
        (32, 16384, 64, [1, 1]),
    ],
)
def test_two_groups_are_a_cluster(batch: int, n: int, heads: int, clusters: list[int]) -> None:
    program = Pack(plan_packs(decode(batch, n, heads))).apply(decode(batch, n, heads))
    new = SplitKUpdate(plan_splits(program)).apply(program)
    kernels = default_schedule(new).kernels
    assert [k.mapping.cluster for k in kernels] == clusters
    assert (
        len({prod(warp_of(k).warps) for k in kernels[1:] if 2 in clusters}) < 2
    )  # all kernels of the block have as many threads
    assert all(k.mapping.cluster == 1 for k in default_schedule(new, "sm_80").kernels)


def test_a_cluster_that_did_not_fit_is_given_up_before_its_split_k_warps() -> None:
    program = Pack(plan_packs(decode(8, 16384))).apply(decode(8, 16384))
    found = {}
    for steps in (0, LIGHTER, WITHOUT):
        fallbacks = Fallbacks.of({"O_acc_part_2": steps})
        cuts = default_splits(program, fallbacks=fallbacks)
        new = SplitKUpdate(Schedule(splits=cuts)).apply(program)
        kernels = default_schedule(new, fallbacks=fallbacks).kernels
        found[steps] = [(warp_of(k).combine_in_block, k.mapping.cluster) for k in kernels]
    assert found[0] == [(True, 1), (False, 2), (False, 1)]
    assert found[LIGHTER] == [(True, 1), (False, 1), (False, 1)]
    assert not any(join for join, _ in found[WITHOUT])


def test_the_fallback_of_split_k_warps_is_a_split_into_chunks() -> None:
    """A kernel whose split-K warps did not fit is planned without them."""
    program = Pack(plan_packs(decode(1, 4096))).apply(decode(1, 4096))
    found = default_splits(program, fallbacks=Fallbacks.of({"O_acc_part": 1}))
    (plan,) = default_schedule(program).kernels
    assert {(s.splits, s.tile, s.interleave) for s in found} == {(16, plan.axis("j").tile, 1)}


@pytest.mark.parametrize("path", [p for p in SPECS if "prefill" in p.name], ids=lambda p: p.stem)
def test_prefill_keeps_its_plan(path: Path) -> None:
    schedule = compile_file(Request(path, until="scalar")).context.schedule
    assert schedule is not None and schedule.packs is None and schedule.splits is None
    assert len(schedule.kernels) == 1 and schedule.kernels[0].mapping.engine == "warpgroup"


def test_the_rule_does_not_cut_a_loop_that_reads_nothing() -> None:
    text = "dim M = 8, N = 100000\ninput X: f32[M]\noutput Y: f32[M]\nY[i] = sum[j: N](X[i] * cos(f32(i + j)))\n"
    assert not default_splits(trials_of(Request(Path("given.naut"), text=text))[0].program)


@pytest.mark.parametrize("rows", ["", "i, "])
def test_heads_that_share_keys_are_rows_with_and_without_a_row_axis(rows: str) -> None:
    one = rows.replace("i", "1")
    text = (
        f"dim H = 32, N = 4096, D = 128\ninput Q: f16[H, {one}D]\ninput K: f16[8, N, D]\ninput V: f16[8, N, D]\n"
        f"output O: f16[H, {one}D]\nS[h, {rows}j] = sum[d](Q[h, {rows}d] * K[h // 4, j, d])\n"
        f"P[h, {rows}j] = softmax[j](S[h, {rows}j])\nO[h, {rows}d] = sum[j](P[h, {rows}j] * V[h // 4, j, d])\n"
    )
    schedule = compile_file(Request(Path("given.naut"), text=text, until="scalar")).context.schedule
    assert schedule is not None and [p.size for p in schedule.packs or ()] == [4]
    assert max(c.interleave for c in schedule.splits or ()) == streaming.WARPS
    tiles = {a.name: a.tile for a in schedule.kernels[0].axes if a.name != "i"}
    assert tiles == {"j_chunk": 1, "h_group": 1, "h_member": 16, "j": 32, "d_1": 128, "d": 128}


@pytest.mark.parametrize(("width", "cut"), [(128, False), (2048, True)])
def test_a_short_window_at_a_place_that_is_read_is_not_cut(width: int, cut: bool) -> None:
    """Chunks have their places along the loop: most of them would be empty."""
    text = (
        "dim B = 2, H = 8, G = 8, N = 8192, D = 64\ninput Q: f16[B, H, G, D]\ninput K: f16[B, H, N, D]\n"
        "input V: f16[B, H, N, D]\ninput len: i32[B]\noutput O: f16[B, H, G, D]\n"
        f"P[b, h, g, j] = softmax[j: len[b] - {width} .. len[b]](sum[d](Q[b, h, g, d] * K[b, h, j, d]))\n"
        "O[b, h, g, d] = sum[j](P[b, h, g, j] * V[b, h, j, d])\n"
    )
    assert bool(schedule_of(text).splits) is cut


def test_bytes_that_become_operands_have_more_warps_with_shorter_steps() -> None:
    text = (
        "dim B = 16, H = 8, G = 4, N = 4096, D = 128\ninput Q: f16[B, H, G, D]\ninput K: i8[B, H, N, D]\n"
        "input V: i8[B, H, N, D]\ninput s: f16[B, H, N]\noutput O: f16[B, H, G, D]\n"
        "P[b, h, g, j] = softmax[j](sum[d](Q[b, h, g, d] * f16(K[b, h, j, d])))\n"
        "O[b, h, g, d] = sum[j](P[b, h, g, j] * s[b, h, j] * f16(V[b, h, j, d]))\n"
    )
    schedule = schedule_of(text)
    assert {(c.splits, c.interleave, c.tile) for c in schedule.splits or ()} == {(8, 2 * streaming.WARPS, 32)}


def test_scales_of_groups_count_once_in_the_bytes_of_a_step() -> None:
    text = (
        "dim B = 16, H = 8, G = 4, N = 8192, D = 128\ninput Q: f16[B, H, G, D], K: u4[B, H, N, D], V: u4[B, H, N, D]\n"
        "input s: f16[B, H, N, D // 32], z: f16[B, H, N, D // 32]\noutput O: f16[B, H, G, D]\n"
        "k[b, h, j, d] = (K[b, h, j, d] - z[b, h, j, d // 32]) * s[b, h, j, d // 32]\n"
        "P[b, h, g, j] = softmax[j](sum[d](Q[b, h, g, d] * k[b, h, j, d]))\n"
        "O[b, h, g, d] = sum[j](P[b, h, g, j] * V[b, h, j, d] * s[b, h, j, d // 32])\n"
    )
    found = {(c.splits, c.interleave, c.tile) for c in schedule_of(text).splits or () if c.interleave}
    assert found == {(8, 2 * streaming.WARPS, 16)}


def test_the_largest_scale_of_a_group_does_not_cut_the_columns_of_a_product() -> None:
    text = (
        "dim B = 32, H = 128, N = 4096, C = 512\ninput q: bf16[B, H, C], c: i8[B, N, C], cs: f16[B, N, C // 128]\n"
        "output o: bf16[B, H, C]\nl[b, j, x] = c[b, j, x] * cs[b, j, x // 128]\n"
        "p[b, h, j] = softmax[j](sum[x](q[b, h, x] * l[b, j, x]))\no[b, h, x] = sum[j](p[b, h, j] * l[b, j, x])\n"
    )
    assert not schedule_of(text).packs


def test_a_loop_whose_chunks_failed_in_every_way_is_not_cut() -> None:
    program = Pack(plan_packs(decode(1, 4096))).apply(decode(1, 4096))
    assert default_splits(program) and not default_splits(program, fallbacks=Fallbacks.of({"P_max_part": UNFUSED}))


@pytest.mark.parametrize(("extent", "step"), [(14336, 2048), (16384, 4096), (11008, 4096)])
def test_the_last_step_of_a_row_has_work_for_all_threads(extent: int, step: int) -> None:
    text = (
        f"dim N = 512, K = {extent}\ninput x: f16[K], W: f16[N, K]\noutput y: f16[N]\ny[j] = sum[k](x[k] * W[j, k])\n"
    )
    schedule = compile_file(Request(Path("given.naut"), "sm_90a", text=text, until="scalar")).context.schedule
    assert schedule is not None
    assert [a.tile for k in schedule.kernels for a in k.axes if a.role == "loop"][:1] == [step]


@pytest.mark.parametrize(
    ("rows", "value", "chunks"),
    [(1 << 17, "w[c] * X[n, c]", 512), (1 << 18, "w[c] * X[n, c]", 373), (1 << 18, "w[c] * log1p(X[n, c])", 528)],
)
def test_multiprocessors_have_chunks_of_as_many_steps(rows: int, value: str, chunks: int) -> None:
    """410 chunks saturate the memory, of which some multiprocessors have four and others three.

    Of 4096 steps, these are four chunks of ten; with 373 chunks they are three of eleven, and of 2048 steps four of
    four instead of four of five.  Where instructions take longer than the memory, all have four chunks.
    """
    text = f"dim N = {rows}, C = 80\ninput X: f16[N, C], Y: f16[N, C], w: f32[C]\noutput L: f32\n"
    text += f"L = sum[n, c]({value} * Y[n, c])\n"
    found = default_splits(trials_of(Request(Path("given.naut"), "sm_90a", text=text))[0].program)
    assert {s.splits for s in found} == {chunks}


@pytest.mark.parametrize(("bound", "cut"), [(1024, False), (65536, True)])
def test_a_short_loop_over_terms_that_all_results_share_is_not_cut(bound: int, cut: bool) -> None:
    """Results that differ by their positions alone, as the starts of sequences to which tokens belong."""
    text = f"dim T = runtime, B = runtime <= {bound}\ninput start: i32[B]\noutput at: i32[T]\n"
    text += "at[t: T] = t - max[b | start[b] <= t](start[b])\n"
    assert bool(splits(Simplify().apply(lower(load_text(text))))) is cut
