"""``register-operands``: left operands that loops do not change, in registers; what is left in shared memory."""

from __future__ import annotations

from collections.abc import Callable

from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.copies.specialise_warps import SpecialiseWarps
from nautilus.ma_tile.passes.mma.register_operands import RegisterOperands
from nautilus.ma_tile.text.printer import format as ma_format
from nautilus.ma_tile.text.printer import parse
from nautilus.ma_tile.verify.module import verify
from tests.ma_tile.programs.kernels import chained as consumers
from tests.ma_tile.programs.kernels import product
from tests.ma_tile.programs.products import chained
from tests.ma_tile.roles import in_order, placed, role, schedule


def resident(m: MemModule) -> MemModule:
    out = RegisterOperands(register_operands=True).apply(m)
    assert parse(ma_format(out)) == out
    verify(out)
    return out


def edited(m: MemModule, *changes: tuple[str, str]) -> MemModule:
    text = ma_format(m)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse(text)


def test_one_read_in_front_of_a_chain(filecheck: Callable[[str, str], None]) -> None:
    filecheck(
        ma_format(resident(chained(("0", "1"), ("1", "4")))),
        """
        // CHECK: layout #[[A:.*]] = reg(d:2x1, i:2x8, d:2x8, d:4x16, i:1x64) lane(d:4x2, i:8x1) warp(i:4x16)
        // CHECK: tma.load sq[0]
        // CHECK-NEXT: %[[Q:.*]] = ld.matrix sq[0] swizzle 128 at d 0 : f16[i: 64, d: 64] #[[A]]
        // CHECK-NEXT: for t0 in 0..1
        // CHECK: %s_0 = mma wgmma.f16 %[[Q]], smem sk[0]
        // CHECK: for t1 in 1..4
        // CHECK: %s_1 = mma wgmma.f16 %[[Q]], smem sk[0]
        // CHECK-NOT: sq[0]
        """,
    )


def test_a_register_resident_operand_is_released_before_the_loop() -> None:
    m = resident(consumers())
    body = role(placed(SpecialiseWarps(schedule(m, stages=2)).apply(m)), "consumers")
    in_order(body, "mbar.wait full_q", "ld.matrix q[q_stage * 2 + consumer]", "mbar.arrive empty_q", "for t in 0..3")


def test_the_schedule_decides() -> None:
    m = chained()
    assert RegisterOperands(schedule(m)).apply(m) is m
    assert RegisterOperands(schedule(m, register_operands=True)).apply(m) == resident(m)


def test_operands_that_change_stay() -> None:
    m = product()
    assert resident(m) is m  # loaded in every iteration
    m = chained(("0", "1"), ("1", "4"))
    again = "tma.load sq[0] swizzle 128, Q[b * 64 + i, d]\n"
    second = edited(m, ("%mf1, %lf1, %of1 = for", again + "%mf1, %lf1, %of1 = for"))
    assert resident(second) is second  # loaded again between the loops of the chain
    two = ("stages 1 swizzle 128 pad 0 @ 0", "stages 2 swizzle 128 pad 0 @ 32768")
    other = edited(chained(), two, ("smem sq[0]", "smem sq[t0 % 2]"))
    assert resident(other) is other  # another stage in every iteration


def test_a_buffer_that_is_not_loaded_before_stays() -> None:
    m = edited(chained(), ("    tma.load sq[0] swizzle 128, Q[b * 64 + i, d]\n", ""))
    assert RegisterOperands(register_operands=True).apply(m) is m


def test_other_types_stay() -> None:
    m = edited(chained(), ("wgmma.f16", "wgmma.tf32"), ("f16[", "tf32["))
    assert RegisterOperands(register_operands=True).apply(m) is m  # ldmatrix moves 16-bit elements


def test_a_resident_operand_beside_one_made_in_the_same_iteration_is_refused() -> None:
    """ptxas would give both the same registers; one carried from the iteration before has its own."""
    m = chained()
    assert RegisterOperands(schedule(m, register_operands=True, pipeline_mma=False)).apply(m) is m
    assert RegisterOperands(schedule(m, register_operands=True, pipeline_mma=True)).apply(m) != m
    (made,) = [line for line in ma_format(m).splitlines() if "smem sv[0]" in line and "mma" in line]
    alone = parse(ma_format(m).replace(made, made.split(" = ")[0] + " = neg %o_0 : f32[i: 64, d: 64] #o"))
    assert "ld.matrix sq[0]" in ma_format(
        RegisterOperands(schedule(alone, register_operands=True, pipeline_mma=False)).apply(alone)
    )
