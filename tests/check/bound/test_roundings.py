"""How alike errors are: of roundings, of an element and its extreme, of forms of a function, of marked positions."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

from nautilus.check.bound.cancelling.positions import is_marked, marked_orders
from nautilus.check.bound.choices import roundings
from nautilus.check.bound.exactness import U32, operation_error
from nautilus.check.bound.probes import PROBES, errors
from nautilus.check.bound.program import rounded
from nautilus.check.bound.recurrences.combined import combined, may_be_combined
from nautilus.check.bound.recurrences.factored import with_factors
from nautilus.check.bound.recurrences.growth import _continued
from nautilus.check.bound.recurrences.stepwise import stepwise
from nautilus.check.bound.roundings.alike import alike, alike_in_binades, names_of, of_values, repeated
from nautilus.check.bound.roundings.approximations import nodes, shown, smaller
from nautilus.check.bound.roundings.exponents import arguments, difference
from nautilus.check.bound.roundings.in_steps import Rounded, of_steps
from nautilus.check.bound.stated import stated
from nautilus.check.compare import norm
from nautilus.check.inputs import generate
from nautilus.core.expr.nodes import Const, Load, Op, Var, walk
from nautilus.core.numerics import Array
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.frontend import interp
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_spec, load_text

HEAD = "dim M = 16, N = 64\ninput X: f32[M, N]\noutput Y: f32[M]\n"
MASKED = "dim K = {k}, N = 1024, D = 16\ninput X: f32[N, D]\noutput Y: f32[K, D]\nY[k, d] = max[j | {mask}](X[j, d])\n"
RANK = (
    "S[i, j] = {score}\nr[i, j] = sum[k: N](1 if S[i, k] > S[i, j] or (S[i, k] == S[i, j] and k < j) else 0)\n"
    "Y[i] = sum[j | r[i, j] < 4](S[i, j])\n"
)
SECOND = """
    dim B = 5, K = 4, V = 77
    input s: f32[B, K], X: f16[B, K, V]
    output best: f32[B], at: i32[B], second: f32[B]
    L[b, k, v] = s[b, k] + log_softmax[v](X[b, k, v])
    best[b] = max[k, v](L[b, k, v])
    at[b] = argmax[k, v](L[b, k, v])
    second[b] = max[k, v | k * V + v != at[b]](L[b, k, v])
    """

STEPS = (
    "dim B = 4, T = {t}\ninput x: f32[B, T]\noutput h: f32[B, T]\nrecur h[b, t] = {step} if t > {back} else x[b, t]\n"
)

SHARED = """
    dim B = 2, T = 3, D = 4
    input x: f16[B, T, D], w: f16[D, D], at: i32[D]
    output h: f32[B, T, D], y: f32[B, D]
    recur h[b, t, i] = x[b, t, at[i] % D] + (sum[j](h[b, t - 1, j] * w[j, i]) if t > 0 else 0)
    y[b, i] = sum[t, j | t <= i](h[b, t, j] * w[(i + j) % D, at[j] % D])
    """


@pytest.mark.parametrize("grid", [1 << 22, 12], ids=["whole", "cut"])
def test_evaluations_that_share_values_have_the_errors_of_others(monkeypatch: pytest.MonkeyPatch, grid: int) -> None:
    spec = load_text(dedent(SHARED))
    given = generate(spec, "random", 0)
    how = roundings(spec, "fast")

    def found(kept: bool) -> list[dict[str, Array]]:
        if not kept:
            monkeypatch.setattr(interp.Tensors, "unchanged", lambda self, d: None)
        exact = run_spec(spec, given.arrays)
        return [exact, *errors(spec, given.arrays, {}, {}, how, exact)]

    monkeypatch.setattr(interp, "_GRID", grid)
    for a, b in zip(found(True), found(False), strict=True):
        assert a.keys() == b.keys() and all(np.array_equal(a[n], b[n]) for n in a)


def test_roundings_of_different_numbers_are_not_alike() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 256))
    assert alike(x, 24) < 0.1
    assert alike(1.0 + 1e-9 * x, 24) == 1.0  # all become 1
    assert alike(np.full((64, 256), 1 / 3), 24) == 1.0
    assert alike(rng.integers(-9, 9, (64, 256)).astype(float), 24) == 1.0  # of which the roundings are not known
    assert alike(np.repeat(rng.standard_normal((64, 1)), 256, axis=1), 24) == 1.0  # along the second axis
    assert alike(x[0, :4], 24) == 1.0


def test_a_common_term_gives_the_elements_of_a_binade_one_error() -> None:
    x = np.random.default_rng(0).standard_normal(1 << 12).astype(np.float32).astype(float)
    assert alike_in_binades(x - 0.0123456789, 24) == 1.0
    assert alike_in_binades(1.0 + 0.1 * x / 3.0, 24) < 0.3


def test_equal_numbers_have_equal_errors() -> None:
    x = np.random.default_rng(0).standard_normal((8, 32))
    first, again, other = of_values(x, 3), of_values(x[::-1], 3), of_values(x, 4)
    assert np.array_equal(first, again[::-1]) and not np.array_equal(first, other)
    assert np.abs(first).max() <= 1.0 and abs(first.mean()) < 0.15 and 0.5 < first.std() < 0.65


def test_logarithms_have_the_error_of_their_magnitude() -> None:
    part = smaller("log", np.array([1e-3, 0.5, 1.0, 8.0]))
    assert part is not None and np.allclose(part * 11, [11, 4.2, 3, 3]) and smaller("exp", np.ones(1)) is None


@pytest.mark.parametrize(("value", "exact"), [
    ("log(sum[j](exp(X[i, j])))", True), ("sum[j](log(abs(X[i, j])))", True), ("f32(f16(log(X[i, 0])))", True),
])  # fmt: skip
def test_logarithms_of_the_library_are_those_that_nothing_hides(value: str, exact: bool) -> None:
    assert ("Y" in shown(load_text(HEAD + f"Y[i] = {value}\n"))) == exact
    hidden = shown(load_text(HEAD + f"L[i] = {value}\nY[i] = sum[j](X[i, j] * L[i])\n"))
    assert "Y" in hidden and "L" not in hidden


def test_exponents_whose_difference_is_read_are_not_fused() -> None:
    text = (
        HEAD + "m[i] = max[j](X[i, j])\ns[i] = sum[j](exp(X[i, j] - m[i]))\nY[i] = exp(X[i, 3] - m[i]) / s[i]{more}\n"
    )
    assert len(arguments(load_text(text.format(more="")))) == 1
    assert not arguments(load_text(text.format(more=" + (X[i, 3] - m[i])")))
    (e,) = (n for n in walk(load_text(HEAD + "Y[i] = exp(-3 * (X[i, 0] - 1))\n").definition("Y").expr)
            if isinstance(n, Op) and n.op == "exp")  # fmt: skip
    inner, factor = difference(e.args[0])
    assert isinstance(inner, Op) and inner.op == "sub" and factor == -3.0


@pytest.mark.parametrize(("mask", "marked", "ties"), [
    ("log(f32(j) + 1) / log(2.0) <= k", True, True), ("sqrt(f32(j)) * 3 + 0.1 <= k", True, False),
    ("log(f32(j) + 1) / log(2.0) <= 3", False, False), ("f32(j) / 4 <= k", True, False),
])  # fmt: skip
def test_masks_of_positions(mask: str, marked: bool, ties: bool) -> None:
    made, tied = marked_orders(load_text(MASKED.format(k=12, mask=mask)))
    assert any(map(is_marked, walk(made.definition("Y").expr))) == marked and bool(tied) == ties


@pytest.mark.parametrize("k", [11, 128])
def test_a_mask_that_ties_in_some_rows_says_so(k: int) -> None:
    found = stated(load_spec(MASKED.format(k=k, mask="log(f32(j) + 1) / log(2.0) <= k")))["Y"]
    assert found.decided and found.relative == 0.0 and "where computed numbers tie" in found.text


def test_no_computed_element_is_greater_than_itself() -> None:
    program = rounded(load_spec(HEAD + RANK.format(score="exp(X[i, j])")))
    arrays = generate(program, "random", 0).arrays
    values = run_spec(program, arrays)
    (found,) = errors(program, arrays, {}, {}, roundings(program), values, PROBES[:1])
    assert 0.0 < norm(found["Y"]) < 1e-6 * norm(values["Y"])


def test_the_place_of_an_extreme_is_found_under_errors() -> None:
    spec = load_spec(dedent(SECOND).lstrip())
    found = stated(spec)
    assert found["second"].relative < 2 * found["best"].relative < 1e-5


def test_the_program_has_the_values_of_the_spec() -> None:
    spec = load_spec(dedent(SECOND).lstrip())
    program = rounded(spec, "fast", Schedule())
    assert [d.name for d in program.definitions if d.name.startswith("best")] == [
        "best__elements", "best__extreme", "best",
    ]  # fmt: skip
    given = generate(spec, "random", 0)
    want, got = (run_spec(s, given.arrays, given.scalars, given.sizes) for s in (spec, program))
    for name in ("best", "at", "second"):
        assert np.allclose(got[name], want[name], rtol=1e-12)


def test_elements_under_a_condition_are_left_alone() -> None:
    text = "dim N = 9\ninput X: f32[N]\noutput I: i32\nS[i] = exp(X[i]) / 3\nI = argmax[i | i > 2](S[i])\n"
    program = rounded(load_spec(text), "fast", Schedule())
    assert not [d.name for d in program.definitions if "__elements" in d.name]


def test_steps_round_equal_numbers_alike() -> None:
    x = np.random.default_rng(0).standard_normal(64)
    np.testing.assert_array_equal(of_steps(x, 3), of_steps(x * (1.0 + 2.0**-40), 3))  # one number of f32
    assert not np.array_equal(of_steps(x, 3), of_steps(x, 4))
    assert abs(of_steps(np.asarray(0.3), 3)) == pytest.approx(3.0**-0.5)  # of a single number, never close to 0


def test_errors_of_a_state_that_stays_are_alike_over_the_steps() -> None:
    rng = np.random.default_rng(0)
    varies, stays = Rounded(), Rounded()
    found = [(varies.alike(("h", 1), x, 24), stays.alike(("h", 1), x[:1], 24)) for x in rng.standard_normal((32, 64))]
    assert found[-1][0] < 0.2
    fixed = rng.standard_normal(4)
    assert [stays.alike(("g", 1), fixed, 24) for _ in range(17)][-1] == 1.0


def test_the_bound_has_the_factors_of_combined_steps() -> None:
    """``1 - 0.125`` is one number, rounded once, as in a kernel whose steps are combined."""
    text = STEPS.format(t=99, back=0, step="h[b, t - 1] + 0.125 * (x[b, t] - h[b, t - 1])")
    (d,) = with_factors(load_text(text).definitions)
    factors = [n.args[0] for n in walk(d.expr) if isinstance(n, Op) and n.op == "mul" and isinstance(n.args[0], Const)]
    assert 0.875 in [f.value for f in factors]
    bent = load_text(STEPS.format(t=99, back=0, step="max(h[b, t - 1], x[b, t])")).definitions
    assert with_factors(bent) == list(bent)


def test_states_that_are_combined_show_the_roundings_of_powers() -> None:
    """Two steps back with a double pole at 1: a power of the matrix has as large elements as it has factors."""
    spec = load_text(STEPS.format(t=200, back=1, step="2 * h[b, t - 1] - h[b, t - 2] + x[b, t]"))
    given = generate(spec, "random", 0)
    found = combined(may_be_combined(spec), spec, given.arrays, given.scalars)
    assert 16 * 2.0**-24 < found["h"] < 2.0**-12
    single = stepwise(spec)
    assert single is not None and single.shown(found) == {"%h": found["h"]}
    assert may_be_combined(load_text(STEPS.format(t=200, back=0, step="0.5 * h[b, t - 1] + x[b, t]"))) == {}
    many = load_text(STEPS.format(t=4096, back=1, step="2 * h[b, t - 1] - h[b, t - 2] + x[b, t]"))
    assert may_be_combined(many) == {}  # steps one after another are more exact


def test_a_quotient_by_a_number_is_a_product_with_its_reciprocal() -> None:
    """Its error in a recurrence is that of one rounding, and of the number, which is known."""
    x = Load("x", (), DType.F32)
    by_number, by_value = (Op("div", (x, y), DType.F32) for y in (Const(1.001, DType.F32), x))
    assert operation_error(by_number, U32, True, True) == U32
    assert operation_error(by_number, U32, True, False) == operation_error(by_value, U32, True, True) == 4 * U32


def test_a_sigmoid_close_to_one_has_fewer_ulps() -> None:
    """There the power is a small part of the sum of which the reciprocal is taken."""
    share = smaller("sigmoid", np.array([0.0, 0.5, 1.0]))
    assert share is not None and share.tolist() == pytest.approx([1.0, 0.65, 0.3])
    x = np.linspace(-8.0, 9.0, 4097, dtype=np.float32)
    one, log2e = np.float32(1), np.float32(np.log2(np.e))
    exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    for power in (np.nextafter(np.exp2(-x * log2e), np.float32(sign)) for sign in (-1, 2)):  # another ulp on each side
        for towards in (0, 2):
            made = np.nextafter(one / (one + power), np.float32(towards)).astype(np.float64)
            argument = exact * (1 - exact) * np.abs(x) * 2.0**-23  # its error counts elsewhere
            allowed = smaller("sigmoid", exact)
            assert allowed is not None and (np.abs(made - exact) <= 10 * U32 * allowed * exact + argument).all()


def test_errors_that_grow_with_the_steps_do_not_grow_exponentially() -> None:
    assert _continued([(128, 1.0), (256, 2.0), (512, 4.0)], 4096) == pytest.approx(32.0)
    assert _continued([(128, 1.0), (256, 2.0), (512, 8.0)], 1024) == pytest.approx(128.0)
    assert _continued([(128, 1.0), (256, 3.0), (512, 3.0)], 1024) == pytest.approx(9.0)  # few rows are small by chance


def test_the_roundings_of_the_last_steps_are_looked_at_as_often_as_their_number_has_doubled() -> None:
    rounded, rng = Rounded(), np.random.default_rng(0)
    steps = [1.0 + rng.normal() * 2.0**-8 + rng.normal(size=64) * 2.0**-9 for _ in range(40)]
    found = [rounded.alike(("add", 0), x, 8) for x in steps]
    kept = rounded.last["add", 0]
    assert len(kept) == 16 and all(a is b for a, b in zip(kept, steps[-16:], strict=True))
    changes = {n for n in range(1, 40) if found[n] != found[n - 1]}
    assert changes and changes <= {1, 2, 3, 7, 15, 31} and 3 in changes


def test_sums_of_one_form_have_one_name() -> None:
    spec = load_text(
        "dim N = 8\ninput X: f32[N, N]\noutput Y: f32[N], Z: f32[N]\n"
        "Y[i] = exp(sum[j](X[i, j] * X[i, j]))\nZ[i] = sum[j](X[i, j] * X[i, j])\n"
    )
    known = repeated(spec)
    assert len(known) == 1
    both = [names_of(spec.definition(name).expr, known) for name in "YZ"]
    assert [len(x) for x in both] == [1, 1] and {*both[0].values()} == {*both[1].values()}
    assert not names_of(spec.definition("Y").expr, frozenset())


@pytest.mark.parametrize(
    ("op", "dtype", "below"),
    [("cast", DType.F32, False), ("cast", DType.F64, False), ("cast", DType.F16, True), ("narrow", DType.BF16, True),
     ("neg", DType.F16, False), ("cast", DType.I8, False)],
)  # fmt: skip
def test_what_is_below_a_rounding_to_few_bits(op: str, dtype: DType, below: bool) -> None:
    x = Op("exp", (Var("x"),), DType.F32)
    e = Op(op, (x,), dtype)
    assert [*nodes(e)] == [(e, False), (x, below), (Var("x"), below)]
