"""Outputs of floats that depend on decisions of computed floats: the statement says so, and ties are no failure."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.check import compare
from nautilus.check.bound.stated import stated
from nautilus.check.inputs import InputSet
from nautilus.check.reference import Compiled, reference
from nautilus.frontend.semantics.check import load_text

_HEAD = "dim B = 64, C = 40, D = 16\ninput X: f32[B, D]\ninput W: f32[C, D]\ninput label: i32[B]\n"
_SCORES = "S[b, c] = sum[d](X[b, d] * W[c, d])\n"


@pytest.mark.parametrize(("output", "body"), [
    ("Y: f32[]", "p[b] = argmax[c](S[b, c])\nY = mean[b](1.0 if p[b] == label[b] else 0.0)\n"),
    ("Y: f32[]", "Y = mean[b](1.0 if argmax[c](S[b, c]) == label[b] else 0.0)\n"),
    ("Y: f32[B, D]", "p[b] = argmin[c](S[b, c])\nY[b, d] = W[p[b], d]\n"),
    ("Y: f32[B]", "Y[b] = f32(sum[c](i32(S[b, c] > 0.5)))\n"),
    ("Y: f32[B]", "r[b, c] = sum[k: C](1 if S[b, k] > S[b, c] else 0)\nY[b] = sum[c | r[b, c] < 4](f32(c))\n"),
])  # fmt: skip
def test_the_statement_names_decisions_of_computed_floats(output: str, body: str) -> None:
    bound = stated(load_text(f"{_HEAD}output {output}\n{_SCORES}{body}"))["Y"]
    assert bound.decided and "numbers tie" in bound.text


def test_rows_that_a_decision_chooses_are_exact_without_ties() -> None:
    body = "p[b] = argmin[c](S[b, c])\nY[b, d] = E[p[b], d]\n"
    bound = stated(load_text(f"{_HEAD}input E: f16[C, D]\noutput Y: f16[B, D]\n{_SCORES}{body}"))["Y"]
    assert bound.text == "exact, but another one where computed numbers tie"


@pytest.mark.parametrize(("output", "body"), [
    ("Y: f32[B, C]", "Y[b, c] = S[b, c] if S[b, c] > 0.0 else 0.01 * S[b, c]\n"),  # continuous at the border
    ("Y: f32[B]", "Y[b] = logsumexp[c](S[b, c])\n"),
    ("Y: f32[B]", "p[b] = argmax[d](X[b, d])\nY[b] = S[b, 0] * f32(p[b])\n"),  # of inputs: exact
])  # fmt: skip
def test_no_decision_of_a_computed_float(output: str, body: str) -> None:
    assert not stated(load_text(f"{_HEAD}output {output}\n{_SCORES}{body}"))["Y"].decided


def test_only_elements_that_tie_may_have_another_value() -> None:
    """Of the first row, the two largest scores differ by less than a rounding of f32."""
    spec = load_text(_HEAD + "output Y: f32[B, D]\n" + _SCORES + "p[b] = argmax[c](S[b, c])\nY[b, d] = W[p[b], d]\n")
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32).astype(np.float64) for shape in ((64, 16), (40, 16)))
    x[0] = 1.0
    w[3], w[5] = np.arange(16.0) / 8.0, np.arange(16.0)[::-1] / 8.0
    w[5, 0] += 2.0**-22
    given = InputSet("tie", 0, {"X": x, "W": w, "label": np.zeros(64, np.int64)})
    bounds = stated(spec)
    ref = reference(Compiled(spec), given, bounds)
    want = ref.rounded["Y"]
    assert np.array_equal(want[0], w[5])

    def differs(row: int, other: int) -> compare.Difference | None:
        got = {"Y": want.copy()}
        got["Y"][row] = w[other]
        target = ref.target("Y", got)
        return compare.within(got["Y"], target.truth, target.allowed, target.each)

    assert differs(0, 3) is None  # the other one of both
    assert differs(1, 7) is not None
