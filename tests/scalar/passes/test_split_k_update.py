"""``split-k-update`` on programs of many kinds, after later passes too. What it makes: ``split_k_update.scalar``."""

from __future__ import annotations

import os
import random
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nautilus.check.certificates.rules import check
from nautilus.core.errors import ScheduleError
from nautilus.core.schedule import Schedule, SplitPlan, check_schedule
from nautilus.frontend.semantics.check import load_text
from nautilus.planner import kernel as plan_kernel
from nautilus.planner.kernels import default_schedule
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.split_k_update import SplitKUpdate
from nautilus.scalar.text import format_program, parse_program
from nautilus.scalar.verify import verify
from tests.scalar import naive
from tests.scalar.cuts import cut, cuts
from tests.scalar.programs.build import F32, Builder, attention, causal, f, i, op, v
from tests.scalar.programs.small import (
    CASES,
    Case,
    argmax,
    decode,
    extremes,
    logsumexp,
    runtime_rows,
    softmax,
    unfactored,
)  # fmt: skip
from tests.scalar.test_fusion import agree, stages
from tests.scalar.test_fusion_fuzz import _Random

#: dependent reductions, guards, several axes: with more kinds of chunks than the rest
HARD = ("causal", "masked rows", "logsumexp", "unfactored, masked rows", "extremes", "decode", "logic")


def holds(case: Case, splits: int, tile: int, ops: tuple[str, ...] | None = None) -> Program:
    """The split program agrees with the whole one, as definitions and after every pass; returns its last form."""
    program, inputs = case
    return same_in_chunks(program, cut(program, splits, tile, ops), inputs)


def same_in_chunks(program: Program, chunked: Program, inputs: Any) -> Program:
    """``chunked`` agrees with ``program`` on ``inputs``, as definitions and after every pass; returns its last form."""
    verify(chunked)
    assert parse_program(format_program(chunked)) == chunked
    want, got = naive.run(program, inputs, {}), naive.run(chunked, inputs, {})
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-9, atol=1e-12, err_msg=name)
    return agree((chunked, inputs))


@pytest.mark.parametrize("name", CASES)
def test_split_programs_agree(name: str) -> None:
    holds(CASES[name](), 3, 4)


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize(("splits", "tile"), [(5, 1), (8, 16)], ids=["ragged", "mostly empty"])
def test_hard_programs_agree_under_other_splits(name: str, splits: int, tile: int) -> None:
    holds(CASES[name](), splits, tile)


