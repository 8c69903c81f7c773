"""Divisors of integer expressions divide all of their values, and are the greatest ones in simple cases."""

from __future__ import annotations

import random

import pytest

from nautilus.core.expr.build import calc
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Const, Expr, Op, Param, Var
from nautilus.core.index.divisors import divisible_by, divisor
from nautilus.core.text.expressions import parse_expr
from nautilus.core.types import DType

X = Var("x")
N = Param("n", DType.I32, multiple=12)


@pytest.mark.parametrize(("text", "found"), [
    ("6 * x", 6), ("6 * x + 4", 2), ("6 * x + 9 * y", 3), ("x", 1), ("0", 0), ("12", 12), ("-8 * x", 8),
    ("6 * x % 4", 2), ("min(6 * x, 4)", 2), ("max(9 * x, 6 * y)", 3), ("(6 * x) * (10 * y)", 60), ("(8 * x) // 4", 2),
    ("(8 * x) // 3", 1), ("(8 * x * y) // 4", 2), ("select(x < y, 4 * x, 6 * y)", 2),
])  # fmt: skip
def test_divisors(text: str, found: int) -> None:
    e = parse_expr(text)
    assert divisor(e) == found
    assert all(divisible_by(e, n) == (found % n == 0) for n in range(1, 13))


def test_a_size_has_the_divisor_that_it_promises() -> None:
    assert divisor(N) == 12 and divisor(calc("mul", N, 2)) == 24 and divisor(calc("add", N, 8)) == 4
    assert divisor(Op("cast", (N,), DType.I64)) == 12
    assert divisor(Op("cast", (N,), DType.I16)) == 1, "it may wrap"
    assert divisor(calc("floordiv", N, 6)) == 2 and divisor(Op("floordiv", (N, N), DType.I32)) == 1


def test_divisors_divide_the_values() -> None:
    r = random.Random(0)

    def made(depth: int) -> Expr:
        if depth == 0:
            choices: list[Expr] = [X, calc("mul", X, r.choice([2, 3, 4, 6])), Const(r.choice([0, 6, 8, 12]), DType.I32)]
            return r.choice(choices)
        op = r.choice(["add", "sub", "mul", "min", "max", "mod", "floordiv", "select"])
        a, b = made(depth - 1), made(depth - 1)
        if op == "select":
            return calc("select", Op("lt", (a, b), DType.BOOL), a, b)
        if op == "floordiv":
            return calc(op, a, r.choice([2, 3, 4]))
        return calc(op, a, calc("max", b, 1) if op == "mod" else b)

    useful = 0
    for _ in range(300):
        e = made(3)
        n = divisor(e)
        useful += n > 1
        for x in range(-5, 6):
            value = int(evaluate(e, {"x": x}))
            assert value == 0 if n == 0 else value % n == 0, (e, x, n)
    assert useful > 10
