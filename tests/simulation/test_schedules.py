"""Schedules of warpgroup kernels other than the default ones.

Three multiprocessors, so that blocks process several tiles.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from nautilus.core.schedule import Schedule, SplitPlan
from nautilus.driver import Request
from nautilus.ma_tile.passes.grid import persistent_grid
from nautilus.targets.limits import limits
from tests.endtoend import schedules
from tests.simulation.compared import differences, differing, prepare
from tests.simulation.simulate import MISSING, build

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "a compiler")

ATTENTION = """
dim H = 2, M = 200, N = 200, D = 64
input Q: f16[H, M, D]
input K: f16[H, N, D]
input V: f16[H, N, D]
output O: f16[H, M, D]
S[h, i, j] = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(D)
P[h, i, j] = softmax[j](S[h, i, j])
O[h, i, d] = sum[j](P[h, i, j] * V[h, j, d])
"""

GEMM = """
dim M = 264, N = 200, K = 184
input A: bf16[M, K]
input B: bf16[K, N]
output C: bf16[M, N]
C[i, j] = sum[k](A[i, k] * B[k, j])
"""

#: those that print other text; the endtoend tests run the others on the interpreter
OF_ATTENTION = (
    "one stage", "every tile a block", "static", "snake", "direct stores", "stores by TMA from an operand's stage",
    "no overlapping MMA", "no roles", "ordered MMA", "two blocks share loads", "three consumer warpgroups",
    "resident operand in two stages", "rescaled early", "volatile waits", "l2_supertiles", "no partitioning",
)  # fmt: skip
OF_GEMM = (
    "one stage", "dynamic", "stores by TMA", "stores of 64 columns", "no asynchronous MMA", "no roles", "pingpong",
    "pingpong, snake, 128 rows", "wide", "wider",
)  # fmt: skip
CHANGES = {
    **{f"attention: {n}": (ATTENTION, schedules.BACK_TO_BACK[n]) for n in OF_ATTENTION},
    **{f"gemm: {n}": (GEMM, schedules.GEMM[n]) for n in OF_GEMM},
}

#: tiles of whole axes, and steps, that are no powers of two
SIZES = {"80": {"D": 80}, "192, 40 of a step unused": {"M": 130, "N": 280, "D": 192}, "160": {"N": 192, "D": 160}}


#: latent vectors in pages, which serve as keys and, in part, as values; more columns than one warpgroup holds
LATENT = """
dim B = 2, H = 40, N = 192, F = 448, R = 384, P = 64, Pages = 8
input Q: bf16[B, H, F]
input C: bf16[Pages, P, F]
input page: i32[B, N // P]
input len: i32[B]
output O: bf16[B, H, R]
S[b, h, j: N] = sum[f](Q[b, h, f] * C[page[b, j // P], j % P, f]) / sqrt(F)
A[b, h, j] = softmax[j | j < len[b]](S[b, h, j])
O[b, h, r] = sum[j](A[b, h, j] * C[page[b, j // P], j % P, r + 0])
"""


#: the same vectors in bytes, with scales of groups or of positions, of which warpgroups make tiles; and rows by number
COMPUTED = {
    "scales of groups": """
        dim B = 2, H = 64, N = 130, R = 384, G = 64, P = 64
        input Q: bf16[B, H, R]
        input Qp: bf16[B, H, P]
        input C: i8[B, N, R]
        input Cs: f16[B, N, R // G]
        input Kp: bf16[B, N, P]
        output O: bf16[B, H, R]
        L[b, j, r] = C[b, j, r] * Cs[b, j, r // G]
        S[b, h, j] = (sum[r](Q[b, h, r] * L[b, j, r]) + sum[p](Qp[b, h, p] * Kp[b, j, p])) / 4000
        O[b, h, r] = sum[j](softmax[j](S[b, h, j]) * L[b, j, r])
        """,
    "scales of positions in pages": """
        dim B = 2, H = 64, N = 192, R = 384, P = 64, Pages = 8
        input Q: bf16[B, H, R]
        input C: f8e4m3[Pages, P, R]
        input Cs: f32[Pages, P]
        input page: i32[B, N // P]
        input len: i32[B]
        assume 0 <= page[b, n] < Pages
        assume 1 <= len[b] <= N
        output O: bf16[B, H, R]
        L[b, j: N, r] = C[page[b, j // P], j % P, r] * Cs[page[b, j // P], j % P]
        S[b, h, j] = sum[r](Q[b, h, r] * L[b, j, r]) / 20
        O[b, h, r] = sum[j](softmax[j | j < len[b]](S[b, h, j]) * L[b, j, r])
        """,
    "rows by number": """
        dim B = 2, H = 64, N = 100, K = 128, F = 416, R = 384
        input Q: bf16[B, H, F]
        input C: bf16[N, F]
        input at: i32[B, K]
        assume -1 <= at[b, k] < N
        output O: bf16[B, H, R]
        S[b, h, k] = sum[f](Q[b, h, f] * C[at[b, k], f]) / 20 if at[b, k] >= 0 else -inf
        O[b, h, r: R] = sum[k](softmax[k | at[b, k] >= 0](S[b, h, k]) * C[at[b, k], r])
        """,
}


@pytest.fixture(autouse=True)
def few_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistent_grid, "limits", lambda arch: replace(limits(arch), multiprocessors=3))


@pytest.mark.parametrize("name", CHANGES)
def test_runs(name: str, tmp_path: Path) -> None:
    text, change = CHANGES[name]
    text = dedent(text).lstrip()
    schedule = schedules.changed(schedules.default(text), change)
    case = prepare(Request(Path("given.naut"), "sm_90a", text=text, schedule=schedule), integers="gemm" in name)
    number = list(CHANGES).index(name)
    found = differences(case, [0, 1 + number % 4], tmp_path)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", SIZES)
def test_runs_at_sizes(name: str, tmp_path: Path) -> None:
    text = dedent(ATTENTION).lstrip()
    case = prepare(Request(Path("given.naut"), "sm_90a", text=text, dims=SIZES[name]))
    assert "wgmma" in case.text
    assert not differences(case, [0, 1], tmp_path)


def test_a_plan_is_launched_again(tmp_path: Path) -> None:
    """Nothing but the kernels runs between two launches of a plan: they leave the tile counter at 0."""
    text = dedent(GEMM).lstrip()
    schedule = schedules.changed(schedules.default(text), schedules.GEMM["dynamic"])
    case = prepare(Request(Path("given.naut"), "sm_90a", text=text, schedule=schedule), integers=True)
    assert "plan->tile_counter" in case.text
    program = build(case.text, case.module, case.given, tmp_path, planned=True)
    assert differing(case, [1], program) == []


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_runs_with_divided_columns(arch: str, tmp_path: Path) -> None:
    """Consumers divide the columns of the second product, or the warps of a block do."""
    case = prepare(Request(Path("given.naut"), arch, text=dedent(LATENT).lstrip(), schedule=Schedule(splits=())))
    names = [k.name for k in case.module.kernels]
    assert names == (["O", "O_masked"] if arch == "sm_90a" else ["O"])
    found = differences(case, [0, 3], tmp_path)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", COMPUTED)
def test_runs_with_computed_tiles(name: str, tmp_path: Path) -> None:
    """Consumers make the tile that both products read, each its own columns, in one kernel."""
    whole = Schedule(splits=())
    case = prepare(Request(Path("given.naut"), "sm_90a", text=dedent(COMPUTED[name]).lstrip(), schedule=whole))
    schedule = case.result.context.schedule
    assert schedule is not None and {k.mapping.engine for k in schedule.kernels if k.name == "O"} == {"warpgroup"}
    found = differences(case, [0, 3], tmp_path)
    assert not found, "\n".join(found)


def test_runs_with_weights_that_warps_of_a_cluster_convert(tmp_path: Path) -> None:
    """Two blocks of two warps, each of which has every fourth step of 64 terms."""
    text = """
    dim M = 5, N = 72, K = 1024, G = 128
    input X: f16[M, K]
    input W: u4[N, K]
    input s: f16[N, K // G]
    output Y: f16[M, N]
    Y[i, j] = sum[k](X[i, k] * (f16(W[j, k] - 8) * s[j, k // G]))
    """
    schedule = Schedule(splits=(SplitPlan("Y_acc", "k", 4, 64, 2), SplitPlan("Y_acc", "k_chunk", 2, 2)))
    case = prepare(Request(Path("given.naut"), "sm_90a", text=dedent(text).lstrip(), schedule=schedule))
    assert [(k.warps, k.cluster) for k in case.module.kernels] == [(2, 2)]
    assert not differences(case, [0, 1], tmp_path)
