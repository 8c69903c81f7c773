"""Bodies that differ from others in waits alone, and what may still become one of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nautilus.core.expr.build import integer
from nautilus.ma_tile.analysis.outstanding.repeated import has_fewer_waits
from nautilus.ma_tile.ir.ops import AsyncCommit, AsyncWait, Barrier, ForOp, MemOp

LOOP = ForOp((), "k", integer(0), integer(4), (), (AsyncWait(0), Barrier(), AsyncCommit()), ())
OLD = (AsyncCommit(), AsyncWait(1), LOOP, Barrier())
LESS = replace(LOOP, body=LOOP.body[1:])


@pytest.mark.parametrize(
    ("new", "whole", "begins"),
    [
        (OLD, True, True),
        ((AsyncCommit(), LESS, Barrier()), True, True),
        (OLD[:2], False, True),
        ((), False, True),
        ((AsyncCommit(), replace(LOOP, body=(AsyncWait(1), *LOOP.body[1:]))), False, False),
        ((AsyncCommit(), AsyncWait(0)), False, False),
        ((*OLD, Barrier()), False, False),
    ],
)
def test_fewer_waits_of_a_whole_body_and_of_its_begin(new: tuple[MemOp, ...], whole: bool, begins: bool) -> None:
    assert has_fewer_waits(new, OLD) is whole
    assert has_fewer_waits(new, OLD, begins=True) is begins
