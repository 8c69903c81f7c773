"""``chunk-filters`` on random, infinite and missing numbers. What it makes: ``chunk_filters.scalar``."""

from __future__ import annotations

from math import inf, isnan
from types import SimpleNamespace
from typing import Any

import pytest

from nautilus.check.certificates.rules import check
from nautilus.check.inputs import generate
from nautilus.core.expr.nodes import Const, Op, Var
from nautilus.core.types import DType
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.recurrences.chunk_filters import ChunkFilters, from_infinity, responses
from nautilus.scalar.passes.recurrences.members.join_recurrences import JoinRecurrences, _axis_of
from nautilus.scalar.passes.recurrences.tile_recurrences import TileRecurrences
from tests.scalar.expect import sound
from tests.scalar.passes.recurrences.test_chunk_recurrences import same_special_values, spoilt
from tests.scalar.programs.specs import agree

CASES = {
    "two poles": """
dim B = 3, T = 70
input x: f32[B, T]
output y: f32[B, T]
recur y[b, t] = x[b, t] + (1.2 * y[b, t - 1] if t > 0 else 0) - (0.6 * y[b, t - 2] if t > 1 else 0)
""",
    "positive coefficients": """
dim B = 3, T = 64
input x: f32[B, T]
output y: f32[B, T]
recur y[b, t] = (0.25 * y[b, t - 1] if t > 0 else 0) + (0.5 * y[b, t - 2] if t > 1 else 0) + x[b, t]
""",
    "every second step, downwards, read by others": """
dim T = 70, D = 3
input x: f32[T, D]
output y: f16[T, D], z: f32[D]
recur v[t, d] = x[t, d] - (0.75 * v[t + 2, d] if t < T - 2 else 0)
y[t, d] = 2 * v[t, d]
z[d] = sum[t](v[t, d])
""",
    "four steps before": """
dim B = 2, T = 66
input x: f32[B, T]
output y: f32[B, T]
recur {
  u[b, t] = 0.5 * x[b, t] - (x[b, t - 1] if t > 0 else 0)
  y[b, t] = u[b, t] + (0.1 * y[b, t - 4] if t > 3 else 0) - (y[b, t - 1] / 2 if t > 0 else 0)
}
""",
    "responses to an infinite state that f32 does not have": """
dim B = 12, T = 34
input x: f32[B, T]
output y: f32[B, T]
recur y[b, t] = x[b, t] + (1e-6 * y[b, t - 1] if t > 0 else 0) + (1e-8 * y[b, t - 2] if t > 1 else 0)
""",
}


@pytest.mark.parametrize("name", CASES)
def test_chunks_are_the_filter(name: str) -> None:
    spec = load_text(CASES[name])
    before = JoinRecurrences().apply(lower(spec))
    after, certificates = ChunkFilters(16).derive(before)
    assert certificates and all(check(c).ok for c in certificates)
    sound(after)
    tiled = TileRecurrences().apply(after)
    sound(tiled)
    for program in (after, tiled):
        agree(spec, program, generate(spec, "random").arrays, 1e-5)
    for seed in range(3):
        given = spoilt(generate(spec, "random", seed), seed)
        numbers = {**given.scalars, **given.sizes}
        want, got = (run_program(p, given.arrays, numbers, "typed") for p in (before, tiled))
        same_special_values(spec, want, got)


def test_responses() -> None:
    assert responses((0.5, 0.25), 1) == ((0.5, 0.25), (1.0, 0.0))
    assert responses((0.5, 0.25), 2) == ((0.5, 0.125), (0.5, 0.25))
    assert responses((3.0, 0.0), 8) is None


def test_long_chunks_of_a_double_integrator_are_less_exact_than_its_steps() -> None:
    """The powers have elements of one more than their exponent: steps have the root of it."""
    assert responses((2.0, -1.0), 32) is not None
    assert responses((2.0, -1.0), 64) is None
    assert from_infinity((0.0, -0.5), 2) == ((-inf, 0.0), (0.0, -inf))
    assert all(isnan(x) for row in from_infinity((1.2, -0.6), 16) for x in row)


@pytest.mark.parametrize("reverse", [False, True])
def test_positions_of_steps_that_came_before(reverse: bool) -> None:
    form: Any = SimpleNamespace(step=SimpleNamespace(var="t"), reverse=reverse)
    steps = {by: Op("add", (Var("t"), Const(by, DType.I32)), DType.I32) for by in (-2, -1, 0, 1)}
    found = [by for by, e in steps.items() if _axis_of(form, "t", e) == "t"]
    assert found == ([1] if reverse else [-2, -1])
    assert _axis_of(form, "i", steps[-1]) is None and _axis_of(form, "i", Var("i")) == "i"
