"""Integer simplification, intervals and divisibility against brute-force evaluation."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.infer import make
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Var
from nautilus.core.index.linear import Linear
from nautilus.core.index.simplify import TRUE, _Simplifier, affine, bounds, divisible_by, divisor, linear_in, simplify
from nautilus.core.text.expressions import format_expr, parse_expr
from nautilus.core.types import DType
from tests.cases import some
from tests.runtime.work import calls

I32, BOOL = DType.I32, DType.BOOL
POINT = Mapping[str, int]


def evaluate(e: Expr, env: POINT) -> int:
    match e:
        case Const(value=v):
            return int(v)
        case Var(name=n):
            return env[n]
        case Op(op="select", args=(c, a, b)):
            return evaluate(a, env) if evaluate(c, env) else evaluate(b, env)
        case Op(op=op, args=args):
            return int(_PYTHON[op](*(evaluate(a, env) for a in args)))
    raise AssertionError(e)


_PYTHON: dict[str, Callable[..., int | bool]] = {
    "add": int.__add__, "sub": int.__sub__, "mul": int.__mul__, "neg": int.__neg__, "abs": abs,
    "floordiv": int.__floordiv__, "mod": int.__mod__, "min": min, "max": max,
    "lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__,
    "eq": int.__eq__, "ne": int.__ne__,
    "and": lambda a, b: a and b, "or": lambda a, b: a or b, "not": lambda a: not a,
}  # fmt: skip


@st.composite
def integers(draw: st.DrawFn, depth: int = 4) -> Expr:
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        if draw(st.booleans()):
            return Var(draw(st.sampled_from("ijk")))
        return Const(draw(st.integers(-9, 17)), I32)
    kind = draw(st.integers(0, 11))
    a = draw(integers(depth - 1))
    if kind < 4:
        return make(draw(st.sampled_from(["add", "sub"])), a, draw(integers(depth - 1)))
    if kind < 8:
        op = draw(st.sampled_from(["floordiv", "mod", "mul"]))
        return make(op, a, Const(draw(st.sampled_from([1, 2, 3, 4, 6, 8, 16])), I32))
    if kind == 8:
        return make(draw(st.sampled_from(["min", "max"])), a, draw(integers(depth - 1)))
    if kind == 9:
        return make("select", draw(conditions(depth - 1)), a, draw(integers(depth - 1)))
    if kind == 10:
        return make("mul", a, draw(integers(depth - 1)))
    return make(draw(st.sampled_from(["neg", "abs"])), a)


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3) -> Expr:
    kind = draw(st.integers(0, 6 if depth else 3))
    if kind < 4:
        op = draw(st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]))
        return make(op, draw(integers(max(0, depth - 1))), draw(integers(max(0, depth - 1))))
    if kind == 4:
        return make("not", draw(conditions(depth - 1)))
    return make(draw(st.sampled_from(["and", "or"])), draw(conditions(depth - 1)), draw(conditions(depth - 1)))


RANGES = st.fixed_dictionaries(
    {v: st.tuples(st.integers(-4, 4), st.integers(0, 5)).map(lambda t: (t[0], t[0] + t[1])) for v in "ijk"}
)


def points(ranges: Mapping[str, tuple[int, int]]) -> list[POINT]:
    return [
        dict(zip(ranges, p, strict=True)) for p in itertools.product(*(range(lo, hi + 1) for lo, hi in ranges.values()))
    ]


@settings(max_examples=some(130, 400), deadline=None)
@given(integers(), RANGES)
def test_integers_keep_their_value_and_bounds_hold(e: Expr, ranges: dict[str, tuple[int, int]]) -> None:
    new = simplify(e, ranges)
    lo, hi = bounds(e, ranges)
    n = divisor(new)
    for p in points(ranges):
        v = evaluate(e, p)
        assert evaluate(new, p) == v, format_expr(new)
        assert (lo is None or lo <= v) and (hi is None or v <= hi)
        assert v == 0 if n == 0 else v % n == 0


@settings(max_examples=300, deadline=None)
@given(conditions(), conditions(2), RANGES)
def test_conditions_keep_their_value_under_facts(e: Expr, fact: Expr, ranges: dict[str, tuple[int, int]]) -> None:
    new = simplify(e, ranges, [fact])
    for p in points(ranges):
        if evaluate(fact, p):
            assert bool(evaluate(new, p)) == bool(evaluate(e, p)), format_expr(new)


@settings(max_examples=200, deadline=None)
@given(integers(2), integers(2), conditions(2), RANGES)
def test_bounds_under_facts(a: Expr, b: Expr, fact: Expr, ranges: dict[str, tuple[int, int]]) -> None:
    e = make("sub", a, b)
    lo, hi = bounds(e, ranges, [fact])
    for p in points(ranges):
        if evaluate(fact, p):
            v = evaluate(e, p)
            assert (lo is None or lo <= v) and (hi is None or v <= hi)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i + j - i", "j"),
        ("(t * 16 + s) // 16", "t"),
        ("(t * 16 + s) % 16", "s"),
        ("(t * 16 + s) // 8", "t * 2 + s // 8"),
        ("(t * 8 + w) // 16 * 16 + (t * 8 + w) % 16", "t * 8 + w"),
        ("(t * 8 + w) // 32", "t // 4"),
        ("i // 4 // 8", "i // 32"),
        ("i % 64 % 16", "i % 16"),
        ("i - i // 8 * 8", "i % 8"),
        ("i // 8 * 8 + i % 8", "i"),
        ("i - i % 8", "i // 8 * 8"),
        ("(2 * i + 4) % 5 - 2 * i", "(i * 2 + 4) // 5 * -5 + 4"),
        ("min(s, 20)", "s"),
        ("max(s, i)", "max(i, s)"),
        ("s < 16", "true"),
        ("s >= 16", "false"),
        ("2 * t + 1 == 2 * i", "false"),
        ("i - j <= 0", "i <= j"),
        ("i < j + 1", "i <= j"),
        ("not (i < j)", "j <= i"),
        ("4 * i < 4 * j", "i < j"),
        ("i * 64 + s < 4096", "i * 64 + s < 4096"),
        ("i < 8 and i < 16", "i < 8"),
        ("i < 8 or i >= 8", "true"),
        ("select(i < j, min(i, j), i)", "select(i < j, i, i)"),
        ("(j * 1099511627776 + s) // 1099511627776", "j"),
        ("i * j - j * i", "0"),
        ("-(i - j)", "j - i"),
        ("one", "5"),
    ],
)
def test_canonical_text(text: str, expected: str) -> None:
    ranges = {"s": (0, 15), "w": (0, 7), "one": (5, 5)}
    got = format_expr(simplify(parse_expr(text), ranges))
    assert got == {"select(i < j, i, i)": "i"}.get(expected, expected)


def test_guards_prove_accesses() -> None:
    ranges = {"i": (0, 9), "k": (0, 2)}
    assert bounds(parse_expr("i + k"), ranges) == (0, 11)
    assert bounds(parse_expr("i + k"), ranges, [parse_expr("i + k < 10")]) == (0, 9)
    assert bounds(parse_expr("i + k - 1"), ranges, [parse_expr("i + k >= 1 and i + k - 1 < 10")]) == (0, 9)
    assert bounds(parse_expr("select(i + k < 10, i + k, 0)"), ranges) == (0, 9)
    causal = parse_expr("j <= i")
    assert bounds(parse_expr("j - i"), {"i": (0, 63), "j": (0, 99)}, [causal])[1] == 0


def test_affine_and_linear_in() -> None:
    x = affine(parse_expr("3 * i - (j + 2) * 4 + n", params={"n": I32}))
    assert x is not None and (x.coeff("i"), x.coeff("j"), x.coeff("n"), x.const) == (3, -4, 1, -8)
    assert affine(parse_expr("i // 4")) is None
    assert linear_in(parse_expr("i * 3 + j // 2"), "i") == (3, parse_expr("j // 2"))
    assert linear_in(parse_expr("i // 3"), "i") is None
    assert linear_in(parse_expr("j"), "i") == (0, Var("j"))


def test_divisibility() -> None:
    assert divisible_by(parse_expr("i * 64 + j * 8"), 8)
    assert divisible_by(parse_expr("min(i * 16, 32) + (j * 8) % 16"), 8)
    assert not divisible_by(parse_expr("i * 64 + j"), 8)
    assert divisible_by(parse_expr("(i * 4) * (j * 4)"), 16)


def test_large_sizes() -> None:
    n = 2**40
    assert bounds(parse_expr(f"i * {n} + j"), {"i": (0, n - 1), "j": (0, n - 1)}) == (0, n * n - 1)
    assert simplify(parse_expr(f"i < {n}"), {"i": (0, n - 1)}) == Const(True, BOOL)


def test_work_of_a_simplification() -> None:
    e = parse_expr("((b * 32 + h) * 4096 + (t * 128 + s)) * 128 + (w * 8 + d) % 128 + (t * 128 + s) // 128")
    ranges = {"b": (0, 3), "h": (0, 31), "t": (0, 31), "s": (0, 127), "w": (0, 15), "d": (0, 7)}
    assert calls(lambda: simplify(e, ranges)) < 3000


def test_many_facts_about_nested_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conditions of loops in uneven groups: each pair of facts asks for the same atoms again."""
    own = "(c % 4 * -16 + 63) // 64 + c // 4 + 1"
    most = f"min(min((-(c % 4) + 1) // 4 + 2, (c % 4 * -16 + 22) // 64 + 2), {own})"
    least = f"max(c // 4 - (c % 4 * 16 + 15) // 64, min({most}, (c % 4 * -16 + 7) // 64 + 2))"
    at = "(j0 * 4 + c % 4) * 16 + j"
    e = parse_expr(f"{at} < 87 and c // 4 * 64 <= {at} and {at} < c // 4 * 64 + 64")
    given = [parse_expr(f"j0 >= {least}"), parse_expr(f"j0 < {most}")]
    asked = [0]
    plain = _Simplifier._plain

    def counted(self: _Simplifier, x: Linear) -> tuple[int | None, int | None]:
        asked[0] += 1
        return plain(self, x)

    monkeypatch.setattr(_Simplifier, "_plain", counted)
    found = simplify(e, {"c": (0, 11), "j": (0, 15), "j0": (1, 2)}, given)
    assert asked[0] < 5000  # 50000 where nothing is kept
    for env in ({"c": c, "j": j, "j0": j0} for c in range(12) for j in (0, 9, 15) for j0 in (1, 2)):
        if all(evaluate(g, env) for g in given):
            assert evaluate(found, env) == evaluate(e, env)


