"""The alternatives of random conditions hold where the conditions hold, and exact ones nowhere else."""

from __future__ import annotations

import random

import numpy as np
import pytest

from nautilus.core.expr.build import calc
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var
from nautilus.core.index.alternatives import MOST, Alternatives, alternatives, isolated
from nautilus.core.index.linear import Linear, build, divided
from nautilus.core.numerics import Array
from nautilus.core.types import DType

A, B = Var("a"), Var("b")
POINTS = dict(zip("ab", np.meshgrid(np.arange(-5, 6), np.arange(-5, 6)), strict=True))
COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")


def values(e: Expr) -> Array:
    """The values of ``e`` at all points."""
    return np.broadcast_to(evaluate(e, POINTS), (11, 11))


def of(x: Linear) -> Array:
    return values(build(x, DType.I32))


def holds(found: Alternatives) -> Array:
    """Where all forms of one of ``found`` are at least 0."""
    out = np.zeros((11, 11), bool)
    for x in found:
        out |= np.logical_and.reduce([of(form) >= 0 for form in x.forms], initial=True)
    return out


class Conditions:
    """Random conditions on a and b."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)

    def number(self, depth: int) -> Expr:
        r = self.r
        if depth == 0 or r.random() < 0.25:
            choices: list[Expr] = [A, B, Const(r.randint(-4, 4), DType.I32)]
            return r.choice(choices)
        match r.choice(["add", "sub", "mul", "min", "max", "abs", "select", "floordiv"]):
            case "mul":
                return calc("mul", self.number(depth - 1), r.choice([-3, -1, 2]))
            case "abs":
                return calc("abs", self.number(depth - 1))
            case "select":
                return calc("select", self.condition(0), self.number(depth - 1), self.number(depth - 1))
            case "floordiv":
                return calc("floordiv", self.number(depth - 1), r.choice([2, 3]))
            case op:
                return calc(op, self.number(depth - 1), self.number(depth - 1))

    def condition(self, depth: int) -> Expr:
        r = self.r
        if depth == 0 or r.random() < 0.3:
            return Op(r.choice(COMPARED), (self.number(depth), self.number(depth)), DType.BOOL)
        match r.choice(["and", "or", "not", "select"]):
            case "not":
                return Op("not", (self.condition(depth - 1),), DType.BOOL)
            case "select":
                return Op("select", tuple(self.condition(depth - 1) for _ in range(3)), DType.BOOL)
            case op:
                return Op(op, (self.condition(depth - 1), self.condition(depth - 1)), DType.BOOL)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_random_conditions(depth: int) -> None:
    exact = 0
    for seed in range(120):
        e = Conditions(seed).condition(depth)
        found = alternatives(e)
        assert len(found) <= MOST
        holding = values(e).astype(bool)
        assert np.all(holds(found) | ~holding), e
        assert np.all(holding | ~holds(tuple(x for x in found if x.exact))), e
        exact += all(x.exact for x in found)
    assert exact >= 70


@pytest.mark.parametrize("op", COMPARED)
@pytest.mark.parametrize("negated", [False, True])
def test_a_comparison_is_exact(op: str, negated: bool) -> None:
    e: Expr = Op(op, (A, calc("add", B, 1)), DType.BOOL)
    e = Op("not", (e,), DType.BOOL) if negated else e
    found = alternatives(e)
    assert all(x.exact for x in found) and np.array_equal(holds(found), values(e))


def test_what_is_no_comparison_of_integers_says_nothing() -> None:
    x = Load("X", (A,), DType.F32)
    nothing = alternatives(Op("lt", (x, x), DType.BOOL))
    assert [(a.forms, a.exact) for a in nothing] == [((), False)]
    wide = Op("lt", tuple(Op("cast", (v,), DType.I64) for v in (A, B)), DType.BOOL)
    assert alternatives(wide) == nothing
    element = Load("n", (A,), DType.I32)  # any integer, so that the sum may wrap
    assert alternatives(Op("lt", (calc("add", element, 1), B), DType.BOOL)) == nothing
    assert alternatives(Op("lt", (element, B), DType.BOOL)) != nothing
    beside = alternatives(Op("and", (Op("lt", (x, x), DType.BOOL), Op("le", (A, B), DType.BOOL)), DType.BOOL))
    assert [(len(a.forms), a.exact) for a in beside] == [(1, False)]
    assert alternatives(Const(True, DType.BOOL))[0].forms == () and not alternatives(Const(False, DType.BOOL))


def test_too_many_alternatives_say_nothing() -> None:
    parts = [Op("eq", (A, Const(n, DType.I32)), DType.BOOL) for n in range(MOST + 1)]
    either: Expr = parts[0]
    for p in parts[1:MOST]:
        either = Op("or", (either, p), DType.BOOL)
    assert len(alternatives(either)) == MOST
    assert [x.forms for x in alternatives(Op("or", (either, parts[MOST]), DType.BOOL))] == [()]
    two = Op("ne", (B, Const(0, DType.I32)), DType.BOOL)
    found = alternatives(Op("and", (either, two), DType.BOOL))
    assert len(found) == MOST and not any(x.exact for x in found)


@pytest.mark.parametrize("c", [-2, -1, 1, 3])
@pytest.mark.parametrize("n", [2, 3])
def test_a_quotient_is_isolated(c: int, n: int) -> None:
    quotient = calc("floordiv", calc("add", A, calc("abs", B)), n)
    assert isinstance(quotient, Op)
    rest = divided(calc("add", B, 1))
    assert np.array_equal(of(isolated(quotient, c, rest)) >= 0, c * values(quotient) + of(rest) >= 0)
