"""Functions of the language, built in and of the prelude, through the reference interpreter."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.core.errors import DiagnosticError
from nautilus.core.functions import NAMED
from nautilus.core.types import DType
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_text
from tests.check.elementary import ELEMENTARY, given

PRELUDE = Path(__file__).parents[2] / "grammar" / "prelude.naut"


def run(expr: str, dtype: str = "f64", **arrays: Any) -> Any:
    """``O[i] = expr`` where every array is an input of ``dtype`` over i."""
    size = len(next(iter(arrays.values())))
    inputs = "".join(f"input {n}: {dtype}[N]\n" for n in arrays)
    text = f"dim N = {size}\n{inputs}output O: f64[N]\nO[i] = {expr}\n"
    return run_spec(load_text(text), arrays)["O"]


#: the reference is Python's math, which is independent of numpy; arguments that it rejects give inf or NaN
REFERENCES: dict[str, Any] = {
    "exp2": lambda x: 2.0**x, "exp10": lambda x: 10.0**x, "rsqrt": lambda x: 1 / math.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
}  # fmt: skip


@pytest.mark.parametrize("name", ELEMENTARY)
def test_elementary_functions(name: str) -> None:
    f = NAMED[name]
    arrays: dict[str, Any] = dict(zip("XY", given(f), strict=False))
    got = run(f"{name}({', '.join(f'{n}[i]' for n in arrays)})", **arrays)
    reference = REFERENCES.get(name) or getattr(math, name)
    for value, *at in zip(got.tolist(), *(a.tolist() for a in arrays.values()), strict=True):
        if any(map(math.isnan, at)):
            assert math.isnan(value) or (name == "hypot" and math.isinf(value)), at
            continue
        try:
            want = reference(*at)
        except (ArithmeticError, ValueError):
            assert not math.isfinite(value) or value == 0, at
            continue
        assert value == pytest.approx(want, rel=1e-13, abs=1e-300), at


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("expr", "want"),
    [
        ("asin(2.0)", NAN), ("acos(-1.5)", NAN), ("acosh(0.5)", NAN), ("atanh(2.0)", NAN), ("log1p(-2.0)", NAN),
        ("fmod(1.0, 0.0)", NAN), ("fmod(inf, 2.0)", NAN), ("tan(inf)", NAN), ("atanh(1.0)", INF), ("atanh(-1.0)", -INF),
        ("log1p(-1.0)", -INF), ("expm1(-inf)", -1.0), ("exp10(-inf)", 0.0), ("erfc(inf)", 0.0), ("erfc(-inf)", 2.0),
        ("hypot(inf, 1.0)", INF), ("hypot(3e300, 4e300)", 5e300), ("atan(inf)", math.pi / 2), ("cbrt(-8.0)", -2.0),
        ("fmod(-7.0, 3.0)", -1.0), ("-7.0 % 3.0", 2.0), ("fmod(7.0, -3.0)", 1.0), ("fmod(5.0, inf)", 5.0),
        ("atan2(1.0, -1.0)", 3 * math.pi / 4), ("atan2(0.0, -1.0)", math.pi), ("cosh(-inf)", INF),
        ("round_even(2.5)", 2.0), ("round_even(3.5)", 4.0), ("round_even(-0.5)", 0.0), ("round(2.5)", 2.0),
        ("clamp(5.0, 0.0, 3.0)", 3.0), ("clamp(-5.0, 0.0, 3.0)", 0.0), ("clamp(1.0, 2.0, 0.0)", 0.0),
    ],
)  # fmt: skip
def test_special_arguments(expr: str, want: float) -> None:
    literals = re.findall(r"(?<![\w.])(?:inf|\d[\d.e]*)", expr)
    names = [f"X{n}" for n in range(len(literals))]
    parts = iter(names)
    spelled = re.sub(r"(?<![\w.])(?:inf|\d[\d.e]*)", lambda _: f"{next(parts)}[i]", expr)
    arrays: dict[str, Any] = {n: np.array([float(v)]) for n, v in zip(names, literals, strict=True)}
    got = run(spelled, **arrays)
    np.testing.assert_allclose(got, [want], rtol=1e-15)


def test_clamp_gives_nan_as_min_and_max_do() -> None:
    x = np.array([NAN, 1.0, 1.0])
    got = run("clamp(X[i], L[i], H[i])", X=x, L=np.array([0.0, NAN, 0.0]), H=np.array([2.0, 2.0, NAN]))
    assert np.isnan(got).all()


def test_integers_are_converted_as_exp_does() -> None:
    x = np.array([1, 2, 3])
    np.testing.assert_allclose(run("log1p(X[i])", "i32", X=x), np.log1p(x))
    np.testing.assert_allclose(run("fmod(-7, X[i])", "i32", X=x), np.fmod(-7.0, x))
    np.testing.assert_allclose(run("atan2(X[i], 2)", "i32", X=x), np.arctan2(x, 2.0))
    np.testing.assert_array_equal(run("round_even(X[i])", "i32", X=x), x)


@pytest.mark.parametrize(
    "expr", ["log1p(X[i], 2)", "atan2(X[i])", "hypot(X[i], 1, 2)", "tan[i](X[i])", "fmod(X[i] > 0, 2)"]
)
def test_wrong_calls_are_errors(expr: str) -> None:
    with pytest.raises(DiagnosticError):
        run(expr, X=np.ones(3))


def test_compile_time_numbers() -> None:
    text = "const N = round(hypot(3, 4) + log1p(0) + fmod(7, 4))\noutput O: f32[N]\nO[i] = i\n"
    assert run_spec(load_text(text), {})["O"].shape == (8,)


# -- prelude ------------------------------------------------------------------------------------------

X = np.array(
    [-1e30, -700.0, -90.0, -20.0, -3.0, -1.0, -1e-6, -1e-20, 0.0, 1e-20, 1e-6, 0.5, 1.0, 3.0, 20.0, 90.0, 1e30]
)


def softplus(x: Any) -> Any:
    return np.logaddexp(x, 0.0)


def exponential(x: Any) -> Any:
    """``exp(x) - 1`` where x is negative."""
    return np.expm1(np.minimum(x, 0.0))


@pytest.mark.parametrize(
    ("expr", "want"),
    [
        ("softplus(X[i])", softplus(X)),
        ("mish(X[i])", X * np.tanh(softplus(X))),
        ("elu(X[i], 2.0)", np.where(X > 0, X, 2.0 * exponential(X))),
        ("selu(X[i])", 1.0507009873554805 * np.where(X > 0, X, 1.6732632423543772 * exponential(X))),
        ("hardswish(X[i])", X * np.clip(X + 3, 0, 6) / 6),
        ("leaky_relu(X[i], 0.25)", np.where(X > 0, X, 0.25 * X)),
        ("silu(X[i])", X * np.exp(-np.logaddexp(0.0, -X))),
        ("relu(X[i])", np.maximum(X, 0)),
        ("clamp(X[i], -2, 2)", np.clip(X, -2, 2)),
    ],
)
def test_prelude_functions_of_one_number(expr: str, want: Any) -> None:
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(run(expr, X=X), want, rtol=1e-13, atol=1e-300)


def rows(expr: str, x: Any, out: str = "N") -> Any:
    text = f"dim M = {x.shape[0]}, N = {x.shape[1]}\ninput X: f64[M, N]\noutput O: f64[M{', N' if out else ''}]\n"
    return run_spec(load_text(text + f"O[i{', j' if out else ''}] = {expr}\n"), {"X": x})["O"]


R = np.random.default_rng(3).standard_normal((4, 9)) * 3
LARGE = R + 1e4


@pytest.mark.parametrize("x", [R, LARGE], ids=["ordinary", "far from zero"])
def test_prelude_reductions(x: Any) -> None:
    shifted = x - x.max(1, keepdims=True)
    total = np.log(np.exp(shifted).sum(1, keepdims=True))
    close = np.testing.assert_allclose
    close(rows("logsumexp[j](X[i, j])", x, ""), (total + x.max(1, keepdims=True))[:, 0], rtol=1e-14)
    close(rows("log_softmax[j](X[i, j])", x), shifted - total, rtol=1e-13)
    close(rows("variance[j](X[i, j])", x, ""), x.var(1), rtol=1e-11)
    close(rows("std[j](X[i, j])", x, ""), x.std(1), rtol=1e-11)
    close(rows("rms_norm[j](X[i, j], 1e-5)", x), x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5), rtol=1e-13)
    normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    close(rows("layer_norm[j](X[i, j], 1e-5)", x), normal, rtol=1e-8)
    close(rows("l2_norm[j](X[i, j], 0)", x), x / np.linalg.norm(x, axis=1, keepdims=True), rtol=1e-13)


def test_prelude_reductions_under_a_condition() -> None:
    """Row i has the elements up to i; the condition also determines the values of the other elements."""
    close = np.testing.assert_allclose
    for i, (lse, dev) in enumerate(
        zip(rows("logsumexp[j | j <= i](X[i, j])", R, ""), rows("std[j | j <= i](X[i, j])", R, ""), strict=True)
    ):
        close(lse, np.logaddexp.reduce(R[i, : i + 1]), rtol=1e-13)
        close(dev, R[i, : i + 1].std(), rtol=1e-11, atol=1e-15)
    got = rows("log_softmax[j | j <= i](X[i, j])", R)
    assert np.array_equal(np.isneginf(got), np.triu(np.ones(R.shape), 1) == 1)


def test_prelude_reductions_over_an_empty_domain() -> None:
    assert np.isneginf(rows("logsumexp[j | j < 0](X[i, j])", R, "")).all()
    assert np.isneginf(rows("log_softmax[j | j < 0](X[i, j])", R)).all()
    assert (rows("rms_norm[j | j < 0](X[i, j], 1e-5)", R) == 0).all()
    assert np.isnan(rows("std[j | j < 0](X[i, j])", R, "")).all()


def test_every_prelude_function_has_a_comment_in_front() -> None:
    lines = PRELUDE.read_text().splitlines()
    bare = [b for a, b in pairwise(lines) if b.startswith("def ") and not a.startswith("# ")]
    assert bare == []


def test_no_prelude_function_hides_a_built_in_one() -> None:
    names = set(re.findall(r"^def (\w+)", PRELUDE.read_text(), re.MULTILINE))
    wanted = "softplus gelu gelu_tanh silu mish elu selu hardswish leaky_relu logsumexp log_softmax variance std"
    assert set(wanted.split()) | {"rms_norm", "layer_norm", "l2_norm", "clamp", "round_even"} <= names
    assert not names & NAMED.keys()
    assert DType.F32.value not in names
