"""Divisors of integer expressions, and proofs that one is less than another one, against all points."""

from __future__ import annotations

import random

import pytest

from nautilus.core.expr.build import calc
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Const, Expr, Op, Param, Var
from nautilus.core.index.divisors import divisible_by, divisor
from nautilus.core.index.order import certainly_less
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
