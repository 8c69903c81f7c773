"""The intervals contain the values of random expressions over random inputs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.analysis.value_range import Ranges
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.lowering import lower
from nautilus.scalar.rewriting import find_defs

_UNARY = ["exp", "tanh", "sigmoid", "erf", "abs", "sign", "floor", "ceil", "round", "sin", "cos", "sqrt", "log", "exp2"]
_LEAF = ["X[i, k]", "Z[i]", "f32(L[k])", "f32(i - k)", "0.5", "-3", "f32(B[i])"]


def expression(rng: random.Random, depth: int) -> Any:
    if depth == 0:
        return rng.choice(_LEAF)
    a, b = expression(rng, depth - 1), expression(rng, rng.randrange(depth))
    kind = rng.randrange(10)
    if kind < 4:
        return f"{rng.choice(_UNARY)}({a})"
    if kind < 8:
        return f"({a} {rng.choice('+-*/')} {b})"
    if kind == 8:
        return f"{rng.choice(['min', 'max'])}({a}, {b})"
    return f"({a} if i < k else {b})"


@pytest.mark.parametrize("seed", range(40))
def test_random_expressions(seed: int) -> None:
    rng = random.Random(seed)
    op = rng.choice(["sum", "max", "min", "sum", "max"])
    guard = rng.choice([": K", ": K | k <= i", ": K | k > i", ": K | k < 4"])
    text = f"""dim M = 5, K = 6
