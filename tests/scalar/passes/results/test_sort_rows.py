"""``sort-rows`` with the promises of a spec, which files of IR text do not have: rows that are sorted already."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.frontend.interp import run_spec
from nautilus.frontend.semantics.check import load_text
from nautilus.scalar.interp.program import run_program
from nautilus.scalar.lowering import lower
from nautilus.scalar.passes.results.sort_rows import SortRows
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.verify import verify

_SPEC = """
dim T = {T}, E = {E}, K = 4, N = 3
input X: f16[T, K], W: f16[E, K, N], ex: i32[T]
output Y: f32[{result}]
Y[{result_axes}] = sum[k](X[t, k] * W[ex[t], k, n])
assume {promise}
"""
_SIZES = {"fixed": ("7", "3"), "runtime": ("runtime <= 9", "runtime <= 4")}
SORTED = ("ex[t] <= ex[t + 1]", "0 <= ex[t - 1] <= ex[t]", "ex[i + 1] >= ex[i]")
NOT_SORTED = ("ex[t] >= ex[t + 1]", "ex[t] <= ex[t + 2]", "0 <= ex[t]")


def _spec(promise: str, sizes: str = "fixed", axes: str = "t, n") -> str:
    T, E = _SIZES[sizes]
    return _SPEC.format(T=T, E=E, promise=promise, result_axes=axes, result=axes.upper())


@pytest.mark.parametrize("axes", ["t, n", "n, t"])
@pytest.mark.parametrize("sizes", _SIZES)
@pytest.mark.parametrize("promise", SORTED)
def test_rows_that_are_sorted_stay_where_they_are(promise: str, sizes: str, axes: str) -> None:
    spec = load_text(_spec(promise, sizes, axes))
    made = SortRows(always=True, spec=spec).apply(Simplify().apply(lower(spec)))
    verify(made)
    assert not any("place" in b.name or "rows" in b.name for b in made.buffers)
    assert any(b.name == "Y_start" for b in made.buffers)
    given = {} if sizes == "fixed" else {"T": 7, "E": 3}
    rng = np.random.default_rng(3)
    for ex in ([0, 0, 1, 1, 1, 2, 2], [2] * 7, [0, 0, 0, 2, 2, 2, 2], [0] * 7):
        inputs = {"X": rng.standard_normal((7, 4)), "W": rng.standard_normal((3, 4, 3)), "ex": np.array(ex)}
        inputs = {n: v.astype(np.int32 if n == "ex" else np.float16) for n, v in inputs.items()}
        want = run_spec(spec, inputs, sizes=given)["Y"]
        np.testing.assert_allclose(run_program(made, inputs, given)["Y"], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("promise", NOT_SORTED)
def test_rows_are_sorted_without_such_a_promise(promise: str) -> None:
    spec = load_text(_spec(promise))
    made = SortRows(always=True, spec=spec).apply(Simplify().apply(lower(spec)))
    assert any(b.name == "Y_place" for b in made.buffers)


def test_a_broken_promise_reads_no_element_outside_of_a_tensor() -> None:
    spec = load_text(_spec("ex[t] <= ex[t + 1]"))
    made = SortRows(always=True, spec=spec).apply(Simplify().apply(lower(spec)))
    inputs = {"X": np.ones((7, 4), np.float16), "W": np.ones((3, 4, 3), np.float16)}
    for ex in ([2, 0, 1, 2, 0, 1, 0], [-5, 9, 1, 70, 0, -1, 2]):
        found = run_program(made, inputs | {"ex": np.array(ex, np.int32)})["Y"]
        assert np.isin(found, [0.0, 4.0, 8.0, 12.0]).all()