def test_equal_questions_have_one_answer() -> None:
    """Variants of one kernel ask the same about expressions that are equal, but not the same objects."""
    ranges = {"i": (0, 63), "j": (0, 63)}

    def answer() -> Expr:
        return simplify(parse_expr("(i + 1) * 4 // 8 + j % 2 * 3"), ranges, [parse_expr("i < j")])

    assert answer() is answer()


def test_equal_questions_about_other_sizes_have_other_answers() -> None:
    i = Var("i")

    def below(most: int) -> Expr:
        size = Param("N", I32, most=most)
        return simplify(make("lt", i, Const(16, I32)), {}, [make("ge", i, Const(0, I32)), make("lt", i, size)])

    assert below(16) == Const(True, BOOL)
    assert below(17) != Const(True, BOOL)


def test_answers_keep_the_sign_of_zero() -> None:
    def zero(value: float) -> Expr:
        return make("select", parse_expr("i + 1 < 5 + 2"), Const(value, DType.F32), Const(1.0, DType.F32))

    assert [str(simplify(zero(x)).args[1].value) for x in (0.0, -0.0)] == ["0.0", "-0.0"]  # type: ignore[union-attr]


def test_sizes_of_one_name_with_other_facts_are_simplified_apart() -> None:
    short, long = (Param("N", DType.I32, most=most) for most in (512, 4096))
    facts = (make("lt", Var("i"), Var("j")),)
    for size, holds in ((short, True), (long, False), (short, True)):
        e = make("le", size, Const(1000, DType.I32))
        assert (simplify(e, {"i": (0, 7)}, facts) == TRUE) is holds
        assert bounds(size, {"i": (0, 7)}, facts) == (0, size.most)


