"""Outputs whose terms cancel under a root, in a divisor or in a logarithm: what is stated holds, and hides nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from nautilus.check import compare
from nautilus.check.bound.cancelling.left_out import _ratio
from nautilus.check.bound.cancelling.positions import unmarked
from nautilus.check.bound.cancelling.reach import Site, reaches_zero
from nautilus.check.bound.cancelling.sites import Known, may_cancel
from nautilus.check.bound.cancelling.tails import grows, index, median
from nautilus.check.bound.program import rounded
from nautilus.check.bound.stated import stated
from nautilus.check.inputs import generate
from nautilus.check.levels import run
from nautilus.check.reference import Compiled, reference
from nautilus.core.expr.nodes import Const, Op, walk
from nautilus.core.numerics import Array
from nautilus.core.text.expressions import parse_expr
from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec
from tests.endtoend.support import Compilation, travel

_XY = "dim M = 256, N = 512\ninput X: f32[M, N]\ninput Y: f32[M, N]\ninput W: f32[M, N]\noutput Z: f32[M, N]\n"
_ROWS = "dim M = 4096, N = {n}\ninput X: f32[M, N]\noutput Z: f32[M{more}]\n"
_MEAN = "m[i] = mean[j](X[i, j])\n"

#: name -> text, and whether the largest errors are left out
SPECS = {
    "divisor": (_XY + "Z[i, j] = W[i, j] / (X[i, j] + Y[i, j] + W[i, j])\n", True),
    "logarithm": (_XY + "Z[i, j] = log(abs(X[i, j] * Y[i, j] - W[i, j]))\n", True),
    "variance without a summand": (
        _ROWS.format(n=2, more="") + _MEAN + "Z[i] = rsqrt(mean[j](X[i, j] ** 2) - m[i] ** 2)\n", True,
    ),
    "rows by their sum": (_ROWS.format(n=64, more=", N") + "Z[i, j] = X[i, j] / sum[k: N](X[i, k])\n", True),
    "logarithm of a sum": (_ROWS.format(n=48, more="") + "Z[i] = log(abs(sum[j](X[i, j])))\n", True),
    "skewness": (
        _ROWS.format(n=48, more="") + _MEAN
        + "v[i] = mean[j]((X[i, j] - m[i]) ** 2)\nZ[i] = mean[j]((X[i, j] - m[i]) ** 3) * v[i] ** -1.5\n", False,
    ),
    "distances": (
        "dim M = 128, N = 128, D = 3\ninput X: f32[M, D]\ninput Y: f32[N, D]\noutput Z: f32[M, N]\n"
        "a[i] = sum[d](X[i, d] ** 2)\nb[j] = sum[d](Y[j, d] ** 2)\n"
        "Z[i, j] = sqrt(max(a[i] + b[j] - 2 * sum[d](X[i, d] * Y[j, d]), 0))\n", False,
    ),
}  # fmt: skip


@cache
def compiled(name: str) -> Compilation:
    return travel(SPECS[name][0], "sm_90a", "vr-tile")


@pytest.mark.parametrize("count", [1, 2, 7, 256])
def test_the_median_is_that_of_numpy(count: int) -> None:
    x = np.random.default_rng(count).normal(size=count)
    for y in (x, np.where(x == x.max(), np.inf, x), np.where(x == x.min(), -np.inf, x), np.where(x == x[0], np.nan, x)):
        assert np.array_equal(median(y), np.median(y), equal_nan=True)
    assert np.isnan(median(x[:0]))


def spec(name: str) -> Spec:
    made: Spec = compiled(name).result.modules["spec"]
    return made


@pytest.mark.parametrize("name", SPECS)
def test_the_figure_holds_on_random_inputs_and_is_of_use(name: str) -> None:
    bound = stated(spec(name))["Z"]
    assert (bound.left_out > 0.0) is SPECS[name][1]
    measured = []
    for seed in range(7, 10):
        given = generate(spec(name), "random", seed)
        want = reference(Compiled(spec(name)), given, {"Z": bound}).values["Z"]
        got = run(compiled(name).last("vr-tile"), given, "typed")["Z"]
        measured.append(compare.without_largest(compare.differences(got, want), want, bound.left_out))
    assert max(measured) <= bound.relative <= 20 * max(measured)


@pytest.mark.parametrize(
    ("rows", "columns", "value"),
    [
        (64, 100, "(X[i, j] - mean[k: N](X[i, k])) / (max[k: N](X[i, k]) - min[k: N](X[i, k]) - 5)"),
        (300, 200, "X[i, j] / sum[k: N](X[i, k])"),
        (20, 300, "X[i, j] / sum[k: N](X[i, k])"),
    ],
)
def test_the_figure_of_rows_that_cancel_together_holds(rows: int, columns: int, value: str) -> None:
    """One divisor that is near 0 gives all elements of its row a large error."""
    text = f"dim M = {rows}, N = {columns}\ninput X: f32[M, N]\noutput Z: f32[M, N]\nZ[i, j] = {value}\n"
    made = travel(text, "sm_90a", "vr-tile")
    program = made.result.modules["spec"]
    bound, measured = stated(program)["Z"], []
    for seed in range(16):
        given = generate(program, "random", seed)
        want = reference(Compiled(program), given, {"Z": bound}).values["Z"]
        got = run(made.last("vr-tile"), given, "typed")["Z"]
        measured.append(compare.without_largest(compare.differences(got, want), want, bound.left_out))
    assert np.mean(np.array(measured) > bound.relative) <= bound.rare_inputs
    assert bound.relative < 1e-2


@pytest.mark.parametrize("name", [n for n, (_, cancels) in SPECS.items() if cancels])
def test_a_wrong_element_is_found_among_large_errors(name: str) -> None:
    bounds = stated(spec(name))
    given = generate(spec(name), "random", 3)
    ref = reference(Compiled(spec(name)), given, bounds)
    got = dict(run(compiled(name).last("vr-tile"), given, "typed"))
    assert _wrong(ref, got) is None
    typical = np.argsort(np.abs(got["Z"]).reshape(-1))[got["Z"].size // 2]
    other = np.array(got["Z"]).reshape(-1)
    other[typical] *= 1.01
    assert _wrong(ref, {"Z": other.reshape(got["Z"].shape)}) is not None


def _wrong(ref: object, got: dict[str, Array]) -> compare.Difference | None:
    target = ref.target("Z", got)  # type: ignore[attr-defined]
    return compare.within(got["Z"], target.truth, target.allowed, target.each)


@pytest.mark.parametrize(
    ("body", "cancels"),
    [
        ("Z[i, j] = softmax[j](X[i, j])", False),
        ("Z[i, j] = X[i, j] * rsqrt(mean[k: N](X[i, k] ** 2) + 1e-6)", False),
        ("Z[i, j] = X[i, j] / (1 + exp(-X[i, j]))", False),
        ("Z[i, j] = 1 / X[i, j]", False),
        ("Z[i, j] = 1 / (X[i, j] + Y[i, j])", True),
        ("Z[i, j] = tan(X[i, j] * Y[i, j])", True),
        ("Z[i, j] = Y[i, j] / log(X[i, j] * X[i, j])", True),
        ("a[i] = argmin[k](X[i, k] * Y[i, k])\nZ[i, j] = Y[i, j] / X[i, a[i]]", False),
    ],
)
def test_which_programs_may_cancel(body: str, cancels: bool) -> None:
    text = "dim M = 8, N = 8\ninput X: f32[M, N]\ninput Y: f32[M, N]\noutput Z: f32[M, N]\n"
    lines = text.splitlines() if "Y" in body else [x for x in text.splitlines() if "Y" not in x]
    assert may_cancel(rounded(load_text("\n".join([*lines, body, ""])))) is cancels


_LARGE = "dim N = 67108864\n" + "".join(f"input {x}: f32[N]\n" for x in "ABCD") + "output Z: f32[N]\n"


@pytest.mark.parametrize(
    ("value", "decide"),
    [
        ("D[i] - 1e-3 * A[i] / (sqrt(0.95 * B[i] + 0.05 * C[i] * C[i]) + 1e-8)", True),
        ("D[i] + 1e-4 / (A[i] * B[i] + C[i])", True),
        ("D[i] + log(abs(A[i] * B[i] + C[i] * D[i]))", True),
        ("D[i] + (A[i] * B[i] + C[i]) ** 0.5", True),
        ("D[i] + max(A[i] * B[i] + C[i], 0) ** 0.5", False),
        ("D[i] + abs(A[i] * B[i] + C[i]) ** 0.25", True),
        ("D[i] + sqrt(abs(A[i] * B[i] + C[i]))", False),
        ("D[i] + acos(A[i] * rsqrt(A[i] * A[i] + B[i] * B[i] * C[i])) ", True),
        ("D[i] / (5 + (A[i] + 0.1 * B[i] + 0.1 * C[i]))", True),
        ("D[i] / (12 + (A[i] + 0.1 * B[i] + 0.1 * C[i]))", False),
        ("D[i] / (abs(A[i] * B[i] - C[i]) + 1)", False),
        ("D[i] / (A[i] - B[i]) + C[i]", False),
        ("D[i] if A[i] * B[i] + C[i] > 0 else 0", True),
        ("D[i] if A[i] > B[i] and C[i] > 0 else 0", False),
        ("D[i] * (A[i] * B[i] + C[i] if A[i] * B[i] + C[i] > 0 else 0)", False),
        ("(A[i] * B[i] + C[i]) % 1.0 + D[i]", True),
        ("atan2(A[i] * B[i] + C[i], D[i])", True),
        ("(exp(A[i] * B[i]) - 1) / (A[i] * B[i])", True),
        ("(A[i] * B[i] + C[i]) / D[i]", False),
        ("(exp(A[i] * B[i]) - 1) * (1 / (A[i] * B[i]))", True),
        ("exp(A[i] * B[i])", False),
        ("(exp(A[i] * B[i]) - 1) / (1 + A[i] * A[i])", False),
    ],
)
def test_the_least_of_many_elements_decides(value: str, decide: bool) -> None:
    unused = [x for x in "ABCD" if f"{x}[i]" not in value]
    lines = [x for x in _LARGE.splitlines() if x[6:7] not in unused or not x.startswith("input")]
    bound = stated(load_text("\n".join([*lines, f"Z[i] = {value}", ""])))["Z"]
    assert (bound.left_out > 0.0) is decide and bound.relative < 1e-4


def test_elements_of_large_inputs_at_computed_positions_differ() -> None:
    """Nine values are summed in the divisor, each at a position that integers of the input shift."""
    text = "dim N = 512\ninput f: f32[9, N, N], c: i32[9]\noutput g: f32[9, N, N]\n"
    text += "s[q, i: N, j: N] = f[q, (i - c[q]) % N, (j + c[q]) % N]\ng[q, i, j] = s[q, i, j] / sum[p: 9](s[p, i, j])\n"
    (found,) = stated(load_text(text)).values()
    assert found.left_out and found.relative < 1e-5


def test_the_number_of_elements_decides() -> None:
    text = _LARGE.replace("67108864", "{}") + "Z[i] = D[i] / (6 + (A[i] + 0.1 * B[i] + 0.1 * C[i]))\n"
    assert [stated(load_text(text.format(n)))["Z"].left_out > 0.0 for n in (1 << 12, 1 << 26)] == [False, True]


def test_a_promise_about_every_element_keeps_terms_from_cancelling() -> None:
    value = "Z[i] = A[i] / (sqrt(0.95 * B[i] + 0.05 * A[i] * A[i]) + 1e-8)\n"
    text = _LARGE.replace("input C: f32[N]\ninput D: f32[N]\n", "{}") + value
    assert [stated(load_text(text.format(x)))["Z"].left_out > 0.0 for x in ("", "assume 0 <= B[i]\n")] == [True, False]


def test_the_least_distance_of_a_normal_distribution() -> None:
    x = np.random.default_rng(0).standard_normal(4096)
    assert reaches_zero(x, 4096) and reaches_zero(x + 4, 1 << 20) and not reaches_zero(x + 12, 1 << 26)
    assert not reaches_zero(np.full(3, 2.0), 1) and reaches_zero(np.array([1.0, 2.0, 3.0]), 1 << 20)


def test_errors_without_a_mean_square() -> None:
    """They fall with the square of the distance from a point, or with the distance as the values do."""
    x, u = (np.random.default_rng(n).standard_normal(4096) for n in range(2))
    assert index(1.0 / x) == pytest.approx(1.0, rel=0.3) and index(x) > 4.0 and np.isinf(index(x[:100]))
    assert grows(u / x, np.ones(4096)) and grows(u / x**2, 1 / x) and not grows(u / x, 1 / x) and not grows(u, x)


def test_a_single_number_is_bounded_on_most_inputs() -> None:
    made = load_text("dim N = 64\ninput X: f32[N]\noutput Z: f32\nZ = 1 / sum[i](X[i])\n")
    bound = stated(made)["Z"]
    assert bound.rare_inputs > 0.0 and "15 of 16 inputs" in bound.text
    errors = []
    for seed in range(100):
        x = generate(made, "random", seed).arrays["X"]
        want = 1.0 / float(np.sum(x))
        errors.append(abs(float(np.float32(1) / np.sum(x, dtype=np.float32)) / want - 1.0))
    assert np.mean(np.array(errors) <= bound.relative) >= 15 / 16


def test_a_comparison_may_be_a_step_in_one_of_two_runs() -> None:
    """A kernel of bicubic weights jumps nowhere, and roundings move the two values at its borders apart."""
    text = "dim C = 3, H = 5, W = 6\ninput x: f32[C, H, W]\noutput y: f32[C, 2 * H, 2 * W]\n"
    text += "def near(t) = (1.25 * t - 2.25) * t * t + 1\ndef far(t) = ((-0.75 * t + 3.75) * t - 6) * t + 3\n"
    text += "def w(t) = near(abs(t)) if abs(t) <= 1 else (far(abs(t)) if abs(t) < 2 else 0)\n"
    text += "def base(p) = (2 * p - 1) // 4\ndef at(p, i) = (p + 0.5) / 2 - 0.5 - base(p) - (i - 1)\n"
    text += "y[c, p, q] = sum[i: 4, j: 4](w(at(p, i)) * w(at(q, j))"
    text += " * x[c, clamp(base(p) + i - 1, 0, H - 1), clamp(base(q) + j - 1, 0, W - 1)])\n"
    assert 0.0 < stated(load_text(text))["y"].relative < 1e-5


def test_a_reciprocal_is_rounded() -> None:
    text = "dim N = 64\ninput X: f32[N]\noutput Z: f32[N]\nZ[i] = {}\n"
    assert stated(load_text(text.format("1 / X[i]")))["Z"].relative > 0.0
    assert stated(load_text(text.format("X[i] / 4")))["Z"].relative == 0.0


def test_without_the_largest_errors() -> None:
    want = np.array([1.0, 2.0, 2.0, 100.0])
    error = np.array([0.3, np.nan, 0.0, 0.4])
    assert compare.without_largest(error, want, 0.25) == pytest.approx(0.5 / 3.0)
    assert np.isinf(compare.without_largest(error, want, 0.0))
    assert compare.without_largest(np.zeros(4), np.zeros(4), 0.5) == 0.0


def test_each_element_has_its_own_error() -> None:
    want, each = np.array([1.0, 1e6, np.inf]), np.array([0.1, 1e5, np.inf])
    assert compare.within(np.array([1.05, 1.05e6, 3.0]), want, 0.0, each) is None
    found = compare.within(np.array([1.2, 1e6, np.nan]), want, 1e9, each)
    assert found is not None and found.index == (0,)
    assert compare.within(np.array([np.nan, 1e6, 1.0]), want, 1e9, each) is not None


def test_elements_of_any_value_are_few() -> None:
    """Under some roundings the divisor is 0 and the result inf, which decides about single elements only."""
    made, bounds = spec("divisor"), stated(spec("divisor"))
    given = generate(made, "random", 3)
    arrays = {n: np.array(x) for n, x in given.arrays.items()}
    arrays["W"][0, 0], arrays["X"][0, 0], arrays["Y"][0, 0] = 1.0, 0.75, -1.75
    assert reference(Compiled(made), replace(given, arrays=arrays), bounds).in_range
    arrays["W"], arrays["X"], arrays["Y"] = (np.full_like(x, v) for x, v in zip(
        (arrays["W"], arrays["X"], arrays["Y"]), (1.0, 0.75, -1.75), strict=True))  # fmt: skip
    assert not reference(Compiled(made), replace(given, arrays=arrays), bounds).in_range


def test_the_sign_of_a_recurrence_is_that_of_its_steps() -> None:
    """Its earlier values have the sign by induction; looking for it in them has no end."""
    for step, cancels in (("0.5 * h[t - 1] + x[t] * x[t]", False), ("0.5 * h[t - 1] - x[t]", True)):
        text = "dim N = 8\ninput x: f32[N]\noutput h: f32[N], y: f32\n"
        text += f"recur h[t] = {step} if t > 0 else x[0] * x[0]\ny = 1 / sum[t](h[t] + h[t])\n"
        assert may_cancel(load_text(text)) is cancels


def test_zeros_without_an_error_have_a_figure_of_zero() -> None:
    zeros, ones = np.zeros(3), np.ones(3)
    assert (_ratio(zeros, zeros), _ratio(ones, zeros), _ratio(zeros, ones)) == (0.0, np.inf, 0.0)


def test_comparisons_that_are_marked_are_left_out() -> None:
    plain = parse_expr("x + 1.0 < y", params=dict.fromkeys("xy", DType.F32))
    marked = Op("and", (plain, Const(True, DType.BOOL)), DType.BOOL)
    assert {*unmarked(plain)} == {*walk(plain)} and not [*unmarked(marked)]
    assert {*unmarked(Op("not", (marked,), DType.BOOL))} == {Op("not", (marked,), DType.BOOL)}


def test_roundings_decide_about_computed_values_alone() -> None:
    known = Known(spec("divisor"))
    less = [parse_expr(text, params=dict.fromkeys("xy", DType.F32)) for text in ("x < y", "exp(x) < y", "y < x * x")]
    assert [*map(known.decides, less)] == [False, True, True]


@pytest.mark.parametrize(("roundings", "decides"), [(15, False), (17, True)])
def test_distances_with_the_error_of_a_few_roundings_are_precise(roundings: int, decides: bool) -> None:
    s, unit = np.linspace(-1.0, 1.0, 4096), 2.0**-24
    assert Site(s, np.abs(s) * roundings * unit, None, False, unit, 1 << 30).decides == decides
    plain = np.full(s.shape, 16 * unit)  # the same error everywhere is a large one close to the point
    assert Site(s, plain, None, False, unit, 1 << 30).decides
