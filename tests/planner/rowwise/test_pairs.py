"""Tiles of reductions over pairs of rows."""

from __future__ import annotations

import pytest

from tests.planner.plans import schedule_of

SIZES = "dim B = 4, M = 512, N = 384, K = 128\n"


def roles(text: str) -> dict[str, tuple[str, int]]:
    schedule = schedule_of(SIZES + text)
    return {a.name: (a.role, a.tile) for a in schedule.kernels[0].axes}


@pytest.mark.parametrize(
    "text",
    [
        "input A: f32[M, K], C: f32[N, K]\noutput Y: f32[M, N]\nY[i, j] = sum[k](abs(A[i, k] - C[j, k]))\n",
        "input A: f32[M, K], C: f32[K, N]\noutput Y: f32[M, N]\nY[i, j] = sqrt(max[k](A[i, k] + C[k, j]))\n",
        "input A: u8[M, K], C: u8[N, K]\noutput Y: i32[M, N]\nY[i, j] = sum[k](i32(A[i, k] != C[j, k]))\n",
    ],
)
def test_pairs_have_tiles_of_rows_and_columns(text: str) -> None:
    step = 16 if "u8" in text else 8  # a sector of a row, or as many terms as are unrolled
    assert roles(text) == {"i": ("grid", 32), "j": ("grid", 32), "k": ("loop", step)}


def test_many_results_have_wide_squares() -> None:
    text = "input A: f32[4096, K], C: f32[4096, K]\noutput Y: f32[4096, 4096]\n"
    text += "Y[i, j] = sum[k](abs(A[i, k] - C[j, k]))\n"
    assert roles(text) == {"i": ("grid", 64), "j": ("grid", 64), "k": ("loop", 8)}


@pytest.mark.parametrize(("term", "shared"), [("abs(d)", True), ("tanh(d * d + 1) / (d * d + 2) - exp(d) * d", False)])
def test_few_terms_of_many_operations_have_no_squares(term: str, shared: bool) -> None:
    text = f"input A: f32[M, 8], C: f32[N, 8]\noutput Y: f32[M, N]\ndef f(d) = {term}\n"
    assert (roles(text + "Y[i, j] = sum[k](f(A[i, k] - C[j, k]))\n")["i"] == ("grid", 32)) is shared


def test_a_loop_over_the_columns_of_pairs_has_squares() -> None:
    text = "input A: f32[16384, K], C: f32[8192, K]\noutput Y: f32[16384]\n"
    text += "D[i, j] = sum[k](abs(A[i, k] - C[j, k]))\nY[i] = min[j](D[i, j])\n"
    assert roles(text) == {"i": ("grid", 64), "j": ("loop", 64), "k": ("loop", 8)}


def test_short_rows_and_columns_are_several_squares_of_a_block() -> None:
    text = "input A: f32[512, 8, 16, K], C: f32[512, 8, 16, K]\noutput Y: f32[512, 8, 16, 16]\n"
    text += "Y[b, c, i, j] = sum[k](abs(A[b, c, i, k] - C[b, c, j, k]))\n"
    want = {"b": ("grid", 2), "c": ("grid", 8), "i": ("grid", 16), "j": ("grid", 16), "k": ("loop", 4)}
    assert roles(text) == want


@pytest.mark.parametrize("term", ["abs(A[i, k] - C[j, k])", "f32(A[i, k] != C[j, k])"])
def test_the_chunks_of_long_rows_have_squares_too(term: str) -> None:
    text = "input A: f32[256, 1024], C: f32[256, 1024]\noutput Y: f32[256, 256]\n"
    text += f"Y[i, j] = sum[k]({term})\n"
    want = {"k_chunk": ("grid", 1), "i": ("grid", 64), "j": ("grid", 64), "k": ("loop", 8)}
    assert roles(text) == want


def test_more_axes_of_terms_and_results() -> None:
    text = """input X: f32[64, M, K]
input F: f32[N, M, 3]
output Y: f32[64, N, K - 2]
Y[b, n, x] = sum[m, r](abs(X[b, m, x + r] - F[n, m, r]))
"""
    want = {"b": ("grid", 1), "n": ("grid", 64), "x": ("grid", 64), "m": ("loop", 8), "r": ("loop", 1)}
    assert roles(text) == want


@pytest.mark.parametrize(
    "text",
    [
        "input A: f32[M, K], w: f32[K]\noutput Y: f32[M]\nY[i] = sum[k](abs(A[i, k] - w[k]))\n",
        "input A: f32[M, N, K], w: f32[N, K]\noutput Y: f32[M, N]\nY[i, j] = sum[k](abs(A[i, j, k] - w[j, k]))\n",
    ],
)
def test_others_have_no_such_tiles(text: str) -> None:
    assert roles(text).get("k") != ("loop", 8)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("input x: f32[T], e: f32[K]\noutput Y: i32[T]\nY[t] = sum[k](i32(x[t] > e[k]))\n", 1),
        ("input x: f32[T], e: f32[K]\noutput Y: f32[T], Z: i32[T]\nd[t, k] = abs(x[t] - e[k])\n"
         "Y[t] = min[k](d[t, k])\nZ[t] = argmin[k](d[t, k])\n", 16),
    ],
)  # fmt: skip
def test_threads_have_results_of_their_own_where_all_have_the_same_terms(text: str, step: int) -> None:
    found = roles("dim T = 1048576\n" + text)
    assert (found["t"], found["k"]) == (("grid", 512), ("loop", step))


