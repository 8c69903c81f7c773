"""Plans of products of a matrix and a vector of longer elements, which several rows of a block share."""

from __future__ import annotations

from pathlib import Path

from nautilus.core.schedule import KernelPlan
from nautilus.driver import Request, compile_file
from tests.endtoend.support import check

RANKS = """
    dim N = 8192
    input A: bf16[N, N]
    input d: f32[N]
    input x: f32[N]
    output y: f32[N]
    y[i] = 0.1 + sum[j](A[i, j] * (x[j] / max(d[j], 1)))
"""


def plan_of(text: str) -> KernelPlan:
    """The plan of the last kernel."""
    schedule = compile_file(Request(Path("given.naut"), "sm_90a", text=text, until="ma-tile")).context.schedule
    assert schedule is not None
    return schedule.kernels[-1]


def test_rows_share_a_vector_of_longer_elements() -> None:
    """A block with one row of 8192 elements would read 64 KB of vectors for 16 KB of the matrix, and divide again."""
    assert {a.name: (a.role, a.tile) for a in plan_of(RANKS).axes} == {"i": ("grid", 8), "j": ("loop", 512)}


def test_elements_of_equal_length_keep_the_plan_of_rows() -> None:
    text = RANKS.replace("d: f32[N]\n", "d: f16[N]\n").replace("x: f32", "x: bf16").replace("d[j]", "2")
    assert ("i", 1) in [(a.name, a.tile) for a in plan_of(text.replace("input d: f16[N]\n", "")).axes]


def test_few_rows_are_not_spread_over_fewer_blocks() -> None:
    assert ("i", 8) not in [(a.name, a.tile) for a in plan_of(RANKS.replace("N = 8192", "N = 1024")).axes]


def test_the_results_are_right() -> None:
    text = RANKS.replace("N = 8192", "M = 4230, N = 1100")
    check(text.replace("A: bf16[N, N]", "A: bf16[M, N]").replace("y: f32[N]", "y: f32[M]"), "sm_90a", physical=False)


def test_one_row_has_no_others_to_share_with() -> None:
    plan_of("dim N = 200000\ninput c: i32[N]\noutput n: i32\nn = sum[i | 0 <= c[i]](1)\n")


BOXES = """
    dim B = 16, N = 4096
    input box: f32[B, N, 2]
    input score: f32[B, N]
    output most: f32[B, N]
    size[b, n] = box[b, n, 1] - box[b, n, 0]
    both[b, i, j] = max(min(box[b, i, 1], box[b, j, 1]) - max(box[b, i, 0], box[b, j, 0]), 0)
    better[b, i, j] = score[b, j] > score[b, i] or score[b, j] == score[b, i] and j < i
    most[b, i] = max[j | better[b, i, j]](both[b, i, j] / (size[b, i] + size[b, j] - both[b, i, j] + 1))
"""


def test_rows_share_terms_that_no_matrix_is_read_for() -> None:
    """Two tensors along the terms: a block with one row would read all of them for it alone."""
    held = {a.name: (a.role, a.tile) for a in plan_of(BOXES).axes}
    assert held == {"b": ("grid", 1), "i": ("grid", 8), "j": ("loop", 512)}


def test_a_condition_that_cuts_the_terms_short_keeps_the_plan_of_one_row() -> None:
    cut = BOXES.replace("| better[b, i, j]", "| better[b, i, j] and j <= i")
    assert ("i", 8) not in [(a.name, a.tile) for a in plan_of(cut).axes]


def test_the_results_of_shared_terms_are_right() -> None:
    check(BOXES.replace("B = 16, N = 4096", "B = 4, N = 1060"), "sm_90a", physical=False)


FORCES = """
    dim N = 8192
    input x: f32[N, 3], m: f32[N]
    output f: f32[N, 3]
    output e: f32
    r[i, j] = rsqrt(sum[k]((x[i, k] - x[j, k]) ** 2) + 0.01)
    f[i, k] = sum[j](m[j] * (x[j, k] - x[i, k]) * r[i, j] ** 3)
    e = sum[i, j | i != j](exp(-r[i, j]) * r[i, j])
"""


def test_a_thread_has_all_components_of_a_pair() -> None:
    schedule = compile_file(Request(Path("given.naut"), "sm_90a", text=FORCES, until="ma-tile")).context.schedule
    assert schedule is not None
    plans = {k.ops[-1]: {a.name: (a.role, a.tile) for a in k.axes} for k in schedule.kernels}
    assert plans["f"] == {"i": ("grid", 8), "k": ("grid", 3), "j": ("loop", 128)}
    assert ("grid", 8) in plans["e_parts"].values()


def test_the_components_are_right() -> None:
    check(FORCES.replace("N = 8192", "N = 1060"), "sm_90a", physical=False)
