"""Splits that the cost model chooses: the candidates, and a faster choice; decisions of a given schedule stay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nautilus.core.schedule import Schedule
from nautilus.driver import Request, Result, compile_file
from nautilus.passes.manager import Context
from nautilus.passes.selection import split_choice
from nautilus.passes.selection.planner import PricedPlanner
from nautilus.passes.selection.trial import attempt
from nautilus.scalar.ir import Program
from nautilus.tune.search.trial_lowering import trials_of

TALL = "dim M = 16, N = 1024, K = 16384\ninput A: f16[M, K]\ninput B: f16[N, K]\noutput C: f16[M, N]\n"
PRODUCT = TALL + "C[i, j] = sum[k](A[i, k] * B[j, k])\n"
NORM = "dim B = 32, M = 1024, N = 1000\ninput X: bf16[B, M, N]\ninput w: f32[B, N]\noutput y: f32\n"
NORM += "y = sqrt(sum[b, i, j](X[b, i, j] ** 2 * w[b, j]))\n"
TRIPLES = "dim N = 1024\ninput A: bool[N, N]\noutput t: i32\n"
TRIPLES += "t = sum[i, j, k | A[i, j] and A[j, k] and (i + j + k) % 7 == 0](1)\n"


def request(text: str, **dims: int) -> Request:
    return Request(Path("given.naut"), text=text, dims=dims, until="ma-tile")


def program(text: str, **dims: int) -> Program:
    return trials_of(request(text, **dims))[0].program


LATENT = """\
dim B = 32, H = 16, N = 4096, R = 512, P = 64, D = 128
input Qn: bf16[B, H, D]
input Qp: bf16[B, H, P]
input Wk: bf16[H, D, R]
input Wv: bf16[H, R, D]
input C: bf16[B, N, R]
input Kp: bf16[B, N, P]
output O: bf16[B, H, D]
Q: bf16[b, h, r] = sum[d](Qn[b, h, d] * Wk[h, d, r])
S[b, h, j] = (sum[r](Q[b, h, r] * C[b, j, r]) + sum[p](Qp[b, h, p] * Kp[b, j, p])) * 0.07
A: bf16[b, h, r] = sum[j](softmax[j](S[b, h, j]) * C[b, j, r])
O[b, h, d] = sum[r](A[b, h, r] * Wv[h, r, d])
"""


def schedule_of(result: Result) -> Schedule:
    assert result.context.schedule is not None
    return result.context.schedule


COSINES = """\
dim M = 4096, N = 65536, D = 128
input X: f16[M, D], Y: f16[N, D]
output best: i32[M], score: f32[M]
x[i: M] = sum[d](f32(X[i, d]) * f32(X[i, d]))
y[j: N] = sum[d](f32(Y[j, d]) * f32(Y[j, d]))
S[i: M, j: N] = sum[d](X[i, d] * Y[j, d]) * rsqrt(x[i] + 1e-6) * rsqrt(y[j] + 1e-6)
best[i] = argmax[j](S[i, j])
score[i] = max[j](S[i, j])
"""


def test_the_best_of_many_columns_is_found_in_chunks_that_have_the_norms_of_rows() -> None:
    result = compile_file(request(COSINES))
    splits = schedule_of(result).splits or ()
    assert {c.op for c in splits} == {"best_max", "best"} and len({c.splits for c in splits}) == 1
    kernels = {k.name: k for k in schedule_of(result).kernels}
    assert kernels["best_part"].mapping.engine == "warpgroup" and "x" not in kernels["best_part"].ops
    assert kernels["best_part"].axis("j_chunk").role == "grid"


@pytest.mark.parametrize(("text", "op"), [(PRODUCT, "C_acc"), (NORM, "y_sum"), (TRIPLES, "t")])
def test_a_long_reduction_with_few_blocks_is_split_where_that_is_faster(text: str, op: str) -> None:
    context = Context(schedule=Schedule())
    best = split_choice.choose(program(text), context)
    whole = attempt(program(text), context, "pack")
    assert best is not None and whole is not None
    assert {c.op for c in best.schedule.splits or ()} == {op}
    assert best.seconds < (1 - split_choice.MARGIN) * whole.seconds
    assert schedule_of(compile_file(request(text))).splits == best.schedule.splits
    matters = split_choice.choose(program(text), context, below=best.seconds)
    assert matters is not None and matters.schedule.splits == best.schedule.splits
    slow = split_choice.choose(program(text), context, below=best.seconds / 16)
    assert slow is not None and slow.schedule.splits == whole.schedule.splits


def test_two_blocks_of_few_warps_do_not_fill_a_multiprocessor() -> None:
    """300 blocks have two warps each."""
    text = "dim Q = 300, C = 8, N = 32768\ninput X: f16[N, Q, C]\ninput G: f16[N, Q, C]\noutput D: f32[Q, C, C]\n"
    best = split_choice.choose(
        program(f"{text}D[q, k, c] = sum[n](G[n, q, k] * X[n, q, c])\n"), Context(schedule=Schedule())
    )
    assert best is not None and best.schedule.splits


def test_a_number_of_chunks_that_larger_tiles_make_useless_does_not_end_the_search() -> None:
    """Four chunks of pairs have squares of twice the rows, so as many blocks as two; eight fill the GPU."""
    text = "dim N = 2048, M = 16384, D = 64\ninput Q: f32[N, D], X: f32[M, D]\noutput y: f32[N]\n"
    text += "y[n] = min[m](sum[d](square(Q[n, d] - X[m, d])))\n"
    best = split_choice.choose(program(text), Context(schedule=Schedule()))
    assert best is not None and [c.splits for c in best.schedule.splits or ()] == [8]


def test_chunks_that_fill_the_gpu_are_found_although_two_are_slower_than_none() -> None:
    text = "dim B = 64, V = 128256\ninput x: bf16[B, V]\ninput n: i32[B, V]\noutput p: f32[B, V]\noutput t: i32[B]\n"
    text += "z[b, v] = x[b, v] - 0.2 * n[b, v] if n[b, v] > 0 else f32(x[b, v])\nm[b] = max[v](z[b, v])\n"
    text += "e[b, v] = exp(z[b, v] - m[b]) if z[b, v] > m[b] - 3 else 0\np[b, v] = e[b, v] / sum[v](e[b, v])\n"
    best = split_choice.choose(program(text + "t[b] = argmax[v](z[b, v])\n"), Context(schedule=Schedule()))
    assert best is not None and {c.splits for c in best.schedule.splits or ()} == {8}


FEW_ROWS = """
dim M = runtime <= 4, N = 1024, K = 8192
input A: f16[M, K]
input B: f16[N, K]
output C: f32[M, N]
C[i, j] = sum[k](A[i, k] * B[j, k])
"""
TOTAL = """
dim A = runtime, B = runtime, C = 64
input X: f32[A, B, C]
output s: f32
s = sum[a, b, c](X[a, b, c])
"""


@pytest.mark.parametrize("text", [FEW_ROWS, TOTAL])
def test_so_is_one_of_sizes_that_are_known_at_launch(text: str) -> None:
    best = split_choice.choose(program(text), Context(schedule=Schedule()))
    assert best is not None and best.schedule.splits


def test_the_plan_of_few_rows_serves_each_number_of_them() -> None:
    text = FEW_ROWS.replace("N = 1024, K = 8192", "N = 4096, K = 4096").replace("C: f32", "C: f16")
    fixed = compile_file(request(text, M=4))
    late = compile_file(replace(request(text), schedule=schedule_of(fixed)))
    assert [(k.name, k.cluster) for k in late.modules["ma-tile"].kernels] == [("C", 2)]


def test_a_result_of_many_tiles_makes_no_trial() -> None:
    assert split_choice.choose(program(PRODUCT, M=16384, N=8192, K=64), Context(schedule=Schedule())) is None


def test_a_fast_kernel_stays_whole() -> None:
    found = split_choice.choose(program(PRODUCT, K=1024), Context(schedule=Schedule()))
    assert found is not None and not found.schedule.splits


@pytest.mark.parametrize("given", [Schedule(splits=()), Schedule(batch_invariant=True)])
def test_what_the_schedule_says_stays(given: Schedule) -> None:
    decided, _ = PricedPlanner("sm_90a").decide("split-k-update", program(PRODUCT), given)
    assert decided == given


def test_a_compilation_takes_the_rungs_of_its_trial() -> None:
    """The first plan needs too much code; the trial finds the rung that compiles, and the driver keeps it."""
    text = (
        "dim H = 4, N = 2048, D = 64\ninput Q: bf16[H, N, D]\ninput K: bf16[H, N, D]\ninput V: bf16[H, N, D]\n"
        "output O: f32[H, D, D]\nO[h, d, e] = sum[j](exp(f32(K[h, j, d])) * V[h, j, e])\n"
    )
    result = compile_file(request(text))
    trial = split_choice.choose(program(text), Context(schedule=Schedule()))
    assert trial is not None and result.context.fallbacks == trial.fallbacks


def test_a_kernel_that_combines_the_chunks_of_a_split_may_be_split_along_its_own_axes() -> None:
    """The axis of the chunks, which the rules made, is none of the program that a candidate splits."""
    compiled = compile_file(request(LATENT))
    assert compiled.modules["ma-tile"].kernels


TOTALS = """\
dim N = 512, D = 64
input X: f32[N, D]
input Y: f32[N, D]
output O: f32
def near(z) = sum[q: 5](exp(-0.1 * 2.0 ** (q - 2) * z))
A[i: N, j: N] = sum[d]((X[i, d] - X[j, d]) ** 2)
B[i: N, j: N] = sum[d]((Y[i, d] - Y[j, d]) ** 2)
C[i: N, j: N] = sum[d]((X[i, d] - Y[j, d]) ** 2)
O = sum[i, j | i != j](near(A[i, j])) + sum[i, j | i != j](near(B[i, j])) - 2 * mean[i, j](near(C[i, j]))
"""
PHOTOMETRIC = """\
dim N = 4, C = 3, H = 436, W = 1024
input A: f32[N, C, H, W]
input V: i32[N, H, W]
output O: f32
O = sum[n, c, y, x | V[n, y, x] > 0](abs(A[n, c, y, min(x + 1, W - 1)])) / sum[n, y, x](V[n, y, x])
"""


def test_all_of_three_totals_are_split() -> None:
    """Two kernels are candidates at any time, and the third one then takes most of the time."""
    splits = schedule_of(compile_file(request(TOTALS))).splits
    assert len({c.op for c in splits or ()}) == 3


def test_a_whole_reduction_beside_the_chunks_of_another_is_split_along_rows() -> None:
    """A rule splits the count; the other total is split along the axis along which memory is not contiguous."""
    splits = schedule_of(compile_file(request(PHOTOMETRIC))).splits
    assert {(c.op, c.axis) for c in splits or ()} >= {("O_sum", "y")}


@pytest.mark.parametrize("last", ["W - 1](abs(X[b, h, w + 1] - X[b, h, w]))", "W](X[b, h, w] * Y[b, w])"])
def test_totals_over_three_axes_of_one_tensor_share_a_kernel_and_its_chunks(last: str) -> None:
    """The total variation of images: no chunk is along contiguous memory."""
    text = "dim B = 96, H = 512, W = 512\ninput X: f32[B, H, W]\ninput Y: f32[B, W]\noutput O: f32, P: f32\n"
    text += "P = sum[b, w](Y[b, w])\n"
    text += f"O = sum[b, h: H - 1, w: W](abs(X[b, h + 1, w] - X[b, h, w])) + sum[b, h: H, w: {last}\n"
    result = compile_file(request(text))
    assert {c.axis.partition("_")[0] for c in schedule_of(result).splits or () if c.op.startswith("O_sum")} == {"h"}
    assert sum("O_sum" in k.name and k.name.endswith("_part") for k in result.modules["ma-tile"].kernels) == 1


def test_the_chunks_of_a_loss_have_the_rows_that_its_logits_fill_the_gpu_with() -> None:
    """The rules see 16 bytes of each row, before the statistics of the row join the kernel."""
    text = "dim N = 262144, C = 20\ninput z: f32[N, C]\ninput y: i32[N]\nassume 0 <= y[n] < C\noutput L: f32\n"
    text += "p[n, c] = log_softmax[c](z[n, c])\nL = -mean[n](p[n, y[n]])\n"
    result = compile_file(request(text))
    (cut,) = schedule_of(result).splits or ()
    assert cut.splits >= 256 and len(result.modules["ma-tile"].kernels) == 2
