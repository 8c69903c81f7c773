"""What is allowed on given inputs: the effect of the roundings on these inputs, and nothing outside the range."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.check.bound import errors
from nautilus.check.bound.choices import Probe, Roundings
from nautilus.check.bound.probes import Effect, even, is_uneven
from nautilus.check.bound.stated import stated
from nautilus.check.compare import norm
from nautilus.check.inputs import InputSet, generate
from nautilus.check.reference import Compiled, OutOfRange, Reference, in_range, reference
from nautilus.frontend.semantics.check import load_spec, load_text
from nautilus.frontend.spec import Spec


def on(spec: Spec, given: InputSet) -> Reference:
    return reference(Compiled(spec), given, stated(spec))


def test_what_cancels_is_measured_against_its_terms() -> None:
    """1 + tanh(-4) is 0.0007, less than the error of the hardware's tanh: the bound must say so."""
    spec = load_spec("dim M = 64\ninput X: f16[M]\noutput Y: f16[M]\nY[i] = 1 + tanh(X[i])\n")
    allowed = on(spec, InputSet("constant", 0, {"X": np.full(64, -4.0)})).allowed["Y"]
    assert 2.0**-11 * 8 < allowed < 16 * 2.0**-11 * 8  # |error| of 64 elements


def test_an_error_of_few_rows_has_more_choices_of_errors() -> None:
    """One error may be small by chance: of 40 rows, two have close logits and nearly all of the error."""
    each = np.full((40, 64), 1e-9)
    assert not is_uneven({"O": Effect(norm(each), each)})
    each[7], each[11] = 1e-4, 2e-4
    assert is_uneven({"O": Effect(norm(each), each)}) and even(each) < 3


def test_equal_columns_have_one_error() -> None:
    """All elements of the result are one sum of rounded products, times a number of the column."""
    spec = load_spec(
        "dim M = 17, A = 12, B = 9, C = 8\ninput X: f16[M, C], P: f16[C, A], Q: f16[A, B], R: f16[B, C]\n"
        "output Y: f16[M, C]\nY[m, e: C] = sum[a, b, c](X[m, c] * P[c, a] * Q[a, b] * R[b, e])\n"
    )
    for seed in range(3):
        given = generate(spec, "constant-columns", seed)
        ref, x = on(spec, given), given.arrays
        terms = np.einsum("mc,ca,ab->mcab", x["X"], x["P"], x["Q"])
        scale = 2.0 ** (13 - np.floor(np.log2(np.abs(terms).max())))
        moved = np.einsum("mcab,be->me", (terms * scale).astype(np.float16).astype(np.float64) / scale, x["R"])
        assert np.linalg.norm(moved - ref.values["Y"]) <= ref.allowed["Y"]


SINK = """dim M = 8, N = 64, D = 16
input S: f32[M, N]
input V: f16[N, D]
output O: f16[M, D]
O[i, d] = sum[j](softmax[j](S[i, j]) * V[j, d])
"""


def test_denormal_factors_are_allowed_for() -> None:
    """Beside one dominant score, whose value is 0, the other probabilities are denormal numbers of f16."""
    spec = load_spec(SINK)
    rng = np.random.default_rng(0)
    scores, v = rng.standard_normal((8, 64)), rng.standard_normal((64, 16))
    scores[:, 0], v[0] = 16.0, 0.0
    ref = on(spec, InputSet("sink", 0, {"S": scores, "V": v}))
    assert ref.allowed["O"] > 0.1 * np.linalg.norm(ref.values["O"])
    plain = on(spec, generate(spec))
    assert plain.allowed["O"] < 0.01 * np.linalg.norm(plain.values["O"])


SQUARES = "dim M = 16, N = 32\ninput X: f32[M, N]\noutput Y: f32[M]\nY[i] = sqrt(sum[j](X[i, j] * X[i, j]))\n"


@pytest.mark.parametrize(("size", "inside"), [(1.0, True), (1e15, True), (1e25, False)])
def test_an_intermediate_beyond_f32_is_out_of_range(size: float, inside: bool) -> None:
    spec = load_spec(SQUARES)
    given = InputSet("given", 0, {"X": np.full((16, 32), size)})
    assert on(spec, given).in_range is inside
    assert in_range(Compiled(spec), given) is inside