@pytest.mark.parametrize(
    ("op", "number", "expected"),
    [("le", 2**31 - 1, "true"), ("gt", 2**31 - 1, "false"), ("lt", 2**31 - 1, "n[0] < 2147483647"),
     ("lt", -(2**31), "n[0] < -2147483648")],
)  # fmt: skip
def test_no_element_is_compared_with_a_number_beyond_its_type(op: str, number: int, expected: str) -> None:
    n = Load("n", (integer(0),), DType.I32)
    assert format_expr(simplify(calc(op, n, number))) == expected


def test_nested_choices_are_simplified_under_few_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of sets of conditions under which parts are simplified does not grow with the paths to them."""
    made = 0
    init = _Simplifier.__init__

    def counting(*args: Any, **options: Any) -> None:
        nonlocal made
        made += 1
        init(*args, **options)

    monkeypatch.setattr(_Simplifier, "__init__", counting)
    i, j, m = Var("i"), Var("j"), Param("M", DType.I32, most=4096, least=1)

    def block(x: Expr) -> Expr:
        for n in range(3):
            x = calc("select", calc("ge", x, calc("add", m, n)), calc("sub", x, m), x)
        return calc("floordiv", x, 32)

    noisy, clean = calc("lt", i, m), calc("ge", j, m)
    both = calc("and", calc("and", noisy, clean), calc("gt", block(i), block(j)))
    simplify(calc("or", both, calc("eq", block(i), block(j))), {"i": (0, 8191), "j": (0, 8191)})
    assert made < 400
