"""Plans of running results: a row in one tile, chunks of the tile of a block, and what is no part of such a kernel."""

from __future__ import annotations

import pytest

from tests.planner.plans import schedule_of

TEXT = """
dim M = {m}, N = {n}
input X: f32[M, N]
output Y: f32[M, N]
Y[i, j] = {body}
"""
ROW, COLUMN = "sum[k | k <= j](X[i, k])", "prod[k | k >= i](X[k, j])"
PRODUCT = ROW.replace("sum", "prod")


def axes(m: int, n: int, body: str) -> dict[str, dict[str, tuple[str, int]]]:
    """Roles and tiles of the axes of each kernel."""
    found = schedule_of(TEXT.format(m=m, n=n, body=body))
    assert not found.splits
    return {k.name: {a.name: (a.role, a.tile) for a in k.axes} for k in found.kernels}


@pytest.mark.parametrize(("n", "tile"), [(100, 128), (4096, 4096), (8000, 8192)])
def test_a_row_that_fits_is_one_tile(n: int, tile: int) -> None:
    (found,) = axes(500, n, ROW).values()
    assert found["j"] == found["k"] == ("tile", tile) and found["i"][0] == "grid"


@pytest.mark.parametrize(
    ("m", "n", "body", "chunk"),
    [(1, 1_000_000, ROW, 2048), (500, 100_000, PRODUCT, 4096), (1, 9000, PRODUCT, 512)],
)
def test_long_rows_have_chunks(m: int, n: int, body: str, chunk: int) -> None:
    found = axes(m, n, body)
    assert [*found] == ["Y_chunk", "Y_carry", "Y"]
    assert found["Y"]["j"] == ("grid", chunk) and found["Y"]["k"] == ("tile", chunk)


@pytest.mark.parametrize(("m", "n", "op"), [(500, 100_000, "sum"), (1, 9000, "sum"), (500, 100_000, "min")])
def test_running_sums_and_extremes_of_long_rows_are_recurrences(m: int, n: int, op: str) -> None:
    """Their tiles follow each other in one kernel, which no plan describes."""
    assert axes(m, n, ROW.replace("sum", op)) == {}


def test_columns_have_short_chunks() -> None:
    found = axes(4096, 4096, COLUMN)
    assert [*found] == ["Y_chunk", "Y_carry", "Y"]
    assert found["Y"] == {"i": ("grid", 64), "j": ("grid", 64), "k": ("tile", 64)}
    (short,) = axes(100, 4096, COLUMN).values()
    assert short["i"] == short["k"] == ("tile", 128)


def test_elementwise_readers_share_the_kernel() -> None:
    text = TEXT.format(m=3, n=20_000, body="exp(S[i, j]) * X[i, j]") + "S[i, j: N] = " + PRODUCT + "\n"
    kernels = schedule_of(text).kernels
    assert [k.ops[-1] for k in kernels] == ["S_chunk", "S_carry", "Y"] and "S_local" in kernels[-1].ops


@pytest.mark.parametrize(
    "text",
    [
        "D[i] = min[j](S[i, j] - P[i, j])\nP[i, j: N] = max[k | k <= j](S[i, k])\nS[i, j: N] = " + ROW,
        "D[i] = max[j](f32(P[i, j]))\nP[i, j: N] = argmax[k | k <= j](X[i, k])",
    ],
)
def test_a_block_has_running_results_of_running_results(text: str) -> None:
    """A drawdown, and positions of running extremes, whose elements other definitions read as well."""
    (kernel,) = schedule_of("dim M = 256, N = 1260\ninput X: f32[M, N]\noutput D: f32[M]\n" + text + "\n").kernels
    assert len(kernel.ops) == 3 and {a.tile for a in kernel.axes if a.role == "tile"} == {2048}


def test_running_results_before_each_element_are_in_another_kernel() -> None:
    """A running variance reads the means with an element and before it; the means keep their sums in one kernel."""
    text = "dim M = 2048, N = 512\ninput X: f32[M, N]\noutput A: f32[M, N], V: f32[M, N]\n"
    text += "A[i, j] = mean[k | k <= i](X[k, j])\n"
    text += "V[i, j] = sum[k | k <= i]((X[k, j] - A[i, j]) ** 2) / (i + 1)\n"
    assert not any(k.name == "A_sum" for k in schedule_of(text).kernels)


def test_running_results_of_long_reductions_read_them() -> None:
    """A block that has running results does not compute every reduction itself."""
    text = """
dim M = 256, N = 4096
input X: f32[M, N]
output Y: f32[M]
Y[i: M] = sum[k | k <= i](S[k])
S[k] = max[j](X[k, j])
"""
    assert [k.ops for k in schedule_of(text).kernels] == [("S",), ("Y",)]


@pytest.mark.parametrize(("t", "columns"), [(2048, 16), (1024, 32), (300, 32)])
def test_many_columns_are_held_in_registers(t: int, columns: int) -> None:
    text = f"""
dim B = 16, T = {t}, D = 512
input X: f32[B, T, D]
output Y: f32[B, T, D]
Y[b, t, d] = sum[u | u <= t](X[b, u, d])
"""
    (plan,) = schedule_of(text).kernels
    found = {a.name: (a.role, a.tile) for a in plan.axes}
    assert found["d"] == ("grid", columns) and found["t"] == found["u"]
    few = text.replace("B = 16", "B = 2")
    assert schedule_of(few).kernels == ()
    assert [k.name for k in schedule_of(few.replace("sum", "prod")).kernels] == ["Y_chunk", "Y_carry", "Y"]


def test_running_results_of_a_matrix_product_read_it() -> None:
    text = """
dim M = 256, N = 64, K = 64
input A: f16[M, K]
input B: f16[K, N]
output Y: f32[M, N]
P[i, j] = sum[k](A[i, k] * B[k, j])
Y[i, j: N] = sum[l | l <= j](P[i, l])
"""
    assert [k.ops for k in schedule_of(text).kernels] == [("Y_term",), ("Y",)]


def test_a_reduction_of_running_results_is_no_part_of_a_total_over_rows() -> None:
    """A loop over rows has no room for the running results of a row, which a kernel of its own would store."""
    text = (
        "dim M = 65536, N = 250\ninput X: f32[M, N]\noutput p: f32\ns[i, j: N] = sum[k | k <= j](X[i, k])\n"
        "r[i] = max(mean[j](exp(s[i, j])) - 1, 0)\np = mean[i](r[i])\n"
    )
    first, *_ = schedule_of(text).kernels
    assert len(first.ops) == 2 and first.axis("j").role == "tile"