def test_an_output_beyond_f32_is_out_of_range() -> None:
    """A product with a power of two is exact, so that no rounding shows the overflow."""
    spec = load_spec("input X: f32[2]\noutput Y: f32[2]\nY[i] = X[i] * 2\n")
    assert in_range(Compiled(spec), InputSet("given", 0, {"X": np.full(2, 1e38)}))
    assert not in_range(Compiled(spec), InputSet("given", 0, {"X": np.full(2, 3e38)}))


def test_a_number_of_f64_beyond_an_output_of_f32_is_out_of_range() -> None:
    spec = load_spec("input X: f64[2]\noutput Y: f32[2]\nY[i] = X[i] / 3\n")
    for size, inside in ((1e38, True), (1e300, False), (np.inf, True)):
        assert on(spec, InputSet("given", 0, {"X": np.full(2, size)})).in_range is inside


def test_an_overflow_that_a_root_would_undo_is_not_in_range() -> None:
    """Rows that are divided by inf are 0, so that the softmax is uniform; the Spec has another finite result."""
    spec = load_spec(
        "dim M = 4, N = 8\ninput X: bf16[M, N]\noutput Y: f32[M, N]\n"
        "T[i, j] = X[i, j] * rsqrt(mean[k: N](X[i, k] ** 2)) * X[i, j]\nY[i, j] = softmax[j](T[i, j])\n"
    )
    x = np.random.default_rng(0).uniform(1.0, 2.0, (4, 8)).astype(np.float32)
    for size, inside in ((1.0, True), (1e25, False)):
        assert in_range(Compiled(spec), InputSet("given", 0, {"X": x * size})) is inside


def test_sums_that_overflow_with_either_sign_are_not_in_range() -> None:
    """The sigmoid of a number beyond f32 is one, that of inf - inf is NaN."""
    spec = load_spec("dim N = 8\ninput X: f32[N], Y: f32[N]\noutput Z: f32\nZ = sigmoid(sum[j](X[j] * Y[j]))\n")
    for sign, inside in ((1.0, True), (-1.0, False)):
        x = np.array([3e19, sign * 3e19] * 4)
        assert on(spec, InputSet("given", 0, {"X": x, "Y": np.array([3e19, 2e19] * 4)})).in_range is inside


def test_an_overflow_that_meets_inf_is_not_in_range() -> None:
    """The Spec has inf, a kernel whose term overflows has inf - inf."""
    spec = load_spec("input X: f32[2]\noutput Y: f32[1]\nZ[c] = X[c] * abs(X[c])\nY[i: 1] = sum[c](Z[c])\n")
    assert on(spec, InputSet("given", 0, {"X": np.array([-0.5, 0.25])})).in_range
    assert not on(spec, InputSet("given", 0, {"X": np.array([-3e19, np.inf])})).in_range


def test_a_guarded_overflow_is_in_range() -> None:
    spec = load_spec("dim M = 16\ninput X: f32[M]\noutput Y: f32[M]\nY[i] = exp(X[i]) if X[i] < 50 else X[i]\n")
    assert on(spec, InputSet("given", 0, {"X": np.full(16, 100.0)})).in_range


def test_a_tensor_that_is_read_again_may_be_rounded_or_not() -> None:
    """Interpreters over the reals differ in whether they round it to f32, so their results may differ as much."""
    head = "dim M = 64\ninput X: f32[M]\noutput H: f32[M]\noutput Y: f32[M]\n"
    spec = load_spec(head + "H[i] = X[i] / 3\nY[i] = H[i] * 3 - X[i]\n")
    ref = on(spec, generate(spec))
    assert 2.0**-25 < ref.noise["Y"] / np.linalg.norm(generate(spec).arrays["X"]) < 2.0**-18
    assert ref.noise["H"] < 2.0**-45 * np.linalg.norm(ref.values["H"])


FLOAT8 = "input A: f8e4m3[M, K]\ninput B: f8e4m3[N, K]\noutput Y: f32[M, N]\nY[i, j] = sum[k](A[i, k] * B[j, k])\n"


