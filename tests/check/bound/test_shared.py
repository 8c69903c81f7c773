"""An element and its extreme have the same errors wherever they are computed."""

from __future__ import annotations

from textwrap import dedent

import numpy as np

from nautilus.check.bound.program import rounded
from nautilus.check.bound.stated import stated
from nautilus.check.inputs import generate
from nautilus.core.schedule import Schedule
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_spec

SECOND = """
    dim B = 5, K = 4, V = 77
    input s: f32[B, K], X: f16[B, K, V]
    output best: f32[B], at: i32[B], second: f32[B]
    L[b, k, v] = s[b, k] + log_softmax[v](X[b, k, v])
    best[b] = max[k, v](L[b, k, v])
    at[b] = argmax[k, v](L[b, k, v])
    second[b] = max[k, v | k * V + v != at[b]](L[b, k, v])
    """


def test_the_place_of_an_extreme_is_found_under_errors() -> None:
    spec = load_spec(dedent(SECOND).lstrip())
    found = stated(spec)
    assert found["second"].relative < 2 * found["best"].relative < 1e-5


def test_the_program_has_the_values_of_the_spec() -> None:
    spec = load_spec(dedent(SECOND).lstrip())
    program = rounded(spec, "fast", Schedule())
    assert [d.name for d in program.definitions if d.name.startswith("best")] == [
        "best__elements", "best__extreme", "best",
    ]  # fmt: skip
    given = generate(spec, "random", 0)
    want, got = (run_spec(s, given.arrays, given.scalars, given.sizes) for s in (spec, program))
    for name in ("best", "at", "second"):
        assert np.allclose(got[name], want[name], rtol=1e-12)


def test_elements_under_a_condition_are_left_alone() -> None:
    text = "dim N = 9\ninput X: f32[N]\noutput I: i32\nS[i] = exp(X[i]) / 3\nI = argmax[i | i > 2](S[i])\n"
    program = rounded(load_spec(text), "fast", Schedule())
    assert not [d.name for d in program.definitions if "__elements" in d.name]
