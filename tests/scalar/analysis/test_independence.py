"""Which parallel variables the position of a store determines."""

from __future__ import annotations

import pytest

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Var
from nautilus.scalar.analysis.independence import undetermined
from nautilus.scalar.ir import Kind, Loop

LOOPS = tuple(Loop(name, integer(0), integer(n), Kind.GRID, ()) for name, n in (("q", 19), ("r0", 1), ("r", 4)))
RESIDUE = calc("add", calc("mul", Var("r0"), 4), Var("r"))
THREE = calc("mul", Var("q"), 3)


def below(n: int) -> Expr:
    return calc("lt", RESIDUE, n)


@pytest.mark.parametrize("position", [
    calc("add", THREE, RESIDUE),
    calc("sub", calc("add", THREE, 2), RESIDUE),
    calc("add", THREE, calc("mod", calc("add", RESIDUE, 1), 3)),
    calc("add", THREE, calc("mod", calc("add", calc("mul", RESIDUE, 2), 1), 3)),
    calc("add", calc("mul", Var("q"), 9), calc("mul", RESIDUE, 3)),
])  # fmt: skip
def test_a_guard_bounds_a_digit_that_a_position_has_a_multiple_of(position: Expr) -> None:
    assert undetermined((position,), LOOPS, below(3)) == ()
    assert undetermined((position,), LOOPS) != ()
    assert undetermined((position,), LOOPS, below(4)) != ()


@pytest.mark.parametrize("position", [
    calc("add", THREE, calc("mod", calc("mul", RESIDUE, 3), 3)),  # always 0
    calc("add", calc("mul", Var("q"), 2), calc("mod", RESIDUE, 3)),
    calc("add", calc("mul", Var("q"), 3), calc("mul", RESIDUE, 2)),
])  # fmt: skip
def test_positions_that_meet_are_found(position: Expr) -> None:
    assert undetermined((position,), LOOPS, below(3)) != ()
