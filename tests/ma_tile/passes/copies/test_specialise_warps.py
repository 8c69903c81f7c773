"""``specialise-warps``: pipelines, waits and releases, what the producer executes, what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nautilus.core.errors import ScheduleError
from nautilus.ma_tile.ir.ops import MemModule, RolesOp
from nautilus.ma_tile.passes.copies.specialise_warps import SpecialiseWarps, obstacle
from nautilus.ma_tile.text.printer import format as ma_format
from nautilus.ma_tile.text.printer import parse
from tests.ma_tile.programs.kernels import chained, product
from tests.ma_tile.roles import in_order, placed, role, schedule, text


def specialised(m: MemModule, **memory: Any) -> MemModule:
    return placed(SpecialiseWarps(schedule(m, **memory)).apply(m))


def edited(m: MemModule, *changes: tuple[str, str]) -> MemModule:
    out = ma_format(m)
    for old, new in changes:
        assert old in out
        out = out.replace(old, new)
    return parse(out)


def test_operands_of_one_mma_share_a_pipeline() -> None:
    m = specialised(product(), stages=3)
    assert "mbar full_a_b stages 3 arrivals 1" in text(m)
    assert "mbar empty_a_b stages 3 arrivals 8" in text(m)  # a warp of two consumer consumers each
    assert "smem a : f16[i: 64, k: 64] stages 6" in text(m) and "smem b : f16[j: 64, k: 64] stages 3" in text(m)
    in_order(
        role(m, "producer"),
        "for t in 0..3 carry() {",
        "mbar.wait empty_a_b[a_b_stage] parity 1 - a_b_phase",
        "mbar.expect full_a_b[a_b_stage] 24576",
        "tma.load a[a_b_stage * 2] swizzle 128, A[i0 * 128 + i, t * 64 + k] mbar full_a_b[a_b_stage]",
        "tma.load a[a_b_stage * 2 + 1] swizzle 128, A[i0 * 128 + 64 + i, t * 64 + k] mbar full_a_b[a_b_stage]",
        "tma.load b[a_b_stage] swizzle 128",
        "advance a_b",
    )
    in_order(
        role(m, "consumers"),
        "mbar.wait full_a_b[a_b_stage] parity a_b_phase",
        "mma wgmma.f16 smem a[a_b_stage * 2 + consumer] swizzle 128, smem b[a_b_stage]",
        "mbar.arrive empty_a_b[a_b_stage] each warp",
        "advance a_b",
        "st.global",
    )
    assert "tma.load" not in role(m, "consumers")


def test_roles_have_warps_registers_and_warpgroups() -> None:
    m = specialised(product(consumers=1), producer_registers=40, consumer_registers=232)
    (roles,) = m.kernels[0].body
    assert isinstance(roles, RolesOp)
    found = [(r.name, r.first_warp, r.last_warp, r.registers, r.consumers, r.single) for r in roles.roles]
    assert found == [("producer", 0, 4, 40, 1, True), ("consumers", 4, 8, 232, 1, False)]
    assert m.kernels[0].warps == 8 and m.kernels[0].consumers == 1


def test_operands_that_are_loaded_once_have_their_own_depth_and_are_released_behind_the_loop() -> None:
    m = specialised(chained(), stages=3, resident_stages=1)
    assert "mbar full_q stages 1" in text(m) and "mbar full_k stages 3" in text(m)
    in_order(
        role(m, "consumers"),
        "mbar.wait full_q[q_stage] parity q_phase",
        "for t in 0..3",
        "mbar.wait full_k",
        "mma wgmma.f16 smem q[q_stage * 2 + consumer]",
        "mbar.arrive empty_k",
        "mbar.wait full_v",
        "mbar.arrive empty_v",
        "yield",
        "mbar.arrive empty_q[q_stage] each warp",
        "advance q",
    )


def test_one_buffer_may_be_loaded_in_many_places() -> None:
    m = specialised(chained(ahead=True))
    sites = ["mbar.expect full_k", "for t in 0..3 - 1 carry() {", "mbar.expect full_k", "mbar.expect full_v", "yield"]
    in_order(role(m, "producer"), "mbar.expect full_q", *sites, "mbar.expect full_v")
    consumers = role(m, "consumers")
    assert consumers.count("mbar.wait full_k") == consumers.count("mbar.arrive empty_k") == 2
    assert consumers.count("mbar.wait full_v") == consumers.count("mbar.arrive empty_v") == 2
    in_order(consumers, "mbar.wait full_q", "mbar.wait full_k", "%s0 = mma", "mbar.arrive empty_k", "for t in")


def test_a_loop_that_loads_nothing_is_not_the_producers() -> None:
    loop = "for u in 0..4 carry() {\n%x = neg %c : f32[i: 64, j: 64] #acc\nyield\n}\n"
    m = edited(product(), ("    st.global", loop + "    st.global"))
    assert "for u" not in role(specialised(m), "producer")


def test_conditions_around_loads_stand_in_both_roles() -> None:
    body = "if i0 < 1 {\n tma.load b[0] swizzle 128, B[j, k]\n"
    body += "%y = mma wgmma.f16 smem a[consumer] swizzle 128, smem b[0] swizzle 128 over k"
    body += " : f32[i: 64, j: 64] #acc\n}\n"
    load = "tma.load a[consumer] swizzle 128, A[consumer * 64 + i, k]\n"
    m = specialised(edited(product(), ("%zero = const", load + body + "%zero = const")))
    in_order(role(m, "producer"), "if i0 < 1 {", "mbar.wait empty_b", "tma.load b", "advance b")
    in_order(role(m, "consumers"), "if i0 < 1 {", "mbar.wait full_b", "%y = mma", "mbar.arrive empty_b", "advance b")


def test_variables_that_depend_on_the_warpgroup_are_spelled_out_for_each() -> None:
    let = "    let r = i0 * 128 + consumer * 64\n"
    m = edited(product(), ("    %zero", let + "    %zero"), ("A[i0 * 128 + consumer * 64 + i,", "A[r + i,"))
    in_order(role(specialised(m), "producer"), "A[i0 * 128 + i, t", "A[i0 * 128 + 64 + i, t")
    assert "let r" not in role(specialised(m), "producer")


def test_a_load_that_nobody_reads_is_still_given_back() -> None:
    m = edited(product(), ("    %zero", "    tma.load b[0] swizzle 128, B[j, k]\n    %zero"))
    consumers = role(specialised(m), "consumers")
    in_order(consumers, "mbar.wait full_b", "mbar.arrive empty_b", "advance b", "for t")


def test_kernels_that_are_not_for_roles_stay() -> None:
    one = "layout #one = reg() lane(*:32) warp(*:4)\n    smem a "
    pointer = "    %p = const 1 : i32 #one\n    %zero"
    dependent = edited(product(), ("smem a ", one), ("    %zero", pointer), ("B[j0 * 64 + j,", "B[%p + j,"))
    reason = obstacle(dependent.kernels[0])
    assert reason is not None and "depends on computed values" in reason
    assert SpecialiseWarps().apply(dependent) == dependent
    barrier = edited(product(), ("    %zero", "    barrier\n    %zero"))
    assert obstacle(barrier.kernels[0]) == "Barrier needs all threads of the block"
    done = SpecialiseWarps().apply(product())
    assert SpecialiseWarps().apply(done) == done
    assert SpecialiseWarps(warp_specialised=False).apply(product()) == product()


@pytest.mark.parametrize(
    ("warpgroups", "registers", "message"),
    [
        (3, (24, 240), "a producer of 24 leaves 160 per thread for 3 consumers, not 240"),
        (2, (24, 248), "leaves 240"),
        (2, (24, 236), "not multiples of 8"),
    ],
)
def test_registers_must_fit(warpgroups: int, registers: tuple[int, int], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        specialised(
            product(m=384, consumers=warpgroups), producer_registers=registers[0], consumer_registers=registers[1]
        )
    specialised(product(m=384, consumers=warpgroups), producer_registers=24, consumer_registers=160)


def test_a_read_of_an_unknown_instance_is_refused() -> None:
    load = "      tma.load k[0] swizzle 128, K[(t + 1) * 64 + j, d]\n"
    end = "      yield %next, %sn"
    m = edited(chained(ahead=True), (load, ""), (end, load + end))
    why = "shared buffer k is read at a point where the load that filled it is unknown"
    with pytest.raises(ScheduleError, match=why):
        specialised(m)


def test_loads_of_only_some_warpgroups_are_refused() -> None:
    m = product()
    with pytest.raises(ScheduleError, match="depends on the consumer"):
        specialised(edited(m, ("for t in 0..3 carry", "for t in 0..consumer + 2 carry")))
    own = replace(m.kernels[0], smem=tuple(replace(s, stages=2) for s in m.kernels[0].smem))
    with pytest.raises(ScheduleError, match="shared buffer b has neither one stage nor one stage per consumer"):
        specialised(replace(m, kernels=(own,)))
