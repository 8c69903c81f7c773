"""Errors of functions against the CUDA C++ Programming Guide, where functions jump, and ranges of bounded ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nautilus.core.expr.structural import sign
from nautilus.core.functions import FUNCTIONS, intervals
from nautilus.core.index.linear import linear, paired_quotients
from nautilus.core.index.simplify import bounds
from nautilus.core.numerics import eval_op, round_to
from nautilus.core.text.expressions import parse_expr
from nautilus.core.types import LARGEST, DType

#: maximum ulp errors in f32 and f64, as the guide states them; of pow and asin more, as ``--precision fast`` has forms
GUIDE = {
    "exp": (2, 1), "exp2": (2, 1), "exp10": (2, 1), "expm1": (1, 1), "log": (1, 1), "log2": (2, 1), "log1p": (1, 1),
    "rsqrt": (2, 1), "cbrt": (1, 1), "hypot": (3, 2), "sin": (2, 2), "cos": (2, 2), "tan": (4, 2), "asin": (4, 2),
    "acos": (3, 2), "atan": (2, 2), "atan2": (3, 2), "sinh": (3, 2), "cosh": (2, 1), "tanh": (2, 2), "asinh": (3, 3),
    "acosh": (4, 3), "atanh": (3, 2), "erf": (2, 2), "erfc": (4, 5), "pow": (8, 2),
}  # fmt: skip
#: errors of the forms that PTX states, or that follow from those of their parts
FORMS = {
    "exp": 3, "exp2": 2, "pow": 8, "log": 11, "log2": 10, "log1p": 18, "sqrt": 2, "rsqrt": 2, "hypot": 4, "atan2": 6,
}  # fmt: skip

#: approximations whose errors are relative
NARROW = [a for f in FUNCTIONS.values() for a in f.approximations if a.narrow]


@pytest.mark.parametrize("name", GUIDE)
def test_errors_are_those_of_the_guide(name: str) -> None:
    assert FUNCTIONS[name].ulps == GUIDE[name]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_of_all_functions(name: str) -> None:
    f = FUNCTIONS[name]
    assert all(u in (0.0, 0.5) or 1.0 <= u <= 18.0 for u in f.ulps) or any(a.function == name for a in NARROW)
    assert name in GUIDE or name in ("sqrt", "sigmoid", "fmod") or not f.elementary
    assert [a.ulps for a in f.approximations if a.ulps and name in FORMS] == ([FORMS[name]] if name in FORMS else [])
    for a in f.approximations:
        if a.function and name in FORMS:
            assert FUNCTIONS[a.function].ulps[0] == a.ulps


STEPPED = [n for n, f in FUNCTIONS.items() if f.steps and f.steps.period is not None and f.arity == 1]


@pytest.mark.parametrize("name", STEPPED)
def test_a_function_jumps_at_its_steps_and_nowhere_else(name: str) -> None:
    steps = FUNCTIONS[name].steps
    assert steps is not None and steps.period is not None
    near = np.linspace(-3.3, 3.3, 6601)
    values = eval_op(name, [near], DType.F64)
    jumps = near[1:][np.abs(np.diff(values)) > 0.4]
    at = [(n + steps.offset) * steps.period for n in range(-4, 5)]
    expected = sorted({p for p in at if abs(p) < 3.29})
    assert len({*np.round(jumps, 1)}) == len(expected)
    assert np.allclose(sorted({*np.round(jumps, 1)}), expected, atol=0.11)
    assert steps.whole == bool(np.all(values == np.rint(values)))


@pytest.mark.parametrize(("name", "found"), [
    ("sign", (-1.0, 1.0)), ("sin", (-1.0, 1.0)), ("cos", (-1.0, 1.0)), ("tanh", (-1.0, 1.0)), ("erf", (-1.0, 1.0)),
    ("sigmoid", (0.0, 1.0)), ("erfc", (0.0, 2.0)),
])  # fmt: skip
def test_bounded_functions(name: str, found: tuple[float, float]) -> None:
    interval = FUNCTIONS[name].interval
    assert interval is not None and interval((-400.0, 400.0)) == pytest.approx(found, abs=1e-12)


@pytest.mark.parametrize("n", range(-3, 5))
@pytest.mark.parametrize("a", [(-2.0, 3.0), (-3.0, -0.5), (0.5, 2.0), (0.0, 2.0), (-1.0, 0.0), (-4.0, 1.0)])
def test_powers(a: tuple[float, float], n: int) -> None:
    low, high = intervals.power(a, n)
    with np.errstate(all="ignore"):
        values = np.linspace(*a, 51) ** n
    values = values[np.isfinite(values)]
    assert low <= values.min() and values.max() <= high
    if n >= 0 or a[0] * a[1] > 0:
        assert (low, high) == pytest.approx((values.min(), values.max()), abs=1e-2)


@pytest.mark.parametrize(("text", "found"), [
    ("2.0", 1), ("-0.5", -1), ("0.5", 1), ("0.0", 0), ("inf", 0), ("-2.0 * 0.25", -1), ("-2.0 / -0.25", 1),
    ("0.5 + 0.25", 1), ("-0.5 + -0.25", -1), ("0.5 + -0.25", 0), ("sqrt(0.5)", 1), ("sqrt(-0.5)", 0),
    ("-sqrt(0.5)", -1), ("cast<f64>(-0.5)", -1), ("x", 0), ("2 * x", 0), ("exp(0.5)", 0), ("true", 0),
])  # fmt: skip
def test_signs_by_form(text: str, found: int) -> None:
    assert sign(parse_expr(text)) == found


def test_float_types_of_a_small_range() -> None:
    assert {d: LARGEST[d] for d in LARGEST} == {DType.F16: 65504.0, DType.F8E4M3: 448.0, DType.F8E5M2: 57344.0}


@pytest.mark.parametrize(("divisor", "found"), [
    ((1, 5), (0, 4)), ((2, 2), (0, 1)), ((0, 5), (None, None)), ((-3, 5), (None, None)), ((3, 9), (0, 8)),
])  # fmt: skip
def test_remainders_of_a_divisor_that_may_be_zero(divisor: tuple[int, int], found: tuple[int, int]) -> None:
    assert bounds(parse_expr("x % y"), {"x": (0, 100), "y": divisor}) == found


@pytest.mark.parametrize(("text", "found"), [
    ("(x + 3) // 8 - x // 8", (0, 1)), ("x // 8 - (x + 3) // 8", (-1, 0)), ("(x + 9) // 8 - x // 8", (1, 2)),
    ("2 * ((x - 3) // 8) - 2 * (x // 8)", (-2, 0)), ("(x + 3) // 8 - x // 4", (0, 0)), ("x // 8", (0, 0)),
    ("(x + 3) // 8 + x // 8", (0, 0)), ("(x + 3) // 8 - y // 8", (0, 0)),
])  # fmt: skip
def test_differences_of_neighbouring_quotients(text: str, found: tuple[int, int]) -> None:
    rest, *ends = paired_quotients(linear(parse_expr(text)), lambda *_: True)
    assert tuple(ends) == found
    assert (not rest.terms) == (found != (0, 0))


def test_an_integer_beyond_f64_is_rounded_once() -> None:
    x = 2**54 + 2**30 + 1  # above a tie of f32, and at it once it is rounded to f64
    assert round_to(np.array([x, -x, 2**54 + 2**30, 7]), DType.F32).tolist() == [
        2.0**54 + 2.0**31, -(2.0**54) - 2.0**31, 2.0**54, 7.0,
    ]  # fmt: skip
    assert math.isfinite(float(round_to(np.array([2**63 - 1]), DType.F32)[0]))
