"""Rows of -inf alone: a sum of exponentials relative to their maximum is NaN, in one loop and in chunks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nautilus.check.inputs import generate
from nautilus.check.levels import run
from nautilus.core.expr.nodes import loads
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.inline import Inline
from nautilus.scalar.passes.operands.mark_undefined import MarkUndefined
from nautilus.scalar.passes.operands.rematerialise import Rematerialise
from nautilus.scalar.passes.simplify import Simplify
from tests.endtoend.support import travel

_HEAD = "dim M = {m}, N = {n}\ninput X: f32[M, N]\noutput L: f32[M]\nm[i] = max[j{c}](X[i, j])\n"


@pytest.mark.parametrize(
    ("rows", "size", "cond", "value"),
    [
        (4, 40000, "", "m[i] + log(sum[j](exp(X[i, j] - m[i])))"),  # chunks
        (300, 9000, "", "sum[j](exp(X[i, j] - m[i]))"),  # one loop
        (4, 40000, " | i < 2", "sum[j | i < 2](exp(X[i, j] - m[i]))"),  # a domain that is empty in some rows
        (4, 40000, " | j <= i * 20000", "log(sum[j | j <= i * 20000](exp(X[i, j] - m[i])))"),
        (4, 40000, " | j > i * 9000", "log(sum[j | j > i * 9000](exp(X[i, j] - m[i])))"),  # without the first term
    ],
)
def test_rows_of_infinities_alone(rows: int, size: int, cond: str, value: str) -> None:
    made = travel(_HEAD.format(m=rows, n=size, c=cond) + f"L[i] = {value}\n", "sm_90a", "vr-tile")
    given = generate(made.result.modules["spec"], "random", 0)
    x = np.array(given.arrays["X"])
    x[1], x[3], x[2, 5:] = -np.inf, -np.inf, -np.inf
    given = replace(given, arrays={"X": x})
    want = run_spec(made.result.modules["spec"], given.arrays)["L"]
    assert np.isnan(want[1])
    for stage in ("scalar", "vr-tile"):
        assert np.allclose(run(made.last(stage), given, "typed")["L"], want, rtol=1e-5, equal_nan=True)


def test_a_certificate_has_the_number_beside_the_maximum() -> None:
    """Only the maximum is what the elements have; the sink stands as it is, whatever its name."""
    spec = load_text("""
        input X: f32[5, 6], sink: f32[5], A: f32[5]
        output L: f32[5], K: f32[5]
        m[i] = max(max[j](X[i, j]), sink[i])
        n[i] = max(max[j](X[i, j]), A[i])
        L[i] = sum[j](exp(X[i, j] - m[i]))
        K[i] = sum[j](exp(X[i, j] - n[i]))
    """)
    _, certificates = MarkUndefined().derive(Rematerialise().apply(Simplify().apply(Inline().apply(lower(spec)))))
    found = [{ld.buffer for ld in loads(e)} for c in certificates for e in (c.before, c.after)]
    assert found == [{"X", "sink"}] * 2 + [{"X", "A"}] * 2
