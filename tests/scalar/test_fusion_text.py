"""The text of fused programs: one kernel, one loop, each repair once, masks only where they may be false."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from nautilus.check.certificates.rules import check
from nautilus.core.errors import ScheduleError
from nautilus.core.expr.nodes import Expr
from nautilus.core.schedule import AxisPlan, KernelPlan, Schedule
from nautilus.planner.kernels import default_schedule
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.fuse import Fuse
from nautilus.scalar.passes.reorder import Reorder
from nautilus.scalar.passes.rolling_update import RollingUpdate
from nautilus.scalar.passes.split import Split
from nautilus.scalar.text import format_program
from tests.scalar.programs.build import attention, causal, op, v, window
from tests.scalar.programs.small import CASES, layernorm, logsumexp, matmul, probabilities, softmax, swiglu, total
from tests.scalar.test_fusion import stages


def final(program: Program, schedule: Schedule | None = None) -> str:
    return format_program(stages(program, schedule or tiled(default_schedule(program, "sm_80")))[-1])


def tiled(schedule: Schedule, rows: int = 128, step: int = 64) -> Schedule:
    """The roles of ``schedule`` with tiles of ``rows`` and ``step``, independent of the sizes that the rules choose."""
    wanted = {"i": rows, "j": step}

    def change(k: KernelPlan) -> KernelPlan:
        return replace(k, axes=tuple(replace(a, tile=wanted.get(a.name, a.tile)) for a in k.axes))

    return replace(schedule, kernels=tuple(map(change, schedule.kernels)))


def in_order(text: str, *wanted: str) -> None:
    """Each of ``wanted`` occurs, after the one before."""
    at = 0
    for w in wanted:
        found = text.find(w, at)
        assert found >= 0, f"{w!r} not found after position {at} in\n{text}"
        at = found + len(w)


def reduction_loops(text: str) -> list[str]:
    return re.findall(r"seq (\w+ in .*) \{", text)


def body_of(text: str, loop: str) -> str:
    """The text of one reduction loop."""
    start = text.index(f"seq {loop} {{")
    depth = text[:start].rsplit("\n", 1)[-1]
    return text[start : text.index(f"\n{depth}}}", start)]


def prefill(guard: Expr | None, m: int = 512, n: int = 512) -> Program:
    return attention(m, n, 128, heads=8, groups=4, guard=guard)


def test_causal_attention_is_one_kernel_with_one_loop() -> None:
    program = prefill(causal())
    text = final(program)
    assert text.count("kernel ") == 1
    assert "temp" not in text
    assert reduction_loops(text) == ["j0 in 0..i0 * 2", "j0 in i0 * 2..i0 * 2 + 2"]
    full, mixed = (body_of(text, w) for w in reduction_loops(text))
    assert "where" not in full
    in_order(
        full,
        "P_max_new[i] = P_max[i]",
        "P_max_new[i] max= S_sum[i, j] * 0.08838834764831845",
        "P_max_ref[i] = select(P_max_new[i] == -inf, 0.0, P_max_new[i])",
        "P_max_fix[i] = exp(P_max[i] - P_max_ref[i])",
        "P_sum[i] = P_sum[i] * P_max_fix[i]",
        "P_sum[i] sum= exp(S_sum[i, j] * 0.08838834764831845 - P_max_ref[i])",
        "O_acc[i, d] = O_acc[i, d] * P_max_fix[i]",
        "O_acc[i, d] sum= cast<f32>(narrow<f16>(exp(",
        "P_max[i] = P_max_new[i]",
    )
    assert full.count("P_max_fix[i] = ") == 1
    assert mixed.count("where j0 * 64 + j - (i0 * 128 + i) <= 0") == 3


def test_a_window_skips_blocks_at_both_ends() -> None:
    text = final(prefill(window(256)))
    assert reduction_loops(text) == [
        "j0 in max(0, i0 * 2 - 4)..max(0, i0 * 2 - 2)",
        "j0 in max(0, i0 * 2 - 2)..i0 * 2",
        "j0 in i0 * 2..i0 * 2 + 2",
    ]
    assert "where" not in body_of(text, reduction_loops(text)[1])


def test_no_mask_means_no_second_range() -> None:
    text = final(prefill(None))
    assert reduction_loops(text) == ["j0 in 0..8"]
    assert "where" not in text


def test_a_ragged_edge_is_its_own_mixed_block() -> None:
    text = final(prefill(None, n=500))
    assert reduction_loops(text) == ["j0 in 0..7", "j0 in 7..8"]
    assert "j0 * 64 + j < 500" in body_of(text, reduction_loops(text)[1])
    assert "where" not in body_of(text, reduction_loops(text)[0])


def test_a_mask_from_data_keeps_every_block() -> None:
    guard = op("eq", op("mod", op("add", v("i"), v("j")), op("add", v("h"), v("h"))), v("b"))
    text = final(prefill(guard))
    assert reduction_loops(text) == ["j0 in 0..8"]


def test_partition_can_be_switched_off() -> None:
    program = prefill(causal())
    s = tiled(default_schedule(program, "sm_80"))
    off = replace(s, kernels=tuple(replace(k, partition=False) for k in s.kernels))
    assert reduction_loops(final(program, off)) == ["j0 in 0..8"]


KERNELS = {"softmax": 1, "swiglu": 1, "layernorm": 1, "total": 2, "gram": 2}


@pytest.mark.parametrize(("name", "kernels"), KERNELS.items())
def test_number_of_kernels(name: str, kernels: int) -> None:
    program, _ = {"total": lambda: total(5000, 13)}.get(name, CASES[name])()
    assert len(default_schedule(program).kernels) == kernels


def roles(program: Program) -> dict[str, tuple[str, int]]:
    (k,) = default_schedule(program).kernels
    return {a.name: (a.role, a.tile) for a in k.axes}


def test_roles_of_common_shapes() -> None:
    big = roles(matmul(4096, 4096, 4096)[0])
    assert {n: role for n, (role, _) in big.items()} == {"m": "grid", "n": "grid", "k": "loop"}
    assert all(tile % 16 == 0 for _, tile in big.values())
    assert big["m"][1] * big["n"][1] >= 128 * 128  # enough work for what is read
    assert roles(matmul(8, 4096, 4096)[0])["m"] == ("grid", 16)
    assert roles(softmax(16384, 4096)[0]) == {"i": ("grid", 1), "j": ("tile", 4096)}
    rows = roles(softmax(65536, 1024)[0])
    assert rows["j"] == ("tile", 1024) and rows["i"][0] == "grid"
    role, tile = roles(logsumexp(64, 50000)[0])["j"]
    assert role == "loop" and 1024 <= tile <= 16384
    assert roles(swiglu(512, 512, 512)[0])["q"][0] == "loop"


def test_long_rows_have_two_loops_and_no_repeated_expensive_work() -> None:
    (k,) = default_schedule(softmax(64, 50000)[0]).kernels
    assert k.phases == (("M", "S"), ("Y",))
    (k,) = default_schedule(probabilities(512, 512, 64)[0]).kernels
    assert k.phases == (("S", "M", "L"), ("S", "P"))
    (k,) = default_schedule(layernorm(64, 50000)[0]).kernels
    assert [p for p in k.phases if "B" in p] == [("B",)]


def plan(**change: AxisPlan) -> Schedule:
    axes = {
        "b": AxisPlan("b", "grid", 1), "h": AxisPlan("h", "grid", 1), "i": AxisPlan("i", "grid", 4),
        "j": AxisPlan("j", "loop", 4), "d": AxisPlan("d", "tile", 8), "d_1": AxisPlan("d_1", "tile", 8),
    } | change  # fmt: skip
    ops = ("S_sum", "P_max", "P_sum", "O_acc", "O")
    return Schedule((), (KernelPlan("O", ops, tuple(axes.values()), (ops[:4], ops[4:])),))


def test_every_dependent_accumulator_leaves_certificates() -> None:
    schedule = plan()
    program = Reorder(schedule).apply(Split(schedule).apply(Fuse(schedule).apply(attention(9, 9, 8))))
    _, found = RollingUpdate(schedule).derive(program)
    assert [(c.subject, c.rule) for c in found] == [
        ("P_sum", "rolling-update"), ("P_sum", "distribute"), ("O_acc", "rolling-update"), ("O_acc", "distribute"),
    ]  # fmt: skip
    assert all(check(c).status == "proved" for c in found)


def test_an_illegal_schedule_says_why() -> None:
    program = attention(9, 9, 8)
    with pytest.raises(ScheduleError, match="grid axis 'j' is not parallel in P_max"):
        final(program, plan(j=AxisPlan("j", "grid", 4)))
    with pytest.raises(ScheduleError, match="a tile of 4 does not hold axis 'd'"):
        final(program, plan(d=AxisPlan("d", "tile", 4)))
    with pytest.raises(ScheduleError, match="role 'rows', not grid, loop or tile"):
        final(program, plan(i=AxisPlan("i", "rows", 4)))  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="no axis 'z'"):
        final(program, plan(z=AxisPlan("z", "grid", 4)))


def test_a_phase_without_a_proof_is_refused() -> None:
    program, _ = softmax(8, 64)
    axes = (AxisPlan("i", "grid", 4), AxisPlan("j", "loop", 16))
    one = Schedule((), (KernelPlan("Y", ("M", "S", "Y"), axes, (("M", "S", "Y"),)),))
    with pytest.raises(ScheduleError, match="Y needs the complete M, S in the same reduction loop"):
        final(program, one)


def test_a_sum_of_squares_about_a_running_mean_is_refused() -> None:
    program, _ = layernorm(8, 64)
    axes = (AxisPlan("i", "grid", 4), AxisPlan("j", "loop", 16))
    one = Schedule((), (KernelPlan("Y", ("H", "A", "B", "Y"), axes, (("H",), ("A", "B"), ("Y",))),))
    with pytest.raises(ScheduleError, match="no repair term for B"):
        final(program, one)
