"""``narrow``: the factors, their types, and the proof that they do not overflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nautilus.check.certificates import check
from nautilus.core.certificate import Certificate
from nautilus.core.schedule import Schedule
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.ir import Program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.factor import Factor
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.narrow import Narrow
from nautilus.scalar.passes.simplify import Simplify
from tests.scalar.expect import expect, sound
from tests.scalar.programs.specs import LANGUAGE, SHIPPED, agree, language, small

ATTENTION = small(next(s for s in SHIPPED if s.stem == "causal_prefill"))


def ready(spec: Spec) -> Program:
    return Dead().apply(Factor().apply(Simplify().apply(Inline().apply(lower(spec)))))


def narrowed(spec: Spec) -> tuple[Program, tuple[Certificate, ...]]:
    p, certificates = Narrow().derive(ready(spec))
    sound(p)
    agree(spec, p)  # over the reals nothing happened
    return p, certificates


def product(body: str, dtype: str = "f16", weight: str = "f16") -> Spec:
    return load_text(
        f"dim M = 5, N = 6, K = 7\ninput X: {dtype}[M, K]\ninput W: {weight}[K, N]\ninput a: f32[M]\n"
        f"output Y: f32[M, N]\n{body}\n"
    )


def test_probabilities() -> None:
    p, (c,) = narrowed(ATTENTION)
    expect(p, "sum= cast<f32>(narrow<f16>(exp(S_sum[b, h, i, j] * 0.35355339059327373 - P_max[b, h, i]))) * cast")
    assert c.notes == ("the factor is in [0, 1]",)


@pytest.mark.parametrize(
    ("factor", "target", "note"),
    [
        ("sigmoid(f32(X[i, k]))", "f16", "[0, 1]"),
        ("tanh(f32(X[i, k])) * 300", "f16", "[-1, 1]"),
        ("(erf(f32(X[i, k])) + 1)", "f16", " 2]"),
        ("max(min(f32(X[i, k]), 6), 0)", "f16", "[0, 6]"),
        ("(X[i, k] if k > 2 else 0.5) * 0.25", "f16", "[-65504, 65504]"),
        ("f32(X[i, k]) * X[i, k]", "f16", "4.29"),  # scaled
        ("exp(f32(X[i, k]))", "f16", "inf"),  # scaled
        ("f32(X[i, k]) * a[i] * exp(-abs(k - i))", "f16", "[-65504, 65504]"),
        ("exp(-abs(f32(X[i, k])))", "f16", "[0, 1]"),
        ("rsqrt(1 + exp(f32(X[i, k])))", "f16", "[0, 1]"),
        ("(i * 3 - k + f32(X[i, k]) * 0)", "f16", "[-6, 12]"),
    ],
)
def test_ranges_decide(factor: Any, target: str, note: str) -> None:
    p, (c,) = narrowed(product(f"Y[i, j] = sum[k]({factor} * W[k, j])"))
    expect(p, f"narrow<{target}>(")
    assert note in c.notes[0]


def test_tf32_on_both_sides() -> None:
    """A product of tf32 and f16 would have no matrix unit."""
    p, _ = narrowed(product("E[i, k] = exp(X[i, k]) - max[k](X[i, k])\nY[i, j] = sum[k](E[i, k] * W[k, j])"))
    expect(p, "(narrow<tf32>(exp(cast<f32>(X[i, k])) - E_max[i])) * cast<f32>(narrow<tf32>(cast<f32>(W[k, j])))")


def test_a_scale_from_the_largest_magnitude() -> None:
    p, (c,) = narrowed(product("Y[i, j] = sum[k | k != j](exp(X[i, k]) * W[k, j])"))
    expect(p, "narrow<tf32>(")  # the condition would need a maximum for each element
    p, (c,) = narrowed(product("Y[i, j] = sum[k | k != i](exp(X[i, k]) * W[k, j])"))
    expect(p, "Y_largest[i] max= abs(exp(cast<f32>(X[i, k]))) where i != k")
    expect(p, "narrow<f16>(exp(cast<f32>(X[i, k])) * (16384.0 / binade(Y_largest[i])))")
    expect(p, "Y[i, j] = Y_acc[i, j] * (binade(Y_largest[i]) / 16384.0)")
    assert check(c).ok


def test_a_constant_scale_of_a_range_that_is_little_larger() -> None:
    p, (c,) = narrowed(product("Y[i, j] = sum[k]((f32(X[i, k]) + X[i, 0]) * W[k, j])"))
    expect(p, "narrow<f16>((cast<f32>(X[i, k]) + cast<f32>(X[i, 0])) * 0.5)")
    expect(p, "Y[i, j] = Y_acc[i, j] * 2.0")
    assert check(c).ok


def test_a_bf16_tensor_beside_one_of_f16_keeps_its_range() -> None:
    spec = load_text(
        "dim M = 5, N = 6, K = 7\ninput X: f16[M, K]\ninput W: bf16[K, N]\noutput Y: f32[M, N]\n"
        "Y[i, j] = sum[k](X[i, k] * W[k, j])\n"
    )
    p, _ = narrowed(spec)
    expect(p, "cast<f32>(X[i, k]) * cast<f32>(narrow<f16>(cast<f32>(W[k, j]) * (16384.0 / binade(Y_largest[j]))))")
    x = {"X": np.full((5, 7), 2.0**-10), "W": np.full((7, 6), 2.0**100)}
    np.testing.assert_array_equal(run_program(p, x, mode="typed")["Y"], np.full((5, 6), 7 * 2.0**90))


@pytest.mark.parametrize(
    ("large", "want"),
    [(np.inf, np.inf), (-np.inf, -np.inf), (np.nan, np.nan), (3e38, 3e38), (1e-28, 1e-28), (0.0, 0.0)],
)
def test_scaled_factors_keep_what_f32_holds(large: float, want: float) -> None:
    """Infinite, huge and tiny magnitudes, beside a number of the other sign that is finite in f32."""
    p, _ = narrowed(product("Y[i, j] = sum[k](f32(X[i, k]) * a[i] * X[i, k] * (k + 1) * W[k, j])", dtype="f32"))
    x = {"X": np.ones((5, 7)), "W": np.zeros((7, 6)), "a": np.ones(5)}
    x["X"][:, 0], x["W"][0] = np.sqrt(abs(large)), 1.0
    x["X"][:] = x["X"][:, :1] if large < 1 else x["X"]  # no larger number beside a tiny one
    x["X"][:, 0] = np.nan if np.isnan(large) else x["X"][:, 0]
    x["a"][:] = -1.0 if large < 0 else 1.0
    x["W"][1:] = 0.0 if np.isfinite(want) else 1.0
    y = run_program(p, x, mode="typed")["Y"]
    np.testing.assert_allclose(y, np.full((5, 6), want), rtol=2.0**-10)


@pytest.mark.parametrize("largest", [300.0, 6e4])
@pytest.mark.parametrize("factor", ["max(f32(X[i, k]), 0) ** 2", "f32(X[i, k]) * a[i] * (k - 2)", "X[i, k] * f32(7)"])
def test_no_factor_overflows(factor: str, largest: float) -> None:
    p, _ = narrowed(product(f"Y[i, j] = sum[k]({factor} * W[k, j])"))
    x = {"X": np.full((5, 7), -largest), "W": np.ones((7, 6)), "a": np.full(5, 3.0)}
    x["X"][::2] = largest
    real, typed = (run_program(p, x, mode=m)["Y"] for m in ("real", "typed"))
    assert np.isfinite(typed).all()
    np.testing.assert_allclose(typed, real, rtol=2.0**-10)


def test_bf16_needs_no_proof() -> None:
    p, _ = narrowed(product("Y[i, j] = sum[k](exp(X[i, k]) * W[k, j])", weight="bf16"))
    expect(p, "cast<f32>(narrow<bf16>(exp(cast<f32>(X[i, k])))) * cast<f32>(W[k, j])")


def test_a_maximum_over_another_domain_proves_nothing() -> None:
    """P's domain is wider than the maximum's: the difference may be positive."""
    body = "E[i, k] = exp(X[i, k] - max[k | k <= i](X[i, k]))\nY[i, j] = sum[k](E[i, k] * W[k, j])"
    expect(narrowed(product(body))[0], "narrow<tf32>(exp(")
    body = "E[i, k] = exp(X[i, k] - max[k | k <= i](X[i, k]))\nY[i, j] = sum[k | k <= i - 1](E[i, k] * W[k, j])"
    expect(narrowed(product(body))[0], "narrow<f16>(exp(")
    body = "E[i, k] = exp(X[i, k] - max[k](X[(i + 1) % 5, k]))\nY[i, j] = sum[k](E[i, k] * W[k, j])"
    expect(narrowed(product(body))[0], "narrow<tf32>(exp(")


def test_a_share_of_a_sum_is_at_most_one() -> None:
    spec = product("P[i, k] = softmax[k](X[i, k])\nY[i, j] = sum[k](P[i, k] * W[k, j])")
    p = Dead().apply(Simplify().apply(Inline().apply(lower(spec))))  # not factored
    q, (c,) = Narrow().derive(p)
    sound(q)
    agree(spec, q)
    assert c.notes == ("the factor is in [0, 1]",)
    expect(q, "narrow<f16>(exp(")


@pytest.mark.parametrize(
    "body",
    [
        "Y[i, j] = sum[k](X[i, k] * W[k, j])",  # both are tensors
        "Y[i, j] = sum[k](exp(X[i, k]) * sin(W[k, j]))",  # neither is
        "Y[i, j] = sum[k](exp(W[k, j]) * W[k, j]) + a[i]",  # no axis of its own
        "Y[i, j] = max[k](exp(X[i, k]) * W[k, j])",  # not a sum
    ],
)
def test_left_alone(body: str) -> None:
    p = ready(product(body))
    assert Narrow().derive(p) == (p, ())


def test_f32_tensors_stay() -> None:
    p = ready(product("Y[i, j] = sum[k](exp(X[i, k]) * W[k, j])", weight="f32"))
    assert Narrow().derive(p) == (p, ())


def test_strict_and_schedule() -> None:
    p = ready(ATTENTION)
    assert Narrow(strict=True).apply(p) is p
    assert Narrow(Schedule((), (), narrow=False)).apply(p) is p
    q = Narrow().apply(p)
    assert Narrow().apply(q) == q


def test_typed_results_stay_close() -> None:
    spec = product("P[i, k] = softmax[k](X[i, k])\nY[i, j] = sum[k](P[i, k] * W[k, j])")
    p, _ = narrowed(spec)
    rng = np.random.default_rng(3)
    x = {"X": rng.standard_normal((5, 7)) * 50, "W": rng.standard_normal((7, 6)), "a": np.ones(5)}
    real, typed = (run_program(p, x, mode=m)["Y"] for m in ("real", "typed"))
    assert np.isfinite(typed).all()
    np.testing.assert_allclose(typed, real, atol=4e-3)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_specs(path: Path) -> None:
    narrowed(small(path))


@pytest.mark.parametrize("name", LANGUAGE)
def test_language(name: str) -> None:
    narrowed(language(name))
