"""Definitions that their readers compute again because the cost model says so; decisions of a given schedule stay."""

from __future__ import annotations

from pathlib import Path

from nautilus.core.schedule import CopyPlan, Schedule
from nautilus.driver import Request, compile_file
from nautilus.passes.selection.copy_choice import _alone

#: two products of one matrix of scores, which reduce over its columns and over its rows
BOTH_SIDES = """
dim H = 32, M = 1024, D = 64
input Q: bf16[H, M, D]
input K: bf16[H, M, D]
output A: bf16[H, M, D]
output B: bf16[H, M, D]
S[h, i, j] = exp(sum[d](Q[h, i, d] * K[h, j, d]))
A[h, i, d] = sum[j](S[h, i, j] * K[h, j, d])
B[h, j, d] = sum[i](S[h, i, j] * Q[h, i, d])
"""


def request(schedule: Schedule | None = None, m: int = 1024) -> Request:
    return Request(Path("given.naut"), "sm_90a", {"M": m}, text=BOTH_SIDES, schedule=schedule, until="ma-tile")


def test_scores_are_computed_again_where_that_is_faster_than_their_bytes() -> None:
    made = compile_file(request()).context.schedule
    assert made is not None
    assert [len(c.readers) for c in made.copies or ()] == [1]
    assert sorted(k.name for k in made.kernels) == ["A", "B"]


def test_what_the_schedule_says_is_stored_stays() -> None:
    made = compile_file(request(Schedule(copies=()))).context.schedule
    assert made is not None and made.copies == ()
    assert len(made.kernels) == 3


def test_small_programs_are_not_tried() -> None:
    made = compile_file(request(m=128)).context.schedule
    assert made is not None and made.copies is None


def test_copies_of_one_definition_alone_have_no_readers_that_are_copies() -> None:
    found = CopyPlan("l", ("L",)), CopyPlan("S", ("l_copy",)), CopyPlan("S", ("m", "l_copy"))
    assert list(_alone(found, {"S", "m", "l", "L"})) == [(CopyPlan("l", ("L",)),), (CopyPlan("S", ("m",)),)]
