"""Selects that become guards leave every sum and extreme as it is, and conditions of presence name the other values."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from nautilus.core.expr.conditions import TRUE
from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Var, identity
from nautilus.core.text.expressions import format_expr, parse_expr
from nautilus.core.types import DType
from nautilus.scalar.analysis.masking import (
    Presence,
    absorb_selects,
    certainly_in_range,
    guarded_terms,
    negation,
    presence,
    scope_facts,
    without_short_circuits,
    zero_outside,
)

F32 = DType.F32
POINTS: dict[str, Any] = dict(zip("ab", np.meshgrid(np.arange(-2, 3), np.arange(-2, 3)), strict=True))
NUMBERS = {"x": 0.75, "y": -1.5}
WORDS = ("sum", "max", "min", "prod")


def parsed(text: str) -> Expr:
    return parse_expr(text, {"X": F32, "Y": F32, "H": DType.F16, "n": DType.I32})


def values(e: Expr | None) -> Any:
    return np.broadcast_to(True if e is None else evaluate(e, POINTS | NUMBERS, lambda _: 3.25), (5, 5))


class Terms:
    """Random terms of a reduction, with selects of its identity anywhere."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)

    def condition(self) -> Expr:
        op = self.r.choice(["lt", "ge", "eq"])
        e = Op(op, (Var(self.r.choice("ab")), Const(self.r.randint(-2, 2), DType.I32)), DType.BOOL)
        return Op("not", (e,), DType.BOOL) if self.r.random() < 0.3 else e

    def term(self, depth: int, empty: float) -> Expr:
        r = self.r
        if depth == 0:
            choices: list[Expr] = [Var("x", F32), Var("y", F32), Const(2.0, F32)]
            return r.choice(choices)
        match r.choice(["select", "other", "mul", "div", "neg", "cast", "chosen"]):
            case "select":
                sides = [self.term(depth - 1, empty), Const(empty, F32)]
                r.shuffle(sides)
                return Op("select", (self.condition(), *sides), F32)
            case "other" | "chosen":
                return Op("select", (self.condition(), self.term(depth - 1, empty), self.term(depth - 1, empty)), F32)
            case "neg":
                return Op("neg", (self.term(depth - 1, empty),), F32)
            case "cast":
                return Op("cast", (Op("cast", (self.term(depth - 1, empty),), DType.F64),), F32)
            case "mul":
                return Op("mul", (self.term(depth - 1, empty), self.term(depth - 1, empty)), F32)
            case op:
                return Op(op, (self.term(depth - 1, empty), Const(4.0, F32)), F32)


@pytest.mark.parametrize("op", WORDS)
def test_terms_and_their_guards_have_the_values(op: str) -> None:
    empty = float(identity(op, F32).value)
    guarded = 0
    for seed in range(150):
        e = Terms(seed).term(3, empty)
        for value, guard in (absorb_selects(op, e, None), guarded_terms(op, e, {})):
            with np.errstate(all="ignore"):
                found = np.where(values(guard).astype(bool), values(value), empty)
                assert np.array_equal(found, values(e), equal_nan=True) or not np.isfinite(values(e)).all(), (seed, op)
            guarded += guard is not None
    assert guarded > 40


def test_a_guard_that_is_there_stays() -> None:
    value, guard = absorb_selects("sum", parsed("select(a < 1, X[a], 0.0) * Y[b]"), parsed("b < 2"))
    assert (format_expr(value), guard and format_expr(guard)) == ("X[a] * Y[b]", "b < 2 and a < 1")
    value, guard = absorb_selects("max", parsed("select(a < 1, X[a], 0.0)"), None)
    assert guard is None and format_expr(value) == "select(a < 1, X[a], 0.0)", "0 is no identity of a maximum"


@pytest.mark.parametrize("what", [0.0, math.inf, -math.inf])
def test_where_the_condition_of_presence_is_false_the_value_is_structural(what: float) -> None:
    conditions = 0
    for seed in range(200):
        e = Terms(seed).term(3, what)
        cond = presence(e, {}, what)
        if cond is not None:
            conditions += 1
            absent = ~values(cond).astype(bool)
            with np.errstate(all="ignore"):
                assert np.array_equal(values(e)[absent], np.full(absent.sum(), what)), (seed, format_expr(e))
    assert conditions > 30


