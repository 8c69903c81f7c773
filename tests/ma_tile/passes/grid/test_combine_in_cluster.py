"""``combine-in-cluster``: kernels as they are planned, and the rules of clusters. See ``combine_in_cluster.ma``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nautilus.core.errors import ScheduleError, VerifyError
from nautilus.core.schedule import WarpgroupPlan, WarpPlan, check_schedule
from nautilus.ma_tile.interp.module import run_module
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.grid.combine_in_cluster import _taken
from nautilus.ma_tile.rewriting.renaming import Names
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from tests.endtoend.collection.decode import Decode
from tests.ma_tile.programs import plain as p
from tests.ma_tile.programs.combined import ALIKE, ROWS, apart, cluster_plan, clustered, edited, joined

TWO = (
    ("grid 8", "grid 4"), ("f32[4, 2", "f32[2, 2"), ("c: 4", "c: 2"), ("c:4x1", "c:2x1"),
    ("[2, 64, 32]", "[2, 32, 32]"),
)  # fmt: skip


@pytest.mark.parametrize("size", [2, 4])
def test_the_result_stays(size: int) -> None:
    before = parse(ALIKE if size == 4 else edited(*TWO, text=ALIKE))
    rows = {"X": ROWS["X"][:, : 16 * size]}
    x = rows["X"].astype(np.float64)
    for m in (before, clustered(before, size=size)):
        for seed in range(6):
            got = run_module(m, rows, seed=seed)["Y"]
            np.testing.assert_allclose(got, x.sum(1) + x.max((1, 2))[:, None], rtol=1e-5, atol=1e-5)


# -- kernels as they are planned ----------------------------------------------------------------

GROUPED = Decode(256, heads=8, group=4)


def groups(given: Decode = GROUPED, warps: int = 4, **memory: bool) -> MemModule:
    return clustered(joined(apart(given, 2, warps, 16, **memory), "O_acc_part"), "O_acc_part_2", 2)


def test_groups_of_split_k_warps(filecheck: Callable[[str, str], None]) -> None:
    filecheck(
        ma_format(groups()),
        """
        // CHECK-NOT: temp
        // CHECK: kernel O grid 4 warps 4 min_blocks 1 cluster 2 {
        // CHECK: let rank = block % 2
        // CHECK: smem part_O_acc_part : {{.*}} over s_k_tile
        // CHECK: smem part_O_acc_part_2 : f32[h_member: 4, d: 64] stages 2 swizzle 0 pad 16 @
        // CHECK-NEXT: smem parts_O_acc_part_2 : {{.*}} over part_O_acc_part_2 @
        // CHECK: cluster.arrive relaxed
        // CHECK-NEXT: roles {
        // CHECK-NEXT: role partial warps 0..4 consumers 4 {
        // CHECK-NEXT: let j_chunk_consumer = rank * 4 + consumer
        // CHECK: st.shared part_O_acc_part[consumer]
        // CHECK-NEXT: }
        // CHECK-NEXT: }
        // CHECK-NEXT: barrier
        // CHECK-NEXT: ld.shared parts_P_max_part[0]
        // CHECK: cluster.wait
        // CHECK-NEXT: st.shared part_P_max_part_2[rank] block 0
        // CHECK-NEXT: st.shared part_P_sum_part_2[rank] block 0
        // CHECK-NEXT: st.shared part_O_acc_part_2[rank] block 0
        // CHECK-NEXT: cluster.arrive{{$}}
        // CHECK-NEXT: if rank == 0 {
        // CHECK-NEXT: cluster.wait
        // CHECK-NEXT: ld.shared parts_P_max_part_2[0]
        // CHECK-NOT: kernel
        // CHECK: st.global O[0, h_group * 4 + h_member, 0, d]
        """,
    )


def test_blocks_without_split_k_warps() -> None:
    """A first kernel goes on making parts for them; the bits are those of a second kernel."""
    before = apart(GROUPED, 2, 4, 16)
    after = clustered(before, "O_acc_part_2", 2)
    assert [(k.name, k.cluster) for k in after.kernels] == [("O_acc_part", 1), ("O", 2)]
    inputs = {"Q": p.random(1, 1, 8, 1, 64), "K": p.random(2, 1, 2, 256, 64), "V": p.random(3, 1, 2, 256, 64)}
    np.testing.assert_array_equal(run_module(after, inputs)["O"], run_module(before, inputs)["O"])


def test_tma_copies_keep_their_barriers() -> None:
    text = ma_format(groups(tma_loads=True))
    assert "tma.load" in text and "multicast" not in text and "cluster 2" in text
    assert text.index("mbar full") > text.index("smem part_O_acc_part_2")


def test_what_is_stored_from_outside_has_bytes_of_its_own() -> None:
    (k,) = groups().kernels
    for a in (s for s in k.smem if s.name.startswith("part_") and s.name.endswith("_2")):
        others = [s for s in k.smem if s is not a and s.over != a.name]
        assert a.over is None and a.stages == 2
        assert not any(a.offset < b.offset + b.bytes and b.offset < a.offset + a.bytes for b in others)


# -- what the verifier says ---------------------------------------------------------------------

PUSH = "    st.shared part_T[rank] block 0, %sum2 vec 1\n"
FIRST, SECOND = "    cluster.wait\n    st.shared part_T", "    if rank == 0 {\n      cluster.wait\n"

WRONG: dict[str, tuple[str, str, str]] = {
    "no cluster": (" cluster 4 {", " {", "clusters are declared"),
    "a block that is not there": (
        "[rank] block 0, %sum2", "[rank] block 4, %sum2", "stores go to a block of the cluster",
    ),
    "a store before the wait": (
        FIRST, "    st.shared part_T", "a store into another block follows a cluster wait",
    ),
    "a store after the arrival": (
        f"{PUSH}    st.shared part_M[rank] block 0, %most2 vec 1\n    cluster.arrive\n",
        f"    st.shared part_M[rank] block 0, %most2 vec 1\n    cluster.arrive\n{PUSH}",
        "a store into another block follows a cluster wait",
    ),
    "a relaxed arrival": ("    cluster.arrive\n", "    cluster.arrive relaxed\n", "an arrival and a wait follow"),
    "no wait": (SECOND, "    if rank == 0 {\n", "an arrival and a wait follow the stores into other blocks"),
    "two arrivals": ("    cluster.arrive\n", "    cluster.arrive\n    cluster.arrive\n", "a cluster wait stands"),
    "an arrival of some": (
        "    cluster.arrive\n", "    if rank == 0 {\n      cluster.arrive\n    }\n", "a conditional cluster wait",
    ),
    "a store of some": (PUSH, f"    if rank == 0 {{\n  {PUSH}    }}\n", "a conditional cluster wait"),
    "a wait too many": (SECOND, f"    cluster.wait\n{SECOND}", "a conditional cluster wait follows the last arrival"),
    "a wait without arrival": ("    cluster.arrive relaxed\n", "", "a cluster wait follows an arrival"),
    "two waits of some": (SECOND, f"{SECOND}      cluster.wait\n", "a cluster barrier stands at the top"),
    "bytes of others": ("part_T : f32[d: 32] stages 4 swizzle 0 pad 0 @ 2048", "part_T : f32[d: 32] stages 4 swizzle 0 "
        "pad 0 over s @ 0", "a buffer over another lies inside it"),
    "bytes of others too": ("stages 1 swizzle 0 pad 0 @ 0\n", "stages 2 swizzle 0 pad 0 @ 0\n", "share"),
    "a store of its own": (PUSH, PUSH + PUSH.replace(" block 0", ""), "other blocks store to has no other writer"),
    "parts of a role": (
        "    cluster.arrive relaxed\n",
        "    roles {\n      role one warps 0..1 {\n        cluster.arrive relaxed\n      }\n    }\n",
        "all threads of a block execute the cluster barrier",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_the_verifier_refuses(name: str) -> None:
    old, new, rule = WRONG[name]
    text = ma_format(clustered(parse(ALIKE)))
    assert old in text
    with pytest.raises(VerifyError) as error:
        verify(parse(text.replace(old, new, 1)))
    assert rule in str(error.value)


@pytest.mark.parametrize(("plan", "known"), [(WarpPlan, "1, 2, 4, 8"), (WarpgroupPlan, "1, 2")])
def test_sizes_that_schedules_know(plan: type[WarpPlan | WarpgroupPlan], known: str) -> None:
    m = parse(ALIKE)
    for size in (1, 2, 4, 8, 3, 16):
        schedule = cluster_plan(m, "part", size)
        kernels = tuple(replace(k, mapping=plan(cluster=k.mapping.cluster)) for k in schedule.kernels)
        if str(size) in known.split(", "):
            check_schedule(replace(schedule, kernels=kernels))
            continue
        with pytest.raises(ScheduleError, match=f"cluster is {size}, not one of {known}"):
            check_schedule(replace(schedule, kernels=kernels))


def test_names_that_both_kernels_have_are_taken() -> None:
    k = parse(ALIKE).kernels[0]
    pair: Any = SimpleNamespace(a=k, b=k)
    assert Names(k).variables and Names(k).variables <= _taken(pair)
