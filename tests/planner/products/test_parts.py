"""Tiles of products of f32 in stored parts."""

from __future__ import annotations

import pytest

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Load, Var
from nautilus.core.schedule import KernelPlan, WarpgroupPlan
from nautilus.core.types import DType
from nautilus.planner.products.dots import digit
from tests.planner.plans import schedule_of

CONVOLUTION = (
    "dim B = {b}, C = {c}, K = {k}, H = 256, W = {w}\ninput X: f32[B, C, H, W]\ninput F: f32[K, C, 3, 3]\n"
    "output Y: f32[B, K, H, W]\n"
    "Y[b, k, y, x] = sum[c, r: 3, s: 3 | 0 <= y + r - 1 < H and 0 <= x + s - 1 < W](\n"
    "  X[b, c, y + r - 1, x + s - 1] * F[k, c, r, s]\n)\n"
)


def planned(c: int, k: int, w: int, b: str = "8") -> KernelPlan:
    """The plan of a convolution of ``b`` images with ``c`` channels, ``k`` filters and lines of ``w``."""
    text = CONVOLUTION.format(b=b, c=c, k=k, w=w)
    schedule = schedule_of(text)
    return next(p for p in schedule.kernels if p.name == "Y")


@pytest.mark.parametrize(
    ("c", "k", "w", "tiles"),
    [
        (64, 128, 256, {"k": 128, "x": 128, "r_s_c": 64}),  # rows are filters, so that columns are contiguous
        (32, 64, 256, {"x": 256, "k": 64, "r_s_c": 32}),
        (48, 64, 256, {"x": 128, "k": 64, "r_s_c": 64}),  # of a step of 64 terms 48 are multiplied
        (32, 32, 1026, {"y": 4, "x": 64, "k": 32, "r_s_c": 32}),  # not 8 images, 4 lines and 8 columns: few columns
        (48, 64, 56, {"y": 16, "x": 8, "k": 64, "r_s_c": 64}),  # lines of the result are whole sectors
    ],
)
def test_tiles_follow_the_channels_and_the_filters(c: int, k: int, w: int, tiles: dict[str, int]) -> None:
    plan = planned(c, k, w)
    assert isinstance(plan.mapping, WarpgroupPlan) and plan.mapping.stages >= 2
    assert {a.name: a.tile for a in plan.axes if a.tile > 1} == tiles


@pytest.mark.parametrize(("c", "k", "w"), [(64, 128, 256), (32, 64, 256), (48, 64, 56)])
def test_tiles_of_any_number_of_images_are_those_of_one(c: int, k: int, w: int) -> None:
    plan, fixed = planned(c, k, w, "runtime"), planned(c, k, w)
    assert isinstance(plan.mapping, WarpgroupPlan)
    assert [(a.name, a.role, a.tile) for a in plan.axes] == [(a.name, a.role, a.tile) for a in fixed.axes]


def test_any_number_of_rows_has_stored_parts_and_rows_of_any_length_have_not() -> None:
    text = "dim M = runtime, N = 4096, K = 1024\ninput A: f32[{a}], B: f32[K, N]\noutput Y: f32[M, N]\n"
    for shape, place, engine in (("M, K", "i, k", "warpgroup"), ("K, M", "k, i", "warp")):
        product = f"Y[i, j] = sum[k](A[{place}] * B[k, j])\n"
        (plan,) = [p for p in schedule_of(text.format(a=shape) + product).kernels if p.name == "Y"]
        assert plan.mapping.engine == engine


def test_few_channels_are_windows() -> None:
    plan = planned(3, 128, 256)
    assert isinstance(plan.mapping, WarpgroupPlan)
    assert next(a.name for a in plan.axes if a.role == "loop") == "r_c_s"


def test_the_innermost_digit_of_a_loop() -> None:
    f = Var("f")
    outer, inner = calc("mod", calc("floordiv", f, 48), 7), calc("mod", f, 48)
    loads = [Load("X", (calc("add", Var("x"), outer), inner), DType.F32), Load("F", (f,), DType.F32)]
    assert digit(loads, "f") == 48
    assert digit(loads[1:], "f") == 0
