"""``ping-pong``: where the ordered barrier is entered and left."""

from __future__ import annotations

from typing import Any

import pytest

from nautilus.core.errors import ScheduleError
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.copies.specialise_warps import SpecialiseWarps
from nautilus.ma_tile.passes.grid.persistent_grid import PersistentGrid
from nautilus.ma_tile.passes.mma.ping_pong import PingPong
from nautilus.ma_tile.text.printer import format as ma_format
from nautilus.ma_tile.text.printer import parse
from tests.ma_tile.programs.kernels import chained, product
from tests.ma_tile.roles import in_order, placed, role, schedule


def ordered(m: MemModule, **memory: Any) -> MemModule:
    s = schedule(m, **{"ordered_mma": True, **memory})
    out = PersistentGrid(s, multiprocessors=1).apply(SpecialiseWarps(s).apply(m))
    return placed(PingPong(s).apply(out))


def test_consumers_that_share_tiles_have_ordered_barriers_in_each_iteration() -> None:
    body = role(ordered(chained(ahead=True)), "consumers")
    in_order(
        body,
        "if consumer == 1 {",
        "named.arrive 4, 256",
        "%s0 = mma",
        "for t in 0..3 - 1",
        "mbar.wait full_k",
        "barrier (4 + consumer), 256",
        "%sn = mma",
        "%next = mma",
        "named.arrive (4 + (consumer + 1) % 2), 256",
        "yield",
        "%o = mma",
        "st.global",
        "if consumer == 0 {",
        "barrier 4, 256",
    )
    assert body.count("barrier (4") == 1 and "barrier" not in role(ordered(chained()), "producer")


def test_the_fence_and_the_commit_are_inside_of_the_barrier() -> None:
    m = SpecialiseWarps().apply(product())
    before = ma_format(m)
    line = next(x for x in before.splitlines() if "%next = mma" in x)
    pending = line.replace("over k :", "over k async :")
    m = parse(before.replace(line, f"wg.fence\n{pending}\nwg.commit\nwg.wait 0 %next"))
    body = role(PingPong(ordered_mma=True).apply(m), "consumers")
    lines = [x.strip().split(" :")[0] for x in body.splitlines()]
    at = lines.index("barrier (4 + consumer), 256")
    assert lines[at + 1] == "wg.fence"
    assert lines[at + 3 : at + 6] == ["wg.commit", "named.arrive (4 + (consumer + 1) % 2), 256", "wg.wait 0 %next"]


def test_pingpong_warpgroups_are_ordered_already() -> None:
    m = ordered(product(m=512, consumers=1), persistent="static", tile_scheduling="pingpong")
    assert m == ordered(product(m=512, consumers=1), persistent="static", tile_scheduling="pingpong", ordered_mma=False)


def test_kernels_without_an_ordered_barrier() -> None:
    one = SpecialiseWarps().apply(product(consumers=1))
    assert PingPong(ordered_mma=True).apply(one) == one
    m = SpecialiseWarps().apply(product())
    assert PingPong(ordered_mma=False).apply(m) == m
    assert PingPong(ordered_mma=True).apply(product()) == product()


def test_passes_through_the_barrier_must_not_depend_on_the_warpgroup() -> None:
    m = ma_format(SpecialiseWarps().apply(product()))
    with pytest.raises(ScheduleError, match="the number of passes through the ordered barrier depends on the consumer"):
        uneven = m.replace("for t in 0..3 carry(%acc", "for t in consumer..3 carry(%acc")
        PingPong(ordered_mma=True).apply(parse(uneven))
