"""The engine for expressions of indices proves what ``divide-floors`` does, and no tampered rewrite."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from nautilus.check.certificates.places import misplaced
from nautilus.check.certificates.rules import check
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Expr, Op, Var, rewrite
from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.roundings.divide_floors import DivideFloors

_VALUES = {
    "position": "X[i32(floor(f32(i) * 0.5 + 0.25))]",
    "weight": "f32(i) * 0.75 - floor(f32(i) * 0.75)",
    "two axes": "X[i32(max(ceil(f32(i) / 4 - f32(j) * 0.5), 0))]",
}


@cache
def _divided(name: str) -> tuple[Program, Program, Certificate]:
    text = f"input X: f32[11]\noutput O: f32[20, 3]\nO[i, j] = {_VALUES[name]}"
    program = lower(load_text(text))
    made, (found,) = DivideFloors().derive(program)
    return program, made, found


@pytest.mark.parametrize("name", _VALUES)
def test_a_division_is_proved_and_stands_in_both_programs(name: str) -> None:
    before, after, c = _divided(name)
    assert check(c).status == "proved"
    assert misplaced(c, before, after) == ""
    assert misplaced(c, after, after) != ""


def _number_changed(e: Expr) -> Expr:
    """``e`` with another divisor, or another scale."""

    def put(n: Expr) -> Expr | None:
        return replace(n, value=n.value * 2) if isinstance(n, Const) and n.value in (2, 4, 0.25) else None

    return rewrite(e, put)


@pytest.mark.parametrize("name", _VALUES)
def test_another_number_is_refuted(name: str) -> None:
    _, _, c = _divided(name)
    assert _number_changed(c.after) != c.after
    assert check(replace(c, after=_number_changed(c.after))).status == "refuted"


def test_a_rounded_number_and_the_sign_of_zero_are_refuted() -> None:
    _, _, c = _divided("position")
    i = Var("i")
    real = Op("cast", (i,), DType.F32)
    tenth = Op("floor", (Op("mul", (real, Const(0.1, DType.F32)), DType.F32),), DType.F32)
    thirds = Op("floor", (Op("div", (real, Const(0.1, DType.F32)), DType.F32),), DType.F32)
    ten = Op("cast", (calc("mul", i, 10),), DType.F32)
    minus = Op("floor", (Op("mul", (real, Const(-0.0, DType.F32)), DType.F32),), DType.F32)
    zero = Op("cast", (calc("mul", i, 0),), DType.F32)
    assert check(replace(c, before=tenth, after=Op("cast", (calc("floordiv", i, 10),), DType.F32))).status == "proved"
    assert check(replace(c, before=thirds, after=replace(ten, args=(calc("mul", i, 9),)))).status == "refuted"
    assert check(replace(c, before=minus, after=zero)).status == "refuted"


def test_a_variable_without_a_range_and_an_integer_that_overflows_are_not_decided() -> None:
    _, _, c = _divided("position")
    assert check(replace(c, conditions=())).status == "not decided"
    big = calc("mul", calc("add", Var("i"), 1), 1 << 31)
    assert check(replace(c, before=big, after=big)).status == "not decided"
