"""``persistent-grid`` and the order of tiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.nodes import Const, Expr, substitute
from nautilus.core.index.simplify import simplify
from nautilus.core.schedule import WarpPlan
from nautilus.core.types import DType
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.lowering.grid import decode_grid
from nautilus.ma_tile.passes.copies.specialise_warps import SpecialiseWarps
from nautilus.ma_tile.passes.epilogue.tma_stores import TmaStores
from nautilus.ma_tile.passes.grid.persistent_grid import PersistentGrid
from nautilus.ma_tile.text.printer import format as ma_format
from nautilus.ma_tile.text.printer import parse
from tests.ma_tile.lowering.support import tile
from tests.ma_tile.programs.kernels import chained, product
from tests.ma_tile.programs.tiles import attention
from tests.ma_tile.roles import in_order, placed, role, schedule, text


def persistent(m: MemModule, blocks: int = 3, **memory: Any) -> MemModule:
    s = schedule(m, **{"persistent": "static", "epilogue": "tma", **memory})
    out = SpecialiseWarps(s).apply(TmaStores(s).apply(m))
    return placed(PersistentGrid(s, multiprocessors=blocks).apply(out))


@pytest.mark.parametrize("order", ["static", "snake"])
def test_every_role_walks_the_tiles(order: str) -> None:
    m = persistent(product(m=512, n=128), persistent=order)
    assert "kernel product grid 3 " in text(m)
    head = (f"tile.loop tile, iteration in 8 {order} {{", "let i0 = tile // 2", "let j0 = tile % 2")
    in_order(role(m, "producer"), *head, "mbar.wait empty_a_b", "advance a_b")
    in_order(role(m, "consumers"), *head, "mbar.wait full_a_b", "tma.store", "tma.commit", "}", "tma.wait 0 read")
    assert role(m, "consumers").splitlines()[-1] == "tma.wait 0 read"  # once, behind the last tile


def test_dynamic_tiles_come_through_the_queue() -> None:
    m = persistent(product(m=512, n=128), persistent="dynamic")
    assert "smem queue : i32[] stages 2" in text(m)
    assert "mbar full_queue stages 2 arrivals 1 " in text(m) and "mbar empty_queue stages 2 arrivals 8 " in text(m)
    loop = "tile.loop tile, iteration in 8 dynamic {"
    in_order(
        role(m, "producer"), "tile.first next_tile", loop, "mbar.wait empty_queue[queue_stage] parity 1 - queue_phase",
        "let tile = next_tile", "tile.reset tile of 8", "queue.push queue[queue_stage], tile",
        "mbar.arrive full_queue[queue_stage]", "advance queue", "break if tile >= 8", "let i0 = tile // 2",
        "tma.load", "tile.fetch next_tile", "}",
    )  # fmt: skip
    in_order(
        role(m, "consumers"), loop, "mbar.wait full_queue[queue_stage] parity queue_phase",
        "queue.pop tile, queue[queue_stage]", "mbar.arrive empty_queue[queue_stage] each warp", "advance queue",
        "break if tile >= 8", "let i0 = tile // 2", "tma.store",
    )  # fmt: skip


def test_pingpong_warpgroups() -> None:
    m = persistent(chained(consumers=1, triangle=True), tile_scheduling="pingpong")
    assert "kernel chained grid 3 warps 12 " in text(m)
    assert "mbar empty_k stages 2 arrivals 4 " in text(m)  # the warps of one consumer
    in_order(
        role(m, "consumers"),
        "if consumer == 1 {",
        "named.arrive 4, 256",
        "let i0 = tile",
        "if iteration % 2 == consumer {",
        "barrier (4 + consumer), 256",  # all waits for loads are behind the ordered barrier
        "mbar.wait full_q",
        "for t in",
        "yield",
        "named.arrive (4 + (consumer + 1) % 2), 256",
        "st.matrix out_O[consumer]",
        "tma.commit",
        "}",
        "if iteration % 2 != consumer {",
        "advance k by i0 + 1",
        "advance v by i0 + 1",
        "advance q by 1",
    )
    assert "iteration" not in role(m, "producer").replace("tile, iteration in", "")


def test_loops_that_may_not_run_advance_no_pipeline() -> None:
    m = persistent(
        parse(ma_format(chained(consumers=1)).replace("for t in 0..3", "for t in 2..i0")), tile_scheduling="pingpong"
    )
    in_order(role(m, "consumers"), "if iteration % 2 != consumer {", "advance k by max(i0 - 2, 0)")


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("t >= 1", 4 + 3), ("t > 1", 3 + 3), ("t < 2", 2 + 3), ("t <= 2", 3 + 3), ("1 <= t", 4 + 3), ("2 > t", 2 + 3),
        ("t < 9", 5 + 3), ("i0 > 2", "select(i0 >= 3, 5, 0) + 3"), ("t >= i0", "max(-i0 + 5, 0) + 3"),
    ],
)  # fmt: skip
def test_stages_under_a_condition_are_counted(condition: str, count: object) -> None:
    loop = f"for t in 0..5 carry() {{\nif {condition} {{\ntma.load b[0] swizzle 128, B[j, k]\n}}\nyield\n}}\n%c ="
    m = persistent(parse(ma_format(product(consumers=1, m=512)).replace("%c =", loop)), tile_scheduling="pingpong")
    in_order(role(m, "consumers"), "if iteration % 2 != consumer {", f"advance b by {count}")


def test_an_uncountable_number_of_stages_is_refused() -> None:
    loop = "for t in 0..3 carry(%acc = %zero) {"
    nest = "for s in 0..2 carry() {\nfor r in 0..s carry() {\ntma.load b[0] swizzle 128, B[j, k]\nyield\n}\nyield\n}\n"
    before = ma_format(product(consumers=1, m=512))
    assert f"%c = {loop}" in before
    with pytest.raises(ScheduleError, match="the number of stages of b that a tile uses depends on s"):
        persistent(parse(before.replace(f"%c = {loop}", f"{nest}%c = {loop}")), tile_scheduling="pingpong")


def test_kernels_that_stay() -> None:
    m = product(m=512, n=128)
    assert PersistentGrid(schedule(m, persistent="static"), multiprocessors=3).apply(m) == m  # no roles
    assert "tile.loop" not in text(persistent(m, blocks=8))  # one tile a block
    assert "tile.loop" not in text(persistent(m, persistent="none"))
    with pytest.raises(ScheduleError, match="pingpong tile scheduling needs a persistent grid"):
        persistent(product(consumers=1), persistent="none", tile_scheduling="pingpong")


# -- order --------------------------------------------------------------------------------------


def order_of(sections: int, heads: int = 5) -> list[dict[str, int]]:
    """The grid variables of each block, longest rows first."""
    module = tile(attention(64, 64, 32, 16, 16, heads=heads))
    memory = WarpPlan(raster_order="longest-first", l2_supertiles=sections)
    blocks, decode = decode_grid(module.kernels[0], memory)
    assert isinstance(blocks, Const)
    return [{v: value(e, {"block": n}) for v, e in decode} for n in range(int(blocks.value))]


def value(e: Expr, env: Mapping[str, int]) -> int:
    out = simplify(substitute(e, {k: Const(v, DType.I32) for k, v in env.items()}))
    assert isinstance(out, Const)
    return int(out.value)


@pytest.mark.parametrize(("sections", "runs"), [(2, [3, 2]), (5, [1] * 5), (3, [2, 2, 1])])
def test_sections_are_walked_one_after_the_other(sections: int, runs: list[int]) -> None:
    found = order_of(sections)
    (long,) = [v for v in found[0] if len({d[v] for d in found}) == 4]
    (head,) = [v for v in found[0] if v != long]
    assert len({tuple(d.items()) for d in found}) == 20  # every tile once
    at, first = 0, 0
    for size in runs:
        part = found[at : at + 4 * size]
        assert {d[head] for d in part} == set(range(first, first + size))
        assert [d[long] for d in part] == [n for n in (3, 2, 1, 0) for _ in range(size)]
        at, first = at + 4 * size, first + size