input X: f16[M, K]
input Z: f16[M]
input L: i8[K]
input B: u8[M]
output Y: f32[M, K]
output R: f32[M]
R[i: M] = {op}[k{guard}]({expression(rng, 2)})
Y[i, k] = {expression(rng, 3)} + R[i]
"""
    p = lower(load_text(text))
    data = np.random.default_rng(seed)
    scale = data.choice([1.0, 100.0, 30000.0])
    x = {
        "X": np.clip(data.standard_normal((5, 6)) * scale, -65504, 65504),
        "Z": np.clip(data.standard_normal(5) * scale, -65504, 65504),
        "L": data.integers(-128, 128, 6), "B": data.integers(0, 256, 5),
    }  # fmt: skip
    out = run_program(p, x)
    defs = find_defs(p)
    for name, d in defs.items():
        if d.op is None and name in out:
            lo, hi = Ranges(defs, d.axes, d.guard).of(d.value)
            values = out[name][np.isfinite(out[name])]
            slack = 1e-9 * np.abs(values).max(initial=1)
            inside = (values >= lo - slack).all() and (values <= hi + slack).all()
            assert inside, f"{text}{name} in [{lo}, {hi}]: {values}"


SINK = "input s: f32[M]\n"


def interval(body: str, head: str = "") -> Any:
    p = lower(load_text(f"dim M = 5, K = 6\ninput X: f16[M, K]\n{head}output Y: f32[M, K]\nY[i, k] = {body}\n"))
    defs = find_defs(p)
    d = defs["Y"]
    return Ranges(defs, d.axes, d.guard).of(d.value)


def test_relations_to_reductions() -> None:
    assert interval("X[i, k] - max[k](X[i, k])")[1] == 0
    assert interval("min[k](X[i, k]) - X[i, k]")[1] == 0
    assert interval("max[k](X[i, k]) - X[i, k]")[0] == 0
    assert interval("X[i, k] - max[k | k <= i](X[i, k])")[1] > 0
    assert interval("exp(X[i, k]) / sum[k](exp(X[i, k]))") == (0, 1)
    assert interval("f32(X[i, k]) / sum[k](X[i, k])")[1] > 1


def test_a_maximum_with_another_argument_bounds_its_elements() -> None:
    assert interval("X[i, k] - max(s[i], max[k](X[i, k]))", SINK)[1] == 0
    assert interval("X[i, k] - max(max(max[k](X[i, k]), s[i]), 3)", SINK)[1] == 0
    assert interval("X[i, k] - (max[k](X[i, k]) + abs(s[i]))", SINK)[1] == 0
    assert interval("min(X[i, k], s[i]) - max[k](X[i, k])", SINK)[1] == 0
    assert interval("min(s[i], min[k](X[i, k])) - X[i, k]", SINK)[1] == 0
    assert interval("X[i, k] - min(s[i], max[k](X[i, k]))", SINK)[1] > 0
    assert interval("X[i, k] - (max[k](X[i, k]) + s[i])", SINK)[1] > 0


def test_a_sum_with_another_term_bounds_its_elements() -> None:
    assert interval("exp(X[i, k]) / (sum[k](exp(X[i, k])) + exp(s[i]))", SINK) == (0, 1)
    assert interval("exp(X[i, k]) / (sum[k](exp(X[i, k])) + s[i])", SINK)[1] > 1
    assert interval("exp(X[i, k]) / (sigmoid(s[i]) + exp(X[i, k]))", SINK) == (0, 1)
    assert interval("exp(X[i, k]) / (s[i] + exp(X[i, k]))", SINK)[1] > 1
    assert interval("X[i, k] / (sigmoid(s[i]) + X[i, k])", SINK)[1] > 1


@pytest.mark.parametrize(
    ("shift", "total", "bounded"),
    [
        ("s[i]", "sum[k](exp(X[i, k] - s[i]))", True),
        ("s[i]", "sum[k](exp(X[i, k] - s[i])) + 2", True),
        ("s[i]", "sum[k](exp(X[i, k] - s[i])) - 2", False),
        ("s[i] + 1", "sum[k](exp(X[i, k] - s[i]))", False),
        ("s[i]", "sum[k](exp(X[i, k] - s[i] * 2))", False),
    ],
)
def test_the_logarithm_of_a_sum_bounds_the_exponents_of_its_terms(shift: str, total: str, bounded: bool) -> None:
    assert (interval(f"X[i, k] - ({shift} + log({total}))", SINK)[1] == 0) == bounded


def test_wrapping_integers_have_the_range_of_their_type() -> None:
    assert -128.001 < interval("f32(i8(i * 100)) + 0")[0] <= -128
    lo, hi = interval("f32(sum[q: K](i32(X[i, q]) * 100000))")
    assert (lo, hi) == (-(2.0**31), 2.0**31 - 1)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("i32(W[i, k]) % 16 - 8", (-8, 7)),
        ("i32(W[i, k]) // 16", (0, 15)),
        ("(i32(W[i, k]) % 16 if k % 2 == 0 else i32(W[i, k]) // 16) - 8", (-8, 7)),
        ("-i32(W[i, k]) // 16", (-16, 0)),
        ("(i32(W[i, k]) - 8) % 7", (0, 6)),
        ("i32(W[i, k]) % 300", (0, 255)),
        ("max(min(i32(W[i, k]) * 3 - 40, 100), 1 - i32(W[i, k]))", (-40, 100)),
        ("i32(i8(i32(W[i, k]) - 128))", (-128, 127)),
        ("i32(i8(i32(W[i, k])))", (-128, 127)),  # it wraps
        ("i32(W[i, k]) * 10000000 - 5", (-(2**31), 2**31 - 1)),
        ("abs(i32(W[i, k]) - 200) + k", (0, 205)),
        ("i32(X[i, k])", (-(2**31), 2**31 - 1)),
    ],
)
def test_integers_of_tensors(body: str, found: tuple[int, int]) -> None:
    assert interval(f"f32({body})", "input W: u8[M, K]\n") == found


@pytest.mark.parametrize(
    ("body", "largest"),
    [
        ("X[i, k] / sqrt(sum[k](f32(X[i, k]) ** 2))", 1.0),
        ("X[i, k] * rsqrt(sum[k](f32(X[i, k]) * X[i, k]) + 1e-6)", 1.0),
        ("X[i, k] * rsqrt(mean[k](f32(X[i, k]) ** 2) + 1e-6) * 3", 3 * 6**0.5),
        ("(f32(X[i, k]) ** 3) * 1e-14", 65504.0**3 * 1e-14),
        ("max(min(f32(X[i, k]), 3), -2) ** 2", 9.0),
        ("sigmoid(f32(X[i, k])) * 5", 5.0),
        ("(f32(X[i, k]) if X[i, k] > 0 else 0) * 0", 0.0),
    ],
)
def test_magnitudes(body: str, largest: float) -> None:
    lo, hi = interval(body)
    assert max(-lo, hi) == pytest.approx(largest, rel=1e-9)
    assert max(-lo, hi) >= largest * (1 - 1e-15)


def test_a_norm_of_other_elements_bounds_nothing() -> None:
    assert interval("X[i, k] / sqrt(sum[k | k < 4](f32(X[i, k]) ** 2))")[1] > 1e4
    assert interval("X[i, k] * sqrt(sum[k](f32(X[i, k]) ** 2))")[1] > 1e4
    assert interval("X[i, k] / sqrt(sum[k](f32(X[i, k]) ** 2) - 1)")[1] > 1e4


def test_a_member_of_a_chain_is_visited_once_for_all_reads_of_it() -> None:
    """Each member reads the one before four times: without a memory, 4 ** 12 visits."""
    text = "dim N = 4\ninput X: f16[N]\noutput Y: f32[N]\na0[i] = tanh(X[i])\n"
    text += "".join(f"a{n + 1}[i] = tanh(a{n}[i] * a{n}[0] - max(a{n}[1], a{n}[2]))\n" for n in range(12))
    defs = find_defs(lower(load_text(text + "Y[i] = a12[i]\n")))
    ranges = Ranges(defs, defs["Y"].axes)
    low, high = ranges.of(defs["Y"].value)
    assert -1 <= low < -0.9 and 0.9 < high <= 1
    assert len(ranges.elements) == 13


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        ("0.5 ** (i + k)", 2.0**-9, 1),
        ("2 ** f32(i - k)", 2.0**-5, 2.0**4),
        ("(k + 1.5) ** -0.5", 6.5**-0.5, 1.5**-0.5),
        ("f32(k) ** 0.5", 0, 5**0.5),
        ("f32(k) ** (i - 1)", -np.inf, np.inf),
        ("f32(k - 1) ** 0.5", -np.inf, np.inf),
    ],
)
def test_powers(value: str, low: float, high: float) -> None:
    """Nothing is known of powers of negative numbers, and of quotients by 0."""
    assert interval(value) == pytest.approx((low, high))
