"""``async-mma``: results stay the same, and a wrong order is an error. What the pass does: ``async_mma.ma``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nautilus.core.buffers import Space
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.copies.specialise_warps import SpecialiseWarps
from nautilus.ma_tile.passes.grid.persistent_grid import PersistentGrid
from nautilus.ma_tile.passes.mma.async_mma import AsyncMma
from nautilus.ma_tile.passes.mma.pipeline_mma import PipelineMma
from nautilus.ma_tile.passes.mma.register_operands import RegisterOperands
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from tests.ma_tile.programs import kernels as role_programs
from tests.ma_tile.programs.products import backward, chained
from tests.ma_tile.roles import placed, schedule
from tests.shapes import static


def edited(m: MemModule, *changes: tuple[str, str]) -> MemModule:
    text = ma_format(m)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    out = parse(text)
    verify(out)
    return out


# -- by the interpreter -------------------------------------------------------------------------


def agree(m: MemModule, **memory: Any) -> None:
    """The kernel with roles and outstanding MMAs computes what ``m`` does; it has no race and no deadlock."""
    from nautilus.ma_tile.interp.module import run_module

    plan = schedule(m, **memory)
    low = m
    for step in (RegisterOperands, PipelineMma, SpecialiseWarps, PersistentGrid, AsyncMma):
        low = step(plan).apply(low)
    low = placed(low)
    rng = np.random.default_rng(5)
    given = [b for b in m.buffers if b.space is Space.INPUT]
    data = {b.name: rng.standard_normal(static(b.shape)).astype(np.float16) for b in given}
    want, got = run_module(m, data), run_module(low, data)
    for name, x in want.items():
        np.testing.assert_array_equal(got[name], x, err_msg=name)


@pytest.mark.parametrize("rescale", ["early", "late"])
@pytest.mark.parametrize(("stages", "overlap", "resident"), [(1, True, False), (2, True, True), (2, False, False)])
def test_back_to_back_gemms_agree(stages: int, overlap: bool, resident: bool, rescale: str) -> None:
    m = chained(("b", "b + 1"), ("0", "b"), ("b + 1", "4"), grid=2, masked=True)
    agree(m, stages=stages, pipeline_mma=overlap, register_operands=resident, rescale_placement=rescale)


def test_several_levels_of_products_agree() -> None:
    agree(backward(), stages=2)


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("outstanding", [False, True])
def test_accumulating_loops_agree(stages: int, outstanding: bool) -> None:
    agree(role_programs.product(), stages=stages, outstanding_mma=outstanding)
    agree(
        edited(role_programs.product(), ("for t in 0..3", "for t in 0..i0")), stages=stages, outstanding_mma=outstanding
    )


def test_tiles_of_ones_own_agree() -> None:
    m = role_programs.product(m=64 * 5, k=256, consumers=1)
    agree(m, stages=3, tile_scheduling="pingpong", warpgroups=2, persistent="static")


RELEASE = "mbar.arrive empty_sv[sv_stage] each warp\nadvance sv\n"
LAST = "mbar.arrive empty_a_b[a_b_done_stage] each warp\nadvance a_b_done\n"

#: changes that make the order wrong in one place, and the error that they give (lines without indentation)
FAULTS: dict[str, tuple[Callable[[], MemModule], tuple[tuple[str, str], ...], str]] = {
    "an outstanding result is read": (
        chained,
        ((f"wg.wait 0 %on_0\n{RELEASE}", ""), ("yield %mn_0", f"wg.wait 0 %on_0\n{RELEASE}yield %mn_0")),
        "outstanding",
    ),
    "a stage is released while it is read": (
        chained,
        ((f"wg.wait 0 %on_0\n{RELEASE}", f"{RELEASE}wg.wait 0 %on_0\n"),),
        "overwrite-in-use",
    ),
    "the iteration before is still outstanding": (
        role_programs.product,
        (("wg.wait 1\n", "wg.wait 2\n"),),
        "overwrite-in-use",
    ),
    "no release after the loop": (role_programs.product, ((f"{LAST}st.global", "st.global"),), "deadlock"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_order_is_reported(fault: str) -> None:
    from nautilus.ma_tile.interp.module import InterpError, run_module

    program, changes, kind = FAULTS[fault]
    m = program()
    plan = schedule(m, stages=2, persistent="static")
    steps = (PipelineMma(plan), SpecialiseWarps(plan), PersistentGrid(plan, 1), AsyncMma(plan))
    for step in steps:
        m = step.apply(m)
    text = "\n".join(line.strip() for line in ma_format(placed(m)).splitlines())
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    m = parse(text)
    rng = np.random.default_rng(1)
    given = [b for b in m.buffers if b.space is Space.INPUT]
    data = {b.name: rng.standard_normal(static(b.shape)).astype(np.float16) for b in given}
    with pytest.raises(InterpError) as info:
        for seed in range(8):
            run_module(m, data, seed=seed)
    assert info.value.kind == kind
