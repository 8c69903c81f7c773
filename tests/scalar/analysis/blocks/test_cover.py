"""What is proved of ranges of blocks, and in what time."""

from __future__ import annotations

import pytest

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Var
from nautilus.core.index.linear import divided
from nautilus.scalar.analysis.blocks.cover import never_positive


def extremes(op: str, count: int) -> Expr:
    """``op(v0, op(v1, ...))``."""
    e: Expr = Var(f"v{count}")
    for n in reversed(range(count)):
        e = calc(op, Var(f"v{n}"), e)
    return e


@pytest.mark.parametrize(("count", "proved"), [(1, True), (6, True), (60, False)])
def test_cases_of_few_functions_are_distinguished_and_many_take_no_time(count: int, proved: bool) -> None:
    least, greatest = divided(extremes("min", count)), divided(extremes("max", count))
    ranges = {f"v{n}": (None, None) for n in range(count + 1)}
    assert never_positive(least - greatest, ranges) is proved
    assert not never_positive(greatest - least, ranges)
