"""Conditions on positions as bounds on an offset: the text holds exactly where the condition does."""

from __future__ import annotations

import random

import pytest

from nautilus.core.expr.nodes import Const, Expr, Op, Var
from nautilus.core.index.linear import Linear
from nautilus.core.types import DType
from nautilus.cuda.positions import _fits, _sum, _tree

HOLDS = {"le": int.__le__, "ge": int.__ge__}


def condition(r: random.Random, depth: int) -> Op:
    if depth == 0 or r.random() < 0.2:
        return Op(r.choice(["le", "ge"]), (Var("x"), Const(r.randint(-6, 6), DType.I32)), DType.BOOL)
    sides = condition(r, depth - 1), condition(r, depth - 1)
    return Op(r.choice(["and", "or"]), sides, DType.BOOL)


def bounds(e: Expr) -> list[Op]:
    assert isinstance(e, Op)
    return [e] if e.op in HOLDS else [x for a in e.args for x in bounds(a)]


def holds(e: Expr, x: int) -> bool:
    assert isinstance(e, Op)
    if e.op in HOLDS:
        (_, limit) = e.args
        assert isinstance(limit, Const)
        return HOLDS[e.op](x, int(limit.value))
    left, right = (holds(a, x) for a in e.args)
    return left and right if e.op == "and" else left or right


@pytest.mark.parametrize("seed", range(40))
def test_the_text_holds_where_the_condition_does(seed: int) -> None:
    e = condition(random.Random(seed), 3)
    parts = bounds(e)
    limits = [x.args[1] for x in parts]
    texts = (str(limit.value) for limit in limits if isinstance(limit, Const))
    text = _tree(e, texts, iter(x.op == "le" for x in parts)).text("x")
    for x in range(-8, 9):
        assert bool(eval(text, {"min": min, "max": max, "x": x})) == holds(e, x), (text, x)


@pytest.mark.parametrize(("terms", "text"), [
    ([(1, "a"), (-1, "b")], "a - b"),
    ([(-1, "a + b"), (2, "c")], "2 * (c) - (a + b)"),
    ([(-1, "a")], "-(a)"),
    ([], ""),
])  # fmt: skip
def test_a_sum_has_its_positive_terms_first(terms: list[tuple[int, str]], text: str) -> None:
    assert _sum(terms) == text


@pytest.mark.parametrize(("coefficient", "const", "reach", "fits"), [
    (1, 0, 0, True), (1 << 20, 0, 0, True), (1 << 22, 0, 0, False), (-(1 << 20), 0, 0, True), (-(1 << 22), 0, 0, False),
    (1, (1 << 31) - 1024, 0, True), (1, (1 << 31) - 1023, 0, False), (1, (1 << 31) - 1024, 1, False),
    (-1, -(1 << 31) + 1024, 0, True), (-1, -(1 << 31) + 1023, 0, False), (-1, -(1 << 31) + 1024, 1, False),
    (0, (1 << 31) - 1, 0, True),
])  # fmt: skip
def test_sums_of_positions_fit_32_bits(coefficient: int, const: int, reach: int, fits: bool) -> None:
    x = Linear({Var("x"): coefficient} if coefficient else {}, const)
    assert _fits(x, reach, {"x": (0, 1023)}) == fits
