"""Positions in interleaved rows: a permutation of each group, the inverse of its elements, and recognised as such."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.interleaved import GROUP, base_of, element, element_at, position
from nautilus.core.expr.nodes import Const, Expr, Var, substitute
from nautilus.core.index.simplify import simplify
from nautilus.core.types import DType

X = Var("x", DType.I32)


def values(e: Expr, count: int) -> list[int]:
    found = (simplify(substitute(e, {"x": integer(n)})) for n in range(count))
    return [int(c.value) for c in found if isinstance(c, Const)]


def test_a_permutation_of_each_group() -> None:
    at = values(position(X), 3 * GROUP)
    for group in range(3):
        assert sorted(at[group * GROUP : (group + 1) * GROUP]) == list(range(group * GROUP, (group + 1) * GROUP))
    assert at[:GROUP] == [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15]


def test_elements_are_the_inverse() -> None:
    assert [element_at(np.array(p)).item() for p in values(position(X), 48)] == list(range(48))
    assert values(element(X), 48) == element_at(np.arange(48)).tolist()


@pytest.mark.parametrize(
    ("e", "base"),
    [
        (position(X), integer(0)),
        (position(calc("add", calc("mul", Var("b", DType.I32), 64), X)), calc("mul", Var("b", DType.I32), 64)),
        (X, None),  # in order
        (element(X), None),  # the inverse
        (position(calc("add", X, 8)), None),  # begins inside of a group
        (position(calc("mul", X, 2)), None),
    ],
)
def test_where_positions_begin(e: Expr, base: Expr | None) -> None:
    found = base_of(e, "x", 32)
    assert found == (None if base is None else simplify(base))
    assert base_of(e, "x", 24) is None  # no whole groups
