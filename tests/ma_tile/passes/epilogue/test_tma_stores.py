"""``tma-stores``: the rewritten store of an accumulator, and stores that do not change."""

from __future__ import annotations

from typing import Any

import pytest

from nautilus.core.errors import ScheduleError
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.copies.specialise_warps import SpecialiseWarps
from nautilus.ma_tile.passes.epilogue.tma_stores import TmaStores
from nautilus.ma_tile.text.printer import format as ma_format
from nautilus.ma_tile.text.printer import parse
from tests.ma_tile.programs.kernels import chained, product
from tests.ma_tile.roles import in_order, placed, role, schedule, text


def stored(m: MemModule, limit: int | None = None, **memory: Any) -> MemModule:
    s = schedule(m, **{"epilogue": "tma", **memory})
    return placed(SpecialiseWarps(s).apply(TmaStores(s, limit=limit).apply(m)))


def test_the_ops_of_a_tma_store() -> None:
    m = stored(product())
    assert "smem out_C : f16[i: 64, j: 64] stages 2 swizzle 128" in text(m)
    in_order(
        role(m, "consumers"),
        "%c_f16 = cast %c : f16[i: 64, j: 64] #acc",
        "tma.wait 0 read",
        "barrier (1 + consumer), 128",
        "st.matrix out_C[consumer] swizzle 128, %c_f16",
        "fence.proxy",
        "barrier (1 + consumer), 128",
        "tma.store out_C[consumer] swizzle 128, C[i0 * 128 + consumer * 64 + i, j0 * 64 + j]",
        "tma.commit",
        "tma.wait 0 read",
    )
    assert "st.global" not in text(m)


def test_ragged_rows_need_no_mask() -> None:
    assert "st.global" not in text(stored(product(m=200)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("where i0 * 128 + consumer * 64 + i < 256", "where i0 * 128 + consumer * 64 + i < 100"),  # not the bounds
        ("where i0 * 128 + consumer * 64 + i < 256", "where i0 < 1"),
        ("output C: f16[256, 64]", "output C: f32[256, 64]"),  # stmatrix moves 16 bits
        ("j0 * 64 + j], %c", "j0 * 64 + 2 * j], %c"),
        ("output C: f16[256, 64]", "output C: f16[256, 66]"),  # rows of 132 bytes
    ],
)
def test_stores_that_stay(old: str, new: str) -> None:
    before = ma_format(product())
    assert old in before
    m = parse(before.replace(old, new))
    assert TmaStores(epilogue="tma").apply(m) == m


def test_other_epilogues_stay() -> None:
    m = product()
    assert TmaStores(epilogue="direct").apply(m) == m
    done = SpecialiseWarps().apply(m)
    assert TmaStores(epilogue="tma").apply(done) == done


def test_stores_of_one_shape_share_a_buffer() -> None:
    body = ma_format(product())
    store = next(line for line in body.splitlines() if "st.global" in line)
    two = body.replace(store, store + "\n" + store.replace("C[", "D["))
    two = two.replace("  output C: f16[256, 64]", "  output C: f16[256, 64]\n  output D: bf16[256, 64]")
    two = two.replace("    %zero", "    let unused = 0\n    %zero")
    m = stored(parse(two.replace("bf16", "f16")))
    assert text(m).count("smem out_") == 1
    in_order(role(m, "consumers"), "tma.store out_C[consumer * 2]", "tma.store out_C[consumer * 2 + 1]")
    assert text(stored(parse(two))).count("smem out_") == 2  # another type


def test_pingpong_warpgroups_have_a_stage_each() -> None:
    m = stored(
        product(consumers=1), tile_scheduling="pingpong", warpgroups=3, producer_registers=32, consumer_registers=160
    )
    assert "smem out_C : f16[i: 64, j: 64] stages 3" in text(m) and "st.matrix out_C[consumer]" in text(m)


def test_the_stage_of_a_dead_operand_serves_the_store() -> None:
    m = stored(chained(), epilogue="tma-aliased")
    assert "smem out" not in text(m)
    assert "smem v : f16[j: 64, d: 64]" in text(m)  # its columns were called e, those of q are d
    in_order(
        role(m, "consumers"),
        "mbar.wait full_q[q_stage]",
        "mma wgmma.f16 smem q[q_stage * 2 + consumer]",
        "st.matrix q[q_stage * 2 + consumer] swizzle 128, %o_f16",
        "tma.store q[q_stage * 2 + consumer] swizzle 128, O[i0 * 128 + consumer * 64 + i, d]",
        "tma.commit",
        "tma.wait 0 read",
        "mbar.arrive empty_q[q_stage] each warp",
        "advance q",
    )


def test_no_operand_to_reuse() -> None:
    with pytest.raises(ScheduleError, match="epilogue tma-aliased: no operand has a free stage for the store of C"):
        stored(product(), epilogue="tma-aliased")
    fusion = parse(ma_format(chained()).replace("    %zero", "    for d in 0..1 carry() {\nyield\n}\n    %zero"))
    with pytest.raises(ScheduleError, match="tma-aliased"):
        stored(fusion, epilogue="tma-aliased")  # of the right shape, but the axis cannot have its name


@pytest.mark.parametrize(("cols", "width"), [(256, 64), (192, 64), (160, 32)])
def test_a_tile_that_does_not_fit_goes_in_pieces(cols: int, width: int) -> None:
    before = product(n=cols, cols=cols)
    m = stored(before, limit=2 * 64 * (128 + cols) * 2 + 40_000)  # two stages of operands, and not the whole tile
    assert f"smem out_C : f16[i: 64, j: {width}] stages 4 swizzle {2 * width}" in text(m)
    lines: list[str] = []
    for p in range(cols // width):
        stage = f"out_C[{'consumer * 2 + 1' if p % 2 else 'consumer * 2'}] swizzle {2 * width}"
        place = f"j0 * {cols} + {p * width} + j]" if p else f"j0 * {cols} + j]"
        lines += [
            f"%c_{p * width} = slice %c at j {p * width}",
            *(() if p else ("tma.wait 0 read", "barrier (1 + consumer), 128")),
            f"st.matrix {stage}, %c_{p * width}_f16",
            "fence.proxy",
            "tma.wait 0 read",  # for the piece before, which left from the other stage
            "barrier (1 + consumer), 128",
            f"tma.store {stage}, C[i0 * 128 + consumer * 64 + i, {place}",
            "tma.commit",
        ]
    in_order(role(m, "consumers"), *lines, "tma.wait 0 read")
    assert "slice" not in text(stored(before, stages=2))


def test_four_stages_of_a_wide_product_leave_room_for_pieces_only() -> None:
    m = stored(product(n=256, cols=256), stages=4)
    assert text(m).count("= slice") == 4 and m.kernels[0].smem_bytes < 227 * 1024