def short_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A B^T as the tensor core computes it for 8-bit floats.

    It adds 32 products to the sum so far and cuts off bits more than 13 places below the largest of these terms.  One
    f32 addition follows each 128 products.
    """

    def cut(x: np.ndarray, largest: np.ndarray) -> np.ndarray:
        unit = np.exp2(np.floor(np.log2(np.where(largest > 0, largest, 1.0))) - 13)
        return np.asarray(np.trunc(x / unit) * unit)

    total = np.zeros((len(a), len(b)))
    for first in range(0, a.shape[1], 128):
        part = np.zeros_like(total)
        for k in range(first, first + 128, 32):
            p = a[:, None, k : k + 32] * b[None, :, k : k + 32]
            largest = np.maximum(np.abs(p).max(-1), np.abs(part))
            part = cut(p, largest[..., None]).sum(-1) + cut(part, largest)
            part = cut(part, np.abs(part))
        total += part
    return total


@pytest.mark.parametrize("kind", ["random", "equal", "large-logits", "ascending", "descending", "constant-columns"])
@pytest.mark.parametrize("depth", [128, 1024])
def test_short_sums_of_the_matrix_unit_are_within_what_is_allowed(kind: str, depth: int) -> None:
    spec = load_spec(f"dim M = 16, N = 16, K = {depth}\n" + FLOAT8)
    given = generate(spec, kind)
    want = on(spec, given)
    a, b = given.arrays["A"], given.arrays["B"]
    off = np.linalg.norm(short_sum(a, b) - want.values["Y"])
    assert off < want.allowed["Y"] < 0.05 * np.linalg.norm(np.abs(a) @ np.abs(b).T)


def test_a_sum_over_two_axes_is_bounded_by_its_terms_in_either_order() -> None:
    text = "dim M = 130, N = 200\ninput X: f32[M, N]\noutput Y: f32\nY = sum[i, j](X[i, j] * 4e35)\n"
    made = load_text(text)
    given = generate(made, "ascending", 0)
    ref = reference(Compiled(made), given, stated(made))
    columns = float(np.sum(np.sum(np.float32(given.arrays["X"]), axis=1, dtype=np.float32), dtype=np.float32))
    assert abs(columns) * 4e35 <= ref.allowed["Y"]


def test_equal_factors_may_be_rounded_the_way_their_product_is() -> None:
    made = load_text("dim N = 1000\ninput X: f32[N]\noutput Y: f32\nY = prod[i](1 + X[i] / 64)\n")
    x = float(np.float32(0.7))
    factor, given = 1 + x / 64, InputSet("equal", 0, {"X": np.full(1000, x)})
    off = abs(float(np.float32(factor)) ** 1000 - factor**1000)
    assert 2 * off < reference(Compiled(made), given, stated(made)).allowed["Y"]


def test_terms_that_leave_the_range_in_one_order_are_out_of_it() -> None:
    text = "dim N = 4096\ninput X: f32[N]\noutput Y: f32\nY = sum[i](exp2(X[i] * X[i] * 13.0) * X[i])\n"
    made = load_text(text)
    ref = reference(Compiled(made), generate(made, "ascending", 0), stated(made))
    assert not ref.in_range
    small = load_text(text.replace("13.0", "12.0"))
    assert reference(Compiled(small), generate(small, "ascending", 0), stated(small)).in_range


def test_numbers_at_the_tie_of_a_rounding_differ_between_two_interpreters() -> None:
    """Half of the largest is 63.5 steps, which ``x * (1 / s)`` and ``x / s`` round to 63 or 64."""
    text = "dim M = 64, K = 4\ninput X: f32[M, K]\noutput Y: f32[M, K]\n"
    text += "s[i] = max[k](abs(X[i, k])) / 127\nY[i, k] = round(X[i, k] / s[i]) * s[i]\n"
    x = np.random.default_rng(0).standard_normal((64, 1)) * np.array([1.0, 0.5, -0.5, 0.25])
    step = np.abs(x).max(axis=1, keepdims=True) / 127
    flips = 2.0 * step[:, 0]  # of every element at a tie
    assert on(load_spec(text), InputSet("given", 0, {"X": x})).noise["Y"] >= 0.5 * np.linalg.norm(flips)


def test_numbers_at_a_tie_of_a_quotient_differ_between_two_interpreters() -> None:
    """-0.5 of a row's largest magnitude is -63.5 steps of 1/127: f64 rounds it to either side, and so do integers."""
    spec = load_spec(
        "dim M = 16, K = 8\ninput X: bf16[M, K]\noutput Y: f32[M, K]\n"
        "s[i] = max(max[k](abs(X[i, k])), 1e-6) / 127\nq: i8[i, k] = i8(round(X[i, k] / s[i]))\n"
        "Y[i, k] = q[i, k] * s[i]\n"
    )
    x = np.tile([1.0, -0.5, 0.25, 0.0, 0.5, -1.0, 0.125, 0.75], (16, 1)) * 1.0625
    ref = on(spec, InputSet("columns", 0, {"X": x}))
    step = 1.0625 / 127
    assert ref.noise["Y"] > 4.0 * step  # of 32 elements at a tie, about half


