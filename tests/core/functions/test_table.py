"""The table of functions: a missing entry is an error, and the entries of each record agree with each other."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import MISSING, fields
from itertools import product
from typing import Any

import numpy as np
import pytest

from nautilus.core.expr.evaluate import evaluate
from nautilus.core.expr.nodes import OPS, substitute
from nautilus.core.functions import FUNCTIONS, NAMED, Function, Types, elementary, table
from nautilus.core.numerics import EVAL, eval_op
from nautilus.core.text.expressions import parse_expr
from nautilus.core.types import DType
from nautilus.cost.instructions import SPECIAL, issue_slots
from tests.check.elementary import ELEMENTARY, NUMERIC, given

REQUIRED = [f.name for f in fields(Function) if f.default is MISSING]


def entries(name: str) -> dict[str, Any]:
    return {f.name: getattr(FUNCTIONS[name], f.name) for f in fields(Function)}


@pytest.mark.parametrize("entry", REQUIRED)
def test_a_record_without_an_entry_is_an_error(entry: str) -> None:
    with pytest.raises(TypeError, match=entry):
        Function(**{k: v for k, v in entries("log1p").items() if k != entry})


PLANTED = """
import sys
from nautilus.core.functions import record

made = record.Function.__init__

def without(self, *args, **entries):
    if entries["name"] == "log1p":
        del entries["interval"]
    made(self, *args, **entries)

record_module = sys.modules.pop("nautilus.core.functions.record")
for name in [n for n in sys.modules if n.startswith("nautilus")]:
    del sys.modules[name]
