"""Repair terms are derived where they exist, rejected with a reason elsewhere, and verified independently."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nautilus.check.certificates.rules import check
from nautilus.core.expr.conditions import short_circuit
from nautilus.core.expr.nodes import Expr, Load, Op, Var
from nautilus.core.text.expressions import format_expr
from nautilus.core.types import DType
from nautilus.scalar.analysis.repair.certificate import certify
from nautilus.scalar.analysis.repair.records import Refusal, Repair, Running
from nautilus.scalar.analysis.repair.terms import derive, reference_of
from tests.scalar.programs.build import F32, f, op, v

REDUCED = frozenset({"j"})


def x(name: str = "X") -> Expr:
    return Load(name, (v("i"), v("j")), F32)


def r(name: str = "M") -> Load:
    return Load(name, (v("i"),), F32)


def run(name: str = "M", combiner: str = "max", value: Expr | None = None) -> Running:
    return Running(r(name), combiner, x() if value is None else value)


def exp(a: Expr, b: Expr) -> Op:
    return op("exp", op("sub", a, b))


def share() -> Expr:
    """An element in [0, 2^-30], of which a sum is in [0, 2]."""
    return op("mul", op("sigmoid", x()), f(2.0**-30))


def total() -> Expr:
    """One more than the running sum of shares, which is in [1, 3]."""
    return op("add", r("L"), f(1.0))


def half() -> Expr:
    return op("tanh", x())


LS = run("L", "sum", share())

CASES: dict[str, tuple[Expr, str, tuple[Running, ...], str]] = {
    "exp(x - r)": (exp(x(), r()), "sum", (run(),), "a * exp(old0 - new0)"),
    "exp2": (op("exp2", op("sub", x(), r())), "sum", (run(),), "a * exp2(old0 - new0)"),
    "scaled": (op("exp", op("mul", op("sub", x(), r()), f(0.5))), "sum", (run(),), "a * exp((old0 - new0) * 0.5)"),
    "a maximum with another bound": (
        exp(x(), op("max", op("max", r(), Load("s", (), F32)), f(-5.0))), "sum", (run(),),
        "a * exp(max(max(old0, c0), -5.0) - max(max(new0, c0), -5.0))",
    ),
    "weighted": (op("mul", exp(x(), r()), x("V")), "sum", (run(),), "a * exp(old0 - new0)"),
    "x * g(r)": (op("mul", half(), total()), "sum", (LS,), "a * ((new0 + 1.0) / (old0 + 1.0))"),
    "x / g(r)": (op("div", half(), total()), "sum", (LS,), "a * ((old0 + 1.0) / (new0 + 1.0))"),
    "function of r": (
        op("mul", half(), op("rsqrt", total())), "sum", (LS,), "a * (rsqrt(new0 + 1.0) / rsqrt(old0 + 1.0))"
    ),
    "x - r under max": (op("sub", x(), r()), "max", (run(),), "a + (old0 - new0)"),
    "x + r under min": (op("add", r("L"), x()), "min", (run("L", "sum"),), "a + (new0 - old0)"),
    "exp under max": (exp(half(), r("L")), "max", (LS,), "a * exp(old0 - new0)"),
    "max, then sum": (
        op("div", op("mul", exp(half(), r()), op("sigmoid", x("V"))), total()), "sum",
        (run(value=half()), LS), "a * (exp(old0 - new0) * (old1 + 1.0) / (new1 + 1.0))",
    ),
    "selected": (
        op("select", op("le", v("j"), v("i")), exp(x(), r()), f(0)), "sum", (run(),), "a * exp(old0 - new0)"
    ),
    "inner step that has no inverse": (
        op("mul", op("pow", op("max", x("V"), f(0)), f(2)), exp(x(), r())), "sum", (run(),), "a * exp(old0 - new0)"
    ),
    "sum of two": (op("add", exp(x(), r()), op("mul", exp(x(), r()), x("V"))), "sum", (run(),), "a * exp(old0 - new0)"),
    "narrowed": (
        Op("cast", (Op("narrow", (exp(x(), r()),), DType.F16),), F32), "sum", (run(),), "a * exp(old0 - new0)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_repair_is_derived_and_certified(name: str) -> None:
    value, combiner, running, text = CASES[name]
    got = derive(value, (), combiner, running, REDUCED)
    assert isinstance(got, Repair), got
    assert format_expr(got.t).replace(":f32", "") == text
    for certificate in certify("A", got):
        assert check(certificate).status == "proved", certificate.text()


def equal(a: Expr, b: Expr) -> Op:
    return Op("eq", (a, b), DType.BOOL)


FIRST = Op("or", (equal(x(), r()), Op("ne", (x(), x()), DType.BOOL)), DType.BOOL)  # an extremum, or NaN
EXTREMA: dict[str, tuple[Expr, Expr, str, Running, str]] = {
    "position": (v("j"), FIRST, "min", run(), "select(old0 == new0 or old0 != old0, a, 2147483647)"),
    "count": (f(1.0), equal(x(), r()), "sum", run(), "select(old0 == new0, a, 0.0)"),
    "value of another tensor": (
        x("V"), equal(r(), x()), "max", run(combiner="min"), "select(old0 == new0, a, -inf)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXTREMA)
def test_what_equals_an_extremum_starts_again(name: str) -> None:
    value, condition, combiner, running, text = EXTREMA[name]
    got = derive(value, (condition,), combiner, [running], REDUCED)
    assert isinstance(got, Repair), got
    assert format_expr(got.t).replace(":f32", "") == text
    for certificate in certify("A", got):
        verdict = check(certificate)
        assert verdict.status == ("tested" if value.dtype.is_int else "proved"), certificate.text()
        assert verdict.detail in ("", "on the domain everything")


BELOW = op("lt", x(), f(3.0))
CONDITIONS: dict[str, tuple[Expr, Running, str]] = {
    "another element": (equal(x("Z"), r()), run(), "does not ask"),
    "another comparison": (op("lt", x(), r()), run(), "does not ask"),
    "another NaN": (replace(FIRST, args=(FIRST.args[0], op("ne", x("Z"), x("Z")))), run(), "does not ask"),
    "a sum": (equal(x(), r()), run(combiner="sum"), "does not ask"),
    "an extremum of fewer elements": (equal(x(), r()), Running(r(), "max", x(), (BELOW,)), "not proved to bound"),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_other_conditions_on_a_running_result_have_no_repair(name: str) -> None:
    guard, running, reason = CONDITIONS[name]
    got = derive(f(1.0), (guard,), "sum", [running], REDUCED)
    assert isinstance(got, Refusal) and reason in got.reason


def test_a_value_and_its_condition_under_one_running_result_have_no_repair() -> None:
    got = derive(exp(x(), r()), (equal(x(), r()),), "sum", [run()], REDUCED)
    assert isinstance(got, Refusal) and "together" in got.reason


REFUSED: dict[str, tuple[Expr, str, tuple[Running, ...]]] = {
    "(x - r) ** 2": (op("pow", op("sub", x(), r("S")), f(2)), "sum", (run("S", "sum"),)),
    "x - r under sum": (op("sub", x(), r()), "sum", (run(),)),
    "max(x, r)": (op("max", x(), r()), "sum", (run(),)),
    "x * r under max, sign unknown": (op("mul", x(), r("L")), "max", (run("L", "sum"),)),
    "x / r": (op("div", half(), r("L")), "sum", (LS,)),
    "x * r": (op("mul", half(), r("L")), "sum", (LS,)),
    "a sum that may be large": (op("div", half(), total()), "sum", (run("L", "sum"),)),
    "an element that may be large": (op("div", x(), total()), "sum", (LS,)),
    "a sum in an exponent": (exp(half(), r("L")), "sum", (run("L", "sum", half()),)),
    "a square of a sum": (op("div", half(), op("mul", r("L"), r("L"))), "max", (LS,)),
    "a function with a pole": (op("add", half(), op("rcp", r("L"))), "max", (LS,)),
    "product": (op("mul", x(), r("L")), "prod", (run("L", "sum"),)),
    "not bounded by r": (exp(x("Z"), r()), "sum", (run(),)),
    "a factor of 0 under max": (exp(x(), r()), "max", (run(),)),
    "rounded up": (exp(x(), op("ceil", r())), "sum", (run(),)),
    "another function in an exponent": (exp(op("mul", x(), f(0.1)), op("abs", r())), "sum", (run(),)),
    "a maximum with a limit above": (exp(x(), op("min", r(), f(1.0))), "sum", (run(),)),
    "a maximum and a bound of it": (
        op("exp", op("sub", op("sub", x(), op("mul", f(0.5), r())), op("mul", f(0.5), op("max", r(), f(0))))),
        "sum",
        (run(),),
    ),
    "wrong side": (op("exp", op("sub", r(), x())), "sum", (run(),)),
    "a rounding that the user wrote": (Op("cast", (Op("cast", (exp(x(), r()),), DType.F16),), F32), "sum", (run(),)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_repair_without_a_proof_is_rejected(name: str) -> None:
    value, combiner, running = REFUSED[name]
    got = derive(value, (), combiner, running, REDUCED)
    assert isinstance(got, Refusal)
    assert got.reason


def test_a_maximum_with_another_bound_has_a_reference() -> None:
    """It may be -inf where both are, as before the first element of a row under a bound of -inf."""
    got = derive(exp(x(), op("max", r(), Load("s", (), F32))), (), "sum", (run(),), REDUCED)
    assert isinstance(got, Repair) and got.references == (0.0,) and got.raw_old == (True,)


def test_conditions_under_others_are_compared_by_their_parts() -> None:
    """The columns of a tile that are beyond the matrix leave no element out of the row's maximum."""
    inside, seen, column = op("lt", v("i"), v("m")), op("le", v("j"), v("i")), op("lt", v("d"), v("m"))
    bounded = Running(r(), "max", x(), (short_circuit(inside, seen),))
    more = short_circuit(inside, op("and", column, seen))
    assert isinstance(derive(exp(x(), r()), (more,), "sum", (bounded,), REDUCED), Repair)
    assert isinstance(derive(exp(x(), r()), (short_circuit(inside, column),), "sum", (bounded,), REDUCED), Refusal)


