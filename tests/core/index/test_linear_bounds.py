"""What comparisons say about integers: forms that are 0 or more exactly where the comparisons hold."""

from __future__ import annotations

from itertools import product

import pytest

from nautilus.core.expr.nodes import Const, Op, Var
from nautilus.core.index.linear import Linear
from nautilus.core.index.linear_bounds import facts_of
from nautilus.core.index.simplify import bounds
from nautilus.core.types import DType

HOLDS = {
    "lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__, "eq": int.__eq__,
}  # fmt: skip


def value(x: Linear, at: dict[str, int]) -> int:
    return x.const + sum(c * at[a.name] for a, c in x.terms.items() if isinstance(a, Var))


@pytest.mark.parametrize("name", HOLDS)
def test_facts_hold_where_the_comparison_holds(name: str) -> None:
    ranges = {"a": (-4, 4), "b": (-4, 4)}
    facts = facts_of([Op(name, (Var("a"), Var("b")), DType.BOOL)], ranges)
    assert facts
    for a, b in product(range(-4, 5), repeat=2):
        assert all(value(f, {"a": a, "b": b}) >= 0 for f in facts) == HOLDS[name](a, b), (a, b)


@pytest.mark.parametrize(("low", "high", "found"), [(3, 5, (3, 5)), (11, 13, (3, 5)), (-5, -3, (3, 5)), (6, 9, (0, 7))])
def test_a_remainder_of_one_period_keeps_its_ends(low: int, high: int, found: tuple[int, int]) -> None:
    assert bounds(Op("mod", (Var("x"), Const(8, DType.I32)), DType.I32), {"x": (low, high)}) == found
