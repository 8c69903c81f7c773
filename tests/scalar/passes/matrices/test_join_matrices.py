"""inf and NaN of one group reach no other group, although one product has the terms of both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nautilus.check.inputs import generate
from nautilus.check.levels import run
from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.matrices import join_matrices
from nautilus.scalar.rewriting import find_defs
from nautilus.targets import window_rates
from tests.endtoend.support import travel

TEXT = """
    dim M = 128, G = 8, C = 8, K = 8
    input X: f16[M, G, C], F: f16[G, C, K]
    output Y: f16[M, G, K]
    Y[i, g, k] = sum[c](X[i, g, c] * F[g, c, k])
"""


def test_numbers_of_a_group_reach_no_other_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_matrices, "SHARE", 1e12)
    made = travel(TEXT, "sm_90a", until="vr-tile")
    drawn = generate(made.result.modules["spec"])
    x, f = np.array(drawn.arrays["X"]), np.array(drawn.arrays["F"])
    x[5, 3, 2], x[7, 0, 1], f[6, 4, 2] = np.inf, np.nan, -np.inf
    given = replace(drawn, arrays={"X": x, "F": f})
    want = run_spec(made.result.modules["spec"], given.arrays)["Y"]
    module = made.result.modules["vr-tile"]
    assert next(b for b in module.buffers if b.name == "X").view_of == (128, 8, 8)  # one matrix
    assert 0 < np.isfinite(want).mean() < 1
    got = run(made.last("vr-tile"), given, "typed")["Y"]
    np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(("terms", "merit"), [(16, 0.77), (32, 0.92), (48, 0.77), (64, 1.0), (128, 1.0), (8, 0.77)])
def test_terms_that_fill_steps_are_faster(terms: int, merit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A joint product has the rate of the longest step that divides its terms."""
    monkeypatch.setattr(window_rates, "product_seconds", lambda *args: args[4])
    monkeypatch.setattr(join_matrices, "LAUNCH", 0.0)
    program = lower(load_text(TEXT.replace("G = 8", "G = 48").replace("Y: f16", "Y: f32")))
    groups = join_matrices._groups(program, find_defs(program)["Y"])
    assert groups is not None
    assert join_matrices._seconds(groups, terms // 8, 132) == merit
