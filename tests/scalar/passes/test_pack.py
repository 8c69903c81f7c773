"""``pack``: axes in groups. Shared operands lose the axis on which they do not depend; results do not change."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Var
from nautilus.core.schedule import PackPlan, Schedule
from nautilus.core.types import DType
from nautilus.planner.kernels import default_schedule
from nautilus.scalar.analysis.definitions import read_defs
from nautilus.scalar.analysis.independence import undetermined
from nautilus.scalar.ir import Kind, Loop, Program
from nautilus.scalar.passes.pack import Pack, _reshaped
from nautilus.scalar.text import format_program, parse_program
from nautilus.scalar.verify import verify
from tests.scalar import naive
from tests.scalar.cuts import cut
from tests.scalar.programs.build import F16, F32, Builder, attention, causal, f, i, op, v
from tests.scalar.programs.small import Case, column_sums, softmax, transpose
from tests.scalar.test_fusion import agree, stages
from tests.scalar.test_fusion_fuzz import _Random


def packed(program: Program, name: str, axis: str, size: int) -> Program:
    """``program`` with ``axis`` of ``name`` in groups, after verification."""
    new = Pack(Schedule(packs=(PackPlan(name, axis, size),))).apply(program)
    verify(new)
    assert parse_program(format_program(new)) == new
    return new


def holds(case: Case, name: str, axis: str, size: int, splits: int = 0) -> Program:
    """The packed program agrees with the given one, as definitions and through every pass; returns its last form."""
    program, inputs = case
    new = packed(program, name, axis, size)
    want, got = naive.run(program, inputs, {}), naive.run(new, inputs, {})
    for output, array in want.items():
        np.testing.assert_allclose(got[output], array, rtol=1e-9, atol=1e-12, err_msg=output)
    return agree((cut(new, splits, 8, ("P_max", "P_sum", "O_acc")) if splits else new, inputs))


def grouped(m: int, n: int, heads: int, groups: int) -> Case:
    r = np.random.default_rng(heads)
    inputs: dict[str, Any] = {
        "Q": r.normal(size=(1, heads, m, 8)) * 3,
        "K": r.normal(size=(1, heads // groups, n, 8)),
        "V": r.normal(size=(1, heads // groups, n, 8)),
    }
    return attention(m, n, 8, heads=heads, groups=groups, guard=causal(n - m)), inputs


@pytest.mark.parametrize("splits", [0, 3])
@pytest.mark.parametrize(("m", "heads", "groups"), [(1, 8, 4), (1, 6, 3), (2, 8, 8), (1, 40, 20), (17, 4, 2)])
def test_query_heads_in_groups_agree(m: int, heads: int, groups: int, splits: int) -> None:
    holds(grouped(m, 37, heads, groups), "S_sum", "h", groups, splits)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_any_size_that_divides_will_do(size: int) -> None:
    """The size need not be that of the groups of operands."""
    holds(grouped(1, 20, 8, 4), "S_sum", "h", size)


SEEDS = range(int(os.environ.get("NAUTILUS_FUZZ", "16")))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_agree_after_packs_and_splits(seed: int) -> None:
    """Any axis of any definition is packed, then every reduction is split into chunks."""
    program, inputs = _Random(seed, {"a": 2, "b": 6, "c": 7, "d": 4, "e": 18}).case()
    r = random.Random(seed)
    axes = [
        (d.name, a.name, n)
        for d in read_defs(program).values()
        for a in d.axes
        for n in (2, 3)
        if isinstance(a.extent, int) and a.extent % n == 0
    ]
    if not axes:
        pytest.skip("no axis divides")
    name, axis, n = r.choice(axes)
    new = packed(program, name, axis, n)
    want, got = naive.run(program, inputs, {}), naive.run(new, inputs, {})
    for output, array in want.items():
        np.testing.assert_allclose(got[output], array, rtol=1e-9, atol=1e-12, err_msg=output)
    agree((cut(new, 2, 2) if seed % 2 else new, inputs))


def test_members_of_a_group_are_rows_of_one_tile() -> None:
    program = packed(attention(1, 1024, 128, heads=64, groups=8, guard=causal(1023)), "S_sum", "h", 8)
    text = format_program(program)
    assert "K[b, h_group, j, d" in text and "V[b, h_group, j, d]" in text
    assert "Q[b, h_group * 8 + h_member, i, d" in text
    assert "temp S_sum: f32[1, 8, 8, 1, 1024]" in text
    assert "O[b, h_group * 8 + h_member, i, d] = " in text
    last = format_program(stages(program, default_schedule(program, "sm_80"))[-1])
    assert last.count("kernel ") == 1
    assert "grid b in 0..1, h_group in 0..8, h_member0 in 0..1, i in 0..1" in last
    assert "S_sum[h_member, j] sum=" in last
    assert "O[b, h_group * 8 + (h_member0 * 16 + h_member), i, d] = " in last
    assert "where h_member0 * 16 + h_member < 8" in last


def test_packed_heads_in_chunks() -> None:
    program = packed(attention(1, 1024, 128, heads=64, groups=8), "S_sum", "h", 8)
    new = cut(program, 4, 64, ("P_max", "P_sum", "O_acc"))
    text = format_program(stages(new, default_schedule(new, "sm_80"))[-1])
    assert text.count("kernel ") == 2
    assert "grid j_chunk in 0..4, b in 0..1, h_group in 0..8, h_member0 in 0..1, i in 0..1" in text
    assert "temp O_acc_part: f32[4, 1, 8, 8, 1, 128]" in text


def test_reduced_axes_and_elementwise_ones() -> None:
    holds(column_sums(24, 10), "Y", "i", 4)
    holds(softmax(6, 20), "M", "j", 5)
    holds(transpose(8, 6), "Y", "j", 3)


def test_a_temp_read_at_other_positions() -> None:
    """A neighbour's value is read at the neighbour's group and member."""
    b = Builder("shifted")
    b.input("X", 12)
    b.define("T", {"h": 12}, op("mul", b.at("X", "h"), b.at("X", "h")))
    other = op("mod", op("add", v("h"), i(5)), i(12))
    b.define("Y", {"h": 12}, op("add", b.at("T", "h"), b.at("T", other)), out=F32)
    holds((b.program(), {"X": np.random.default_rng(0).normal(size=12)}), "T", "h", 4)


def test_an_output_that_another_definition_reads() -> None:
    b = Builder("read")
    b.input("X", 12, 5)
    b.reduce("S", {"h": 12}, {"k": 5}, "sum", b.at("X", "h", "k"), out=True)
    b.define("Y", {"h": 12}, op("mul", b.at("S", "h"), f(2)), out=F16)
    case: Case = (b.program(), {"X": np.random.default_rng(0).normal(size=(12, 5))})
    assert len(holds(case, "S", "h", 4).kernels) == 1


def test_definitions_read_back() -> None:
    program = packed(grouped(1, 20, 8, 4)[0], "S_sum", "h", 4)
    found = read_defs(program)["O"]
    assert [a.name for a in found.par] == ["b", "h_group", "h_member", "i", "d"]
    assert len(found.index) == 4 and found.at is not None


def grid(name: str, hi: int) -> Loop:
    return Loop(name, i(0), i(hi), Kind.GRID, ())


def test_a_store_at_two_axes_is_injective_only_inside_its_guard() -> None:
    loops = (grid("g", 4), grid("m0", 2), grid("m", 16))
    inside = op("add", op("mul", v("m0"), i(16)), v("m"))
    at = op("add", op("mul", v("g"), i(24)), inside)
    assert undetermined((at,), loops) == ("g", "m0", "m")  # members 24 to 31 are the next group's
    assert undetermined((at,), loops, op("lt", inside, i(24))) == ()
    assert undetermined((at,), loops, op("lt", inside, i(25))) == ("g", "m0", "m")
    twice = op("add", op("mul", v("m0"), i(8)), v("m"))  # tells neither m0 nor m, however small it is
    assert undetermined((op("add", op("mul", v("g"), i(24)), twice),), loops, op("lt", twice, i(24))) == ("m0", "m")
    other = op("lt", op("sub", v("m"), v("m0")), i(1))  # not a sum of what the index holds
    assert undetermined((at,), loops, other) == ("g", "m0", "m")


@pytest.mark.parametrize("axis", range(3))
def test_elements_of_a_reshaped_buffer_have_the_support_of_those_before(axis: int) -> None:
    first, second, third = (Var(f"i{n}") for n in range(3))
    weighted = calc("add", calc("mul", second, 2), third)
    support = calc("and", calc("ge", first, 1), calc("lt", weighted, 9))
    b = Buffer("T", DType.F32, (4, 6, 8), Space.TEMP, support=support)
    made = _reshaped(b, 2, {"T": axis})
    sizes = tuple(int(n) for n in made.shape if isinstance(n, int))
    places = np.indices(sizes)
    joined = [*places[:axis], places[axis] * 2 + places[axis + 1], *places[axis + 2 :]]
    assert made.support is not None and sizes[axis : axis + 2] == ((4, 6, 8)[axis] // 2, 2)
    found = evaluate(made.support, {f"i{n}": x for n, x in enumerate(places)})
    assert np.array_equal(found, evaluate(support, {f"i{n}": x for n, x in enumerate(joined)}))
