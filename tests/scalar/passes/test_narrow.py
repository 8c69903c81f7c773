"""``narrow``: no factor overflows, and results stay close. What the pass does: ``narrow.scalar``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nautilus.check.certificates.rules import check
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
    agree(spec, p)  # over the reals, narrowing changes no value
    return p, certificates


def product(body: str, dtype: str = "f16", weight: str = "f16") -> Spec:
    return load_text(
        f"dim M = 5, N = 6, K = 7\ninput X: {dtype}[M, K]\ninput W: {weight}[K, N]\ninput a: f32[M]\n"
        f"output Y: f32[M, N]\n{body}\n"
    )


def test_a_scale_from_the_largest_magnitude() -> None:
    p, (c,) = narrowed(product("Y[i, j] = sum[k | k != j](exp(X[i, k]) * W[k, j])"))
    expect(p, "narrow<tf32>(")  # the condition would need a maximum for each element
    p, (c,) = narrowed(product("Y[i, j] = sum[k | k != i](exp(X[i, k]) * W[k, j])"))
    expect(p, "Y_largest[i] max= select({0} < inf, {0}, 0.0) where i != k".format("abs(exp(cast<f32>(X[i, k])))"))
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


def test_factors_that_groups_share_have_one_scale() -> None:
    spec = load_text(
        "dim H = 4, M = 5, N = 6, D = 7\ninput Q: f16[H, M, D]\ninput K: f16[H // 2, N, D]\noutput Y: f16[H, M, N]\n"
        "Y[h, i, j] = sum[d](Q[h, i, d] * (K[h // 2, j, d] * K[h // 2, j, d]))\n"
    )
    p, (c,) = narrowed(spec)
    expect(p, "temp Y_acc_largest: f32[2, 6]")
    expect(
        p,
        "Y_acc_largest[h, j] max= select({0} < inf, {0}, 0.0)".format(
            "abs(cast<f32>(K[h, j, d]) * cast<f32>(K[h, j, d]))"
        ),
    )
    expect(p, "(16384.0 / binade(Y_acc_largest[h // 2, j]))")
    assert check(c).ok


def test_a_maximum_of_scales_of_groups_reads_each_once() -> None:
    spec = load_text(
        "dim M = 5, N = 6, K = 14\ninput X: f16[M, K]\ninput W: i8[N, K]\ninput s: f16[N, 4]\noutput Y: f16[M, N]\n"
        "Y[i, n] = sum[k](X[i, k] * (W[n, k] * s[n, k // 4]))\n"
    )
    p, (c,) = narrowed(spec)
    expect(p, "red k in 0..4 {")
    expect(p, "Y_acc_largest[n] max= select({0} < inf, {0}, 0.0)".format("abs(cast<f32>(s[n, k]))"))
    assert check(c).ok


def test_what_a_condition_excludes_scales_nothing() -> None:
    """NaN, inf and large numbers that a row of the result does not have do not change it."""
    spec = load_text(
        "dim M = 5, N = 6, K = 7\ninput X: f16[M, K]\ninput W: f16[K, N]\noutput Y: f16[M, N]\n"
        "Y[i, j] = sum[k | k <= i](sigmoid(X[i, k]) * (W[k, j] * W[k, j]))\n"
    )
    p = Narrow().apply(ready(spec))
    x = np.random.default_rng(0).standard_normal((5, 7))
    w = np.random.default_rng(1).standard_normal((7, 6)).astype(np.float16).astype(float)
    want = run_program(p, {"X": x, "W": w}, mode="typed")["Y"]
    for garbage in (np.nan, np.inf, 65504.0):
        w[4:] = garbage
        np.testing.assert_array_equal(run_program(p, {"X": x, "W": w}, mode="typed")["Y"][:4], want[:4])
