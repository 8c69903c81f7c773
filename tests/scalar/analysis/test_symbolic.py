"""Linear forms and products of expressions have their values, and equal forms have equal keys."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Const, Expr, Op, Var, free_vars, substitute
from nautilus.core.types import DType
from nautilus.scalar.analysis.symbolic import Lin, emit_difference, emit_ratio, linear_form, product_form

F32 = DType.F64
VARS = {n: Var(n, F32) for n in "xyab"}


def invariant(e: Expr) -> bool:
    """a and b are invariants."""
    return bool(free_vars(e)) and free_vars(e) <= {"a", "b"}


def value(form: Lin, point: dict[str, float]) -> float:
    total = 0.0
    for (atom, scale), n in form.terms:
        total += n * float(evaluate(atom, point)) * (1.0 if scale is None else float(evaluate(scale, point)))
    return total


def made(r: random.Random, depth: int) -> Expr:
    if depth == 0:
        leaves: list[Expr] = [*VARS.values(), Const(r.choice([0.5, -2.0, 0.0]), F32)]
        return r.choice(leaves)
    a, b = made(r, depth - 1), made(r, depth - 1)
    match r.choice(["add", "sub", "neg", "mul", "mul", "div", "exp"]):
        case "neg":
            return Op("neg", (a,), F32)
        case "div":
            return Op("div", (a, Const(4.0, F32)), F32)
        case "exp":
            return Op("tanh", (a,), F32)
        case op:
            return Op(op, (a, b), F32)


@pytest.mark.parametrize("seed", range(60))
def test_a_linear_form_has_the_value(seed: int) -> None:
    r = random.Random(seed)
    e = made(r, 3)
    form = linear_form(e, invariant)
    for _ in range(4):
        point: Any = {n: r.uniform(-2, 2) for n in VARS}
        assert value(form, point) == pytest.approx(float(evaluate(e, point)), rel=1e-12, abs=1e-12)
    assert form.key() == linear_form(Op("neg", (Op("neg", (e,), F32),), F32), invariant).key()
    assert (form + form.times(-1.0)).terms == () and math.isfinite(len(form.terms))


def test_factors_of_a_term() -> None:
    x, y, a, b = VARS.values()

    def product(*args: Expr) -> Op:
        return Op("mul", args, F32)

    assert linear_form(product(x, a), invariant).terms == (((x, a), 1.0),)
    assert linear_form(product(a, x), invariant).terms == (((x, a), 1.0),)
    assert linear_form(product(x, y), invariant).terms == (((product(x, y), None), 1.0),)
    assert linear_form(product(a, b), invariant).terms == (((product(a, b), None), 1.0),)
    assert linear_form(product(x, Const(3.0, F32)), invariant).terms == (((x, None), 3.0),)
    assert linear_form(Op("div", (x, Const(4.0, F32)), F32), invariant).terms == (((x, None), 0.25),)
    nought = Op("div", (x, Const(0.0, F32)), F32)
    assert linear_form(nought, invariant).terms == (((nought, None), 1.0),)
    assert linear_form(Const(0.0, F32), invariant).terms == ()


NEW = {n: Var(f"{n}_new", F32) for n in "xy"}


def old(e: Expr) -> Expr:
    return e


def new(e: Expr) -> Expr:
    return substitute(e, dict(NEW))


def points(r: random.Random) -> Any:
    """Positive numbers, whose products are no 0."""
    return {n: r.uniform(0.5, 2.0) for n in ("x", "y", "a", "b", "x_new", "y_new")}


@pytest.mark.parametrize("seed", range(40))
def test_the_difference_of_two_values(seed: int) -> None:
    r = random.Random(seed)
    e = made(r, 3)
    found, point = emit_difference(linear_form(e, invariant), old, new), points(r)
    want = float(evaluate(new(e), point)) - float(evaluate(e, point))
    got = 0.0 if found is None else float(evaluate(found, point))
    assert got == pytest.approx(want, rel=1e-9, abs=1e-12)


def factors(r: random.Random, depth: int) -> Expr:
    if depth == 0:
        leaves: list[Expr] = [*VARS.values(), Const(r.choice([0.5, 2.0]), F32)]
        return r.choice(leaves)
    a, b = factors(r, depth - 1), factors(r, depth - 1)
    match r.choice(["mul", "mul", "div", "rcp", "exp", "exp2", "tanh"]):
        case "mul" | "div" as op:
            return Op(op, (a, b), F32)
        case op:
            return Op(op, (a,), F32)


@pytest.mark.parametrize("seed", range(60))
def test_the_ratio_of_two_products(seed: int) -> None:
    r = random.Random(seed)
    e = factors(r, 3)
    form, point = product_form(e, invariant), points(r)
    assert form is not None
    found = emit_ratio(form, old, new)
    want = float(evaluate(new(e), point)) / float(evaluate(e, point))
    assert (1.0 if found is None else float(evaluate(found, point))) == pytest.approx(want, rel=1e-9)
    twice = form * form
    assert twice.key() == form.power(2).key() and (form * form.power(-1)).key() == form.power(0).key()
    assert not twice.powers or twice.positive == all(p % 2 == 0 for _, p in twice.powers)


def test_a_product_with_0_has_no_ratio() -> None:
    assert product_form(Const(0.0, F32), invariant) is None
    assert product_form(Op("mul", (VARS["x"], Const(0.0, F32)), F32), invariant) is None
    cube, square = (product_form(e, invariant) for e in (VARS["x"], Op("mul", (VARS["x"], VARS["x"]), F32)))
    assert cube and square and square.positive and not cube.positive