def test_a_guard_that_lets_more_in_than_the_maximum_saw_is_refused() -> None:
    guard = op("le", v("j"), v("i"))
    bounded = Running(r(), "max", x(), (guard,))
    assert isinstance(derive(exp(x(), r()), (), "sum", (bounded,), REDUCED), Refusal)
    assert isinstance(derive(exp(x(), r()), (guard,), "sum", (bounded,), REDUCED), Repair)


def test_a_maximum_of_more_elements_may_stay_infinite() -> None:
    """exp(inf - inf) is NaN, but no element of the accumulator may be inf."""
    some = op("lt", x("Z"), f(3.0))
    rows = op("lt", v("i"), v("n"))
    for value, combiner, text in (
        (exp(x(), r()), "sum", "a * select(old0 == new0, 1.0, exp(old0 - new0))"),
        (op("sub", x(), r()), "max", "a + select(old0 == new0, 0.0, old0 - new0)"),
    ):
        got = derive(value, (some,), combiner, (run(),), REDUCED)
        assert isinstance(got, Repair) and format_expr(got.t).replace(":f32", "") == text
        for certificate in certify("A", got):
            assert check(certificate).ok, certificate.text()
        same = derive(value, (rows,), combiner, (run(),), REDUCED)  # a condition on whole rows
        assert isinstance(same, Repair) and "select" not in format_expr(same.t)


