"""The lower rungs of the ladder: smaller plans shrink by a factor, and no level refuses the plain plan."""

from __future__ import annotations

from math import prod
from textwrap import dedent

import pytest

from nautilus.core.fallbacks import EPILOGUES, NO_FALLBACKS, PLAIN, SMALLER, UNFUSED, Fallbacks
from nautilus.core.schedule import KernelPlan, WarpPlan
from nautilus.frontend.semantics.check import load_spec
from nautilus.planner.conservative import THREADS, footprint, plain, smaller
from nautilus.planner.kernels import default_schedule
from nautilus.scalar.analysis.axes import Unified, unify
from nautilus.scalar.analysis.definitions import read_defs
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower

CHAIN = """
    dim M = 1024, N = 2048, D = 64
    input Q: f16[M, D], K: f16[N, D], V: f16[N, D]
    output O: f16[M, D]
    P[i, j] = f16(exp(sum[d](Q[i, d] * K[j, d]) / 64))
    O[i, d] = sum[j](P[i, j] * V[j, d])
"""
SUMS = """
    dim A = 3, B = 5, N = 1000, R = 70000, S = 7
    input X: f32[A, N, B, R, S]
    output Y: f32[A, N, B]
    Y[a, n, b] = sum[r, s](X[a, n, b, r, s])
"""


def planned(
    text: str, fallbacks: Fallbacks = NO_FALLBACKS, arch: str = "sm_80"
) -> tuple[Program, tuple[KernelPlan, ...]]:
    program = lower(load_spec(dedent(text)))
    return program, default_schedule(program, arch, fallbacks).kernels


def unified(program: Program, plan: KernelPlan) -> Unified:
    defs = read_defs(program)
    return unify([defs[o] for o in plan.ops])


@pytest.mark.parametrize("excess", [1.1, 2.0, 5.0, 30.0])
def test_a_smaller_plan_has_the_footprint_that_was_asked_for(excess: float) -> None:
    program, kernels = planned(CHAIN)
    plan = kernels[-1]
    group = unified(program, plan)
    made = smaller(plan, group, excess)
    assert footprint(made, group) * excess <= footprint(plan, group)
    assert [(a.name, a.role) for a in made.axes] == [(a.name, a.role) for a in plan.axes] and made.ops == plan.ops


def test_the_smallest_plan_ends_the_search() -> None:
    program, kernels = planned(CHAIN)
    group = unified(program, kernels[-1])
    made = smaller(kernels[-1], group, 1e9)
    assert all(a.tile == 1 for a in made.axes if a.role != "tile") and made.mapping.stages <= 1
    assert isinstance(made.mapping, WarpPlan) and prod(made.mapping.warps) * 32 <= 64


def test_a_failed_kernel_is_unfused() -> None:
    _, fused = planned(CHAIN)
    _, apart = planned(CHAIN, Fallbacks.of({"O": UNFUSED}))
    assert len(apart) > len(fused) and apart[-1].ops == ("O",)


def test_a_product_keeps_its_epilogue_where_the_kernel_of_more_failed() -> None:
    text = """
        dim M = 256, N = 4096, D = 128
        input Q: f16[M, D], X: f16[N, D]
        output S: f16[M, N]
        r[j] = sum[d](X[j, d] ** 2)
        S[i, j] = sum[d](Q[i, d] * X[j, d]) * r[j]
    """
    groups = [
        [k.ops for k in planned(text, Fallbacks.of({"S": step}), "sm_90a")[1]] for step in (0, EPILOGUES, UNFUSED)
    ]
    assert groups == [[("r", "S_sum", "S")], [("r",), ("S_sum", "S")], [("r",), ("S_sum",), ("S",)]]
    (first,) = planned(text.replace(" * r[j]", " * 2"), arch="sm_90a")[1][-1:]
    assert planned(text, Fallbacks.of({"S": EPILOGUES}), "sm_90a")[1][-1].mapping == first.mapping


def test_a_plain_kernel_has_a_thread_for_each_element_and_serial_loops() -> None:
    program, kernels = planned(SUMS, Fallbacks.of({"Y": PLAIN}))
    (plan,) = kernels
    assert {a.name: (a.role, a.tile) for a in plan.axes} == {
        "a": ("grid", 1), "n": ("grid", THREADS), "b": ("grid", 1), "r": ("loop", 1), "s": ("loop", 1),
    }  # fmt: skip
    assert plan == plain(unified(program, plan), "Y")


def test_a_warpgroup_plan_becomes_smaller_as_a_warp_plan() -> None:
    _, kernels = planned(CHAIN, Fallbacks.of({"O": SMALLER}, {"O": 2.0}), "sm_90a")
    assert kernels[-1].mapping.engine == "warp"
