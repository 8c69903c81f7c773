"""Which parallel variables the position of a store determines, and which steps a recurrence reads."""

from __future__ import annotations

import pytest

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Param, Var
from nautilus.core.types import DType
from nautilus.scalar.analysis.independence import outside_of_step, undetermined
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


@pytest.mark.parametrize("first", [-1, 0])
def test_a_guard_does_not_bound_a_sum_of_negative_terms_from_below(first: int) -> None:
    r = Loop("r", integer(first), integer(4), Kind.GRID, ())
    loops, negative = (LOOPS[0], r), calc("neg", Var("r"))
    for term in (negative, Var("r")):
        guard, position = calc("lt", term, 3), calc("add", THREE, term)
        bounded = term == Var("r") and first == 0  # -1 and 2 meet, in different rows
        assert (undetermined((position,), loops, guard) == ()) == bounded


def test_a_guard_does_not_bound_a_sum_with_an_unknown_term() -> None:
    term = calc("add", RESIDUE, Var("z"))
    assert undetermined((calc("add", THREE, term),), LOOPS, calc("lt", term, 3)) != ()


@pytest.mark.parametrize("remainder, told", [(RESIDUE, True), (calc("add", RESIDUE, 1), False), (Var("q"), False)])
def test_a_quotient_and_a_remainder_of_the_same_number_tell_it(remainder: Expr, told: bool) -> None:
    number = calc("add", THREE, RESIDUE)
    index = (calc("floordiv", number, 5), calc("mod", calc("add", THREE, remainder) if told else remainder, 5))
    assert (undetermined(index, LOOPS, below(3)) == ()) == told


@pytest.mark.parametrize("name, told", [("q", True), ("r", False)])
def test_only_the_largest_digit_may_have_any_range(name: str, told: bool) -> None:
    size = Param("n", DType.I32)
    loops = tuple(Loop(x, integer(0), size if x == name else integer(4), Kind.GRID, ()) for x in ("q", "r"))
    assert (undetermined((calc("add", calc("mul", Var("q"), 4), Var("r")),), loops) == ()) == told


STEPS = (LOOPS[0], Loop("t", integer(0), integer(9), Kind.SEQ, ()), LOOPS[2])
T = Var("t")


@pytest.mark.parametrize(
    "read, write, outside",
    [
        ((Var("q"), calc("sub", T, 1)), (Var("q"), T), 1),
        ((Var("q"), calc("add", T, 2)), (Var("q"), T), 1),
        ((Var("q"), T), (Var("q"), T), 3),  # the same step
        ((Var("q"), calc("sub", T, Var("r"))), (Var("q"), T), 3),  # r may be 0
        ((Var("q"), calc("floordiv", T, 2)), (Var("q"), T), 3),  # 0 // 2 is 0
        ((Var("q"), calc("sub", T, 1)), (Var("q"), calc("floordiv", T, 2)), 3),
        ((Var("q"), calc("sub", T, 1)), (Var("q"), calc("add", T, Var("r"))), 3),  # not of t alone
        ((calc("sub", Var("q"), 1), T), (Var("q"), T), 3),  # another row, which no step separates
    ],
)
def test_a_step_reads_what_other_steps_wrote(
    read: tuple[Expr, ...], write: tuple[Expr, ...], outside: int
) -> None:  # fmt: skip
    assert outside_of_step(read, write, STEPS) == STEPS[:outside]
