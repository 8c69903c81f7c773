"""``pipeline-mma``: results stay the same for all kinds of seams. What the pass does: ``pipeline_mma.ma``."""

from __future__ import annotations

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
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from nautilus.vr_tile.text import parse as tile_parse
from tests.ma_tile.lowering.support import plan as tile_plan
from tests.ma_tile.programs.products import chained
from tests.ma_tile.programs.tiles import attention
from tests.ma_tile.roles import placed
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
    """After the pass; the text reads back and the verifier accepts it."""
    out = PipelineMma(rescale_placement=rescale).apply(m)
    assert parse(ma_format(out)) == out
    verify(out)
    return out


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
