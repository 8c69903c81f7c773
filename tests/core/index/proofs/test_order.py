"""A proof that one integer is less than another one holds at all points, and is found where extrema stand."""

from __future__ import annotations

import random

import pytest

from nautilus.core.expr.build import calc
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Const, Expr, Param, Var
from nautilus.core.index.order import certainly_less
from nautilus.core.text.expressions import parse_expr
from nautilus.core.types import DType

RANGES = {"a": (0, 4), "b": (-2, 3)}


@pytest.mark.parametrize(("a", "b", "proved"), [
    ("a", "5", True), ("a", "4", False), ("a + b", "8", True), ("a + b", "7", False), ("a", "a + 1", True),
    ("max(a, b)", "5", True), ("max(a, b)", "4", False), ("max(a, b)", "max(b + 1, a + 1)", True),
    ("min(a, b)", "b + 1", True), ("min(a, b)", "a", False), ("3", "min(a + 4, b + 6)", True),
    ("3", "min(a + 3, b + 6)", False), ("-3", "max(b, -9)", True), ("max(a, b)", "min(a + b + 2, 6)", False),
    ("max(a, b)", "min(a + b + 9, a + b + 7)", True),
])  # fmt: skip
def test_proofs(a: str, b: str, proved: bool) -> None:
    assert certainly_less(parse_expr(a), parse_expr(b), RANGES) == proved


def test_a_variable_below_a_size() -> None:
    n = Param("n", DType.I32)
    last, i = calc("add", calc("mul", Var("i"), 4), 3), {"i": n}
    assert certainly_less(last, calc("mul", n, 4), {}, i)
    assert not certainly_less(last, calc("mul", n, 4), {})
    assert not certainly_less(calc("add", last, 1), calc("mul", n, 4), {}, i)
    assert not certainly_less(calc("sub", 0, Var("i")), calc("sub", 1, n), {}, i), "it is greatest at its first value"


def test_what_is_proved_holds() -> None:
    r = random.Random(1)

    def made(depth: int) -> Expr:
        if depth == 0:
            choices: list[Expr] = [Var("a"), Var("b"), Const(r.randint(-3, 6), DType.I32)]
            return r.choice(choices)
        return calc(r.choice(["add", "sub", "min", "max"]), made(depth - 1), made(depth - 1))

    proved = 0
    for _ in range(400):
        x, y = made(2), made(2)
        if certainly_less(x, y, RANGES):
            proved += 1
            for a in range(5):
                for b in range(-2, 4):
                    assert int(evaluate(x, {"a": a, "b": b})) < int(evaluate(y, {"a": a, "b": b})), (x, y, a, b)
    assert proved > 40
