"""The places that windows visit stand for the axes that count them, and results with stored operands are right."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest

from nautilus.core.expr.nodes import Expr, Op
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.ranges.window_places import window_places
from nautilus.scalar.lowering import lower
from nautilus.scalar.rewriting import computed_windows, find_defs
from tests.endtoend.support import complaints, travel

ONE = """
    dim L = {size}, R = {taps}, N = {results}
    input X: f32[L], F: f32[R]
    output Y: f32[N]
    Y[x: N] = sum[r: R]((X[{at}] * X[{at}]) * F[r]{guard})
"""


def squares(text: str) -> tuple[Def, Expr]:
    """The sum of ``text``, and its first factor."""
    d = find_defs(lower(load_text(dedent(text))))["Y"]
    assert isinstance(d.value, Op)
    return d, d.value.args[0]


@pytest.mark.parametrize(
    ("size", "taps", "results", "at", "low", "high"),
    [
        (11, 3, 9, "x + r", 0, 11),
        (9, 3, 9, "x + r - 1", 0, 9),
        (9, 3, 5, "2 * x + r - 1", 0, 9),
        (12, 3, 6, "x + 2 * r", 0, 10),
        (20, 4, 9, "x - r + 5", 2, 14),
        (9, 5, 4, "x + r - 2", 0, 6),
    ],
)
def test_places_are_those_of_terms(size: int, taps: int, results: int, at: str, low: int, high: int) -> None:
    """``low``, ``high``: the half-open range of the places, which enumeration finds too."""
    guard = f" if 0 <= {at} < L else 0"
    found = window_places(*squares(ONE.format(size=size, taps=taps, results=results, at=at, guard=guard)))
    assert found is not None and found.guard is None and found.par == ()
    (axis,) = found.red
    places = eval(at, dict(zip("xr", np.meshgrid(np.arange(results), np.arange(taps)), strict=True)))
    inside = {int(p) for p in places[(places >= 0) & (places < size)]}
    assert inside == set(range(low, high)) and axis.extent == high - low


@pytest.mark.parametrize("at", ["4 * x + r", "2 * x + 2 * r"])
def test_places_with_gaps_are_none(at: str) -> None:
    guard = f" if 0 <= {at} < L else 0"
    assert window_places(*squares(ONE.format(size=40, taps=3, results=9, at=at, guard=guard))) is None


IMAGE = """
    dim B = 2, H = 6, W = 7, C = 16, K = 32
    input X: {dtype}[B, H, W, C], F: {dtype}[3, 3, C, K]
    input g: f32[C], h: f32[C]
    output Y: {dtype}[B, {rows}, W, K]
    A[b, y, x, c] = relu(X[b, y, x, c] * g[c] + h[c])
    Y[b, y: {rows}, x: W, k] = sum[r: 3, s: 3, c](A[b, {step} * y + r - 1, x + s - 1, c] * F[r, s, c, k]
        if 0 <= {step} * y + r - 1 < H and 0 <= x + s - 1 < W else 0)
"""


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize(("rows", "step"), [(6, 1), (3, 2)])
@pytest.mark.parametrize("kind", ["random", "large-logits"])
def test_results(dtype: str, rows: int, step: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computed_windows, "TERMS", 1)
    monkeypatch.setattr(computed_windows, "AGAIN", 1)
    made = travel(IMAGE.format(dtype=dtype, rows=rows, step=step), "sm_90a")
    schedule = made.result.context.schedule
    stored = "A" if dtype == "f32" else "_places"  # what the spec calls A has the type of the product
    assert schedule is not None and any(o.endswith(stored) for k in schedule.kernels for o in k.ops)
    assert complaints(made, kind=kind) == []
