"""``multicast-loads``: results stay the same, and faults are errors. What the pass does: ``multicast_loads.ma``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.core.schedule import AxisPlan, KernelPlan, Schedule, WarpgroupPlan
from nautilus.core.tiles import TileAxis
from nautilus.core.types import DType
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.analysis.tma_boxes import multicast_part
from nautilus.ma_tile.interp.module import InterpError, run_module
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.ir.values import Smem
from nautilus.ma_tile.passes.copies.await_copies import AwaitCopies
from nautilus.ma_tile.passes.copies.multicast_loads import MulticastLoads
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
from tests.ma_tile.passes.test_pipeline import arguments
from tests.ma_tile.programs.kernels import chained, product
from tests.ma_tile.roles import schedule, scheduled


def clustered(m: MemModule, blocks: int = 2, pending: bool = True, **memory: Any) -> MemModule:
    """``m`` through the passes around roles, in clusters of two."""
    s = schedule(m, **{"epilogue": "tma", "cluster": 2, **memory})
    out = SpecialiseWarps(s).apply(TmaStores(s).apply(m))
    out = AsyncMma(s).apply(out) if pending else out
    out = PingPong(s).apply(PersistentGrid(s, multiprocessors=blocks).apply(MulticastLoads(s).apply(out)))
    out = AwaitCopies().apply(Synchronize().apply(AllocateShared().apply(out)))
    verify(out)
    return out


def wide(m: int = 256) -> MemModule:
    """A product whose B has two slabs a stage."""
    before = ma_format(product(m=m, n=64, k=256))
    for old, new in (
        ("for t in 0..4", "for t in 0..2"), ("k: 64]", "k: 128]"), ("t * 64 + k", "t * 128 + k"),
        ("@ 16384", "@ 32768"),
    ):  # fmt: skip
        assert old in before, old
        before = before.replace(old, new)
    return parse(before)


@pytest.mark.parametrize(
    ("rows", "columns", "swizzle", "expected"),
    [
        (128, 128, 128, (1, 128)), (80, 256, 128, (2, 80)), (128, 64, 128, (1, 64)), (80, 64, 128, (1, 40)),
        (72, 64, 128, None), (32, 192, 128, (3, 16)), (8, 64, 128, None), (64, 64, 64, (1, 64)),
    ],
)  # fmt: skip
def test_parts(rows: int, columns: int, swizzle: int, expected: tuple[int, int] | None) -> None:
    stage = Smem("s", DType.F16, (TileAxis("i", rows), TileAxis("j", columns)), 2, swizzle)
    assert multicast_part(stage, 2) == expected


# -- what it computes ---------------------------------------------------------------------------

CASES: dict[str, tuple[MemModule, dict[str, Any], int]] = {
    "product": (product(m=512), {"stages": 3}, 9),
    "columns": (product(m=256, n=128), {"stages": 2}, 9),
    "slabs": (wide(), {"stages": 2}, 9),
    "one-stage": (product(m=256, k=128), {"stages": 1}, 9),
    "chained": (chained(), {}, 9),
    "ahead": (chained(ahead=True), {"ordered_mma": True}, 9),
    "static": (chained(rows=1024, s=128), {"persistent": "static"}, 2),
    "snake": (product(m=1024, k=128), {"persistent": "snake", "resident_stages": 2}, 4),
    "reuse": (chained(rows=512, s=128), {"epilogue": "tma-aliased", "persistent": "static"}, 2),
    "own": (product(m=512, k=128, consumers=1), {"persistent": "static", "tile_scheduling": "pingpong"}, 2),
    "pingpong": (
        product(m=512, n=128, consumers=1),
        {"persistent": "snake", "tile_scheduling": "pingpong", "ordered_mma": True},
        4,
    ),
}


def differs(before: MemModule, after: MemModule, seed: int) -> bool:
    given = arguments(before)
    want, found = run_module(AllocateShared().apply(before), given), run_module(after, given, seed=seed)
    return any(not np.array_equal(found[name], value) for name, value in want.items())


@pytest.mark.parametrize("pending", [False, True], ids=["waiting", "pending"])
@pytest.mark.parametrize("case", CASES)
def test_results_stay_the_same(case: str, pending: bool) -> None:
    m, plan, blocks = CASES[case]
    after = clustered(m, blocks, pending, **plan)
    assert after.kernels[0].cluster == 2
    for seed in (1, 2):
        assert not differs(m, after, seed)


# -- planted faults -----------------------------------------------------------------------------

PLANTED: dict[str, tuple[tuple[tuple[str, str], ...], tuple[str, ...]]] = {
    # the other producer waits for a stage that no consumer releases
    "remote arrival forgotten": (((" each warp cluster", " each warp"),), ("deadlock",)),
    # without the wait, it writes over a stage that this block still reads
    "only its own consumers": (
        (("arrivals 16", "arrivals 8"), (" each warp cluster", " each warp")),
        ("overwrite-in-use", "unordered-writes", "over-arrival", "phase"),
    ),
    "arrivals of one block counted": (
        (("arrivals 16", "arrivals 8"),), ("over-arrival", "overwrite-in-use", "unordered-writes", "pending-copy"),
    ),
    "half the bytes": ((("mbar.expect full_k[k_stage] 8192", "mbar.expect full_k[k_stage] 4096"),), _LATE := (
        "pending-copy", "unsynchronised-read", "over-arrival", "deadlock", "uninitialised", "unordered-writes",
    )),
    "parts of two tiles": ((("K[t * 64 + j, d]", "K[(t + block % 2) % 2 * 64 + j, d]"),), ("multicast",)),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("what", PLANTED)
def test_planted_fault(what: str, seed: int) -> None:
    changes, kinds = PLANTED[what]
    m = chained(s=256)
    edited = ma_format(clustered(m, 9))
    for old, new in changes:
        assert old in edited, old
        edited = edited.replace(old, new)
    with pytest.raises(InterpError) as info:
        run_module(parse(edited), arguments(m), seed=seed)
    assert info.value.kind in kinds


# -- grids with an odd number of tiles, or known at launch ---------------------------------------

ROWS = """dim M = runtime <= 1024, N = 192, K = 128
input A: f16[M, K], B: f16[N, K]
output C: f16[M, N]
C[i, j] = sum[k](A[i, k] * B[j, k])
"""


def test_the_last_pair_of_blocks_may_have_a_tile_outside() -> None:
    """Three tiles of rows are two pairs; groups of two tiles, of which the last one has no second one."""
    axes = (AxisPlan("i", "grid", 128), AxisPlan("j", "grid", 64), AxisPlan("k", "loop", 64))
    mapping = WarpgroupPlan(
        stages=2, epilogue="tma", persistent="static", cluster=2, raster_order="grouped", raster_group=2
    )
    own = Schedule((), (KernelPlan("C", ("C_acc", "C"), axes, (("C_acc",), ("C",)), mapping=mapping),))
    request = Request(Path("rows.naut"), "sm_90a", schedule=own, text=ROWS, until="ma-tile", keep_runtime=True)
    module = compile_file(request).modules["ma-tile"]
    (kernel,) = module.kernels
    assert kernel.cluster == 2 and "(M + 255) // 256 * 6" in ma_format(module)
    rng = np.random.default_rng(7)
    for rows in (0, 1, 321):
        a, b = ((0.3 * rng.standard_normal((n, 128))).astype(np.float16) for n in (rows, 192))
        found = run_module(module, {"A": a, "B": b}, {"M": rows}, seed=1)["C"]
        np.testing.assert_allclose(found, a.astype(float) @ b.T.astype(float), rtol=2e-3, atol=2e-3)


# -- whole specs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "dims"),
    [
        ("attention/global_prefill.naut", {"B": 1, "H": 1, "M": 256, "N": 384}),
        ("attention/global_prefill_d64.naut", {"B": 1, "H": 1, "M": 256, "N": 256}),
        ("matmul/nt.naut", {"M": 256, "N": 256, "K": 128}),
    ],
)
def test_specs_give_the_same_bits(path: str, dims: dict[str, int]) -> None:
    plain, shared = (compile_file(scheduled(path, dims, cluster=n)).modules["ma-tile"] for n in (1, 2))
    assert [k.cluster for k in shared.kernels] == [2] and [k.cluster for k in plain.kernels] == [1]
    given = arguments(plain)
    want, found = run_module(plain, given), run_module(shared, given, seed=1)
    for name, value in want.items():
        np.testing.assert_array_equal(found[name], value)
