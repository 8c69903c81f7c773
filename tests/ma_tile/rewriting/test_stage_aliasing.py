"""Stage aliasing: the stage through which a result is stored, when it is released, and planted faults."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from nautilus.core.errors import ScheduleError, VerifyError
from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.copies.multicast_loads import MulticastLoads
from nautilus.ma_tile.passes.copies.specialise_warps import SpecialiseWarps
from nautilus.ma_tile.passes.epilogue.tma_stores import TmaStores
from nautilus.ma_tile.passes.finalise.allocate_shared import AllocateShared
from nautilus.ma_tile.passes.grid.persistent_grid import PersistentGrid
from nautilus.ma_tile.passes.mma.async_mma import AsyncMma
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from tests.ma_tile.passes.test_pipeline import arguments, passed, same
from tests.ma_tile.programs.kernels import chained, product
from tests.ma_tile.roles import in_order, role, schedule, text

STAGED = {"epilogue": "tma-staged", "persistent": "static"}


def wide(**more: int) -> MemModule:
    """A stage of v is as large as two buffers of 64 x 64 for each of two consumers."""
    return chained(**{"rows": 384, "s": 256, "step": 128, "wide": 128, **more})  # type: ignore[arg-type]


def aliased(m: MemModule, **memory: object) -> MemModule:
    s = schedule(m, **{"epilogue": "tma-staged", **memory})
    return SpecialiseWarps(s).apply(TmaStores(s).apply(m))


def test_the_pipeline_has_a_phase_without_a_load() -> None:
    m = aliased(wide())
    verify(m)
    assert re.search(r"smem v : .* stages 2 swizzle 128 pad 0 @ (\d+)\n.*smem out_O : f16\[i: 64, e: 64\] stages 8 "
                     r"swizzle 128 pad 0 over v @ \1\n", text(m))  # fmt: skip
    in_order(
        role(m, "producer"),
        "for t in 0..2",
        "tma.load v[v_stage]",
        "advance v",
        "yield",
        "mbar.wait empty_v[v_stage] parity 1 - v_phase",
        "mbar.arrive full_v[v_stage]",
        "advance v",
    )
    in_order(
        role(m, "consumers"),
        "mbar.arrive empty_v[v_stage] each warp",
        "mbar.arrive empty_q[q_stage] each warp",  # the stage of q is released before the results are stored
        "mbar.wait full_v[v_stage] parity v_phase",
        "st.matrix out_O[v_stage * 4 + consumer * 2]",
        "tma.store out_O[v_stage * 4 + consumer * 2]",
        "st.matrix out_O[v_stage * 4 + (consumer * 2 + 1)]",
        "tma.store out_O[v_stage * 4 + (consumer * 2 + 1)]",
        "tma.wait 0 read",
        "mbar.arrive empty_v[v_stage] each warp",
        "advance v",
    )


def test_a_persistent_block_gives_it_back_in_the_next_tile() -> None:
    m = wide(ahead=True)
    s = schedule(m, **STAGED)
    out = PersistentGrid(s, multiprocessors=1).apply(AsyncMma(s).apply(SpecialiseWarps(s).apply(TmaStores(s).apply(m))))
    body = role(out, "consumers")
    in_order(
        body, "tile.loop tile", "mma wgmma.f16 smem q", "wg.commit", "if iteration > 0 {", "tma.wait 0 read",
        "mbar.arrive empty_v[(v_stage + 1) % 2] each warp", "}", "wg.wait 0 %s0", "mbar.wait full_v",
        "tma.store out_O", "tma.store out_O", "tma.commit", "advance v", "}", "tma.wait 0 read",
    )  # fmt: skip
    assert body.rstrip().endswith("}\ntma.wait 0 read")


def _without(line: str, at: int) -> Callable[[str], str]:
    def edit(t: str) -> str:
        found = list(re.finditer(rf"\n *{re.escape(line)}.*(?=\n)", t))
        return t[: found[at].start()] + t[found[at].end() :]

    return edit


FAULTS: dict[str, tuple[Callable[[str], str], str]] = {
    "given back while the last store may still read": (_without("tma.wait 0 read", 0), "may still read"),
    "stored to while the other consumer may still read": (_without("mbar.wait empty_v[v_stage]", -1), "read|phase"),
    "not waited for": (_without("mbar.wait full_v[v_stage]", -1), "read|written|phase"),
    "no fence": (_without("fence.proxy", -1), "fence"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name: str) -> None:
    edit, message = FAULTS[name]
    m = wide()
    given = arguments(m)
    good = text(passed(m, STAGED, 1, pending=True))
    bad = parse(edit(good))
    with pytest.raises(InterpError, match=message):
        for seed in range(6):
            run_module(bad, given, seed=seed)


def test_clusters_give_it_back_to_both_blocks() -> None:
    m = wide(rows=512, s=128)
    s = schedule(m, **STAGED, cluster=2)
    out = MulticastLoads(s).apply(SpecialiseWarps(s).apply(TmaStores(s).apply(m)))
    out = AllocateShared().apply(PersistentGrid(s, multiprocessors=2).apply(AsyncMma(s).apply(out)))
    verify(out)
    assert "multicast 2" in text(out)
    same(m, out, (1,))


def test_where_no_stage_fits() -> None:
    with pytest.raises(
        ScheduleError, match="tma-staged: 32768 bytes in stages of 8192 fit no stage of an operand that a loop loads"
    ):
        aliased(chained())
    with pytest.raises(ScheduleError, match="tma-staged: each pingpong warpgroup computes whole tiles"):
        aliased(product(consumers=1), tile_scheduling="pingpong")


def test_a_buffer_over_another_lies_inside_it() -> None:
    good = text(AllocateShared().apply(aliased(wide())))
    verify(parse(good))
    moved = re.sub(r"(over v @ )(\d+)", lambda m: f"{m[1]}{int(m[2]) + 1024}", good)
    with pytest.raises(VerifyError, match="a buffer over another lies inside it"):
        verify(parse(moved))
    with pytest.raises(VerifyError, match="a buffer over another lies inside it"):
        verify(parse(good.replace("stages 8 swizzle", "stages 9 swizzle")))
    with pytest.raises(VerifyError, match="not live at the same time"):
        verify(parse(good.replace("over v ", "")))
