"""Linear forms: equality, and ``divided``, whose result is right for every integer."""

from __future__ import annotations

from itertools import product

import pytest

from nautilus.core.expr.nodes import Const, Expr, Op, Var
from nautilus.core.index.linear import Linear, atom, build, constant, divide, divided, linear
from nautilus.core.types import DType

A = Var("i")
B = Var("j")


def op(name: str, a: Expr, b: Expr | int) -> Op:
    return Op(name, (a, Const(b, DType.I32) if isinstance(b, int) else b), DType.I32)


def value(e: Expr, env: dict[str, int]) -> int:
    match e:
        case Const(value=v):
            return int(v)
        case Var(name=name):
            return env[name]
        case Op(op="neg" | "cast" as name, args=(a,)):
            return -value(a, env) if name == "neg" else value(a, env)
        case Op(op=name, args=(a, b)):
            x, y = value(a, env), value(b, env)
            table = {"add": x + y, "sub": x - y, "mul": x * y}
            return table[name] if name in table else x // y if name == "floordiv" else x % y
    raise AssertionError(e)


def test_forms_that_are_equal_have_one_hash() -> None:
    a, b = atom(A) + atom(B).scale(2), atom(B).scale(2) + atom(A)
    assert a == b and hash(a) == hash(b)
    assert len({a, b, a.shift(1)}) == 2


def test_slope_counts_the_variable_alone() -> None:
    x = linear(op("add", op("mul", A, 3), op("floordiv", A, 4)))
    assert x.slope("i") == 3 and x.slope("j") == 0
    assert x.without(A).slope("i") == 0 and len(x.without(A).terms) == 1


def test_divide_takes_multiples_out() -> None:
    x = Linear({A: 8, B: 1}, 19)
    assert divide(x, 8, DType.I32) == atom(A).shift(2) + atom(op("floordiv", op("add", B, 3), 8))
    assert divide(constant(-1), 8, DType.I32) == constant(-1)


@pytest.mark.parametrize("expand_mod", [False, True])
def test_divided_has_the_same_value(expand_mod: bool) -> None:
    wide = Op("cast", (op("floordiv", op("add", op("mul", A, 6), B), 4),), DType.I64)
    e = op("sub", op("mod", op("add", op("mul", A, 8), op("sub", B, 3)), 4), op("mul", wide, 2))
    form = build(divided(e, expand_mod=expand_mod), DType.I32)
    points = [{"i": i, "j": j} for i, j in product(range(-9, 9), repeat=2)]
    assert all(value(form, at) == value(e, at) for at in points)


def test_expanded_remainders_show_the_slope() -> None:
    e = op("mod", A, 8)
    assert divided(e).slope("i") == 0
    assert divided(e, expand_mod=True).slope("i") == 1