sys.modules["nautilus.core.functions.record"] = record_module
record.Function.__init__ = without
import nautilus.core.functions
"""


def test_a_record_without_an_entry_fails_at_import() -> None:
    done = subprocess.run([sys.executable, "-c", PLANTED], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "interval" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("doc", "", "doc"),
        ("python", None, "Python numbers"),
        ("interval", None, "interval"),
        ("numpy", "log1p", "np.NAME"),
        ("numpy", "", "numpy"),
        ("derivative", ("1.0", "1.0"), "1 derivatives"),
        ("torch", "", "torch"),
        ("ulps", (0.0, 1.0), "ulp"),
        ("types", Types.NUMBER, "C spelling"),
    ],
)
def test_a_record_with_an_empty_entry_is_an_error(entry: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Function(**{**entries("log1p"), entry: value})


CALLED = [n for n in NUMERIC if FUNCTIONS[n].example or FUNCTIONS[n].symbol]


@pytest.mark.parametrize("name", [n for n in CALLED if FUNCTIONS[n].steps or FUNCTIONS[n].singular])
def test_a_jump_a_pole_or_a_steep_slope_is_stated(name: str) -> None:
    with pytest.raises(ValueError, match=f"function {name}: steps or a singular point is missing at"):
        Function(**{**entries(name), "steps": None, "singular": None})


def test_functions_that_round_keep_integers() -> None:
    whole = np.arange(-3.0, 4.0)
    rounding = {n for n, f in FUNCTIONS.items() if f.is_rounding}
    assert {"floor", "ceil", "round"} <= rounding
    assert {n for n in CALLED if FUNCTIONS[n].steps} >= {*rounding, "sign", "floordiv", "mod", "fmod"}
    assert {n for n in CALLED if FUNCTIONS[n].singular} >= {"div", "log", "sqrt", "tan", "asin", "atan2", "pow"}
    assert all((eval_op(n, [whole], DType.F64) == whole).all() for n in rounding)


def test_two_records_of_a_name_and_an_unknown_inverse_are_errors() -> None:
    with pytest.raises(ValueError, match="two records"):
        table([FUNCTIONS["exp"], FUNCTIONS["exp"]])
    with pytest.raises(ValueError, match="inverse log"):
        table([FUNCTIONS["exp"]])


def test_all_tables_have_every_function() -> None:
    assert {n: f.arity for n, f in FUNCTIONS.items()} == OPS
    assert set(FUNCTIONS) - set(EVAL) == {"cast", "narrow"}
    assert all(issue_slots(n, DType.F32, DType.F32) > 0 for n in NUMERIC if FUNCTIONS[n].skips is None)
    assert {n for n in ELEMENTARY if n not in SPECIAL} == {"erf", "log1p"}  # they need no special function


def test_docs_are_one_line() -> None:
    assert [n for n, f in FUNCTIONS.items() if "\n" in f.doc or not 2 < len(f.doc) < 110] == []


def test_the_table_is_made_without_numpy() -> None:
    code = "import sys, nautilus.core.functions; assert 'numpy' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", NUMERIC)
def test_numbers_and_arrays_mean_the_same(name: str) -> None:
    f = FUNCTIONS[name]
    arrays = given(f)
    got = eval_op(name, arrays, DType.F64)
    tried = 0
    for point, value in zip(zip(*(a.tolist() for a in arrays), strict=True), got.tolist(), strict=True):
        if not all(map(math.isfinite, point)):
            continue
        assert f.python is not None
        try:
            want = f.python(*point)
        except (ArithmeticError, ValueError):
            assert not math.isfinite(value) or abs(value) > 1e290, point
            continue
        if not isinstance(want, complex):
            assert value == pytest.approx(want, rel=1e-14, abs=1e-300) or abs(want) > 1e300, point
            tried += 1
    assert tried > 100


@pytest.mark.parametrize("name", NUMERIC)
def test_intervals_hold_the_values(name: str) -> None:
    f = FUNCTIONS[name]
    assert f.interval is not None
    rng = np.random.default_rng(4)
    ends = [-np.inf, -1e30, -40.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 40.0, 1e30, np.inf]
    for _ in range(300):
        intervals = [tuple(sorted(rng.choice(ends, 2, replace=False).tolist())) for _ in range(f.arity)]
        lo, hi = f.interval(*intervals)
        if not lo <= hi:  # inf - inf says nothing
            continue
        inside = [_inside(rng, *i) for i in intervals]
        got = eval_op(name, inside, DType.F64)
        got = got[np.isfinite(got) & np.logical_and.reduce([np.isfinite(x) for x in inside])]
        slack = 1e-12 * np.maximum(np.abs(got), 1e-300)
        assert np.all((got >= lo - slack) & (got <= hi + slack)), (intervals, lo, hi)


@pytest.mark.parametrize(
    "name",
    ["add", "sub", "mul", "neg", "bit_not", "min", "max", "sqrt", "exp", "exp2", "log", "log2", "expm1", "log1p",
     "sigmoid", "cbrt", "asin", "acos", "atan", "tanh", "sinh", "asinh", "erf", "erfc", "tan", "hypot", "rsqrt"],
)  # fmt: skip
def test_ends_of_intervals_are_values(name: str) -> None:
    """Functions that rise or fall in each argument: an interval that is too wide is of less use."""
    f = FUNCTIONS[name]
    assert f.interval is not None and f.python is not None
    for a in ((0.25, 0.75), (0.5, 0.5)) if name != "bit_not" else ((-5, 9), (3, 3)):
        for b in ((0.125, 0.625), (0.25, 0.25)) if f.arity == 2 else ((),):
            corners = [f.python(*x) for x in product(a, *([b] if b else []))]
            low, high = f.interval(a, b) if b else f.interval(a)
            assert (low, high) == pytest.approx((min(corners), max(corners)), rel=1e-6)


@pytest.mark.parametrize("a", [(1.0, 2.0), (-2.0, -1.0), (-2.0, 2.0), (1.0, 3.0), (4.0, 5.0)])
def test_a_tangent_over_its_pole_is_anything(a: tuple[float, float]) -> None:
    interval = FUNCTIONS["tan"].interval
    assert interval is not None
    low, high = interval(a)
    for x in np.linspace(*a, 50):
        assert low <= math.tan(float(x)) <= high


def _inside(rng: np.random.Generator, lo: float, hi: float) -> Any:
    low, high = (float(np.clip(end, -1e30, 1e30)) for end in (lo, hi))
    return np.concatenate([[low, high], np.clip(rng.uniform(-5, 5, 30), low, high), rng.uniform(low, high, 30)])


@pytest.mark.parametrize("name", [n for n in NUMERIC if FUNCTIONS[n].derivative])
def test_derivatives_are_the_slopes(name: str) -> None:
    f = FUNCTIONS[name]
    rng = np.random.default_rng(6)
    start = 1.1 if name == "acosh" else 0.1
    points = [rng.uniform(start, start + 0.8, 50) for _ in range(f.arity)]
    if f.is_rounding:
        points = [rng.uniform(0.1, 0.4, 50)]
    for n, text in enumerate(f.derivative):
        e = substitute(parse_expr(text, params=dict.fromkeys("xyz", DType.F32)), {})
        got = evaluate(e, dict(zip("xyz", points, strict=False)))
        h = 1e-5
        sides = [eval_op(name, [p + s * (i == n) for i, p in enumerate(points)], DType.F64) for s in (h, -h)]
        np.testing.assert_allclose(np.broadcast_to(got, sides[0].shape), (sides[0] - sides[1]) / (2 * h), rtol=1e-6)


@pytest.mark.parametrize("name", [n for n in NUMERIC if FUNCTIONS[n].inverse])
def test_inverses_undo(name: str) -> None:
    f = FUNCTIONS[name]
    y = eval_op(
        name,
        [np.random.default_rng(7).uniform(1.05, 1.5, 50) * (0.5 if name in ("asin", "acos", "atanh") else 1)],
        DType.F64,
    )
    np.testing.assert_allclose(eval_op(name, [eval_op(f.inverse, [y], DType.F64)], DType.F64), y, rtol=1e-12)


def test_known_values() -> None:
    """The values are from the tables of Abramowitz and Stegun."""
    known = {
        ("erf", 0.5): 0.5204998778130465, ("erf", 2.0): 0.9953222650189527,
        ("erfc", 0.5): 0.4795001221869535, ("erfc", 3.0): 2.209049699858544e-05, ("erfc", 10.0): 2.088487583762545e-45,
        ("expm1", 1e-10): 1.00000000005e-10, ("log1p", 1e-10): 9.9999999995e-11, ("cbrt", -27.0): -3.0,
        ("exp10", 3.0): 1000.0, ("tan", 0.7853981633974483): 1.0, ("asin", 1.0): 1.5707963267948966,
        ("acos", -1.0): 3.141592653589793, ("atan", 1.0): 0.7853981633974483, ("asinh", 1.0): 0.881373587019543,
        ("acosh", 2.0): 1.3169578969248166, ("atanh", 0.5): 0.5493061443340549, ("sinh", 1.0): 1.1752011936438014,
        ("cosh", 1.0): 1.5430806348152437,
    }  # fmt: skip
    for (name, x), want in known.items():
        assert float(eval_op(name, [np.asarray(x)], DType.F64)) == pytest.approx(want, rel=4e-16), name


def test_zero_is_kept_where_the_record_says_so() -> None:
    assert {"log1p", "expm1", "tan", "asin", "sinh", "cbrt", "erf"} <= {n for n, f in FUNCTIONS.items() if f.keeps_zero}
    assert not any(FUNCTIONS[n].keeps_zero for n in ("cos", "acos", "erfc", "exp", "cosh", "hypot", "not", "rcp"))


def test_elementary_functions_are_called_by_name() -> None:
    assert {f.name for f in elementary.RECORDS} <= NAMED.keys()