@pytest.mark.parametrize(("text", "what", "found"), [
    ("select(a < 1, X[a], 0.0)", 0.0, "a < 1"),
    ("select(a < 1, 0.0, X[a])", 0.0, "not a < 1"),
    ("select(not a < 1, 0.0, X[a])", 0.0, "a < 1"),
    ("select(a < 1, X[a], X[b])", 0.0, None),
    ("select(a < 1, select(b < 1, X[a], 0.0), X[b])", 0.0, "select(a < 1, b < 1, true)"),
    ("select(a < 1, X[a], Y[b])", 0.0, "select(a < 1, true, b < 2)"),
    ("select(a < 1, X[b], select(b < 1, X[a], 0.0))", 0.0, "select(a < 1, true, b < 1)"),
    ("select(a < 1, select(b < 1, X[a], 0.0), 0.0)", 0.0, "a < 1 and b < 1"),
    ("X[a] * select(b < 1, X[a], 0.0)", 0.0, "b < 1"),
    ("X[a] + select(b < 1, X[a], 0.0)", 0.0, None),
    ("cast<f32>(a < 1)", 0.0, "a < 1"),
    ("cast<f32>(a < 1)", -math.inf, None),
    ("cast<f16>(select(a < 1, X[a], -inf))", -math.inf, "a < 1"),
    ("cast<f8e4m3>(select(a < 1, X[a], -inf))", -math.inf, None),  # which has no infinity
    ("cast<f8e4m3>(select(a < 1, X[a], 0.0))", 0.0, "a < 1"),
    ("X[a]", 0.0, None),
    ("Y[b]", 0.0, "b < 2"),
    ("Y[b + 1]", 0.0, "b + 1 < 2"),
    ("Y[b]", -math.inf, None),
])  # fmt: skip
def test_presence(text: str, what: float, found: str | None) -> None:
    known = {("Y", 0.0): Presence(("i",), parse_expr("i < 2"))}
    cond = presence(parsed(text), known, what)
    assert (None if cond is None else format_expr(cond)) == found


def test_operands_of_an_addition_are_conditional_expressions() -> None:
    value, guard = guarded_terms("sum", parsed("select(a < 1, X[a], 0.0) * Y[b] - Y[a]"), {})
    assert guard is None and format_expr(value) == "select(a < 1, X[a] * Y[b], 0.0) - Y[a]"
    known = {("X", -math.inf): Presence(("i",), parse_expr("i < 2"))}
    assert guarded_terms("max", parsed("X[a]"), known)[1] == parse_expr("a < 2")
    assert guarded_terms("min", parsed("X[a]"), known)[1] is None
    assert guarded_terms("any", parsed("X[a]"), known)[1] is None


def test_negations() -> None:
    e = parsed("a < 1")
    assert negation(negation(e)) == e and negation(e) == Op("not", (e,), DType.BOOL)


SHAPES = {"X": (4,), "Y": (4, 3), "n": (5,)}


@pytest.mark.parametrize(("text", "inside"), [
    ("X[i]", True), ("X[i + 1]", False), ("X[i - 1]", False), ("select(i < 3, X[i + 1], 0.0)", True),
    ("select(i < 4, X[i + 1], 0.0)", False), ("select(i >= 1, X[i - 1], 0.0)", True), ("X[j]", False),
    ("select(j < 4, X[j], 0.0)", True), ("select(j < 4, X[i], X[j])", False), ("Y[i, j]", False),
    ("Y[i, j // 2]", True), ("X[n[i]]", False), ("select(X[i + 1] < 0.0, 1.0, 2.0)", False),
    ("X[i] + X[j]", False), ("2.0", True),
])  # fmt: skip
def test_reads_in_range(text: str, inside: bool) -> None:
    e = parsed(text)
    assert certainly_in_range(e, SHAPES, {"i": 4, "j": 6}) == inside
    assert certainly_in_range(parsed("X[j]"), SHAPES, {"j": 6}, [parsed("j < 4")])
    outside = zero_outside(e, SHAPES, {"i": 4, "j": 6})
    assert certainly_in_range(outside, SHAPES, {"i": 4, "j": 6})
    assert isinstance(e, Op) or outside == e or not inside


def test_sizes_known_at_launch_are_facts() -> None:
    n = Param("n", DType.I32)
    ranges, facts = scope_facts({"i": 4, "j": n})
    assert ranges["i"] == (0, 3) and ranges["j"][0] == 0 and ranges["j"][1] > 3
    assert [format_expr(f) for f in facts] == ["j < n"]
    assert certainly_in_range(parsed("X[j]"), {"X": (n,)}, {"j": n})
    assert not certainly_in_range(parsed("X[j + 1]"), {"X": (n,)}, {"j": n})


def test_conditions_that_may_be_evaluated_everywhere_lose_their_order() -> None:
    free, bound = parsed("select(i < 2, X[i] > 0.0, false)"), parsed("select(i < 2, X[i + 2] > 0.0, false)")
    found = without_short_circuits(free, SHAPES, {"i": 4})
    assert found is not None and format_expr(found) == "i < 2 and X[i] > 0.0"
    assert without_short_circuits(bound, SHAPES, {"i": 4}) == bound
    assert without_short_circuits(None, SHAPES, {"i": 4}) in (None, TRUE)
    assert isinstance(parsed("X[i]"), Load)
