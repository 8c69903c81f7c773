"""Every stage of fusion computes the results of the unfused program, for programs of many kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nautilus.core.expr.nodes import Param
from nautilus.core.schedule import Schedule
from nautilus.planner import kernel as plan_kernel
from nautilus.planner.kernels import default_schedule
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.fuse import Fuse
from nautilus.scalar.passes.partition import Partition
from nautilus.scalar.passes.reorder import Reorder
from nautilus.scalar.passes.rolling_update import RollingUpdate
from nautilus.scalar.passes.split import Split
from nautilus.scalar.text import format_program, parse_program
from nautilus.scalar.verify import verify, verify_tiled
from tests.scalar import naive
from tests.scalar.programs.build import F16, I32, causal, op
from tests.scalar.programs.small import CASES, Case, attn, layernorm, runtime_rows, softmax

PASSES = (Fuse, Split, Reorder, RollingUpdate, Partition)


def stages(program: Program, schedule: Schedule) -> list[Program]:
    out = []
    for make in PASSES:
        program = make(schedule).apply(program)
        out.append(program)
    return out


def agree(case: Case, schedule: Schedule | None = None, sizes: dict[str, int] | None = None) -> Program:
    """Run every stage; returns the last."""
    program, inputs = case
    sizes = sizes or {}
    want = naive.run(program, inputs, sizes)
    for make, stage in zip(PASSES, stages(program, schedule or default_schedule(program)), strict=True):
        assert parse_program(format_program(stage)) == stage
        verify(stage)
        got: dict[str, Any] = naive.run(stage, inputs, sizes)
        for name, array in want.items():
            np.testing.assert_allclose(got[name], array, rtol=1e-9, atol=1e-12, err_msg=f"{make.__name__} {name}")
    for kernel in stage.kernels:
        verify_tiled(kernel)
    return stage


@pytest.mark.parametrize("name", CASES)
def test_every_stage_agrees(name: str) -> None:
    agree(CASES[name]())


@pytest.mark.parametrize("name", CASES)
def test_a_schedule_replays_from_json(name: str) -> None:
    program, _ = CASES[name]()
    schedule = default_schedule(program)
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert default_schedule(program) == schedule


@pytest.mark.parametrize(("m", "n"), [(77, 130), (9, 333)])
def test_attention_is_one_kernel_at_odd_sizes(m: int, n: int) -> None:
    last = agree(attn(m, n, 2, causal(n - m)))
    assert len(last.kernels) == 1


@pytest.mark.parametrize("make", [softmax, layernorm])
def test_a_row_too_long_for_a_tile_has_a_loop(make: Any) -> None:
    last = agree(make(2, 8200))
    text = format_program(last)
    assert "seq j0" in text


@pytest.mark.parametrize("n", [1, 63, 130])
def test_sizes_known_at_launch(n: int) -> None:
    b, e, inputs = runtime_rows(n)
    b.define("P", {"i": 3, "j": Param("N", I32)}, op("div", e, b.at("L", "i")), out=F16)
    last = agree((b.program(), inputs), sizes={"N": n})
    assert len(last.kernels) == 1


@pytest.mark.parametrize("name", ["unfactored", "unfactored, masked rows", "extremes", "softmax", "argmax", "logic"])
def test_loops_agree_where_a_row_would_fit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_kernel, "MAX_ROW", 0)
    monkeypatch.setattr(plan_kernel, "BLOCK", 64)
    agree(CASES[name]())
