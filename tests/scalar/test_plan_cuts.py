"""Default packs and splits: where they pay, how many, and what the batch-invariant switch fixes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.driver import Request, compile_file
from nautilus.scalar.ops import Program
from nautilus.scalar.passes.pack import Pack
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.passes.split_k_update import SplitKUpdate
from nautilus.scalar.plan import default_schedule
from nautilus.scalar.plan_cuts import default_packs, default_splits, plan_packs, plan_splits
from tests.shipped import SPECS

from .build import attention, causal
from .programs import argmax, column_sums, logsumexp, matmul, softmax, swiglu


def decode(batch: int, n: int, heads: int = 64, groups: int = 8) -> Program:
    """One query a sequence; the builder has one sequence, so more of them are more heads."""
    return attention(1, n, 128, heads=heads * batch, groups=groups, guard=causal(n - 1))


def packs(program: Program) -> list[tuple[str, str, int]]:
    return [(p.op, p.axis, p.size) for p in default_packs(program)]


def counts(program: Program, arch: str = "sm_90a", invariant: bool = False) -> dict[str, int]:
    """How often each reduction is cut, after the default packs."""
    program = Pack(plan_packs(program)).apply(program)
    return {s.op: s.splits for s in default_splits(program, arch, invariant=invariant)}


def test_heads_that_share_keys_are_packed_where_rows_are_few() -> None:
    assert packs(decode(8, 4096)) == [("S_sum", "h", 8)]
    assert packs(attention(4, 4096, 128, heads=64, groups=8)) == [("S_sum", "h", 8)]
    assert packs(attention(17, 4096, 128, heads=64, groups=8)) == []  # 17 tiles of heads, 16 of queries
    assert packs(attention(4096, 4096, 128, heads=64, groups=8)) == []


def test_nothing_to_pack() -> None:
    one = Simplify().apply(attention(1, 4096, 128, heads=8, groups=8))
    assert packs(one) == []  # one key head: h // 8 is 0, h is a row already
    for program, _ in (matmul(8, 64, 64), swiglu(8, 64, 64), softmax(8, 64), argmax(8, 64)):
        assert packs(program) == []


@pytest.mark.parametrize(
    ("batch", "n", "count"),
    [
        (8, 1024, 1),
        (8, 4096, 2),
        (8, 65536, 2),
        (16, 65536, 1),
        (1, 65536, 16),
        (1, 4096, 16),
        (64, 512, 1),
        (1, 128, 1),
    ],
)
def test_as_few_chunks_as_keep_the_memory_busy(batch: int, n: int, count: int) -> None:
    """Eight key heads a sequence, 64 KB ahead in each block: 8 MB of it, where that is worth a second kernel."""
    found = counts(decode(batch, n))
    assert found == ({} if count == 1 else {"P_max": count, "P_sum": count, "O_acc": count})


def test_chunks_are_alike_and_whole_tiles_of_the_walk() -> None:
    program = Pack(plan_packs(decode(1, 4096))).apply(decode(1, 4096))
    cuts = default_splits(program)
    (plan,) = default_schedule(program).kernels
    assert {(s.splits, s.tile) for s in cuts} == {(16, plan.axis("j").tile)}


def test_a_few_long_rows_are_cut() -> None:
    assert set(counts(logsumexp(4, 200_000)[0])) == {"M", "S"}
    assert set(counts(argmax(4, 200_000)[0])) == {"M", "Y"}  # the place is a kernel of its own: it needs the maximum
    assert set(counts(column_sums(20_000, 64)[0])) == {"Y"}
    assert counts(logsumexp(2048, 9000)[0]) == {}  # blocks enough
    assert counts(logsumexp(8, 4096)[0]) == {}  # not worth a kernel


def test_what_is_written_along_the_walk_is_not_cut() -> None:
    assert counts(softmax(4, 200_000)[0]) == {}
    assert counts(matmul(64, 64, 16384)[0]) == {}  # rows and columns: not this rule's


def test_the_switch_fixes_chunks_by_the_length_alone() -> None:
    assert len({tuple(counts(decode(b, 4096)).values()) for b in (1, 8, 64)}) > 1
    for n, count in ((512, 1), (4096, 4), (65536, 16)):
        for batch in (1, 2, 8, 64):
            found = set(counts(decode(batch, n), invariant=True).values())
            assert found == (set() if count == 1 else {count})


def test_a_schedule_that_decides_is_left_alone() -> None:
    program = decode(1, 4096)
    for given in (Schedule(packs=(), splits=()), Schedule(kernels=(KernelPlan("O", (), ()),))):
        assert plan_packs(program, given) is given
        assert plan_splits(program, given) is given
    found = plan_splits(program, Schedule(factor=False))
    assert found.splits and not found.factor
    assert replace(found, splits=None) == Schedule(factor=False)


def test_cut_programs_plan_as_two_kernels_without_further_cuts() -> None:
    program = Pack(plan_packs(decode(1, 4096))).apply(decode(1, 4096))
    schedule = plan_splits(program)
    new = SplitKUpdate(schedule).apply(program)
    assert [k.ops[-1] for k in default_schedule(new).kernels] == ["O_acc_part", "O"]
    assert default_packs(new) == ()


@pytest.mark.parametrize("path", [p for p in SPECS if "prefill" in p.name], ids=lambda p: p.stem)
def test_prefill_keeps_its_plan(path: Path) -> None:
    schedule = compile_file(Request(path, until="scalar")).context.schedule
    assert schedule is not None and schedule.packs is None and schedule.splits is None
    assert len(schedule.kernels) == 1 and schedule.kernels[0].memory.engine == "warpgroup"
