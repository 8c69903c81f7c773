"""The shared text form: parse(format(e)) == e, errors with carets, work."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nautilus.core.expr.infer import DTypeError, make, reduce_dtype, result_dtype
from nautilus.core.expr.nodes import COMPARISONS, OPS, Axis, Const, Expr, Load, Op, Param, Reduce, Ref, Var
from nautilus.core.source import Source
from nautilus.core.text.expressions import ExprParser, format_expr, parse_expr
from nautilus.core.text.tokens import IRParseError, TokenStream
from nautilus.core.types import DType
from tests.cases import some
from tests.runtime.work import calls

BUFFERS = {
    "Q": DType.F16,
    "page": DType.I32,
    "X": DType.F64,
    "m": DType.F32,
    "sum": DType.F32,
    "g": DType.BOOL,
}
PARAMS = {"eps": DType.F32, "n": DType.I32}
VALUES = {"3": DType.I32, "cond": DType.BOOL, "acc.1": DType.F32}
FLOATS = st.floats(allow_nan=False) | st.just(math.nan)
TRANSCENDENTAL = sorted(
    {o for o in OPS if OPS[o] == 1} - {"not", "bit_not", "ctpop", "cast", "narrow", "neg", "abs", "sign"}
)


def leaf(dtype: DType) -> st.SearchStrategy[Expr]:
    choices: list[st.SearchStrategy[Expr]]
    match dtype:
        case DType.I32:
            choices = [
                st.builds(Const, st.integers(), st.just(dtype)),
                st.builds(Var, st.sampled_from("ijk")),
                st.just(Param("n", dtype)),
                st.just(Ref("3", dtype)),
            ]
        case DType.I64:
            choices = [st.builds(Const, st.integers(), st.just(dtype)), st.just(Var("z", dtype))]
        case DType.BOOL:
            choices = [st.builds(Const, st.booleans(), st.just(dtype)), st.just(Ref("cond", dtype))]
        case _:
            choices = [st.builds(Const, FLOATS, st.just(dtype))]
            if dtype is DType.F32:
                choices += [st.just(Param("eps", dtype)), st.just(Ref("acc.1", dtype))]
    return st.one_of(choices)


@st.composite
def exprs(draw: st.DrawFn, dtype: DType | None = None, depth: int = 3) -> Expr:
    if dtype is None:
        dtype = draw(st.sampled_from([DType.F32, DType.F64, DType.I32, DType.I64, DType.BOOL]))
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(leaf(dtype))

    def sub(d: DType) -> Expr:
        return draw(exprs(d, depth - 1))

    kind = draw(st.integers(0, 9))
    if kind == 0:
        return make("select", sub(DType.BOOL), sub(dtype), sub(dtype))
    if kind == 1:
        return make("cast", sub(draw(st.sampled_from([DType.F32, DType.I32, DType.BOOL]))), dtype=dtype)
    if dtype is DType.BOOL:
        if kind == 2:
            return make("not", sub(dtype))
        if kind < 5:
            return make(draw(st.sampled_from(["and", "or", "min"])), sub(dtype), sub(dtype))
        t = draw(st.sampled_from([DType.F32, DType.I32, DType.BOOL]))
        return make(draw(st.sampled_from(sorted(COMPARISONS))), sub(t), sub(t))
    if kind == 2:
        cond = sub(DType.BOOL) if draw(st.booleans()) else None
        body = sub(dtype)
        return Reduce("sum", (Axis("r", 128), Axis("s", Param("n", DType.I32))), cond, body, reduce_dtype("sum", dtype))
    if kind == 3:
        return make("neg", sub(dtype))
    if dtype.is_int:
        if kind == 4 and dtype is DType.I32:
            return Load("page", (sub(DType.I32), sub(DType.I32)), dtype)
        op = draw(st.sampled_from(["add", "sub", "mul", "floordiv", "mod", "min", "max", "bit_or", "shift_left"]))
        return make(op, sub(dtype), sub(dtype))
    if kind == 4:
        inner = Load(*draw(st.sampled_from([("Q", (), DType.F16), ("X", (), DType.F64)])))
        return make("cast", Load(inner.buffer, (sub(DType.I32),), inner.dtype), dtype=dtype)
    if kind == 5:
        return make(draw(st.sampled_from(TRANSCENDENTAL)), sub(dtype))
    if kind == 6:
        return make("fma", sub(dtype), sub(dtype), sub(dtype))
    return make(draw(st.sampled_from(["add", "sub", "mul", "div", "pow", "min"])), sub(dtype), sub(dtype))


@settings(max_examples=some(100, 300), deadline=None)
@given(exprs())
def test_round_trip(e: Expr) -> None:
    assert parse_expr(format_expr(e), BUFFERS, PARAMS, VALUES) == e
    assert parse_expr(format_expr(e, typed=True)) == e


@pytest.mark.parametrize(
    "text",
    [
        "a + b * c", "(a + b) * c", "a - (b - c)", "a - b - c", "a // 4 % 8", "a % (8 * b)", "-a * b",
        "-(a * b)", "-(1)", "-1", "2 - -1", "exp(-m[i])", "select(i <= j, m[i], -inf)",
        "cast<f32>(Q[b, h // 4, i, d])", "narrow<f16>(m[i])", "not (i < j and j < k) or k == 0",
        "(not g[i]) == (i < j)", "sum[j: 128 | j <= i](m[j] * 2.0)", "sum[j]", "1i64", "1.0f64", "nan",
        "inf:f64", "-inf:f64", "true", "z:i64 + 1i64", "%3 + 1", "min(n, i + 1)",
        "m[page[i] * 16 + j % 16] + eps", "1e-05", "(-1) * i", "--a", "max[j: n, k: 3](m[j])",
    ],
)  # fmt: skip
def test_stable_text(text: str) -> None:
    printed = format_expr(parse_expr(text, BUFFERS, PARAMS, VALUES))
    assert printed == text.replace("(-1)", "-1")


def test_types_are_recovered() -> None:
    e = parse_expr("cast<f32>(Q[i])", BUFFERS)
    assert e == Op("cast", (Load("Q", (Var("i"),), DType.F16),), DType.F32)
    assert parse_expr("i < 3").dtype is DType.BOOL
    assert parse_expr("n + 1", params=PARAMS) == make("add", Param("n", DType.I32), Const(1, DType.I32))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a +", "expected an expression, found the end of the text"),
        ("a + 1.0", "add takes arguments of one compute type, not i32, f32"),
        ("nope[i]", "unknown buffer 'nope'"),
        ("foo(i)", "unknown operation 'foo'"),
        ("a < b < c", "comparisons do not chain here; write 'and'"),
        ("a ? b", "unexpected character '?'"),
        ("min(a)", "min takes 2 argument(s), not 1"),
        ("%x", "unknown value 'x'"),
        ("a b", "expected the end of the text, found 'b'"),
        ("1.0i32", "the literal 1.0i32 does not have the form of i32"),
        ("(" * 100_000 + "a", "this expression is nested too deeply"),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(IRParseError) as err:
        parse_expr(text, BUFFERS)
    assert err.value.message == message


def test_caret() -> None:
    with pytest.raises(IRParseError) as err:
        TokenStream(Source("a.scalar", "kernel k {\n  local ?\n}"))
    assert str(err.value) == ("a.scalar:2:9: error[N0901]: unexpected character '?'\n 2 |   local ?\n   |         ^")


def test_token_stream() -> None:
    ts = TokenStream(Source("t", "loop i in 0..M { O[i] = Q[i] ; a comment\n}"))
    ex = ExprParser(ts, {"Q": DType.F32}, {"M": DType.I32})
    ts.expect("loop")
    assert ts.take() == "i"
    ts.expect("in")
    assert ex.expr() == Const(0, DType.I32)
    ts.expect("..")
    assert ex.expr() == Param("M", DType.I32)
    ts.expect("{")
    assert (ts.span().line, ts.token_span().column) == (1, 18)
    ts.take()
    assert ts.brackets(ex.expr) == (Var("i"),)
    ts.expect("=")
    ex.expr()
    ts.expect("}")
    ts.end()


def test_result_dtype_rejects() -> None:
    i, h = DType.I32, DType.F16
    choices = [("select", [i, i, i]), ("select", [DType.BOOL, i, DType.F32])]
    for op, args in [("exp", [i]), ("add", [h, h]), ("and", [i, i]), ("zap", []), *choices]:
        with pytest.raises(DTypeError):
            result_dtype(op, args)


def test_work_of_a_line() -> None:
    value = "select(j - i <= 0, cast<f32>(Q[b, h // 4, i, d]) * 0.125 + m[i] * exp(m[j] - m[i]), -inf)"
    line = f"S[b, h, i, j] = {value}\n"
    count = 300
    parsed: list[tuple[Expr, Expr]] = []
    printed: list[str] = []

    def parse() -> None:
        ts = TokenStream(Source("t", line * count))
        ex = ExprParser(ts, BUFFERS | {"S": DType.F32})
        for _ in range(count):
            target = ex.expr()
            ts.expect("=")
            parsed.append((target, ex.expr()))

    assert calls(parse) < 1300 * count
    assert calls(lambda: printed.extend(f"{format_expr(a)} = {format_expr(b)}\n" for a, b in parsed)) < 400 * count
    assert "".join(printed) == line * count
