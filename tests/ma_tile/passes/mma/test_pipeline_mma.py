"""``pipeline-mma``: the part of a loop that runs ahead, the seams between loops, and loops that do not change."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nautilus.core.schedule import WarpgroupPlan
from nautilus.core.schedule.mapping import RescalePlacement
from nautilus.ma_tile.interp.module import run_module
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.lowering.lower import lower_raw
from nautilus.ma_tile.passes.copies.specialise_warps import SpecialiseWarps
from nautilus.ma_tile.passes.epilogue.defer_reductions import DeferReductions
from nautilus.ma_tile.passes.mma.async_mma import AsyncMma
from nautilus.ma_tile.passes.mma.pipeline_mma import PipelineMma
from nautilus.ma_tile.passes.mma.register_operands import RegisterOperands
from nautilus.ma_tile.text.printer import format as ma_format
from nautilus.ma_tile.text.printer import parse
from nautilus.ma_tile.verify.module import verify
from nautilus.vr_tile.text import parse as tile_parse
from tests.ma_tile.lowering.support import plan as tile_plan
from tests.ma_tile.programs.kernels import product
from tests.ma_tile.programs.products import backward, chained
from tests.ma_tile.programs.tiles import attention
from tests.ma_tile.roles import placed, schedule
from tests.shapes import static

#: ranges that cover tiles 0 .. 3 of four, the first of which certainly runs
CHAINS = [
    ((("0", "4"),), 2),
    ((("0", "1"), ("1", "4")), 2),
    ((("b", "b + 2"), ("0", "b"), ("b + 2", "4")), 3),
    ((("b", "b + 1"), ("0", "b"), ("b + 1", "3"), ("3", "4")), 3),
    ((("3", "4"), ("0", "b"), ("b", "3")), 3),
    ((("0", "2"), ("2", "2 + b"), ("2 + b", "4")), 3),
    ((("1", "2"), ("2", "4 - b"), ("4 - b", "4"), ("0", "1")), 3),
]


def ahead(m: MemModule, rescale: str = "early") -> MemModule:
    """The module after the pass; its text reads back, and the verifier accepts it."""
    out = PipelineMma(rescale_placement=rescale).apply(m)
    assert parse(ma_format(out)) == out
    verify(out)
    return out


def edited(m: MemModule, *changes: tuple[str, str]) -> MemModule:
    text = ma_format(m)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    out = parse(text)
    verify(out)
    return out


def untouched(m: MemModule) -> bool:
    verify(m)
    return PipelineMma().apply(m) is m


def test_the_first_product_and_its_work_run_ahead(filecheck: Callable[[str, str], None]) -> None:
    filecheck(
        ma_format(ahead(chained())),
        """
        // CHECK: tma.load sq[0]
        // CHECK-NEXT: tma.load sk[0] swizzle 128, K[j, d]
        // CHECK-NEXT: %[[S:.*]] = mma wgmma.f16 smem sq[0] swizzle 128, smem sk[0]
        // CHECK-NEXT: mul %[[S]], %scale
        // CHECK-NOT: tma.load
        // CHECK: %[[P:.*]] = convert
        // CHECK-NEXT: %[[OS:.*]] = mul %o0,
        // CHECK-NEXT: for t0 in 1..4 chain c carry(%m_0 = {{.*}}, %[[PB:.*]] = %[[P]], %[[OB:.*]] = %[[OS]]) {
        // CHECK-NEXT: tma.load sk[0] swizzle 128, K[t0 * 64 + j, d]
        // CHECK-NEXT: %s_0 = mma wgmma.f16 smem sq[0] swizzle 128, smem sk[0]
        // CHECK-NEXT: tma.load sv[0] swizzle 128, V[t0 * 64 + j - 64, d]
        // CHECK-NEXT: %on_0 = mma wgmma.f16 %[[PB]], smem sv[0] swizzle 128 + %[[OB]] over j
        // CHECK-NEXT: mul %s_0, %scale
        // CHECK-NOT: tma.load
        // CHECK: %p_0 = convert
        // CHECK-NEXT: %os_0 = mul %on_0, %a_0
        // CHECK-NEXT: yield %mn_0, %ln_0, %p_0, %os_0
        // CHECK-NEXT: }
        // CHECK-NEXT: tma.load sv[0] swizzle 128, V[j + 192, d]
        // CHECK-NEXT: %of0 = mma wgmma.f16
        // CHECK-NEXT: %w = div %of0, %lf0
        """,
    )


def test_late_rescale_stands_before_its_product(filecheck: Callable[[str, str], None]) -> None:
    filecheck(
        ma_format(ahead(chained(), "late")),
        """
        // CHECK: for t0 in 1..4 chain c carry(%m_0 = {{.*}}, %o_0 = %o0, %[[A:.*]] = {{.*}}, %[[P:.*]] = {{.*}}) {
        // CHECK: %s_0 = mma
        // CHECK-NEXT: tma.load sv[0]
        // CHECK-NEXT: %os_0 = mul %o_0, %[[A]]
        // CHECK-NEXT: %on_0 = mma wgmma.f16 %[[P]], smem sv[0] swizzle 128 + %os_0
        // CHECK: yield %mn_0, %ln_0, %on_0, %a_0, %p_0
        // CHECK: tma.load sv[0]
        // CHECK-NEXT: %[[OS:.*]] = mul
        // CHECK-NEXT: %of0 = mma wgmma.f16 {{.*}} + %[[OS]] over j
        """,
    )


def test_a_seam_loads_for_the_loop_before(filecheck: Callable[[str, str], None]) -> None:
    filecheck(
        ma_format(ahead(chained(("b", "b + 2"), ("0", "b"), ("b + 2", "4"), masked=True))),
        """
        // CHECK: index b * 64 + j < 200
        // CHECK: for t0 in b + 1..b + 2 chain c
        // CHECK: tma.load sv[0] swizzle 128, V[t0 * 64 + j - 64, d]
        // CHECK: for t1 in 0..b chain c
        // CHECK: tma.load sv[0] swizzle 128, V[select(t1 == 0, b + 1, t1 - 1) * 64 + j, d]
        // CHECK: for t2 in b + 2..4 chain c
        // CHECK: tma.load sv[0] swizzle 128, V[select(b + 2 == t2, select(b >= 1, 0, 1), t2 - 1) * 64 + j, d]
        // CHECK: V[j + 192, d]
        """,
    )


def test_ranges_that_adjoin_need_no_choice() -> None:
    assert "select(" not in ma_format(ahead(chained(("0", "2"), ("2", "2 + b"), ("2 + b", "4"))))


def test_a_loop_that_loses_its_only_iteration_goes() -> None:
    text = ma_format(ahead(chained(("b", "b + 1"), ("0", "b"), ("b + 1", "4"), masked=True)))
    assert "for t0 " not in text and "for t1 in 0..b" in text


@pytest.mark.parametrize("rescale", ["early", "late"])
@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize(("ranges", "grid"), CHAINS)
def test_the_same_values(ranges: tuple[tuple[str, str], ...], grid: int, resident: bool, rescale: str) -> None:
    m = chained(*ranges, grid=grid, masked=True)
    rng = np.random.default_rng(grid)
    data = {b.name: rng.standard_normal(static(b.shape)).astype(np.float16) for b in m.buffers if b.name != "O"}
    low = ahead(RegisterOperands(register_operands=resident).apply(m), rescale)
    assert low != m
    want = run_module(m, data)["O"]
    np.testing.assert_array_equal(run_module(low, data)["O"], want)
    np.testing.assert_array_equal(run_module(AsyncMma().apply(low), data)["O"], want)


def test_every_product_but_the_first_level_is_one_stage(filecheck: Callable[[str, str], None]) -> None:
    filecheck(
        ma_format(ahead(backward())),
        """
        // CHECK: for t in 1..4
        // CHECK: %s = mma wgmma.f16 smem sq[0]
        // CHECK: %g = mma wgmma.f16 smem sg[0]
        // CHECK: %dn = mma wgmma.f16 %yp_before
        // CHECK: %u = mma wgmma.f16 %xp_before
        // CHECK: %rn = mma wgmma.f16 %vp
        // CHECK-NEXT: %x = tanh %s
        // CHECK: yield %dn, %rn, %yp, %xp
        // CHECK: %df = mma
        // CHECK: %rf = mma
        """,
    )


@pytest.mark.parametrize("rescale", ["early", "late"])
@pytest.mark.parametrize(("rows", "keys"), [(256, 256), (130, 258)])
def test_ragged_causal_attention_agrees_with_its_tiles(rows: int, keys: int, rescale: RescalePlacement) -> None:
    """Two warpgroups, masked tiles first: against the VR-tile interpreter."""
    from nautilus.vr_tile import interp as vr_interp

    tiles = tile_parse(mixed_first(attention(rows, keys, 64, 128, 64, 2)))
    plan = tile_plan(tiles, WarpgroupPlan(rescale_placement=rescale, register_operands=rescale == "late"))
    low = lower_raw(tiles, plan, "sm_90a")
    steps = (DeferReductions(), RegisterOperands(plan), PipelineMma(plan), SpecialiseWarps(plan), AsyncMma(plan))
    for step in steps:
        low = step.apply(low)
    low = placed(low)
    assert ma_format(low).count("wg.wait 1") == 2
    rng = np.random.default_rng(rows)
    data = {b.name: rng.standard_normal(static(b.shape)).astype(np.float16) for b in tiles.buffers if b.name != "O"}
    want = vr_interp.run_module(tiles, data, mode="typed")["O"]
    np.testing.assert_allclose(run_module(low, data)["O"].astype(float), want.astype(float), rtol=2e-3, atol=2e-3)


def mixed_first(text: str) -> str:
    """``attention`` with the loop of masked tiles in front, so that the loop that certainly runs stands first."""
    first, second, end = (text.index(x) for x in ("    %ma, %lb, %oc = for", "    %mf, %lf, %of = for", "    %r = div"))
    names = (("%ma, %lb, %oc =", "%mf, %lf, %of ="), ("= %m0,", "= %ma,"), ("= %l0,", "= %lb,"), ("= %o0)", "= %oc)"))
    plain, masked = text[first:second], text[second:end]
    for a, b in names:
        plain, masked = plain.replace(a, b), masked.replace(b, a)
    return text[:first] + masked + plain + text[end:]


# -- what stays as it is ------------------------------------------------------------------------


def test_the_schedule_decides() -> None:
    m = chained()
    assert PipelineMma(schedule(m, pipeline_mma=False)).apply(m) is m
    assert PipelineMma(schedule(m, rescale_placement="late")).apply(m) == ahead(m, "late")


def test_one_level_of_products() -> None:
    assert untouched(product())


def test_a_first_loop_that_may_not_run() -> None:
    assert untouched(chained(("0", "b"), ("b", "4")))
    assert untouched(chained(("0", "b"), grid=2))


def test_a_second_stage_that_differs() -> None:
    m = chained(("0", "1"), ("1", "4"))
    assert not untouched(m)
    assert untouched(edited(m, ("V[t1 * 64 + j, d]", "K[t1 * 64 + j, d]")))


def test_a_buffer_of_both_stages() -> None:
    assert untouched(edited(chained(), ("tma.load sv[0]", "tma.load sk[0]"), ("smem sv[0]", "smem sk[0]")))


def test_a_product_that_needs_the_second_stage() -> None:
    m = edited(
        chained(),
        ("%s_0 = mma", "%z = mul %o_0, %scale : f32[i: 64, d: 64] #o\n%s_0 = mma"),
    )
    assert not untouched(m)  # work beside the product may use it
    q = "%zh = narrow %o_0 : f16[i: 64, d: 64] #o\n%zq = convert %zh : f16[i: 64, d: 64] #pd\n"
    layout = "layout #p = reg(j:2x1, i:2x8, j:2x8, j:4x16, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)"
    m = edited(
        chained(),
        (layout, layout + "\n" + layout.replace("#p", "#pd").replace("j:", "d:")),
        ("%s_0 = mma wgmma.f16 smem sq[0] swizzle 128", f"{q}%s_0 = mma wgmma.f16 %zq"),
    )
    assert untouched(m)


def test_a_barrier_in_the_loop() -> None:
    assert untouched(edited(chained(), ("%s_0 = mma", "barrier\n%s_0 = mma")))


def test_a_result_asked_for_between_the_loops() -> None:
    m = chained(("0", "1"), ("1", "4"))
    m = edited(m, ("%mf1, %lf1, %of1 = for", "%w0 = neg %of0 : f32[i: 64, d: 64] #o\n%mf1, %lf1, %of1 = for"))
    assert untouched(edited(m, ("%w = div %of1", "%w1 = add %of1, %w0 : f32[i: 64, d: 64] #o\n%w = div %w1")))
