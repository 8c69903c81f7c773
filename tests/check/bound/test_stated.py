"""The stated figure: its order for small classes of specs, and which outputs are exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nautilus.check.bound.bound import Bound
from nautilus.check.bound.choices import Probe, roundings
from nautilus.check.bound.errors import run
from nautilus.check.bound.exactness import U32
from nautilus.check.bound.operands import without_matrices
from nautilus.check.bound.probes import PROBES, errors
from nautilus.check.bound.program import passes, rounded
from nautilus.check.bound.stated import _bounds, _stated, stated
from nautilus.check.compare import norm, relative
from nautilus.check.inputs import generate
from nautilus.core.expr.nodes import Op, walk
from nautilus.core.numerics import Array
from nautilus.core.schedule import KernelPlan, Schedule, SplitPlan
from nautilus.driver import Request, compile_file
from nautilus.frontend.fixed import at_sizes
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_spec, load_text
from nautilus.ma_tile.text import format as ma_format
from nautilus.passes.pipelines import SCALAR

HEAD = "dim M = 512, N = 512, K = 512\n"


def bound(body: str, precision: str = "fast") -> float:
    return stated(load_spec(HEAD + body), precision)["Y"].relative


MATMUL = "input A: {t}[M, K]\ninput B: {t}[K, N]\noutput Y: {o}[M, N]\nY[i, j] = sum[k](A[i, k] * B[k, j])\n"
SOFTMAX = "input X: {t}[M, N]\noutput Y: {t}[M, N]\nY[i, j] = softmax[j](X[i, j])\n"
MIXED = "input S: f32[M, K]\ninput V: f16[K, N]\noutput Y: {o}[M, N]\nY[i, j] = sum[k](exp(S[i, k]) * V[k, j])\n"
FILLED = (
    "input X: f16[M, N]\ninput keep: bool[M]\noutput Y: f16[M, N]\n"
    "Y[i, j] = softmax[j](X[i, j] if keep[i] else {fill})\n"
)
SQUARE = (
    "input A: bf16[M, K]\ninput B: bf16[K, N]\noutput Y: f32[M, N]\nY[i, j] = sum[k](A[i, k] * A[i, k] * B[k, j])\n"
)
#: weights of few bits, which the type of the activations holds exactly, and so does f16 hold tf32 but for its range
WEIGHTS = "input A: {a}[M, K]\ninput W: {w}[N, K]\noutput Y: f32[M, N]\nY[i, j] = sum[k](A[i, k] * W[j, k])\n"


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        (MATMUL.format(t="f16", o="f16"), 4e-4, 6e-4),
        (MATMUL.format(t="f16", o="f32"), 3e-7, 3e-6),
        (MATMUL.format(t="f32", o="f32"), 3e-7, 6e-6),
        (MATMUL.format(t="f64", o="f64"), 1e-16, 1e-14),
        (SOFTMAX.format(t="f32"), 1e-7, 2e-6),
        (SOFTMAX.format(t="f16"), 4e-4, 6e-4),
        (MIXED.format(o="f16"), 6e-4, 2e-3),
        (FILLED.format(fill="-1e30"), 4e-4, 6e-4),
        (FILLED.format(fill="-1e9"), 4e-4, 6e-4),
        (SQUARE, 2.0**-9, 8e-3),
        (WEIGHTS.format(a="bf16", w="i4"), 3e-7, 3e-6),
        (WEIGHTS.format(a="bf16", w="u4"), 3e-7, 3e-6),
        (WEIGHTS.format(a="tf32", w="f8e4m3"), 3e-7, 3e-6),
    ],
)
def test_the_order_of_the_bound(body: str, low: float, high: float) -> None:
    assert low <= bound(body) <= high


VECTOR = "input A: f16[M, K]\ninput v: f16[K]\noutput Y: f32[M]\nY[i] = sum[k](A[i, k] * v[k])\n"
BATCHED = "input A: bf16[M, 8, K]\ninput v: bf16[M, K]\noutput Y: f32[M, 8]\nY[b, i] = sum[k](A[b, i, k] * v[b, k])\n"
SQUARES = "input A: bf16[M, K]\noutput Y: f32[M]\nY[i] = sum[k](A[i, k] * A[i, k])\n"


@pytest.mark.parametrize("body", [VECTOR, BATCHED, SQUARES])
def test_a_product_of_a_matrix_and_a_vector_loses_no_bits_in_matrix_units(body: str) -> None:
    """A sum of 512 products, of which a matrix unit would cut off 512 / 16 partial sums."""
    assert stated(load_spec(HEAD + body))["Y"].relative < 4.5e-7
    for arch in ("sm_80", "sm_90a"):
        made = compile_file(Request(Path("t.naut"), arch, text=HEAD + body, until="ma-tile")).modules["ma-tile"]
        assert "mma " not in ma_format(made)


@pytest.mark.parametrize("body", [
    "Y[i, j] = sum[k](A[i, k] * B[k, j])",
    "Y[i, j] = sum[k](A[i, k] * B[i // 4, k])",  # rows that may be packed
    "S[i] = sum[k](A[i, k] * v[k])\nY[i, j] = S[i] * sum[k](B[k, j] * S[k])",  # two products in a row
    "recur Y[i, j] = Y[i - 1, j] + sum[k](A[i, k] * v[k]) if i > 0 else 0",
])  # fmt: skip
def test_what_may_be_a_product_of_matrices_has_the_cuts_of_one(body: str) -> None:
    head = "dim K = 64\ninput A: f16[K, K], B: f16[K, K], v: f16[K]\noutput Y: f32[K, K]\n"
    assert not without_matrices(load_spec(head + body + "\n"))


def test_sums_of_8_bit_floats_have_few_bits_also_under_scales() -> None:
    plain = bound(MATMUL.format(t="f8e4m3", o="f32"))
    scales = "input s: f32[M, K // 128]\ninput t: f32[K // 128, N]\n"
    scaled = MATMUL.format(t="f8e4m3", o="f32").replace("A[i, k] *", "A[i, k] * s[i, k // 128] * t[k // 128, j] *")
    assert 1e-5 < plain / 3 < bound(scales + scaled) < plain * 3
    assert bound(scales + scaled, "strict") < 1e-5


def test_strict_precision_has_no_narrowing() -> None:
    assert bound(MIXED.format(o="f32"), "strict") < 1e-5 < 1e-4 < bound(MIXED.format(o="f32"))
    assert bound(SQUARE, "strict") < 1e-5


def test_a_schedule_without_narrowing_has_none() -> None:
    spec = load_spec(HEAD + SQUARE)
    assert stated(spec, "fast", Schedule(narrow=False))["Y"].relative < 1e-5


TANH = "input X: f32[M, N]\noutput Y: {o}[M, N]\nY[i, j] = {f}(X[i, j])\n"


@pytest.mark.parametrize(("f", "error"), [("tanh", 2.0**-11), ("erf", 2.0**-10)])
def test_hardware_approximations_are_stated_where_they_are_taken(f: str, error: float) -> None:
    narrow, wide = TANH.format(f=f, o="f16"), TANH.format(f=f, o="f32")
    assert error < bound(narrow) < 2.0**-11 + 2 * error
    assert bound(narrow, "strict") < 2.0**-11 * 1.01
    assert bound(wide) < 1e-6


def test_a_wide_reader_of_a_narrow_output_inherits_its_flips() -> None:
    """It reads elements that may be rounded to the other neighbour, which changes their last bit."""
    body = "input X: f32[M, N]\noutput H: f16[M, N]\noutput Y: f32[M, N]\n"
    body += "H[i, j] = X[i, j] / 3\nY[i, j] = H[i, j] * 5\n"
    assert 1e-6 < bound(body) < 1e-4


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("f16", "X[i, j]"),
        ("f16", "max(X[i, j], 0)"),
        ("f32", "-X[i, j] * 0.5"),
        ("bf16", "max[k](X[i, k]) if j < 4 else 0"),
    ],
)
def test_what_does_not_round_is_exact(dtype: str, value: str) -> None:
    assert bound(f"input X: {dtype}[M, N]\noutput Y: {dtype}[M, N]\nY[i, j] = {value}\n") == 0.0


@pytest.mark.parametrize(
    ("source", "target", "value"),
    [("f32", "f16", "X[i, j]"), ("f16", "f16", "X[i, j] * 0.5"), ("f32", "f32", "X[i, j] * 3")],
)
def test_what_rounds_is_not_exact(source: str, target: str, value: str) -> None:
    assert bound(f"input X: {source}[M, N]\noutput Y: {target}[M, N]\nY[i, j] = {value}\n") > 0.0


def test_a_remainder_of_exact_numbers_has_one_rounding() -> None:
    for divisor in ("0.5", "Z[i, j]"):
        value = f"input X: f32[M, N], Z: f32[M, N]\noutput Y: f32[M, N]\nY[i, j] = X[i, j] % {divisor}\n"
        assert 0.0 < bound(value) < 3e-7


@pytest.mark.parametrize(("value", "step"), [("x % 0.7", 0.7), ("fmod(x, 0.7)", 0.7), ("floor(x)", 1), ("round(x)", 1)])
def test_a_step_of_a_computed_number_is_more_than_its_roundings(value: str, step: float) -> None:
    """One element of all may be on the other side of a tie."""
    body = "input X: f32[M, N], Z: f32[M, N]\noutput Y: f32[M, N]\nY[i, j] = "
    spec = load_spec(HEAD + body + value.replace("x", "3 * X[i, j] * Z[i, j]") + "\n")
    found, values = stated(spec)["Y"], run_spec(spec, generate(spec, "random", 0).arrays)["Y"]
    assert found.left_out > 0.0 or step / norm(values) < found.relative < 10.0 * step / norm(values)


def test_integers_are_exact() -> None:
    assert stated(load_spec(HEAD + MATMUL.format(t="i8", o="i32")))["Y"] == Bound(0.0)


def test_integers_that_computed_floats_decide_may_tie() -> None:
    direct = load_spec(HEAD + "input X: f32[M, N]\noutput Y: i32[M]\nY[i] = argmax[j](X[i, j])\n")
    computed = load_spec(
        HEAD + "input X: f32[M, N]\noutput Y: i32[M]\nS[i, j] = exp(X[i, j]) / 3\nY[i] = argmax[j](S[i, j])\n"
    )
    assert not stated(direct)["Y"].ties
    assert stated(computed)["Y"].ties


def test_the_figure_is_reproducible() -> None:
    first = bound(MIXED.format(o="f16"))
    _stated.cache_clear()
    _bounds.cache_clear()
    assert bound(MIXED.format(o="f16")) == first


def test_large_and_unknown_sizes_take_little_time_and_memory() -> None:
    total = load_spec("dim N = 100000000\ninput X: f32[N]\noutput Y: f32\nY = sum[i](X[i] * X[i])\n")
    assert 1e-7 < stated(total)["Y"].relative < 1e-3
    rows = load_spec(
        "dim M = runtime, N = runtime <= 300\ninput X: f32[M, N]\noutput Y: f32[M, N]\nY[i, j] = softmax[j](X[i, j])\n"
    )
    assert 1e-7 < stated(rows)["Y"].relative < 2e-6
    text = "dim T = 1000000, B = 64, D = 512\ninput E: f32[T, D]\ninput t: i32[B]\noutput Y: f32[B, D]\n"
    assert 0.0 < stated(load_spec(text + "Y[b, d] = E[t[b], d] * 3\n"))["Y"].relative < 1e-6


def test_roundings_under_an_added_axis_count() -> None:
    """Probabilities are rounded to f16 where the query gets an axis of one row."""
    spec = load_spec(
        "dim H = 3, N = 512, D = 16\ninput Q: f16[H, D]\ninput K: f16[N, H, D]\ninput V: f16[N, H, D]\n"
        "output O: f32[H, D]\nS[h, j] = sum[d](Q[h, d] * K[j, h, d]) / 8\n"
        "O[h, d] = sum[j](softmax[j](S[h, j]) * V[j, h, d])\n"
    )
    made = rounded(spec)
    assert [len(d.axes) for d in made.definitions if d.is_output] == [2]
    assert 1e-4 < stated(spec)["O"].relative < 2e-3


def test_the_passes_are_those_of_the_pipeline() -> None:
    names = [p.name for p in passes()]
    # those of recurrences round no other definitions
    of_recurrences = ("-recurrences", "-filters", "-states", "scan-tiles", "accumulate-steps")
    others = [p.name for p in SCALAR.passes if not p.name.endswith(of_recurrences)]
    assert names == others[: len(names)]
    assert names[-1] == "narrow"


def test_the_program_shows_the_narrowing() -> None:
    program = rounded(load_spec(HEAD + SQUARE))
    narrowed = [
        str(e.dtype) for d in program.definitions for e in walk(d.expr) if isinstance(e, Op) and e.op == "narrow"
    ]
    assert narrowed == ["bf16"]


def test_digits_of_an_axis_are_positions_of_the_array_again() -> None:
    """``separate-digits`` gives the arguments views, which the rounded program does not have."""
    spec = load_spec(
        "dim N = 5, A = 3, B = 4\ninput X: f16[N, A * B]\ninput P: f16[A, A]\ninput Q: f16[B, B]\n"
        "output Y: f16[N, A * B]\nY[n, o] = sum[i](P[o // B, i] * sum[j](Q[o % B, j] * X[n, i * B + j]))\n"
    )
    made = rounded(spec)
    assert [len(d.axes) for d in made.definitions if d.name == "Y_acc"] == [3]  # the two digits of o
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(shape) for name, shape in (("X", (5, 12)), ("P", (3, 3)), ("Q", (4, 4)))}
    want, got = run_spec(spec, inputs)["Y"], run_spec(made, inputs)["Y"]
    assert got.shape == (5, 12) and relative(got, want) < 2e-3


def test_digits_beside_a_recurrence_keep_it() -> None:
    """Passes see the parts of such a program, of which arguments have no views."""
    text = (
        "dim N = 4\ninput P: f32[4, 4]\ninput Q: f32[3, 3]\ninput X: f32[N, 12]\noutput Y: f32[N, 12]\n"
        "output H: f32[N, 12]\n"
        "Y[n, o] = sum[i: 4](P[o // 3, i] * sum[j: 3](Q[o % 3, j] * X[n, i * 3 + j]))\n"
        "recur H[n, t] = 0.5 * (H[n, t - 1] if t > 0 else 0) + Y[n, t]\n"
    )
    bounds = stated(load_spec(text))
    assert all(0.0 < bounds[name].relative < 1e-5 for name in ("Y", "H"))


def test_float32_evaluation_stays_within_the_bound() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((512, 512)).astype(np.float32) for _ in range(2))
    want = a.astype(np.float64) @ b.astype(np.float64)
    error = np.linalg.norm(a @ b - want) / np.linalg.norm(want)
    assert error < bound(MATMUL.format(t="f32", o="f32"))


def test_short_sums_have_the_additions_of_their_tree() -> None:
    """31 terms in 32 lanes: five additions, not one."""
    short = load_spec("dim M = 4096, N = 31\ninput X: f32[M, N]\noutput Y: f32[M]\nY[i] = sum[j](X[i, j])\n")
    one = load_spec("dim M = 4096, N = 31\ninput X: f32[M, N]\noutput Y: f32[M]\nY[i] = X[i, 0] + X[i, 1]\n")
    assert stated(short)["Y"].relative > 1.3 * stated(one)["Y"].relative


def test_a_single_number_has_a_wider_bound_than_many() -> None:
    text = "dim M = {m}, N = 31\ninput X: f32[M, N]\noutput Y: f32[M]\nY[i] = sum[j](X[i, j])\n"
    one, many = (stated(load_spec(text.format(m=m)))["Y"].relative for m in (1, 4096))
    assert one > 1.3 * many


def test_sums_in_parts_lose_magnitude() -> None:
    """Common errors point towards zero, whatever their sign."""
    program = rounded(load_spec("dim M = 32, N = 32, K = 32\n" + MATMUL.format(t="f32", o="f32")))
    rng = np.random.default_rng(0)
    arrays = {n: 1.0 + rng.random((32, 32)) for n in "AB"}
    want = arrays["A"] @ arrays["B"]
    for seed in range(4):
        with_parts = run(program, arrays, {}, {}, roundings(program), Probe(seed, True, 1.25))["Y"]
        whole = roundings(program, schedule=Schedule(decompose_operands=False))
        without = run(program, arrays, {}, {}, whole, Probe(seed, True, 1.25))["Y"]
        assert np.mean(with_parts / want) < np.mean(without / want) - 8 * U32


def test_common_errors_of_sums_of_both_signs_cancel_as_the_sums_do() -> None:
    """A sum of them has the relative error of one of them, however many there are."""
    text = (
        "dim M = 32, N = {n}, K = 32\ninput A: f32[M, K], B: f32[K, N]\noutput y: f32[M]\n"
        "P[i, j] = sum[k](A[i, k] * B[k, j])\ny[i] = sum[j](max(P[i, j], -1e30))\n"
    )
    common = [p for p in PROBES if p.coherent]
    figures = []
    for n in (8, 512):
        program = rounded(load_spec(text.format(n=n)))
        given = generate(program, "random", 0)
        values = run_spec(program, given.arrays)
        found = errors(program, given.arrays, {}, {}, roundings(program), values, common)
        figures.append(max(norm(e["y"]) for e in found) / norm(values["y"]))
    assert figures[1] < 1.5 * figures[0]


ROUNDED = "input X: f32[4, 8]\noutput Y: i8[4, 8]\nY[i, j] = {}\n"


@pytest.mark.parametrize(("value", "one_off"), [
    ("i8(round(X[i, j] * 3.1))", True),
    ("i8(clamp(floor(X[i, j] / 3 + 0.5), -127, 127))", True),
    ("i8(round(X[i, j]))", False),  # of an input: exact
    ("i8(round(X[i, j] * 3.1)) * i8(2)", False),
    ("i8(round(X[i, j] * 3.1 if X[i, j] * 1.1 > 0.5 else 0.0))", False),
    ("i8(round(floor(X[i, j] * 3.1) * 1.5))", False),
])  # fmt: skip
def test_a_tie_changes_an_integer_that_is_rounded_last_by_one(value: str, one_off: bool) -> None:
    bound = stated(load_spec(ROUNDED.format(value)))["Y"]
    assert bound.one_off is one_off and (bound.step == 1.0) is one_off
    assert bound.text == ("exact, but 1 off where computed numbers tie" if one_off else bound.text)


MOMENTS = """\
dim M = 4096, N = 4096
input X: f32[M, N]
output sk: f32[M]
output ku: f32[M]
mu[i] = mean[j](X[i, j])
va[i] = mean[j]((X[i, j] - mu[i]) ** 2)
sk[i] = mean[j]((X[i, j] - mu[i]) ** 3) / va[i] ** 1.5
ku[i] = mean[j]((X[i, j] - mu[i]) ** 4) / va[i] ** 2 - 3
"""


def test_a_term_in_common_gives_a_binade_one_error() -> None:
    """Plain f32 arithmetic: ``X - mu`` rounds ``mu`` to the spacing of X, which moves a third moment."""
    bounds = stated(load_spec(MOMENTS))
    x = np.random.default_rng(0).standard_normal((128, 4096), dtype=np.float32)

    def mean(v: Array) -> Array:
        return np.asarray(v.sum(axis=1, dtype=np.float32) * np.float32(1 / 4096))

    centred = x - mean(x)[:, None]
    two, three, four = (mean(centred**n) for n in (2, 3, 4))
    exact = x - x.mean(axis=1, dtype=np.float64)[:, None]
    want = [np.mean(exact**n, axis=1) for n in (2, 3, 4)]
    skew, kurtosis = want[1] / want[0] ** 1.5, want[2] / want[0] ** 2 - 3
    for name, got, true in (("sk", three / two**1.5, skew), ("ku", four / two**2 - np.float32(3), kurtosis)):
        error = relative(got.astype(np.float64), true)
        assert error <= bounds[name].relative <= 40 * error


def test_what_a_second_sum_in_one_accumulator_loses_does_not_cancel() -> None:
    """The accumulator holds the first sum while it adds the second one.  An LSTM cell had an error of 2.8e-6 (H200)."""
    text = (
        "dim M = 64, N = 64, K = 1024\ninput A: f16[M, K]\ninput B: f16[K, N]\ninput C: f16[M, K]\ninput D: f16[K, N]\n"
        "output Y: f32[M, N]\nY[i, j] = tanh(sum[k](A[i, k] * B[k, j]) + sum[k](C[i, k] * D[k, j]))\n"
    )
    assert stated(load_spec(text))["Y"].relative > 2.8e-6


def test_a_condition_that_holds_for_each_row_keeps_a_term_of_it() -> None:
    text = (
        "dim M = 8192, D = 32\ninput key: i32[M]\ninput X: f32[M, M]\ninput V: f32[M, D]\noutput O: f32[M, D]\n"
        "O[i, d] = sum[j](softmax[j | j <= i and key[j] == key[i]](X[i, j]) * V[j, d])\n"
    )
    assert stated(load_spec(text))["O"].relative < 1e-4


def test_results_near_the_largest_f64_have_a_bound() -> None:
    """The sum of the squares of such results is inf, which no exception may report."""
    text = "dim N = 8\ninput X: f32[N], L: f32[N]\noutput Y: f64[N]\nY[i] = exp(f64(X[i]) * 0.0 + 400) * f64(L[i])\n"
    assert stated(load_spec(text))["Y"].relative >= 0.0


def test_terms_that_cancel_with_their_mirror_images_have_them_in_a_short_sum() -> None:
    text = "dim M = 64, N = 4096\ninput A: f32[M, N]\noutput S: f32[M]\noutput Y: f32[M, N]\n"
    text += "S[j] = sum[i](A[j, i] - A[j, N - 1 - i] + 0.001)\nY[j, i] = A[j, i] * 2.5\n"
    found = stated(load_text(text))["S"].relative
    assert found > 4e-6  # the error of a sum in f32 is 3e-6


def test_a_sum_that_cancels_to_0_has_no_bound() -> None:
    text = "dim M = 256, N = 512\ninput X: f16[M, N]\noutput Y: f32[M]\nY[i] = sum[k](X[i, k] - mean[j](X[i, j]))\n"
    found = stated(load_text(text))["Y"]
    assert found.relative == float("inf")
    assert found.text == "not bounded, because terms cancel in many elements"


@pytest.mark.parametrize(
    ("value", "share"), [("0.1", 1.0), ("log(1.2)", 1.0), ("max(X[i], 0.1)", 0.1)]
)  # the share of the error of 0.1: a maximum has other elements, which are exact
def test_a_number_that_f32_does_not_have_is_rounded(value: str, share: float) -> None:
    found = stated(load_text(f"dim N = 64\ninput X: f32[N]\noutput Y: f32[N]\nY[i: N] = {value}\n"))["Y"]
    assert share * 2.0**-24 <= found.relative < 1e-6


def test_a_number_that_f32_has_is_exact() -> None:
    found = stated(load_text("dim N = 64\ninput X: f32[N]\noutput Y: f32[N]\nY[i] = max(X[i], 0.125)\n"))["Y"]
    assert found.relative == 0.0


def test_a_schedule_may_inline_what_only_a_matrix_state_in_chunks_has() -> None:
    """The schedule of a compilation names ``y_sum``, which is a sum of two parts there, and a reduction here."""
    text = (
        "dim T = 8, D = 16, E = 16\ninput q: bf16[T, D], k: bf16[T, D], v: bf16[T, E]\noutput y: f32[T, E]\n"
        "recur S[t: T, d: D, e: E] = S[t - 1, d, e] + k[t, d] * v[t, e] if t > 0 else k[t, d] * v[t, e]\n"
        "y[t, e] = sum[d: D](q[t, d] * S[t, d, e]) / 4\n"
    )
    spec = load_text(text)
    assert stated(spec, schedule=Schedule(inline=("y_sum", "S")))["y"].relative > 0.0


def _in_parts(x: Array, splits: int, lanes: int) -> Array:
    """The sums of the rows of ``x`` in f32: those of ``splits`` parts in lanes, and of the parts in 32 lanes."""
    return _in_lanes(_in_lanes(x.reshape(*x.shape[:-1], splits, -1), lanes), min(splits, 32))


def _in_lanes(x: Array, lanes: int) -> Array:
    """The sums of the rows of ``x`` in f32: lanes add one term after another, and a tree adds the lanes."""
    parts = np.cumsum(x.reshape(*x.shape[:-1], -1, lanes), axis=-2, dtype=np.float32)[..., -1, :]
    while parts.shape[-1] > 1:
        parts = parts[..., ::2] + parts[..., 1::2]
    return np.asarray(parts[..., 0])


@pytest.mark.parametrize("body", ["X[i]", "X[i] ** 2"])
@pytest.mark.parametrize(("splits", "tile", "lanes"), [(512, 4096, 128), (64, 64, 8)])
def test_the_bound_of_a_sum_in_parts_is_that_of_its_chains(body: str, splits: int, tile: int, lanes: int) -> None:
    """A sum of four million terms; without parts the bound is that of chains of 131072 additions."""
    spec = load_text(f"dim N = 4194304\ninput X: f32[N]\noutput Y: f32\nY = sum[i]({body})\n")
    cut = Schedule(splits=(SplitPlan("Y", "i", splits, tile),))
    bound = stated(spec, schedule=cut)["Y"].relative
    off, size = [], []
    for seed in range(6):
        x = np.random.default_rng(seed).standard_normal(4194304, dtype=np.float32)
        terms = x if body == "X[i]" else x * x
        want = float(np.sum(x.astype(np.float64) ** (1 if body == "X[i]" else 2)))
        off.append(float(_in_parts(terms, splits, lanes)) - want)
        size.append(want)
    error = np.linalg.norm(off) / np.linalg.norm(size)
    assert error < bound < 20 * error and 2 * bound < stated(spec)["Y"].relative


def test_products_of_which_an_operand_is_0_under_a_condition_have_the_cuts_of_tensor_cores() -> None:
    """A sum of 1600 random terms, 16 at a time and towards zero, loses 2.5e-6 of itself."""
    text = (
        "dim M = 64, N = 64, K = 51200\ninput A: f16[M, K]\ninput B: f16[N, K]\noutput Y: f32[M, N]\n"
        "Y[i, j] = sum[k](A[i, k] * (B[j, k - 1] if k > 0 else 0))\n"
    )
    schedule = Schedule(splits=(SplitPlan("Y", "k", 32, 64),))
    assert 2.5e-6 < stated(load_spec(text), "fast", schedule)["Y"].relative < 2e-5


def test_a_loss_over_rows_is_a_sum_of_sums() -> None:
    """The kernel ``L_parts`` says so; without it, all elements are one sum."""
    text = (
        "dim M = 256, N = 4096\ninput X: f32[M, N]\noutput L: f32\nm[i] = max[j](X[i, j])\n"
        "z[i] = sum[j](exp(X[i, j] - m[i]))\nL = sum[i, j](exp(X[i, j] - m[i]) / z[i] * X[i, j])\n"
    )
    spec = load_text(text)
    rows = Schedule(kernels=(KernelPlan("L_parts", ("m", "z", "L_parts"), ()),))
    assert 2 * stated(spec, schedule=rows)["L"].relative < stated(spec)["L"].relative


def test_outputs_without_elements_have_no_work_to_divide_by() -> None:
    text = "dim N = runtime\ninput d: f64[N], a: i64[N]\noutput w: f64[N]\nw[i] = d[i] + atan2(d[i], f64(a[i] % 17))\n"
    assert set(stated(at_sizes(load_spec(text), {"N": 0}))) == {"w"}


@pytest.mark.parametrize(("body", "exact"), [
    ("sum[n](f32(X[b, n] <= 0.5))", True),
    ("sum[n](f32(K[b, n]) * f32(K[b, n]))", True),
    ("sum[n](f32(X[b, n] <= 0.5) * 0.3)", False),
    ("sum[n](f32(X[b, n] <= 0.5) * 524289.0)", False),  # beyond the integers that f32 has
])  # fmt: skip
def test_a_sum_of_small_integers_is_exact(body: str, exact: bool) -> None:
    head = "dim B = 8, N = 64\ninput X: f16[B, N]\ninput K: i8[B, N]\noutput Y: f32[B]\n"
    program = rounded(load_text(f"{head}Y[b] = {body}\n"))
    rng = np.random.default_rng(0)
    given = {"X": rng.standard_normal((8, 64)), "K": rng.integers(-128, 128, (8, 64))}
    moved = run(program, given, {}, {}, roundings(program), Probe(0, False, 2.0))["Y"]
    assert np.array_equal(moved, run_spec(program, given)["Y"]) is exact


def test_a_number_that_may_be_zero_has_its_error_on_most_inputs() -> None:
    """The difference of two means is small by chance, and its error does not fall with it; a mean of squares is not."""
    text = "dim N = 999, M = 1000\ninput x: f32[N]\ninput y: f32[M]\noutput z: f32\n"
    signed = stated(load_text(text + "z = mean[n](x[n]) - mean[m](y[m])\n"))["z"]
    assert signed.rare_inputs and "on 7 of 8 inputs" in signed.text
    assert not stated(load_text(text + "z = mean[n](x[n] ** 2) + mean[m](y[m] ** 2)\n"))["z"].rare_inputs
