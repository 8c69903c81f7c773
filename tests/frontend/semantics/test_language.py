"""The meaning of the language: every sentence of its contract, tested with the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nautilus.core.expr.nodes import Op, Reduce, walk
from nautilus.core.types import DType
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_text
from tests.frontend.semantics.evaluated import HEAD, X, rows, value
from tests.scalar.programs.specs import round_outputs

PYTHON = [
    "-2.0 ** 2", "2.0 ** 3 ** 2", "2 ** -1 * 3.0", "7 // 2 * 2 + 7 % 2", "-7 // 2", "-7 % 3", "7 % -3",
    "1 - 2 - 3", "8 / 4 / 2", "1 + 2 * 3 - 4 / 5", "(1 + 2) * 3", "- - 3", "+3", "2 * -3", "7.5 // 2.0",
    "1 if 2 < 1 else 3", "1 if False else 2 if True else 3", "5 if 1 < 2 < 3 else 6",
    "5 if 1 < 3 < 2 else 6", "5 if not 1 == 2 and 2 == 2 else 6", "5 if True or False and False else 6",
    "5 if not True or True else 6", "5 if 3 > 2 >= 2 != 1 else 6", "1e-5", "1.5e3", ".5", "2.", "3 / 2",
]  # fmt: skip


@pytest.mark.parametrize("expr", PYTHON)
def test_precedence_and_arithmetic_are_pythons(expr: str) -> None:
    ours = expr.replace("True", "true").replace("False", "false")
    assert value(ours) == pytest.approx(eval(expr), rel=1e-15)


@pytest.mark.parametrize("expr", PYTHON)
def test_the_same_when_nothing_is_constant(expr: str) -> None:
    """The numbers come from a tensor, so nothing is folded before the run."""
    import re

    numbers: list[float] = []

    def take(match: re.Match[str]) -> str:
        numbers.append(float(match[0]))
        return f"T[{len(numbers) - 1}]"

    ours = re.sub(r"(?<![\w.])(\d+\.?\d*|\.\d+)(e-?\d+)?", take, expr)
    ours = ours.replace("True", "true").replace("False", "false")
    got = value(ours, f"input T: f64[{max(len(numbers), 1)}]", T=np.array(numbers or [0.0]))
    assert got == pytest.approx(eval(expr), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("exp", np.exp), ("exp2", np.exp2), ("sqrt(abs", lambda x: np.sqrt(abs(x))), ("sin", np.sin),
        ("cos", np.cos), ("tanh", np.tanh), ("sigmoid", lambda x: 1 / (1 + np.exp(-x))), ("abs", abs),
        ("sign", np.sign), ("floor", np.floor), ("ceil", np.ceil), ("round", np.rint),
        ("log(abs", lambda x: np.log(abs(x))), ("log2(abs", lambda x: np.log2(abs(x))),
        ("rsqrt(abs", lambda x: abs(x) ** -0.5), ("relu", lambda x: np.maximum(x, 0)),
        ("silu", lambda x: x / (1 + np.exp(-x))), ("softplus", lambda x: np.log1p(np.exp(x))),
        ("square", lambda x: x * x),
    ],
)  # fmt: skip
def test_functions(name: str, function: Any) -> None:
    np.testing.assert_allclose(rows(f"{name}(X[i, 1]{')' * (name.count('(') + 1)}"), function(X[:, 1]), rtol=1e-12)


def test_more_functions() -> None:
    assert value("min(3, 2) + max(1, 2, 5) + pow(2, 3)") == 15
    assert value("erf(0.5)") == pytest.approx(0.5204998778130465)
    assert value("gelu(1.0)") == pytest.approx(0.8413447460685429)
    assert value("gelu_tanh(1.0)") == pytest.approx(0.8411919906082768)
    assert value("clamp(5, 0, 3) + leaky_relu(-2.0, 0.5) + elu(1.0, 2.0)") == 3


@pytest.mark.parametrize(
    ("expr", "want"),
    [
        ("sum[j](X[i, j])", X.sum(1)),
        ("prod[j](X[i, j])", X.prod(1)),
        ("max[j](X[i, j])", X.max(1)),
        ("min[j | j > i](X[i, j])", np.array([X[i, i + 1 :].min() for i in range(5)])),
        ("sum[j | j <= i](X[i, j])", np.array([X[i, : i + 1].sum() for i in range(5)])),
        ("mean[j](X[i, j])", X.mean(1)),
        ("mean[j | j <= i](X[i, j])", np.array([X[i, : i + 1].mean() for i in range(5)])),
        ("sum[j, k](X[i, j] * X[k, j])", (X @ X.T).sum(1)),
        ("sum[j | j > 100](X[i, j])", np.zeros(5)),
        ("max[j | j > 100](X[i, j])", np.full(5, -np.inf)),
        ("logsumexp[j | j > 100](X[i, j])", np.full(5, -np.inf)),
        ("sum[k: 3](X[i, k])", X[:, :3].sum(1)),
        ("sum[k: 3](X[i, k + 2])", X[:, 2:5].sum(1)),
        ("sum[k: 3](1)", np.full(5, 3)),
        ("variance[j](X[i, j])", X.var(1)),
        ("sum[j](X[i, j] if j >= i else 0)", np.triu(X).sum(1)),
        ("max[j](X[i, j]) - max[k](X[i, k])", np.zeros(5)),
    ],
)
def test_reductions(expr: str, want: Any) -> None:
    np.testing.assert_allclose(rows(expr), want, rtol=1e-12, atol=1e-12)


def test_logic_reductions_and_argmax() -> None:
    np.testing.assert_array_equal(rows("any[j](X[i, j] > 1)", dtype="bool"), (X > 1).any(1))
    np.testing.assert_array_equal(rows("all[j](X[i, j] > -1)", dtype="bool"), (X > -1).all(1))
    np.testing.assert_array_equal(rows("argmax[j](X[i, j])", dtype="i32"), X.argmax(1))
    np.testing.assert_array_equal(rows("argmin[j](X[i, j])", dtype="i32"), X.argmin(1))
    np.testing.assert_array_equal(rows("argmax[j](floor(X[i, j]))", dtype="i32"), np.floor(X).argmax(1))
    want = [2 + X[i, 2:].argmax() for i in range(5)]
    np.testing.assert_array_equal(rows("argmax[j | j >= 2](X[i, j])", dtype="i32"), want)
    assert value("argmax[k, j](X[k, j])", dtype="i32") == X.argmax()


def test_index_variables_are_values() -> None:
    text = HEAD + "output O: f32[M, N]\nO[i, j] = exp(-abs(i - j)) + (i - j) ** 2\n"
    i, j = np.mgrid[:5, :7]
    np.testing.assert_allclose(run_spec(load_text(text), {"X": X})["O"], np.exp(-abs(i - j)) + (i - j) ** 2)


def test_guarded_reads_and_gathers() -> None:
    got = rows("sum[k: 3](X[i, j0 + k] if j0 + k < N else 0)".replace("j0", "5"))
    np.testing.assert_allclose(got, X[:, 5:].sum(1))
    page = np.array([3, 0, 2])
    text = HEAD + "input page: i32[3]\noutput O: f32[3, N]\nO[i, j] = X[page[i], j // 2 * 2]\n"
    got = run_spec(load_text(text), {"X": X, "page": page})["O"]
    np.testing.assert_array_equal(got, X[page][:, np.arange(7) // 2 * 2])
    # a position outside the tensor in a branch that is not selected has no effect and no message
    got = rows("(X[i, p[i]] if p[i] < N else -1)", "input p: i32[M]", p=np.array([0, 99, -5, 3, 1 << 30]))
    assert got[1] == -1 and got[4] == -1 and got[3] == X[3, 3]


def test_the_position_of_an_extremum_is_that_of_the_first_nan() -> None:
    x = X.copy()
    x[1, [2, 4]] = np.nan
    x[2, :] = -np.inf
    x[3, 5] = np.nan
    for op, want in (("argmax", x.argmax(1)), ("argmin", x.argmin(1))):
        got = run_spec(load_text(HEAD + f"output O: i32[M]\nO[i] = {op}[j](X[i, j])\n"), {"X": x})["O"]
        np.testing.assert_array_equal(got, want)
    got = run_spec(load_text(HEAD + "output O: i32[M]\nO[i] = argmax[j | j < 5](X[i, j])\n"), {"X": x})["O"]
    np.testing.assert_array_equal(got, x[:, :5].argmax(1))  # a NaN behind a false condition does not count


def test_masked_infinities_do_no_harm() -> None:
    x = X.copy()
    x[:, 3] = np.nan
    text = HEAD + "output O: f32[M, N]\nO[i, j] = softmax[j | j < 3](X[i, j])\n"
    got = run_spec(load_text(text), {"X": x})["O"]
    e = np.exp(X[:, :3] - X[:, :3].max(1, keepdims=True))
    np.testing.assert_allclose(got[:, :3], e / e.sum(1, keepdims=True))
    assert (got[:, 3:] == 0).all()


@pytest.mark.parametrize(
    "terms",
    [
        "(X[i, j] if j < 3 else 0) * Z[j]",
        "-(Z[j] * ((0 if j >= 3 else X[i, j]) / 2)) * -2",
        "f32(f16(X[i, j] if j < 3 else 0)) * Z[j]",
        "((X[i, j] if j < 3 else 0) if i > 1 else (X[i, j] if j < 3 else 0)) * Z[j]",
        "W[i, j] * Z[j]",
        "T[i, j] * Z[j]",
        "L[i, j] * Z[j]",
        "W[i, j] * Z[j] * Z[j] / Z[j]",
        "j - (W[i, j] * -Z[j] - 2) - j - 2",
        "f32(j < 3) * X[i, j] * Z[j]",
    ],
)
def test_a_structural_zero_is_absent_from_a_sum(terms: str) -> None:
    text = HEAD + "input Z: f32[N]\noutput O: f32[M]\noutput L: f32[M, N]\n"
    text += "W[i, j] = X[i, j] if j < 3 else 0\nT: f16[i, j] = W[i, j]\nL[i, j] = W[i, j]\n"
    text += f"O[i] = sum[j]({terms})\n"
    x = np.round(X * 8) / 8
    z = np.array([1.0, 2.0, 4.0, np.nan, np.inf, -np.inf, np.nan])
    want = x[:, :3] @ z[:3]
    got = run_spec(load_text(text), {"X": x, "Z": z})["O"]
    np.testing.assert_allclose(got, want)


@pytest.mark.parametrize(
    "scores",
    [
        "X[i, j] if j < 3 else -inf",
        "X[i, j] + (0 if j < 3 else -inf)",
        "(X[i, j] * Z[j] / Z[j] if j < 3 else -inf)",
        "-(-2 * (X[i, j] if j < 3 else -inf)) / 2",
        "-((-X[i, j] if j < 3 else inf) - (Z[j] - Z[j] if j < 3 else 1))",
        "f16(T[i, j]) + log(1 if j < 3 else 0)",
    ],
)
@pytest.mark.parametrize("masked", [np.nan, np.inf, -np.inf])
def test_a_structural_infinity_is_absent_from_an_extreme_and_its_exponential_from_a_sum(
    scores: str, masked: float
) -> None:
    text = HEAD + "input Z: f32[N]\noutput O: f32[M]\noutput T: f16[M, N]\noutput R: f32[M]\n"
    text += f"T[i, j] = X[i, j]\nS[i, j] = {scores}\nE[i, j] = exp(S[i, j] - max[k](S[i, k]))\n"
    text += "O[i] = sum[j](E[i, j] * Z[j]) / sum[j](E[i, j])\nR[i] = -min[j](-S[i, j])\n"
    x, z = np.round(X * 8) / 8, np.array([1.0, 2.0, 4.0] + [masked] * 4)
    x[:, 3:] = masked
    e = np.exp(x[:, :3])
    got = run_spec(load_text(text), {"X": x, "Z": z})
    np.testing.assert_allclose(got["O"], e @ z[:3] / e.sum(axis=1))
    np.testing.assert_allclose(got["R"], x[:, :3].max(axis=1))


def test_other_infinities_are_numbers() -> None:
    text = HEAD + "input Z: f32[N]\noutput O: f32[M]\nS[i, j] = X[i, j] - Z[j]\nO[i] = sum[j](exp(S[i, j]) * Z[j])\n"
    assert np.isnan(run_spec(load_text(text), {"X": X, "Z": np.array([np.inf] * 7)})["O"]).all()
    text = HEAD + "output O: f32[M]\nO[i] = sum[j](exp(X[i, j] if j < 0 else -inf) + X[i, j])\n"
    np.testing.assert_allclose(run_spec(load_text(text), {"X": X})["O"], X.sum(axis=1))


@pytest.mark.parametrize("factor", ["0", "(X[i, j] - X[i, j])", "(0 * X[i, j] if j < 3 else X[i, j])"])
def test_an_ordinary_zero_is_a_number(factor: str) -> None:
    text = HEAD + f"input Z: f32[N]\noutput O: f32[M]\nO[i] = sum[j]({factor} * Z[j])\n"
    got = run_spec(load_text(text), {"X": X, "Z": np.array([np.nan] * 7)})["O"]
    assert np.isnan(got).all()


def test_empty_softmax_is_zero() -> None:
    text = HEAD + "output O: f32[M, N]\nO[i, j] = softmax[j | j > 100](X[i, j])\n"
    assert (run_spec(load_text(text), {"X": X})["O"] == 0).all()


# ---- numbers
def test_casts_round() -> None:
    x = np.array([[1 / 3, 1e4, -2.75, 300.5, 0.1, 7.0, -1.5]] * 5)
    cases = {"f16": x.astype(np.float16), "i32": np.trunc(x), "i8": np.trunc(x).astype(np.int64).astype(np.int8)}
    for name, want in cases.items():
        text = HEAD + f"output O: f64[M, N]\nO[i, j] = f64({name}(X[i, j]))\n"
        got = run_spec(load_text(text.replace("X: f32", "X: f64")), {"X": x})["O"]
        np.testing.assert_array_equal(got, want.astype(np.float64))
    assert value("f32(2 > 1) + i32(true)") == 2 and value("bool(3)", dtype="bool") is True


def test_outputs_are_unrounded_until_asked() -> None:
    spec = load_text("dim M = 5\ninput X: f32[M]\noutput O: f16[M]\nO[i] = X[i] / 3\n")
    got = run_spec(spec, {"X": X[:, 0]})
    np.testing.assert_allclose(got["O"], X[:, 0] / 3, rtol=1e-15)
    np.testing.assert_array_equal(round_outputs(spec, got)["O"], (X[:, 0] / 3).astype(np.float16).astype(float))


def test_a_read_output_and_a_typed_intermediate_are_rounded() -> None:
    text = "dim M = 5\ninput X: f32[M]\noutput O: f16[M]\noutput P: f32[M]\noutput Q: f32[M]\n"
    text += "O[i] = X[i] / 3\nP[i] = O[i]\nT: bf16[i] = X[i] / 3\nQ[i] = T[i]\n"
    spec = load_text(text)
    got = run_spec(spec, {"X": X[:, 0]})
    np.testing.assert_array_equal(got["P"], (X[:, 0] / 3).astype(np.float16).astype(float))
    assert (got["Q"] != X[:, 0] / 3).any() and np.abs(got["Q"] - X[:, 0] / 3).max() < 0.01
    d = spec.definition("T")
    assert d.dtype is DType.BF16 and isinstance(d.expr, Op) and d.expr.op == "cast"


def test_integers_accumulate_wide() -> None:
    a = np.full((5, 7), 100)
    text = "dim M = 5, N = 7\ninput X: i8[M, N]\noutput O: i32[M]\nO[i] = sum[j](X[i, j] * X[i, j])\n"
    np.testing.assert_array_equal(run_spec(load_text(text), {"X": a})["O"], np.full(5, 70000))


def test_every_op_has_one_compute_type() -> None:
    text = HEAD + "input H: f16[N]\ninput I: i8[N]\nscalar s: f64 = 2\noutput O: f64[M, N]\n"
    text += "O[i, j] = (X[i, j] + H[j] * I[j] - i) * s + (1 if H[j] < 1 else I[j]) // 2\n"
    for d in load_text(text).definitions:
        for n in walk(d.expr):
            if isinstance(n, Op) and n.op not in ("cast", "select"):
                kinds = {a.dtype for a in n.args}
                assert len(kinds) == 1 and kinds == {k.compute for k in kinds}, n
            if isinstance(n, Op) and n.op == "select":
                assert n.args[0].dtype is DType.BOOL and n.args[1].dtype is n.args[2].dtype is n.dtype


# ---- names
def test_expansion_is_hygienic() -> None:
    defs = "def f(x) = sum[t: 3](x * t)\ndef g[j](x) = sum[j](x) + sum[i: 2](max[j](x) * i)\n"
    np.testing.assert_allclose(rows("sum[t: 2](f(X[i, t]))", defs), X[:, :2].sum(1) * 3)
    scaled = X * np.arange(5)[:, None]
    np.testing.assert_allclose(rows("g[k](X[i, k] * i)", defs), scaled.sum(1) + scaled.max(1))
    # an argument that mentions the caller's t is not captured by the function's own t
    np.testing.assert_allclose(rows("sum[t](f(X[i, t] + t))", defs), ((X + np.arange(7)) * 3).sum(1))


def test_a_rebound_index_rebinds_through_nested_calls() -> None:
    defs = "def norm[k | q](y) = softmax[k | q](2 * y)\ndef total[a | c](x) = sum[a | c](norm[a | c](x))\n"
    np.testing.assert_allclose(rows("total[j | j <= i](X[i, j])", defs), np.ones(5))
    text = HEAD + defs + "output O: f32[M, N]\nO[i, j] = norm[j | j <= i](X[i, j])\n"
    e = np.tril(np.exp(2 * X))
    np.testing.assert_allclose(run_spec(load_text(text), {"X": X})["O"], e / e.sum(1, keepdims=True))


def test_a_function_over_several_indices() -> None:
    text = HEAD + "output O: f32[M, N]\nO[i, j] = softmax[i, j | i < 4](X[i, j])\n"
    e = np.exp(X) * (np.arange(5) < 4)[:, None]
    np.testing.assert_allclose(run_spec(load_text(text), {"X": X})["O"], e / e.sum())
    text = HEAD + "def f[a, b](x) = sum[a](max[b](x))\noutput O: f32[]\nO = f[i, j](X[i, j])\n"
    np.testing.assert_allclose(run_spec(load_text(text), {"X": X})["O"], X.max(1).sum())


def test_a_shadowed_index_and_a_written_range() -> None:
    text = HEAD + "output O: f32[M, N]\nO[i, j] = X[i, j] - max[j](X[i, j])\n"
    np.testing.assert_allclose(run_spec(load_text(text), {"X": X})["O"], X - X.max(1, keepdims=True))
    text = HEAD + "output O: f32[M]\nO[i] = logsumexp[j: 3](X[i, j])\n"
    np.testing.assert_allclose(run_spec(load_text(text), {"X": X})["O"], np.log(np.exp(X[:, :3]).sum(1)))
    text = "dim M = 3, N = 4\noutput P: f32[M, N]\nP[i, j] = softmax[j](-(i - j) ** 2)\n"
    w = np.exp(-((np.arange(3)[:, None] - np.arange(4)) ** 2.0))
    np.testing.assert_allclose(run_spec(load_text(text), {})["P"], w / w.sum(1, keepdims=True))


def test_equal_reductions_become_one_node_with_unique_axes() -> None:
    spec = load_text(HEAD + "output P: f32[M, N]\nP[i, j] = softmax[j | j <= i](X[i, j])\n")
    reductions = [n for n in walk(spec.definitions[0].expr) if isinstance(n, Reduce)]
    assert sorted((r.op, r.axes[0].name) for r in reductions) == [("max", "j_1"), ("sum", "j_2")]


def test_axes_never_share_a_name() -> None:
    text = HEAD + "dim j_1 = 2\noutput P: f32[M, N]\n"
    text += "P[i, j] = sum[j](X[i, j] * sum[j](X[i, j] * j)) + sum[k](X[k, j]) * sum[k](X[i, k])\n"
    d = load_text(text).definitions[0]
    axes = [a.name for n in walk(d.expr) if isinstance(n, Reduce) for a in n.axes]
    assert len(set(axes) | {"i", "j", "j_1"}) == len(axes) + 3
    got = run_spec(load_text(text), {"X": X})["P"]
    inner = (X * np.arange(7)).sum(1)
    want = (X.sum(1) * inner)[:, None] + X.sum(0)[None, :] * X.sum(1)[:, None]
    np.testing.assert_allclose(got, want)
