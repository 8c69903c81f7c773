"""A block has as many rows as fill a sector of each large tensor that is contiguous across the rows."""

from __future__ import annotations

from textwrap import dedent

import pytest

from nautilus.core.schedule import AxisPlan, KernelPlan, WarpPlan
from nautilus.frontend.semantics.check import load_text
from nautilus.planner.rowwise.turned import steps_across
from nautilus.scalar.analysis.definitions import read_defs
from nautilus.scalar.lowering import lower
from tests.endtoend.support import complaints, travel

TURNED = """
    dim M = {m}, N = {n}
    input X: {dtype}[M, N]
    output Y: {out}[N, M]
    Y[j, i] = softmax[j](X[i, j])
"""
READ = """
    dim M = 512, N = 1024
    input X: f16[M, N], R: f16[N, M]
    output Y: f16[M, N]
    Y[i, j] = softmax[j](X[i, j] + R[j, i])
"""
BOTH = """
    dim M = {m}, N = {n}
    input X: f16[M, N]
    output Y: f16[N, M], Z: f16[M, N]
    Z[i, j] = softmax[j](X[i, j])
    Y[j, i] = Z[i, j]
"""
SMALL = """
    dim M = 512, N = 1024
    input X: f32[M, N]
    input S: f32[32, M]
    output Y: f32[M, N]
    Y[i, j] = X[i, j] * rsqrt(mean[k: N](X[i, k] * X[i, k]) + sum[t: 32](S[t, i]))
"""
STATES = """
    dim B = 256, K = 80, P = 64, S = 128
    input h: f32[B, K, P, S], x: bf16[B, K, P], dt: bf16[B, K], Bt: bf16[B, S], Ct: bf16[B, S], z: bf16[B, K, P]
    input A: f32[K], D: f32[K], bias: f32[K], w: f32[K, P]
    output hn: f32[B, K, P, S], y: bf16[B, K, P]
    d[b, k] = softplus(dt[b, k] + bias[k])
    hn[b, k, p, s] = h[b, k, p, s] * exp(-d[b, k] * exp(A[k])) + d[b, k] * x[b, k, p] * Bt[b, s]
    o[b, k, p] = (sum[s](hn[b, k, p, s] * Ct[b, s]) + D[k] * x[b, k, p]) * silu(z[b, k, p])
    y[b, k, p] = rms_norm[k, p](o[b, k, p], 1e-5) * w[k, p]
"""


def plans(text: str) -> tuple[KernelPlan, ...]:
    schedule = travel(text, "sm_90a", until="scalar").result.context.schedule
    assert schedule is not None
    return schedule.kernels


@pytest.mark.parametrize(
    ("text", "rows", "warps"),
    [
        (TURNED.format(m=512, n=4096, dtype="f32", out="f32"), 8, 16),
        (TURNED.format(m=512, n=1024, dtype="f32", out="f16"), 16, 8),
        (TURNED.format(m=512, n=1000, dtype="f16", out="f8e4m3"), 32, 16),
        (TURNED.format(m=5, n=1024, dtype="f32", out="f32"), 8, 8),
        (READ, 16, 8),
        (BOTH.format(m=512, n=1024), 16, 8),
    ],
)
def test_the_rows_of_a_block(text: str, rows: int, warps: int) -> None:
    (plan,) = plans(text)
    assert [(a.role, a.tile) for a in plan.axes if a.role == "grid"] == [("grid", rows)]
    assert isinstance(plan.mapping, WarpPlan)
    assert plan.mapping.warps[0] * plan.mapping.warps[1] == warps


@pytest.mark.parametrize("n", [8192, 65536])
def test_rows_that_no_block_holds_are_stored_by_a_kernel_of_its_own(n: int) -> None:
    *sums, last = plans(TURNED.format(m=512, n=n, dtype="f32", out="f32"))
    assert sums and last.ops == ("Y",)
    assert all(a.role == "grid" and a.tile * 4 >= 32 for a in last.axes)


@pytest.mark.parametrize(("rows", "step", "found"), [(128, 1, True), (128, 8, False), (16, 1, False)])
def test_a_loop_along_contiguous_memory_with_more_rows_than_l1_has_sectors(rows: int, step: int, found: bool) -> None:
    """One kernel of all of these definitions, with such a loop, takes 2126 us by the model, and kernels apart 339."""
    axes = AxisPlan("b", "grid", 1), AxisPlan("s", "loop", step), AxisPlan("k", "tile", rows), AxisPlan("p", "tile", 64)
    defs = tuple(read_defs(lower(load_text(dedent(STATES)))).values())
    assert steps_across(defs, KernelPlan("y", ("y",), axes)) is found


def test_a_step_of_states_and_the_norm_of_its_results_are_kernels_apart() -> None:
    found = plans(STATES)
    assert len(found) > 1 and not any(a.role == "loop" and a.tile == 1 for p in found for a in p.axes)


def test_a_small_tensor_does_not_decide() -> None:
    assert all(a.tile < 8 for p in plans(SMALL) for a in p.axes if "Y" in p.ops and a.role == "grid")


@pytest.mark.parametrize("text", [TURNED.format(m=37, n=260, dtype="f16", out="f16"), BOTH.format(m=33, n=300)])
def test_results(text: str) -> None:
    assert not complaints(travel(text, "sm_90a"))


APART = """
    dim A = {a}, B = {b}, C = {c}, D = {d}
    input X: f32[A, B, C, D]
    output m: f32[B, D], v: f32[B, D]
    m[b, d] = mean[a, c](X[a, b, c, d])
    v[b, d] = mean[a, c]((X[a, b, c, d] - m[b, d]) ** 2)
"""


@pytest.mark.parametrize(("a", "c", "warps"), [(64, 64, 16), (32, 31, 8), (16, 33, 8)])
def test_rows_of_two_axes_across_contiguous_memory_are_whole_in_registers(a: int, c: int, warps: int) -> None:
    (plan,) = plans(APART.format(a=a, b=48, c=c, d=256))
    assert {x.name: x.tile for x in plan.axes if x.role == "grid"} == {"b": 1, "d": 8}
    assert isinstance(plan.mapping, WarpPlan) and all(x.role != "loop" for x in plan.axes)
    assert plan.mapping.warps == (1, warps)


def test_results_of_rows_of_two_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nautilus.planner.kernel.FULL", 1)
    made = travel(APART.format(a=31, b=3, c=31, d=17), "sm_90a")
    assert made.result.context.schedule is not None
    assert {x.tile for k in made.result.context.schedule.kernels for x in k.axes if x.role == "grid"} == {1, 8}
    assert not complaints(made)
