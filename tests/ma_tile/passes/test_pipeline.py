"""The passes around warp roles keep what a kernel computes, bit by bit, in every order of events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.copies.await_copies import AwaitCopies
from nautilus.ma_tile.passes.copies.specialise_warps import SpecialiseWarps
from nautilus.ma_tile.passes.epilogue.tma_stores import TmaStores
from nautilus.ma_tile.passes.finalise.allocate_shared import AllocateShared
from nautilus.ma_tile.passes.finalise.synchronize import Synchronize
from nautilus.ma_tile.passes.grid.persistent_grid import PersistentGrid
from nautilus.ma_tile.passes.mma.async_mma import AsyncMma
from nautilus.ma_tile.passes.mma.ping_pong import PingPong
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from tests.ma_tile.programs.kernels import chained, product
from tests.ma_tile.roles import schedule

#: a kernel, its plan, and the blocks that stay
CASES: dict[str, tuple[MemModule, dict[str, Any], int]] = {
    "product": (product(m=200), {"stages": 3}, 1),
    "one-stage": (product(m=128, k=128), {"stages": 1}, 1),
    "three-consumers": (product(m=384, consumers=3), {"producer_registers": 32, "consumer_registers": 160}, 1),
    "chained": (chained(rows=128), {}, 1),
    "ahead": (chained(rows=128, ahead=True), {"ordered_mma": True}, 1),
    "reuse": (chained(), {"epilogue": "tma-aliased", "persistent": "static"}, 1),
    "staged": (chained(rows=384, s=384, step=128, wide=128), {"epilogue": "tma-staged", "persistent": "static"}, 1),
    "staged-dynamic": (
        chained(rows=512, s=512, step=128, wide=128, triangle=True),
        {"epilogue": "tma-staged", "persistent": "dynamic", "stages": 3},
        2,
    ),
    "staged-one": (
        chained(s=256, step=128, wide=128, ahead=True),
        {"epilogue": "tma-staged", "persistent": "snake", "stages": 1, "ordered_mma": True},
        1,
    ),
    "staged-alone": (chained(rows=128, s=256, step=128, wide=128), {"epilogue": "tma-staged"}, 1),
    "direct": (chained(rows=128), {"epilogue": "direct", "resident_stages": 2}, 1),
    "static": (product(m=384, n=128), {"persistent": "static", "ordered_mma": True}, 4),
    "snake": (chained(rows=512, s=256, triangle=True), {"persistent": "snake", "resident_stages": 2}, 2),
    "dynamic": (chained(rows=512, s=256, triangle=True), {"persistent": "dynamic", "ordered_mma": True}, 3),
    "own": (
        product(m=256, n=128, consumers=1),
        {"persistent": "static", "tile_scheduling": "pingpong", "ordered_mma": True},
        3,
    ),
    "own-odd": (product(m=320, consumers=1), {"persistent": "static", "tile_scheduling": "pingpong", "stages": 4}, 1),
    "own-dynamic": (
        chained(consumers=1, s=256, triangle=True),
        {"persistent": "dynamic", "tile_scheduling": "pingpong", "ordered_mma": True, "stages": 3},
        2,
    ),
    "own-three": (
        product(m=448, consumers=1),
        {
            "persistent": "snake",
            "tile_scheduling": "pingpong",
            "warpgroups": 3,
            "producer_registers": 32,
            "consumer_registers": 160,
            "ordered_mma": True,
        },
        2,
    ),
    "own-reuse": (
        chained(consumers=1),
        {"persistent": "static", "tile_scheduling": "pingpong", "epilogue": "tma-aliased"},
        1,
    ),
    "awaited": (product(m=200), {"warp_specialised": False}, 1),
    "awaited-staged": (chained(rows=128, wide=128), {"warp_specialised": False, "epilogue": "tma-staged"}, 1),
    "awaited-chain": (chained(rows=128, ahead=True), {"warp_specialised": False, "epilogue": "tma-aliased"}, 1),
}


def passed(m: MemModule, plan: dict[str, Any], blocks: int, pending: bool, limit: int | None = None) -> MemModule:
    """``m`` after the passes around roles; ``pending``: with outstanding MMAs."""
    s = schedule(m, **{"epilogue": "tma", **plan})
    out = SpecialiseWarps(s).apply(TmaStores(s, limit=limit).apply(m))
    out = AsyncMma(s).apply(out) if pending else out
    out = PingPong(s).apply(PersistentGrid(s, multiprocessors=blocks).apply(out))
    out = AwaitCopies().apply(Synchronize().apply(AllocateShared().apply(out)))
    verify(out)
    return out


def arguments(m: MemModule) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        b.name: (0.3 * rng.standard_normal([int(str(n)) for n in b.shape])).astype(np.float16)
        for b in m.buffers
        if b.space.value == "input"
    }


def same(before: MemModule, after: MemModule, seeds: tuple[int, ...]) -> None:
    given = arguments(before)
    want = run_module(AllocateShared().apply(before), given)
    for seed in seeds:
        found = run_module(after, given, seed=seed)
        for name, value in want.items():
            np.testing.assert_array_equal(found[name], value)


@pytest.mark.parametrize("pending", [False, True], ids=["waiting", "pending"])
@pytest.mark.parametrize("case", CASES)
def test_results_stay_the_same(case: str, pending: bool) -> None:
    m, plan, blocks = CASES[case]
    same(m, passed(m, plan, blocks, pending), (1, 2))


@pytest.mark.parametrize("cols", [192, 256])
def test_stores_in_pieces(cols: int) -> None:
    m = product(n=cols, k=64, cols=cols)
    limit = 2 * 64 * (128 + cols) * 2 + 40_000
    after = passed(m, {"persistent": "static"}, 1, pending=False, limit=limit)
    assert any("_64" in line for line in str(after.kernels[0].body).split("SliceOp")), "not in pieces"
    same(m, after, (1, 2))


def test_pingpong_warpgroups_need_their_ordered_barrier() -> None:
    m = chained(consumers=1)
    after = passed(m, {"persistent": "static", "tile_scheduling": "pingpong"}, 1, pending=False)
    lines = [x for x in ma_format(after).splitlines() if "barrier (4 + consumer)" not in x and "named.arrive" not in x]
    with pytest.raises(InterpError, match="q"):
        same(m, parse("\n".join(lines)), (1, 2))


def test_the_chain_is_right_at_all() -> None:
    m = chained()
    given = arguments(m)
    found = run_module(passed(m, {}, 1, pending=True), given)["O"].astype(np.float64)
    q, k, v = (given[n].astype(np.float64) for n in "QKV")
    np.testing.assert_allclose(found, (q @ k.T) @ v, rtol=0.02, atol=0.02)
