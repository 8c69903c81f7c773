"""Interleaved split-K, loops with a stride, and combinations that are split again: equal results, certificates."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from nautilus.check.certificates.rules import check
from nautilus.core.expr.nodes import Param
from nautilus.core.schedule import Schedule, SplitPlan, check_schedule
from nautilus.core.text.expressions import format_expr
from nautilus.scalar.analysis.chunks import Chunks, chunk_guard, chunks_of
from nautilus.scalar.analysis.definitions import read_defs
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.split_k_update import SplitKUpdate
from tests.scalar import naive
from tests.scalar.cuts import cuts
from tests.scalar.passes.test_split_k_update import final, same_in_chunks
from tests.scalar.programs.build import F32, I32, Builder, attention, causal, op
from tests.scalar.programs.small import CASES, Case, column_sums, logsumexp
from tests.scalar.test_fusion import agree


def interleaved(program: Program, groups: int, chunks: int, tile: int, ops: tuple[str, ...] | None = None) -> Schedule:
    """``groups`` of ``chunks`` chunks each of every reduction (of ``ops``) along its last axis, combined by group."""
    first = tuple(replace(s, interleave=chunks) for s in cuts(program, groups * chunks, tile, ops).splits or ())
    if groups == 1:
        return Schedule(splits=first)
    cut = read_defs(SplitKUpdate(Schedule(splits=first)).apply(program))
    parts = {d.name for d in cut.values() if chunks_of(d) is not None}
    ends = [d for d in cut.values() if d.is_reduction and d.name not in parts and {r.buffer for r in d.reads()} & parts]
    return Schedule(splits=(*first, *(SplitPlan(d.name, d.red[0].name, groups, chunks) for d in ends)))


def holds(case: Case, groups: int, chunks: int, tile: int, ops: tuple[str, ...] | None = None) -> Program:
    """The split program agrees with the whole one, as definitions and after every pass; returns its last form."""
    program, inputs = case
    schedule = interleaved(program, groups, chunks, tile, ops)
    check_schedule(schedule)
    assert Schedule.from_json(schedule.to_json()) == schedule
    return same_in_chunks(program, SplitKUpdate(schedule).apply(program), inputs)


@pytest.mark.parametrize("name", ["logsumexp", "causal", "unfactored, masked rows", "extremes", "decode"])
def test_interleaved_chunks_agree(name: str) -> None:
    holds(CASES[name](), 1, 4, 4)


@pytest.mark.parametrize(("groups", "chunks", "tile"), [(2, 2, 4), (3, 2, 1), (2, 4, 16)])
@pytest.mark.parametrize("name", ["logsumexp", "decode"])
def test_combinations_that_are_split_again_agree(name: str, groups: int, chunks: int, tile: int) -> None:
    holds(CASES[name](), groups, chunks, tile)


def test_a_sum_without_a_reference() -> None:
    holds(column_sums(70, 5), 2, 3, 2)


def test_chunks_of_nothing_but_minus_infinity() -> None:
    program, inputs = logsumexp(2, 40)
    inputs["X"][0, 4:12] = -np.inf
    inputs["X"][1, :39] = -np.inf
    holds((program, inputs), 2, 3, 4)


@pytest.mark.parametrize("n", [1, 63, 130])
def test_an_axis_known_at_launch(n: int) -> None:
    size = Param("N", I32)
    b = Builder("runtime")
    b.input("X", 3, size)
    x = b.at("X", "i", "j")
    b.reduce("M", {"i": 3}, {"j": size}, "max", x)
    b.reduce("L", {"i": 3}, {"j": size}, "sum", op("exp", op("sub", x, b.at("M", "i"))))
    b.define("Y", {"i": 3}, op("log", b.at("L", "i")), out=F32)
    program = b.program()
    inputs = {"X": np.random.default_rng(n).normal(size=(3, n))}
    want = naive.run(program, inputs, {"N": n})
    chunked = SplitKUpdate(interleaved(program, 2, 2, 8)).apply(program)
    np.testing.assert_allclose(naive.run(chunked, inputs, {"N": n})["Y"], want["Y"], rtol=1e-9)
    agree((chunked, inputs), sizes={"N": n})


# -- guards -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "own"), [(4, 1), (4, 2), (4, 4), (6, 3)])
@pytest.mark.parametrize(("extent", "tile"), [(40, 4), (37, 4), (5, 1), (3, 8)])
def test_every_element_is_in_one_chunk(extent: int, tile: int, count: int, own: int) -> None:
    guard = chunk_guard("s", "j", extent, tile, count, own)
    text = format_expr(guard)
    found = [[j for j in range(extent) if eval(text, {}, {"s": s, "j": j})] for s in range(count)]
    assert sorted(j for chunk in found for j in chunk) == list(range(extent))
    ranges = [range(min(c), max(c) + 1) if c else range(0) for c in found]
    if own == 1:  # chunks follow each other
        assert all(list(r) == c for r, c in zip(ranges, found, strict=True))
    else:  # whole tiles
        assert all(len({j // tile % own for j in c}) <= 1 for c in found)


def test_guards_are_recognised() -> None:
    program = logsumexp(3, 40)[0]
    cut = read_defs(SplitKUpdate(interleaved(program, 2, 3, 4)).apply(program))
    assert chunks_of(cut["M_part"]) == Chunks("j_chunk", "j", 4, 4, 3)
    found = chunks_of(cut["M_part_2"])
    assert found is not None and (found.size, found.tile, found.interleave) == (3, 0, 1)
    assert chunks_of(cut["M"]) is None
    ones = read_defs(SplitKUpdate(interleaved(program, 1, 3, 1)).apply(program))
    assert chunks_of(ones["M_part"]) == Chunks("j_chunk", "j", 1, 1, 3)


# -- loops --------------------------------------------------------------------------------------

ENDS = ("P_max", "P_sum", "O_acc")


def reduction_loops(groups: int, chunks: int, n: int) -> tuple[str, str]:
    """The kernel of the chunks of a decoding step over ``n`` keys, and the kernel that combines them."""
    program = attention(1, n, 64, heads=2, guard=causal(n - 1))
    text = final(SplitKUpdate(interleaved(program, groups, chunks, 64, ENDS)).apply(program))
    first, rest = re.split(r"\n  kernel (?!O_acc_part )", text, maxsplit=1)
    return first, rest


def test_a_chunk_has_every_nth_tile() -> None:
    first, _ = reduction_loops(1, 4, 1024)
    assert re.search(r"seq j0 in 0\.\.4 \{", first), first
    assert "j0 * 256" in first or "(j0 * 4 + j_chunk) * 64" in first
    # nothing is left of the guard of the chunk
    assert not re.search(r"where .*% 4 ==", first)


def test_a_group_has_its_own_range() -> None:
    first, rest = reduction_loops(2, 2, 1024)
    found = re.search(r"seq j0 in (.*)\.\.(.*) \{", first)
    assert found is not None, first
    bounds = [tuple(eval(e, {}, {"j_chunk": chunk}) for e in found.groups()) for chunk in range(4)]
    assert bounds == [(0, 4), (0, 4), (4, 8), (4, 8)]
    assert not re.search(r"where .*j_chunk", first), first
    assert "j_chunk_chunk" in rest


def test_a_mixed_piece_keeps_only_its_own_conditions() -> None:
    """The last tiles have the condition on the end of the keys; no tile has the condition of its chunk."""
    first, _ = reduction_loops(1, 2, 1000)
    assert "< 1000" in first or "<= 999" in first
    guards = re.findall(r"where (.*?)(?:\n|$)", first)
    assert guards and not any("% 2 ==" in g for g in guards), guards


def test_one_step_is_no_loop() -> None:
    program = attention(1, 256, 64, heads=2, guard=causal(255))
    text = final(SplitKUpdate(cuts(program, 4, 64, ENDS)).apply(program))
    first = text.split("kernel O {")[0]
    assert "seq j0" not in first and "j_chunk * 64 + j" in first


# -- certificates -------------------------------------------------------------------------------


def test_both_levels_are_certified() -> None:
    program = attention(1, 256, 16, heads=2, guard=causal(255))
    _, found = SplitKUpdate(interleaved(program, 2, 2, 32, ENDS)).derive(program)
    subjects = [c.subject for c in found if c.rule == "split-k-update"]
    assert subjects == ["P_sum", "O_acc", "P_sum", "O_acc"]
    assert all(check(c).status == "proved" for c in found)
    for c in (c for c in found if c.rule == "split-k-update"):
        assert not check(replace(c, after=c.before)).ok or c.before == c.after