def test_rows_have_terms_of_their_own_under_a_condition_on_both() -> None:
    text = "dim T = 1048576\ninput x: f32[K], n: i32[T]\noutput Y: f32[T]\nY[t] = max[k | k < n[t]](x[k])\n"
    assert roles(text)["t"] != ("grid", 512)


def test_terms_of_few_results_are_spread_over_threads() -> None:
    found = roles("input x: f32[M], e: f32[K]\noutput Y: i32[M]\nY[i] = sum[k](i32(x[i] > e[k]))\n")
    assert found["k"][0] == "tile"


@pytest.mark.parametrize(("size", "apart"), [(256, True), (16, False)])
def test_ranks_of_long_rows_are_stored_and_not_found_twice(size: int, apart: bool) -> None:
    text = f"dim T = 4096, E = {size}\ninput L: f32[T, E]\noutput Y: f32[T, E]\n"
    text += "r[b, e] = sum[f: E](i32(L[b, f] > L[b, e] or (L[b, f] == L[b, e] and f < e)))\n"
    text += "w[b, e] = exp(L[b, e]) if r[b, e] < 8 else 0\nY[b, e] = w[b, e] / sum[f: E](w[b, f])\n"
    kernels = [k.ops for k in schedule_of(text).kernels]
    assert (kernels[0] == ("r",)) == apart


def test_results_with_an_axis_of_their_own_have_no_squares_of_pairs() -> None:
    """The weighted sums of rows have columns, which neither the pairs nor the loops over them have."""
    text = "input A: f32[16384, K], C: f32[8192, K], V: f32[8192, 64]\noutput Y: f32[16384, 64]\n"
    text += "D[i, j] = sum[k](abs(A[i, k] - C[j, k]))\nY[i, d] = sum[j](exp(-D[i, j]) * V[j, d])\n"
    assert {"i", "j", "d"} <= set(roles(text)) | {a.name for k in schedule_of(SIZES + text).kernels for a in k.axes}


NEAREST = """
input x: f32[32, 2048, 3], y: f32[32, 2048, 3]
output d: f32[32, 2048]
d[b, i] = min[j: 2048](sum[c: 3](square(x[b, i, c] - y[b, j, c])))
"""


def test_chunks_of_shared_terms_keep_blocks_of_results() -> None:
    """With a block for each result of a chunk, the launch of all blocks takes longer than the distances."""
    plans = {k.ops[-1]: {a.name: (a.role, a.tile) for a in k.axes} for k in schedule_of(SIZES + NEAREST).kernels}
    assert plans["d_part"] == {
        "j_chunk": ("grid", 1), "b": ("grid", 1), "i": ("grid", 512), "j": ("loop", 1),
    }  # fmt: skip


RANKS = """
input x: f32[16384, 64]
output y: f32[16384, 4]
rank[m, e] = count[f: 64](x[m, f] > x[m, e] or x[m, f] == x[m, e] and f < e)
y[m, k: 4] = sum[e | rank[m, e] == k](x[m, e])
"""


def test_chunks_of_few_results_are_spread_over_threads() -> None:
    """One block of 512 results on each multiprocessor would wait for its exponentials."""
    text = "input x: f32[16384], g: f32[4096]\noutput p: f32[4096]\np[m] = sum[n](exp(-square(g[m] - x[n])))\n"
    assert roles(text)["m"] == ("grid", 64)


def test_ranks_are_a_kernel_of_their_own() -> None:
    """In one kernel, the threads of a block would combine the parts of each rank before they compare it."""
    kernels = schedule_of(SIZES + RANKS).kernels
    assert [k.ops for k in kernels] == [("rank",), ("y",)]
    assert len(schedule_of(SIZES + RANKS.replace("16384", "128")).kernels) == 1  # few pairs take less than a launch


def test_terms_with_a_branch_come_in_steps() -> None:
    """The next term is not loaded before the branch of an exact quotient, and so several are loaded at once."""
    text = "input x: f32[64, 1024], y: f32[64, 1024], s: f32[64]\noutput p: i32[64, 1024]\n"
    below = "p[b, m] = count[n](x[b, n]{} < y[b, m])\n"
    assert roles(text.replace(", s: f32[64]", "") + below.format(""))["n"] == ("loop", 1)
    assert roles(text + below.format(" / s[b]"))["n"] == ("loop", 16)