def test_errors_of_f64_that_differ_by_element_are_not_lost() -> None:
    """In f32, 1 plus the roundoff of f64 is 1."""
    spec = load_spec("dim M = 64\ninput X: f64[M]\noutput Y: f64[M]\nY[i] = exp(X[i])\n")
    x = np.full(64, 0.3)
    made = errors.run(spec, {"X": x}, {}, {}, Roundings(), Probe(0))["Y"]
    assert np.count_nonzero(made != np.exp(x)) > 16
    assert np.abs(made - np.exp(x)).max() < 16 * 2.0**-53


def test_elements_outside_of_a_tensor_have_no_value() -> None:
    """``argmax`` of an empty domain is no valid index: the spec reads outside of the tensor, so nothing is compared."""
    spec = load_text(
        "dim B = 3, V = 9\ninput X: f32[B, V], least: f32[B]\noutput Y: f32[B]\n"
        "p[b] = argmax[v | X[b, v] >= least[b]](X[b, v])\nY[b] = X[b, p[b]]\n"
    )
    x = np.arange(27.0).reshape(3, 9)
    on(spec, InputSet("some", 0, {"X": x, "least": np.zeros(3)})).needs_range()
    with pytest.raises(OutOfRange, match="reads elements of X that are outside"):
        on(spec, InputSet("none", 0, {"X": x, "least": np.full(3, 100.0)})).needs_range()


def test_nan_of_the_spec_and_of_an_overflow_are_not_the_same() -> None:
    """Over the reals the scores are infinite, in f32 the norms are."""
    spec = load_text(
        "dim M = 4, N = 8, D = 16\ninput X: bf16[M, D], g: bf16[D], V: bf16[N, D]\noutput O: bf16[M, D]\n"
        "q: bf16[i, d] = X[i, d] * rsqrt(mean[e](X[i, e] * X[i, e])) * g[d]\n"
        "O[i, d] = sum[j: N](softmax[j: N](sum[e](q[i, e] * q[i, e]) * V[j, 0]) * V[j, d])\n"
    )
    assert not on(spec, generate(spec, "huge", 0)).in_range
    assert on(spec, generate(spec, "random", 0)).in_range


def test_small_numbers_beside_nan_may_be_0() -> None:
    """Such a probability times inf is NaN, whatever another row holds."""
    spec = load_text(
        "dim M = 2, N = 3\ninput X: f32[M, N], V: f32[M, N]\noutput O: f32[M]\n"
        "O[i] = sum[j](softmax[j](X[i, j]) * V[i, j])\n"
    )
    x = np.array([[0.0, -150.0, -1.0], [0.0, np.nan, 0.0]])
    v = np.array([[1.0, np.inf, 1.0], [1.0, 1.0, 1.0]])
    assert not on(spec, InputSet("garbage", 0, {"X": x, "V": v})).in_range
    x[0, 1] = -50.0
    assert on(spec, InputSet("garbage", 0, {"X": x, "V": v})).in_range
