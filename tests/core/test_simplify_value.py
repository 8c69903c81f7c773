"""Value simplification: the text of each rule, and the value on random and special inputs."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nautilus.core.expr.infer import make
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Var, walk
from nautilus.core.expr.simplify import simplify_value, widens
from nautilus.core.numerics import Array, eval_op
from nautilus.core.text.expressions import format_expr, parse_expr
from nautilus.core.types import DType
from tests.cases import some

F32 = DType.F32
BUFFERS = {"Q": DType.F16, "X": F32, "I": DType.I8, "N": DType.I32}
PARAMS = {"x": F32, "y": F32, "c": DType.BOOL}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x * 1.0", "x"),
        ("pow(x, 0.0)", "1.0"),
        ("pow(x, cast<f32>(2))", "x * x"),
        ("x + cast<f32>(16777217)", "x + cast<f32>(16777217)"),
        ("1.0 * x", "x"),
        ("x + 0.0", "x"),
        ("x - 0.0", "x"),
        ("0.0 - x", "-x"),
        ("x * 0.0", "x * 0.0"),
        ("x - x", "x - x"),
        ("x / 4.0", "x * 0.25"),
        ("x / 0.0", "x / 0.0"),
        ("x * 2.0 * 3.0", "x * 6.0"),
        ("--x", "x"),
        ("x + -y", "x - y"),
        ("x - -y", "x + y"),
        ("-(x - y)", "y - x"),
        ("-x * -y", "x * y"),
        ("-(x * 2.0)", "x * -2.0"),
        ("select(true, x, y)", "x"),
        ("select(c, x, x)", "x"),
        ("select(not c, x, y)", "select(c, y, x)"),
        ("c and true", "c"),
        ("c and false", "false"),
        ("c or true", "true"),
        ("not not c", "c"),
        ("max(x, -inf)", "x"),
        ("max(-inf, x)", "x"),
        ("min(x, x)", "x"),
        ("max(x, inf)", "max(x, inf)"),
        ("pow(x, 2.0)", "x * x"),
        ("pow(x, 3.0)", "x * x * x"),
        ("pow(x, 4.0)", "x * x * (x * x)"),
        ("pow(x, 0.5)", "select(x == -inf, inf, sqrt(x))"),
        ("pow(x, 0.25)", "pow(x, 0.25)"),
        ("pow(x, -2.0)", "pow(x, -2.0)"),
        ("pow(x, 17.0)", "pow(x, 17.0)"),
        ("cast<f32>(x)", "x"),
        ("cast<f32>(cast<i32>(I[0]) * cast<i32>(I[1]))", "cast<f32>(I[0]) * cast<f32>(I[1])"),
        ("cast<f32>(cast<i32>(I[0]) * 3)", "cast<f32>(cast<i32>(I[0]) * 3)"),
        ("cast<f32>(N[0] * N[1])", "cast<f32>(N[0] * N[1])"),
        ("cast<f16>(cast<f32>(Q[0]))", "Q[0]"),
        ("cast<f64>(cast<f32>(Q[0]))", "cast<f64>(Q[0])"),
        ("cast<f32>(cast<f16>(x))", "cast<f32>(cast<f16>(x))"),
        ("cast<f32>(cast<i32>(I[0]))", "cast<f32>(I[0])"),
        ("2.0 * 3.0 + 1.0", "7.0"),
        ("sqrt(4.0)", "2.0"),
        ("expm1(x) + 1.0", "exp(x)"),
        ("1.0 + select(c, 2.0, expm1(x))", "select(c, 3.0, exp(x))"),
        ("select(c, x, y) + 1.0", "select(c, x, y) + 1.0"),
        ("expm1(x) + 2.0", "expm1(x) + 2.0"),
        ("1.0 < 2.0", "true"),
        ("exp(1000.0)", "exp(1000.0)"),
        ("1.0 / 0.0", "1.0 / 0.0"),
        ("not (x < y)", "not x < y"),
    ],
)
def test_rules(text: str, expected: str) -> None:
    assert format_expr(simplify_value(parse_expr(text, BUFFERS, PARAMS))) == expected


@st.composite
def values(draw: st.DrawFn, depth: int = 4) -> Expr:
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        if draw(st.booleans()):
            return Param(draw(st.sampled_from("xy")), F32)
        return Const(draw(st.sampled_from([0.0, 1.0, -1.0, 2.0, 0.5, 4.0, -np.inf, np.inf])), F32)
    op = draw(st.sampled_from(["add", "sub", "mul", "div", "neg", "max", "min", "select", "abs"]))
    a = draw(values(depth - 1))
    if op in ("neg", "abs"):
        return make(op, a)
    b = draw(values(depth - 1))
    if op == "select":
        cond = make(draw(st.sampled_from(["lt", "eq"])), draw(values(depth - 1)), draw(values(depth - 1)))
        return make(op, make("not", cond) if draw(st.booleans()) else cond, a, b)
    return make(op, a, b)


def run(e: Expr, env: dict[str, Array]) -> Array:
    match e:
        case Const(value=v):
            return np.asarray(v)
        case Param(name=n):
            return env[n]
        case Op(op=op, args=args, dtype=t):
            return eval_op(op, [run(a, env) for a in args], t)
    raise AssertionError(e)


def by_computed_zero(e: Expr, env: dict[str, Array]) -> Array:
    """Whether the expression divides by a zero whose sign depends on the way of its computation."""
    found = np.zeros(env["x"].shape, bool)
    if isinstance(e, Op):
        for a in e.args:
            found |= by_computed_zero(a, env)
        if e.op == "div" and isinstance(e.args[1], Op):
            found |= run(e.args[1], env) == 0.0
    return found


@settings(max_examples=some(100, 300), deadline=None)
@given(values())
@example(parse_expr("max(0.0, 1.0 / (0.0 + (0.0 - x)))", BUFFERS, PARAMS))
def test_value_is_kept(e: Expr) -> None:
    specials = np.array([0.0, 1.0, -2.0, 3.5, np.inf, -np.inf, np.nan])
    x, y = (a.ravel() for a in np.meshgrid(specials, specials))
    env = {"x": x, "y": y}
    a, b, _ = np.broadcast_arrays(run(e, env), run(simplify_value(e), env), x)
    # the sign of a zero is not part of the reals, and 1 / 0 shows it
    sure = ~by_computed_zero(e, env)
    nan = np.isnan(a)
    assert (np.isnan(b) == nan)[sure].all()
    close = (a == b) | np.isclose(a, b, rtol=1e-12, atol=1e-300)
    assert (nan | close)[sure].all()


def test_widens() -> None:
    assert widens(DType.F16, F32) and not widens(F32, DType.F16) and not widens(DType.I32, F32)


def test_powers_of_powers_do_not_grow_without_a_bound() -> None:
    e: Expr = Param("x", F32)
    for _ in range(20):
        e = Op("pow", (e, Const(3.0, F32)), F32)
    assert sum(1 for _ in walk(simplify_value(e))) < 500


def test_a_power_too_large_for_memory_is_left_to_run_time() -> None:
    big = Op("pow", (Const(9, DType.I32), Const(387_420_489, DType.I32)), DType.I32)
    assert simplify_value(big) == big
    float_ = Op("pow", (Const(2.0, F32), Const(100_000.0, F32)), F32)
    assert simplify_value(float_) == float_


def test_a_division_stays_where_its_last_bit_decides() -> None:
    """91 / 14 is 6.5, a tie; 91 * (1 / 14) is not."""
    x, c = Load("X", (Var("i"),), DType.F32), Const(14.0, DType.F32)
    quotient = Op("div", (x, c), DType.F32)
    assert simplify_value(Op("round", (quotient,), DType.F32)) == Op("round", (quotient,), DType.F32)
    assert "div" not in {n.op for n in walk(simplify_value(quotient)) if isinstance(n, Op)}
    root = Op("div", (Op("sqrt", (x,), DType.F32), c), DType.F32)  # has a rounding of its own
    assert "div" not in {n.op for n in walk(simplify_value(Op("round", (root,), DType.F32))) if isinstance(n, Op)}
    top = Op("eq", (quotient, Load("T", (), DType.F32)), DType.BOOL)  # T may be the largest such quotient
    assert "div" not in {n.op for n in walk(simplify_value(top)) if isinstance(n, Op)}
