"""Figures from some terms of long sums are those from all of them."""

from __future__ import annotations

import pytest

from nautilus.check.bound import sampling
from nautilus.check.bound.program import rounded
from nautilus.check.bound.sampling import figures
from nautilus.check.bound.stated import stated
from nautilus.check.bound.sums import shorter
from nautilus.check.bound.sums.shorter import at_elements, longest, shorter_sums
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
    "a chain of products": (
        "dim N = 384\ninput X: f16[N, N], A: f16[N, N], B: f16[N, N], C: f16[N, N], D: f16[N, N]\noutput Y: f32[N, N]\n"
        "P: f16[i, j] = max(sum[k](X[i, k] * A[k, j]) * sqrt(2 / N), 0)\n"
        "Q: f16[i, j] = max(sum[k](P[i, k] * B[k, j]) * sqrt(2 / N), 0)\n"
        "R: f16[i, j] = max(sum[k](Q[i, k] * C[k, j]) * sqrt(2 / N), 0)\nY[i, j] = sum[k](R[i, k] * D[k, j])\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECS)
def test_some_terms_stand_for_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shorter, "FEWEST_ELEMENTS", ())  # of which whole rows are evaluated
    program = rounded(load_text(SPECS[name]))
    (output,) = program.outputs
    kept = longest(at_elements(program, sampling._BUDGET)[0])
    assert kept < longest(program)
    found = figures(program, "fast", [output], Schedule())["Y"].relative
    monkeypatch.setattr(sampling, "_BUDGET", 1 << 24)
    monkeypatch.setattr(shorter, "_LONGEST", 1 << 16)
    whole = figures(program, "fast", [output], Schedule())["Y"].relative
    assert 0.4 * whole < found < 3 * whole, (found, whole)


#: What a kernel of f32 is off by at these sizes, on random inputs.
CANCELLING = {
    "deviations from a mean": (
        6e-5,
        "dim N = 64, M = 8192\ninput X: f32[N, M]\noutput Y: f32[N]\nm[n] = mean[k](X[n, k])\n"
        "Y[n] = mean[k](X[n, k] - m[n]) + m[n] * m[n]\n",
    ),
    "mutual information": (
        1.6e-5,
        "dim N = 1000000, A = 32, B = 32\ninput x: u8[N], y: u8[N]\nassume x[n] < A and y[n] < B\noutput Y: f32\n"
        "c[a: A, b: B] = sum[n | x[n] == a and y[n] == b](1)\nr[a: A] = sum[b](c[a, b])\ns[b: B] = sum[a](c[a, b])\n"
        "Y = sum[a, b | c[a, b] > 0](f32(c[a, b]) / N * log(f32(c[a, b]) * N / (f32(r[a]) * f32(s[b]))))\n",
    ),
    "a distance of distributions": (
        8.6e-4,
        "dim N = 2048\ninput X: f32[N], Z: f32[N]\noutput Y: f32\n"
        "Y = mean[i, j](exp(-(X[i] - X[j]) ** 2)) + mean[i, j](exp(-(Z[i] - Z[j]) ** 2))"
        " - 2 * mean[i, j](exp(-(X[i] - Z[j]) ** 2))\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CANCELLING)
def test_sums_that_cancel_at_full_size_do_so_in_the_bound(name: str) -> None:
    measured, text = CANCELLING[name]
    assert measured < stated(load_text(text))["Y"].relative < 100 * measured


@pytest.mark.parametrize(("budget", "most", "terms"), [
    (1 << 40, None, 1 << 17), (1 << 40, 4096, 4096), (1000, None, 64), (1, None, 32),
])  # fmt: skip
def test_the_terms_that_sums_keep(budget: int, most: int | None, terms: int) -> None:
    program = load_text("dim N = 4, M = 1048576\ninput X: f32[N, M]\noutput Y: f32[N]\nY[n] = sum[m](X[n, m])\n")
    cut = shorter_sums(program, shorter._chosen(program), budget, most)
    assert next(t.shape for t in cut.spec.inputs) == (4, terms)
