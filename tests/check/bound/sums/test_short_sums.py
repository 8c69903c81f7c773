"""Figures from some terms of long sums are those from all of them."""

from __future__ import annotations

import pytest

from nautilus.check.bound import sampling
from nautilus.check.bound.program import rounded
from nautilus.check.bound.sampling import figures
from nautilus.core.schedule import Schedule
from nautilus.frontend.semantics.check import load_text

SPECS = {
    "an excess over 3": (
        "dim N = 4096, M = 8192\ninput X: f32[N, M]\noutput Y: f32[N]\n"
        "c[n, m] = X[n, m] - mean[k: M](X[n, k])\nv[n] = mean[m](c[n, m] ** 2)\n"
        "Y[n] = mean[m](c[n, m] ** 4) / v[n] ** 2 - 3\n"
    ),
    "a skewness": (
        "dim N = 4096, M = 8192\ninput X: f32[N, M]\noutput Y: f32[N]\n"
        "c[n, m] = X[n, m] - mean[k: M](X[n, k])\nY[n] = mean[m](c[n, m] ** 3)\n"
    ),
    "a function of a mean": (
        "dim N = 4096, M = 65536\ninput X: f32[N, M]\noutput Y: f32[N]\nY[n] = exp(8 * mean[m](X[n, m] ** 2))\n"
    ),
    "a function of terms of random signs": (
        "dim N = 4096, M = 8192\ninput X: f32[N, M]\noutput Y: f32[N]\nY[n] = exp(sum[m](X[n, m]) / 16)\n"
    ),
    "few terms under a condition": (
        "dim N = 64, M = 65536\ninput X: f32[M]\ninput at: i32[M]\noutput Y: f32[N]\nassume 0 <= at[m] < N\n"
        "Y[n] = sum[m | at[m] == n](X[m])\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECS)
def test_some_terms_stand_for_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = rounded(load_text(SPECS[name]))
    (output,) = program.outputs
    kept = sampling.longest(sampling._cut(program, sampling._BUDGET)[0])
    assert kept < sampling.longest(program)
    found = figures(program, "fast", [output], Schedule())["Y"].relative
    monkeypatch.setattr(sampling, "_BUDGET", 1 << 24)
    monkeypatch.setattr(sampling, "_LONGEST", 1 << 16)
    whole = figures(program, "fast", [output], Schedule())["Y"].relative
    assert 0.4 * whole < found < 3 * whole, (found, whole)
