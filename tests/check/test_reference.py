"""The stated bound has the right order of magnitude, and evaluation in the stated types stays within it."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.check.inputs import InputSet, generate
from nautilus.check.reference import reference
from nautilus.frontend.error_bound import SHORT_DEPTH, header, stated
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_spec
from nautilus.ma_tile.ir import async_ops as warpgroup_ops

HEAD = "dim M = 512, N = 512, K = 512\n"


def bound(body: str, precision: str = "fast") -> float:
    return stated(load_spec(HEAD + body), precision)["Y"].relative


MATMUL = "input A: {t}[M, K]\ninput B: {t}[K, N]\noutput Y: {o}[M, N]\nY[i, j] = sum[k](A[i, k] * B[k, j])\n"
SOFTMAX = "input X: {t}[M, N]\noutput Y: {t}[M, N]\nY[i, j] = softmax[j](X[i, j])\n"
MIXED = "input S: f32[M, K]\ninput V: f16[K, N]\noutput Y: {o}[M, N]\nY[i, j] = sum[k](exp(S[i, k]) * V[k, j])\n"


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        (MATMUL.format(t="f16", o="f16"), 4e-4, 1e-3),
        (MATMUL.format(t="f16", o="f32"), 1e-7, 2e-5),
        (MATMUL.format(t="f32", o="f32"), 1e-7, 2e-5),
        (MATMUL.format(t="f64", o="f64"), 1e-16, 1e-13),
        (SOFTMAX.format(t="f32"), 1e-6, 2e-5),
        (SOFTMAX.format(t="f16"), 4e-4, 1e-3),
        (MIXED.format(o="f16"), 1e-3, 3e-3),
    ],
)
def test_the_order_of_the_bound(body: str, low: float, high: float) -> None:
    assert low <= bound(body) <= high


def test_strict_precision_has_no_narrowing() -> None:
    assert bound(MIXED.format(o="f32"), "strict") < 1e-4 < bound(MIXED.format(o="f32"))


TANH = "input X: f32[M, N]\noutput Y: {o}[M, N]\nY[i, j] = {f}(X[i, j])\n"


@pytest.mark.parametrize(("f", "error"), [("tanh", 2.0**-11), ("erf", 2.0**-10)])
def test_hardware_approximations_are_stated_where_they_are_taken(f: str, error: float) -> None:
    narrow, wide = TANH.format(f=f, o="f16"), TANH.format(f=f, o="f32")
    assert bound(narrow) == pytest.approx(2.0**-11 + error, rel=0.01)
    assert bound(narrow, "strict") < 2.0**-11 * 1.01
    assert bound(wide) < 1e-5


def test_a_wide_reader_of_a_narrow_output_inherits_its_error() -> None:
    body = "input X: f32[M, N]\noutput H: f16[M, N]\noutput Y: f32[M, N]\n"
    body += "H[i, j] = tanh(X[i, j])\nY[i, j] = H[i, j] * 2\n"
    assert bound(body) > 2.0**-11 + 2.0**-12


def test_what_cancels_is_measured() -> None:
    """1 + tanh(-4) is 0.0007, less than the error of the hardware's tanh: the bound must say so."""
    body = "input X: f16[M]\noutput Y: f16[M]\nY[i] = 1 + tanh(X[i])\n"
    spec = load_spec("dim M = 64\n" + body)
    given = InputSet("constant", 0, {"X": np.full(64, -4.0)})
    want = reference(spec, given, stated(spec), lambda g: run_spec(spec, g.arrays, g.scalars, g.sizes))
    assert want.allowed["Y"] > 2.0**-11 * 8  # |error| of 64 elements
    assert want.allowed["Y"] < 16 * 2.0**-11 * 8


def test_integers_are_exact() -> None:
    spec = load_spec(HEAD + MATMUL.format(t="i8", o="i32"))
    assert stated(spec)["Y"].relative == 0.0
    assert not stated(spec)["Y"].ties


def test_integers_that_computed_floats_decide_may_tie() -> None:
    direct = load_spec(HEAD + "input X: f32[M, N]\noutput Y: i32[M]\nY[i] = argmax[j](X[i, j])\n")
    computed = load_spec(
        HEAD + "input X: f32[M, N]\noutput Y: i32[M]\nS[i, j] = exp(X[i, j]) / 3\nY[i] = argmax[j](S[i, j])\n"
    )
    assert not stated(direct)["Y"].ties
    assert stated(computed)["Y"].ties


def test_header_lines() -> None:
    lines = header(load_spec(HEAD + MATMUL.format(t="f16", o="f16")))
    assert len(lines) == 2
    assert lines[1].strip().startswith("Y: ")


def test_float32_evaluation_stays_within_the_bound() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((512, 512)).astype(np.float32) for _ in range(2))
    want = a.astype(np.float64) @ b.astype(np.float64)
    error = np.linalg.norm(a @ b - want) / np.linalg.norm(want)
    assert error < bound(MATMUL.format(t="f32", o="f32"))
    x = rng.standard_normal((512, 512)).astype(np.float32)
    e = np.exp(x - x.max(1, keepdims=True))
    exact = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    error = np.linalg.norm(e / e.sum(1, keepdims=True) - exact) / np.linalg.norm(exact)
    assert error < bound(SOFTMAX.format(t="f32"))


FLOAT8 = "input A: f8e4m3[M, K]\ninput B: f8e4m3[N, K]\noutput Y: f32[M, N]\nY[i, j] = sum[k](A[i, k] * B[j, k])\n"


def test_short_sums_are_stated() -> None:
    """Sums of products of 8-bit floats keep few bits, in chains of at most 128."""
    assert bound(FLOAT8) == pytest.approx(2.0**-6, rel=0.01)
    assert bound(FLOAT8.replace("[M, K]", "[M, 32]").replace("[N, K]", "[N, 32]")) < 2.0**-7
    assert bound(FLOAT8, "strict") < 1e-4
    assert bound(FLOAT8.replace("B: f8e4m3", "B: f16")) < 1e-4
    assert SHORT_DEPTH == warpgroup_ops.SHORT_DEPTH


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
def test_the_matrix_unit_stays_within_what_is_stated(kind: str, depth: int) -> None:
    spec = load_spec(f"dim M = 16, N = 16, K = {depth}\n" + FLOAT8)
    given = generate(spec, kind)
    want = reference(spec, given, stated(spec), lambda g: run_spec(spec, g.arrays, g.scalars, g.sizes))
    a, b = given.arrays["A"], given.arrays["B"]
    off = np.linalg.norm(short_sum(a, b) - want.values["Y"])
    assert off < want.allowed["Y"] < 0.05 * np.linalg.norm(np.abs(a) @ np.abs(b).T)
