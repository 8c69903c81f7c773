"""Products of few rows with an operand of few bits, whose terms the warps of a block divide."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nautilus.check.levels import Trace
from nautilus.core.schedule import Schedule, SplitPlan, WarpPlan
from nautilus.driver import Request, compile_file
from nautilus.planner.chunks import warp_chunks
from tests.endtoend.support import Compilation, complaints

TEXT = """dim M = {m}, N = {n}, K = {k}, G = 128
input X: f16[M, K]
input W: {dtype}[N, K]
input s: f16[N, K // G]
input T: f32[16]
output Y: f16[M, N]
Y[i, j] = {element}
"""
BYTES = "sum[k](X[i, k] * W[j, k]) * s[j, 0]"
GROUPS = "sum[k](X[i, k] * (f16(W[j, k] - 8) * s[j, k // G]))"

TABLE = "sum[k](X[i, k] * f16(T[i32(W[j, k])] * s[j, k // G]))"


def request(dtype: str, element: str, m: int, n: int, k: int, *splits: SplitPlan, arch: str = "sm_90a") -> Request:
    text = TEXT.format(m=m, n=n, k=k, dtype=dtype, element=element)
    return Request(Path("given.naut"), arch, text=text, schedule=Schedule(splits=splits) if splits else None)


@pytest.mark.parametrize(
    ("dtype", "element", "m", "n", "found"),
    [
        ("u4", GROUPS, 16, 4096, (8, 32)),
        ("i8", BYTES, 32, 4096, (8, 32)),
        ("i8", BYTES, 16, 4096, (8, 32)),
        ("f8e4m3", BYTES, 16, 14336, (4, 32)),
        ("i8", BYTES, 128, 4096, None),
    ],
    ids=["4 bits", "two tiles of rows", "bytes", "two blocks share a multiprocessor", "many rows"],
)  # fmt: skip
def test_the_warps_of_a_block_divide_the_terms(
    dtype: str, element: str, m: int, n: int, found: tuple[int, int] | None
) -> None:
    made = compile_file(replace(request(dtype, element, m, n, 4096), until="scalar")).context.schedule
    assert made is not None
    of_warps = [k for k in made.kernels if isinstance(k.mapping, WarpPlan) and k.mapping.combine_in_block]
    assert [(s.interleave) for s in made.splits or () if s.interleave > 1] == ([found[0]] if found else [])
    assert [k.axis("j").tile for k in of_warps] == ([found[1]] if found else [])


def test_warps_divide_groups_of_terms() -> None:
    """Sums of groups are products of a step each, and are scaled where they are added."""
    text = """dim M = 16, N = 4096, G = 32
input X: f16[M, G, 128]
input W: u4[N, G, 128]
input s: f16[N, G]
output Y: f16[M, N]
Y[i, j] = sum[g](s[j, g] * sum[k: 128](X[i, g, k] * (W[j, g, k] - 8)))
"""
    made = compile_file(Request(Path("given.naut"), "sm_90a", text=text, until="scalar")).context.schedule
    assert made is not None
    (plan,) = (k for k in made.kernels if isinstance(k.mapping, WarpPlan) and k.mapping.combine_in_block)
    assert {a.name: (a.role, a.tile) for a in plan.axes if a.name in "gkj"} == {
        "g": ("loop", 1), "k": ("tile", 128), "j": ("grid", 32)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "element", "m", "splits", "cluster"),
    [
        ("u4", GROUPS, 13, (SplitPlan("Y_acc", "k", 16, 64, 16),), 1),
        ("i8", BYTES, 40, (SplitPlan("Y_sum", "k", 4, 64, 4),), 1),
        ("u4", GROUPS, 5, (SplitPlan("Y_acc", "k", 4, 64, 2), SplitPlan("Y_acc", "k_chunk", 2, 2)), 2),
        ("u4", TABLE, 7, (SplitPlan("Y_acc", "k", 4, 64, 4),), 1),
    ],
    ids=["sixteen warps", "bytes", "cluster", "table"],
)  # fmt: skip
def test_one_kernel_has_the_sums_of_all_warps(
    dtype: str, element: str, m: int, splits: tuple[SplitPlan, ...], cluster: int
) -> None:
    trace = Trace()
    made = Compilation(compile_file(request(dtype, element, m, 72, 1024, *splits), [trace]), tuple(trace.levels))
    (kernel,) = made.result.modules["ma-tile"].kernels
    assert (kernel.cluster, kernel.warps) == (cluster, splits[0].interleave)
    assert complaints(made, stages=("ma-tile",)) == []


def test_stages_that_do_not_fit_leave_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warp_chunks, "COMBINING_BYTES", 1 << 20)
    given = request("i8", BYTES, 16, 128, 1024, SplitPlan("Y_sum", "k", 4, 64, 4))
    made = compile_file(replace(given, until="scalar")).context.schedule
    assert made is not None and not any(
        k.mapping.combine_in_block for k in made.kernels if isinstance(k.mapping, WarpPlan)
    )
