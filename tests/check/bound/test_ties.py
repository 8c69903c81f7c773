"""Steps of computed numbers: a continuous result has the error of its roundings, and another one that of a step."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.check.bound.bound import Bound
from nautilus.check.bound.cancelling.each import allowed
from nautilus.check.bound.cancelling.ties import (
    Step,
    Ties,
    _orders,
    at_ties,
    is_whole,
    move_few,
    part_of_all,
    ties,
    whole_numbers,
)
from nautilus.check.bound.choices import roundings
from nautilus.check.bound.stated import stated
from nautilus.check.compare import relative
from nautilus.check.inputs import generate
from nautilus.core.types import DType
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_spec, load_text

HEAD = "dim P = 4096, W = 40\ninput u: f32[P]\ninput I: f32[W]\noutput Y: f32[P]\n"
APART = """\
x[p] = u[p] * 4.3 + 19.7
k[p] = floor(x[p])
f[p] = x[p] - k[p]
i[p] = i32(clamp(k[p], 0, W - 2))
Y[p] = (1 - f[p]) * I[i[p]] + f[p] * I[i[p] + 1] if 0 <= k[p] < W - 1 else 0
"""
WRITTEN_OUT = """\
i[p] = i32(floor(u[p] * 4.3 + 19.7))
f[p] = u[p] * 4.3 + 19.7 - i[p]
Y[p] = sum[t: 2](I[i[p] + t] * (f[p] if t == 1 else 1 - f[p]) if 0 <= i[p] + t < W else 0)
"""
TRUNCATED = """\
z[p] = clamp(u[p] * 4.3 + 19.7, 0, 38.999)
k[p] = i32(z[p])
Y[p] = I[k[p]] + (I[k[p] + 1] - I[k[p]]) * (z[p] - f32(k[p]))
"""
PERIODIC = "Y[p] = sin(6.283185307179586 * ((u[p] * 3.7) % 1)) + I[0]\n"
NEAREST = "Y[p] = I[i32(clamp(round(u[p] * 4.3 + 19.7), 0, W - 1))]\n"
SAWTOOTH = "Y[p] = (u[p] * 3.7) % 1 + 0 * I[0]\n"
OTHER_PERIOD = "Y[p] = (u[p] * 3.7) % (abs(I[0]) + 1)\n"


def bound(body: str) -> Bound:
    return stated(load_spec(HEAD + body))["Y"]


@pytest.mark.parametrize("body", [APART, WRITTEN_OUT, TRUNCATED, PERIODIC])
def test_what_is_continuous_has_no_error_of_a_step(body: str) -> None:
    assert bound(body).relative < 2e-5 and not bound(body).left_out


@pytest.mark.parametrize("body", [NEAREST, SAWTOOTH, OTHER_PERIOD])
def test_what_is_not_continuous_has_that_of_a_step(body: str) -> None:
    assert bound(body).relative > 1e-2 or bound(body).left_out


@pytest.mark.parametrize("body", [APART, WRITTEN_OUT])
def test_numbers_that_all_are_next_to_ties_keep_the_bound(body: str) -> None:
    """Plain f32 arithmetic, where roundings decide about the element that most positions read."""
    spec, rng = load_spec(HEAD + body), np.random.default_rng(0)
    near = rng.integers(1, 38, 4096) + rng.uniform(-4e-6, 4e-6, 4096)
    u, values = ((near - 19.7) / 4.3).astype(np.float32), rng.standard_normal(40).astype(np.float32)
    x = u * np.float32(4.3) + np.float32(19.7)
    k = np.floor(x)
    f, i = x - k, k.astype(int)
    got = (1 - f) * values[i] + f * values[i + 1]
    want = run_spec(spec, {"u": u.astype(float), "I": values.astype(float)}, {}, {})["Y"]
    exact = np.floor(u.astype(float) * 4.3 + 19.7)
    assert np.count_nonzero(exact != k) > 100
    assert relative(got.astype(float), want) <= bound(body).relative


@pytest.mark.parametrize(
    "body",
    [
        "b[i: M, j: N] = i32(log2(f32(abs(i - j) + 1)){})\nY[i] = sum[j](X[i, j] * T[b[i, j]])\n",
        "Y[i] = sum[j | log(f32(j) + 1) / log(2.0){} >= 3](X[i, j]) + T[0]\n",
        "Y[i] = max[j | log(f32(j) + 1) / log(2.0){} < 3](X[i, j]) + 0 * T[0]\n",
    ],
)
def test_positions_at_ties_go_one_way_together(body: str) -> None:
    """Each power of two is a tie of the logarithm, and an error takes all elements at one of them to the same side."""
    text = "dim M = 256, N = 256\ninput X: f32[M, N], T: f32[16]\noutput Y: f32[M]\n" + body
    spec, below = (load_text(text.format(moved)) for moved in ("", " - 1e-6"))
    (found,) = stated(spec).values()
    errors = []
    for seed in range(4):
        given = generate(spec, "random", seed)
        want, got = (run_spec(s, given.arrays)["Y"] for s in (spec, below))
        errors.append(relative(got, want))
    assert 0.01 < max(errors) <= found.relative < 10.0 * max(errors)


def test_steps_by_what_decides_about_them() -> None:
    spec = load_spec(HEAD + APART)
    assert ties(spec, roundings(spec).computed) == Ties({"x": Step(1.0)}, {}, frozenset("ki"))
    spec = load_spec(HEAD + WRITTEN_OUT)
    found = roundings(spec).ties
    assert not found.tensors and [*found.forms.values()] == [Step(1.0)]
    assert not roundings(load_spec(HEAD + "Y[p] = I[i32(clamp(floor(u[p]), 0, W - 1))]\n")).ties  # of an input


def test_whole_numbers() -> None:
    text = "a[p] = max(floor(u[p]), 3) * f32(p)\nb[p] = a[p] / 2\nY[p] = a[p] + b[p] + I[0]\n"
    spec = load_spec(HEAD + text)
    known = whole_numbers(spec)
    assert known == {"a"} and is_whole(spec.definition("a").expr, frozenset())


@pytest.mark.parametrize(("step", "x", "tie"), [
    (Step(1.0), 2.7, 3.0), (Step(1.0, 0.5), 2.7, 2.5), (Step(0.0), 2.7, 0.0), (Step(4.0), 5.1, 4.0),
])  # fmt: skip
def test_elements_at_ties(step: Step, x: float, tie: float) -> None:
    values = np.full(5000, x)
    values[:2] = -9.0, 9.0
    above, below = (at_ties(values, step, "x", 5, side * 1e-7) for side in (1, -1))
    moved = above != values
    assert np.array_equal(moved, below != values) and 1 <= np.count_nonzero(moved) <= 5
    assert np.allclose(above[moved], tie, atol=1e-6) and (above[moved] > below[moved]).all()
    assert at_ties(np.zeros(0), step, "x", 1, 1e-7).size == 0
    assert np.isnan(at_ties(np.full(1, np.nan), step, "x", 1, 1e-7)).all()


def test_ties_that_no_number_reaches() -> None:
    """The logarithm is that of 1 or more; a clamped number is not below its limit, nor is one beyond all others."""
    assert bound("k[p: P] = floor((p + 1) / (4096.0 + u[0] * 0))\nY[p] = log(k[p] + 1) * u[p] + I[0]\n").relative < 1.0
    clamped = "z[p] = clamp(u[p] * 4.3 + 19.7, 0, 38.999)\nk[p] = floor(z[p])\n"
    clamped += "Y[p] = I[i32(k[p])] * (1 - z[p] + k[p]) + I[i32(k[p]) + 1] * (z[p] - k[p])\n"
    assert bound(clamped).relative < 2e-5
    values = np.full(100, 0.25)
    assert np.array_equal(at_ties(values, Step(1.0), "x", 1, 1e-7), values)
    values[3] = -1.0
    limited = at_ties(values, Step(1.0, low=0.0), "x", 1, -1e-7)
    assert (limited[values == 0.25] >= 0.0).all() and not np.array_equal(limited, values)


def test_two_steps_may_decide_about_one_number() -> None:
    """A triangle wave is continuous at the ties of ``floor``, and ``round`` jumps at others."""
    wave = "min(x[i] * 3.7 - floor(x[i] * 3.7), 1 - (x[i] * 3.7 - floor(x[i] * 3.7)))"
    text = "dim N = 4096\ninput x: f32[N]\noutput y: f32[N]\ny[i] = {}\n"
    alone, jump, both = (stated(load_text(text.format(e)))["y"] for e in (
        wave, "round(x[i] * 3.7)", f"round(x[i] * 3.7) + {wave}",
    ))  # fmt: skip
    assert alone.relative < 1e-5 and 0.5 * jump.relative < both.relative < 2.0 * jump.relative
    (step,) = ties(load_text(text.format(f"round(x[i] * 3.7) + {wave}")), frozenset()).forms.values()
    assert {(s.period, s.offset) for s in step} == {(1.0, 0.0), (1.0, 0.5)}


@pytest.mark.parametrize(
    ("value", "period"), [("X[i] % 0.3", 0.3), ("fmod(X[i], 0.3)", 0.3), ("(X[i] * X[i]) % 3", 3.0)]
)
def test_remainders_of_huge_numbers_may_be_any(value: str, period: float) -> None:
    """The error of a constant or of a product is a whole period there."""
    spec = load_text(f"dim N = 300\ninput X: f32[N]\noutput Y: f32[N]\nY[i] = {value}\n")
    x = np.float32(np.random.default_rng(0).uniform(1.0, 9.0, 300) * 2.0**40).astype(float)
    found = allowed(spec, {"X": x}, {}, {"Y": Bound(0.0, decided=True)}, roundings(spec))["Y"]
    assert (found >= period).all()


@pytest.mark.parametrize(("size", "whole"), [(1000, 1.0), (1000, 4.0), (16, 4.0), (40000, 16.0)])
def test_the_norm_of_what_moves_is_that_of_the_share_at_ties(size: int, whole: float) -> None:
    share = 2.0 ** (10 - 21)  # of f16
    for dtype in (DType.F16, None):
        for seed in range(4):
            x = np.ones(size)
            move_few(np.random.default_rng(seed), x, np.ones(size), whole, dtype)
            few, own = (1 + int(n * (share if dtype else 1 / 1024)) for n in (size * whole, size))
            moved = np.abs(x - 1.0)
            assert 0.0 < np.linalg.norm(moved) <= np.sqrt(2.5 * few / whole) and moved.max() <= 1.0
            assert np.count_nonzero(moved) <= (own + 64 * bool(dtype) if few < 8 else max(8, own))


def test_an_element_at_a_tie_has_all_of_the_effect() -> None:
    exact = np.array([0.25, 1.0, 2.25])
    assert part_of_all(exact + 1e-9, exact, Step(1.0), 4.0) == 1.0
    assert part_of_all(exact + 0.125, exact + 0.125, Step(1.0), 4.0) < 1.0


@pytest.mark.parametrize(
    ("value", "orders"),
    [("f32(K[i])", 0), ("X[i]", 0), ("sqrt(f32(K[i]))", 1), ("f32(K[i]) + S[i]", 1), ("X[i] + S[i]", 0)],
)
def test_comparisons_of_rounded_numbers_that_no_input_decides(value: str, orders: int) -> None:
    text = "input K: i16[5], X: f32[5]\noutput Y: f32[5]\nS[i] = sqrt(f32(K[i]))\n"
    assert len(_orders(load_text(f"{text}Y[i] = 1 if {value} > 2.5 else 0\n"))) == orders
