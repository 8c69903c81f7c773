"""Elements of integer tensors may be any number of their type, so sums and products of them wrap."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nautilus.core.expr.infer import make
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var
from nautilus.core.index.simplify import simplify
from nautilus.core.numerics import eval_op, round_to
from nautilus.core.text.expressions import format_expr, parse_expr
from nautilus.core.types import DType

I32 = DType.I32
BUFFERS = {"X": I32, "Y": I32, "B": DType.I8}
RANGES = {"i": (0, 127), "j": (0, 4095)}


def evaluated(e: Expr, env: dict[str, int]) -> int:
    match e:
        case Const(value=v):
            return int(v)
        case Var(name=n) | Load(buffer=n):
            return env[n]
        case Op(op="select", args=(c, a, b)):
            return evaluated(a if evaluated(c, env) else b, env)
        case Op(op=op, args=args, dtype=dtype):
            values = [round_to(evaluated(a, env), a.dtype) for a in args]  # type: ignore[arg-type]
            return int(eval_op(op, values, dtype))
    raise AssertionError(e)


@st.composite
def integers(draw: st.DrawFn, depth: int = 4) -> Expr:
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        leaf = draw(st.sampled_from(["X", "Y", "B", "i", "n"]))
        if leaf == "n":
            return Const(draw(st.integers(-9, 17)), I32)
        if leaf == "i":
            return Var("i")
        load = Load(leaf, (Var("i"),), BUFFERS[leaf])
        return load if load.dtype is I32 else Op("cast", (load,), I32)
    kind = draw(st.integers(0, 6))
    a = draw(integers(depth - 1))
    if kind < 3:
        return make(draw(st.sampled_from(["add", "sub", "min", "max"])), a, draw(integers(depth - 1)))
    if kind < 5:
        op = draw(st.sampled_from(["floordiv", "mod", "mul"]))
        return make(op, a, Const(draw(st.sampled_from([2, 3, 4, 8])), I32))
    if kind == 5:
        op = draw(st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]))
        condition = make(op, a, draw(integers(depth - 1)))
        return make("select", condition, draw(integers(depth - 1)), draw(integers(depth - 1)))
    return make(draw(st.sampled_from(["neg", "abs"])), a)


VALUES = st.sampled_from([-(2**31), -(2**31) + 1, -(2**30), -77, -1, 0, 1, 5, 2**16, 2**30, 2**31 - 2, 2**31 - 1])


@settings(max_examples=200, deadline=None)
@given(integers(), VALUES, VALUES, st.integers(-128, 127), st.integers(0, 127))
def test_integers_that_wrap_keep_their_value(e: Expr, x: int, y: int, b: int, i: int) -> None:
    env = {"X": x, "Y": y, "B": b, "i": i}
    new = simplify(e, RANGES)
    assert evaluated(new, env) == evaluated(e, env), f"{format_expr(e)} became {format_expr(new)}"


@pytest.mark.parametrize(("text", "expected"), [
    ("X[i] * 2 // 2", "X[i] * 2 // 2"),
    ("X[i] + 1 > X[i]", "X[i] + 1 > X[i]"),
    ("X[i] * 2 // 3 // 2", "X[i] * 2 // 3 // 2"),
    ("(X[i] // 2 + 1073741824) // 2", "(X[i] // 2 + 1073741824) // 2"),
    ("(X[i] % 16 * 268435456 - 2147483648) // 3", "(X[i] % 16 * 268435456 - 2147483648) // 3"),
    ("(X[i] % 3 + cast<i32>(B[i])) % 3", "(X[i] % 3 + cast<i32>(B[i])) % 3"),
    ("(X[i] + 1) // 2 - X[i] // 2 < 2", "(X[i] + 1) // 2 - X[i] // 2 < 2"),
    ("X[i] % 8 * 1073741824 // 4 >= 0", "X[i] % 8 * 1073741824 // 4 >= 0"),
    ("abs(X[i]) >= 0", "abs(X[i]) >= 0"),
    ("abs(X[i] % 8 - 9) >= 0", "true"),
    ("max(X[i] + 1, X[i])", "max(X[i], X[i] + 1)"),
    ("X[i] * 2 == Y[i] * 2", "X[i] * 2 == Y[i] * 2"),
    ("(X[i] + Y[i]) - Y[i]", "X[i]"),
    ("cast<i32>(B[i]) * 2 // 2", "cast<i32>(B[i])"),
    ("cast<i32>(B[i]) + 1 > cast<i32>(B[i])", "true"),
    ("j + 0 < X[i]", "j < X[i]"),
    ("not (X[i] <= j)", "j < X[i]"),
])  # fmt: skip
def test_canonical_text_of_elements(text: str, expected: str) -> None:
    assert format_expr(simplify(parse_expr(text, BUFFERS), RANGES)) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("i < s - 5", "i + 6 <= s"),  # what stands beside a scalar is exact, and a sum with it may not be
    ("i + 6 <= s", "i + 6 <= s"),
    ("cast<i64>(i) * 1000000007i64 > 5i64", "i >= 1"),
    ("cast<i64>(i) * 1000000007i64 > cast<i64>(j)", "cast<i64>(j) < cast<i64>(i) * 1000000007i64"),
    ("cast<i64>(i) * 3i64 < cast<i64>(j)", "i * 3 < j"),
    ("cast<i64>(X[i]) + 1i64 > cast<i64>(j)", "cast<i64>(j) <= cast<i64>(X[i])"),
])  # fmt: skip
def test_canonical_text_of_wide_comparisons(text: str, expected: str) -> None:
    assert format_expr(simplify(parse_expr(text, BUFFERS, {"s": I32}), RANGES)) == expected