def test_wrong_repairs_are_found() -> None:
    good = derive(exp(x(), r()), (), "sum", (run(),), REDUCED)
    assert isinstance(good, Repair)
    swapped = op("mul", v32("a"), op("exp", op("sub", v32("new0"), v32("old0"))))
    shifted = op("add", v32("a"), op("sub", v32("old0"), v32("new0")))
    for t in (swapped, shifted, v32("a")):
        assert not check(certify("A", replace(good, t=t))[0]).ok
    squared = op("mul", v32("a"), v32("a"))
    assert not check(certify("A", replace(good, t=squared))[1]).ok


def test_a_repair_that_depends_on_the_element_is_found() -> None:
    good = derive(exp(x(), r()), (), "sum", (run(),), REDUCED)
    assert isinstance(good, Repair)
    cheat = op("exp", op("sub", v32("x0"), v32("new0")))
    assert "element" in check(certify("A", replace(good, t=cheat))[0]).detail


def v32(name: str) -> Expr:
    return Var(name, F32)


def test_a_value_may_read_the_reference_itself() -> None:
    """A value as ``split_k_update`` writes it: it has the same repair and is not finalised."""
    finite = exp(x(), reference_of(r(), "max", 0.0))
    got = derive(finite, (), "sum", (run(),), REDUCED)
    plain = derive(exp(x(), r()), (), "sum", (run(),), REDUCED)
    assert isinstance(got, Repair) and isinstance(plain, Repair)
    assert got.t == plain.t and got.references == (0.0,) and got.finite == (True,) and plain.finite == (False,)
    weighted = op("div", half(), op("add", reference_of(r("L"), "sum", 1.0), f(1.0)))
    late = derive(op("div", half(), total()), (), "sum", (LS,), REDUCED)
    now = derive(weighted, (), "sum", (LS,), REDUCED)
    assert isinstance(late, Repair) and late.finalise
    assert isinstance(now, Repair) and not now.finalise


def test_a_reference_that_differs_from_that_of_the_repair_is_rejected() -> None:
    both = op("add", exp(x(), r()), exp(x(), reference_of(r(), "max", 0.0)))
    for value in (exp(x(), reference_of(r(), "max", 7.0)), both):
        got = derive(value, (), "sum", (run(),), REDUCED)
        assert isinstance(got, Refusal) and "reads a reference of M that differs" in got.reason
