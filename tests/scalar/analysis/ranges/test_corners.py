"""Polynomials that are linear in each variable have the exact interval, and others have none."""

from __future__ import annotations

import pytest

from nautilus.core.expr.nodes import Expr, Load
from nautilus.core.functions.intervals import EVERYTHING, Interval
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.analysis.ranges.corners import at_corners
from nautilus.scalar.lowering import lower
from nautilus.scalar.rewriting import find_defs

RANGES = {"A": (0.0, 1.0), "B": (0.0, 1.0), "C": (-2.0, 3.0), "D": (-1.0, 1.0), "E": (0.0, float("inf"))}


def of(e: Expr) -> Interval:
    return RANGES[e.buffer] if isinstance(e, Load) else (0.0, 0.5)


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        ("A[i] + (1 - A[i]) * B[i]", 0.0, 1.0),
        ("(1 - A[i]) * C[i] + A[i] * D[i]", -2.0, 3.0),
        ("1 - A[i] - B[i] + A[i] * B[i]", 0.0, 1.0),
        ("sigmoid(C[i]) - (sigmoid(C[i]) + A[i])", -1.0, 0.0),
        ("-A[i] + A[i]", 0.0, 0.0),
    ],
)
def test_the_interval_is_exact(value: str, low: float, high: float) -> None:
    assert at_corners(parsed(value), of) == (low, high)


@pytest.mark.parametrize(
    "value",
    [
        "A[i] + B[i]",  # each variable once: interval arithmetic is as exact
        "A[i] * A[i] - A[i]",  # of degree 2
        "E[i] - A[i] * E[i]",  # no end
        "A[i] - A[i] / B[i] + A[i] * (B[i] + C[i] + D[i] + E[i])",  # more variables than are tried
    ],
)
def test_other_expressions_have_none(value: str) -> None:
    assert at_corners(parsed(value), of) == EVERYTHING


def parsed(value: str) -> Expr:
    inputs = "".join(f"input {name}: f32[N]\n" for name in RANGES)
    return find_defs(lower(load_text(f"dim N = 8\n{inputs}output Y: f32[N]\nY[i] = {value}\n")))["Y"].value