SEEDS = range(int(os.environ.get("NAUTILUS_FUZZ", "24")))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_agree_after_splits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some or all reductions are split into different numbers of chunks; odd seeds have loops with tiny tiles."""
    if seed % 2:
        monkeypatch.setattr(plan_kernel, "MAX_ROW", 4)
        monkeypatch.setattr(plan_kernel, "BLOCK", 4)
    program, inputs = _Random(seed).case()
    r = random.Random(seed)
    found = cuts(program, r.choice((2, 3, 8)), r.choice((1, 2, 4))).splits or ()
    kept = tuple(c.op for c in found if r.random() < 0.8)
    holds((program, inputs), found[0].splits if found else 2, found[0].tile if found else 1, kept)


def final(program: Program) -> str:
    return format_program(stages(program, default_schedule(program, "sm_80"))[-1])


def kernels(text: str) -> list[str]:
    return re.findall(r"kernel (\w+) \{", text)


def test_decoding_becomes_chunks_and_a_combination() -> None:
    program = attention(1, 1024, 128, heads=8, groups=4, guard=causal(1023))
    text = final(cut(program, 4, 64, ("P_max", "P_sum", "O_acc")))
    assert kernels(text) == ["O_acc_part", "O"]
    first, second = text.split("kernel O {")
    # each block loops over its own chunk, starts with a new reference, and stores three partial results in f32
    assert "grid j_chunk in 0..4, b in 0..1, h in 0..8, i0 in 0..1" in first
    assert re.search(r"seq j0 in j_chunk \* 4\.\.j_chunk \* 4 \+ 4 \{", first)
    assert "where j_chunk" not in first
    assert "P_max_part__tile_fix[i] = exp(P_max_part__tile[i] - P_max_part__tile_ref[i])" in first
    for name in ("P_max_part: f32[4, 1, 8, 1]", "P_sum_part: f32[4, 1, 8, 1]", "O_acc_part: f32[4, 1, 8, 1, 128]"):
        assert f"temp {name}" in first
    # the combination: one reference for all partial results, to which both sums are repaired
    assert "max= P_max_part[j_chunk, b, h" in second
    fix = r"exp\(P_max_part\[j_chunk, b, .*, i\] - select\(P_max\[.*\] == -inf, 0\.0, P_max\[.*\]\)\)"
    assert len(re.findall(rf"P_sum\[.*\] sum= P_sum_part\[j_chunk, .*\] \* {fix}", second)) == 1
    assert len(re.findall(rf"O_acc\[.*\] sum= O_acc_part\[j_chunk, .*\] \* {fix}", second)) == 1
    assert "S_sum" not in second


def test_every_repair_between_chunks_is_certified() -> None:
    program = attention(1, 256, 16, heads=2, guard=causal(255))
    schedule = cuts(program, 4, 64, ("P_max", "P_sum", "O_acc"))
    _, found = SplitKUpdate(schedule).derive(program)
    assert [(c.subject, c.rule) for c in found] == [
        ("P_sum", "split-k-update"), ("P_sum", "distribute"), ("O_acc", "split-k-update"), ("O_acc", "distribute"),
    ]  # fmt: skip
    assert all(check(c).status == "proved" for c in found)


def test_a_wrong_repair_between_chunks_is_found() -> None:
    program = attention(1, 256, 16, heads=2, guard=causal(255))
    _, found = SplitKUpdate(cuts(program, 4, 64, ("P_max", "P_sum", "O_acc"))).derive(program)
    good = found[0]
    wrong = op("mul", v("a"), op("exp", op("sub", v("new0"), v("old0"))))
    assert not check(replace(good, after=wrong)).ok
    assert not check(replace(good, bindings=tuple((n, wrong if n == "t" else e) for n, e in good.bindings))).ok


def test_a_divisor_that_may_be_any_number_is_combined_first() -> None:
    """Max, then sum, then a sum divided by the sum: a partial sum may be 0 or tiny, so no chunk divides by its own."""
    program, inputs = unfactored(3, 50, 4)
    text = format_program(cut(program, 4, 8))
    assert "A_part" in text and "/ L[i]" in text and "A_whole" not in text
    holds((program, inputs), 4, 8)


def test_chunks_of_nothing_but_minus_infinity() -> None:
    program, inputs = logsumexp(2, 40)
    inputs["X"][0, 8:24] = -np.inf
    inputs["X"][1, :39] = -np.inf
    assert np.isfinite(naive.run(program, inputs, {})["Y"]).all()
    holds((program, inputs), 5, 8)


def test_rows_without_any_element_leave_identities() -> None:
    holds(extremes(3, 60), 4, 8)
    holds(unfactored(3, 60, 4, op("lt", v("j"), op("mul", v("i"), i(20)))), 4, 8)


def test_a_position_is_that_of_a_chunk_with_the_extremum() -> None:
    program, inputs = argmax(3, 40)
    text = format_program(cut(program, 4, 8))
    assert "j < j_chunk * 16 + 16 and cast<f32>(X[i, j]) == M_part[j_chunk, i]" in text
    _, found = SplitKUpdate(cuts(program, 4, 8)).derive(program)
    assert [c.rule for c in found] == ["split-k-update", "distribute"]
    inputs["X"][1, :] = -np.inf
    inputs["X"][2, 5:40:7] = 12.0
    holds((program, inputs), 4, 8)


def test_the_second_best_of_a_chunk_awaits_the_best_of_the_row() -> None:
    text = "input X: f32[4, 40]\noutput I: i32[4]\noutput J: i32[4]\nI[i] = argmax[j](X[i, j])\n"
    program = lower(load_text(text + "J[i] = argmax[j | j != I[i]](X[i, j])\n"))
    x = np.random.default_rng(0).normal(size=(4, 40))
    x[1, 5:40:7], x[2, :], x[3, 9:12] = 12.0, -np.inf, np.nan
    split = format_program(cut(program, 4, 8))
    assert "j != I[i]" in split and "X[i, j] == J_max_part[j_chunk, i]" in split
    holds((program, {"X": x}), 4, 8)


def test_an_elementwise_value_on_the_way_is_copied_not_moved() -> None:
    """The probabilities are read by a sum of the chunk and by another kernel: each has its own reference."""
    b = Builder("shared")
    b.input("X", 3, 40)
    x = b.at("X", "i", "j")
    b.reduce("M", {"i": 3}, {"j": 40}, "max", x)
    b.define("E", {"i": 3, "j": 40}, op("exp", op("sub", x, b.at("M", "i"))))
    b.reduce("S", {"i": 3}, {"j": 40}, "sum", b.at("E", "i", "j"))
    b.define("Y", {"i": 3, "j": 40}, op("div", b.at("E", "i", "j"), b.at("S", "i")), out=F32)
    case: Case = (b.program(), {"X": np.random.default_rng(0).normal(size=(3, 40)) * 9})
    text = format_program(cut(case[0], 4, 8))
    assert "S_part[j_chunk, i] sum= exp(cast<f32>(X[i, j]) - select(M_part" in text
    assert "E[i, j] = exp(cast<f32>(X[i, j]) - M[i])" in text
    holds(case, 4, 8)


def test_private_accumulators_of_a_sum_over_rows() -> None:
    """A column sum has no parallel axis along its rows: each chunk of rows gets an accumulator of its own."""
    b = Builder("columns")
    b.input("X", 300, 6, dtype=F32)
    b.reduce("Y", {"j": 6}, {"i": 300}, "sum", b.at("X", "i", "j"), out=True)
    case: Case = (b.program(), {"X": np.random.default_rng(0).normal(size=(300, 6))})
    last = holds(case, 8, 1)
    text = format_program(last)
    assert kernels(text) == ["Y_part", "Y"]
    assert "temp Y_part: f32[8, 6]" in text
    assert "grid i_chunk in 0..8" in text


@pytest.mark.parametrize("n", [1, 63, 130])
def test_chunks_of_a_size_known_at_launch(n: int) -> None:
    b, _, inputs = runtime_rows(n)
    b.define("Y", {"i": 3}, op("add", op("log", b.at("L", "i")), b.at("M", "i")), out=F32)
    program = b.program()
    want = naive.run(program, inputs, {"N": n})
    chunked = cut(program, 3, 16, ("M", "L"))
    last = agree((chunked, inputs), sizes={"N": n})
    np.testing.assert_allclose(naive.run(last, inputs, {"N": n})["Y"], want["Y"], rtol=1e-9)
    assert len(last.kernels) == 2
    assert re.search(r"seq j0 in .*j_chunk.*\.\..*min\(", format_program(last))


def test_a_softmax_of_one_row_needs_its_chunks_twice() -> None:
    """The normalised row is a third kernel: it needs the combined results."""
    last = holds(softmax(1, 9000), 4, 1024)
    assert kernels(format_program(last))[0] in ("S_part", "M_part")
    assert len(last.kernels) <= 3


def test_decode_is_two_kernels_whatever_the_chunks() -> None:
    for splits in (2, 7):
        assert len(holds(decode(70, 8), splits, 16, ("M", "L", "A")).kernels) == 2


@pytest.mark.parametrize(
    ("plans", "reason"),
    [
        ((SplitPlan("M", "j", 1, 8),), "splits is 1, not 2 to"),
        ((SplitPlan("M", "j", 2, 8), SplitPlan("M", "j", 4, 8)), "M is cut along 'j' twice"),
    ],
)
def test_splits_that_are_none(plans: tuple[SplitPlan, ...], reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        check_schedule(Schedule(splits=plans))


def test_a_schedule_with_splits_is_read_back_from_json() -> None:
    schedule = cuts(logsumexp(3, 40)[0], 4, 8)
    assert Schedule.from_json(schedule.to_json()) == schedule


def test_a_value_under_both_references_is_not_split() -> None:
    """``exp(x - m) + m`` is not separable: it keeps reading the common maximum."""
    b = Builder("both")
    b.input("X", 2, 40)
    x = b.at("X", "i", "j")
    b.reduce("M", {"i": 2}, {"j": 40}, "max", x)
    b.reduce("S", {"i": 2}, {"j": 40}, "sum", op("add", op("exp", op("sub", x, b.at("M", "i"))), b.at("M", "i")))
    b.define("Y", {"i": 2}, op("mul", b.at("S", "i"), f(0.5)), out=F32)
    holds((b.program(), {"X": np.random.default_rng(0).normal(size=(2, 40))}), 4, 8)
