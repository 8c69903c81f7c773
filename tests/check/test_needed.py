"""Which elements stand behind a false condition, and the inputs that hold garbage there."""

from __future__ import annotations

import numpy as np

from nautilus.check.inputs import generate, kinds
from nautilus.frontend.interp import run_spec
from nautilus.frontend.needed import needed
from nautilus.frontend.semantics.check import load_text

_LENGTHS = """dim B = 3, K = 9, N = 4
input A: f32[B, K]
input V: f32[K, N]
input len: i32[B]
output O: f32[B, N]
W[b, k] = A[b, k] if k < len[b] else 0
O[b, n] = sum[k](W[b, k] * V[k, n])
"""


def test_elements_beyond_lengths_are_not_needed() -> None:
    spec = load_text(_LENGTHS)
    inputs = {"A": np.ones((3, 9)), "V": np.ones((9, 4)), "len": np.array([2, 0, 7])}
    found = needed(spec, inputs, {})
    assert (found.read["A"] == (np.arange(9) < inputs["len"][:, None])).all()
    assert (found.read["V"].all(axis=1) == (np.arange(9) < 7)).all()
    assert found.skipped["V"].all()


def test_garbage_leaves_results_finite_that_do_not_need_it() -> None:
    spec = load_text(_LENGTHS)
    given = generate(spec, "garbage", 1)
    assert "garbage" in kinds(spec) and not np.isfinite(given.arrays["A"]).all()
    with np.errstate(all="ignore"):
        out = run_spec(spec, given.arrays)["O"]
    assert np.isfinite(out).any()
    assert "garbage" not in kinds(load_text("input X: f32[4]\noutput O: f32[4]\nO[i] = X[i] * 2\n"))


_PAGES = """dim B = 2, L = 10, P = 4, N = 3
const TP = L // P
input K: f32[N, P]
input page: i32[B, TP]
input len: i32[B]
output O: f32[B]
assume 0 <= len[b] <= L
O[b] = sum[j: L | j < len[b]](K[page[b, j // P], j % P])
"""


def test_positions_outside_of_a_tensor_are_named() -> None:
    """A length that needs more pages than a row of the table has reads outside of the table."""
    spec = load_text(_PAGES)
    arrays = {"K": np.ones((3, 4)), "page": np.zeros((2, 2), np.int64)}
    for most, outside in ((8, set()), (9, {"page"})):
        assert needed(spec, {**arrays, "len": np.array([0, most])}, {}).outside == outside
    empty = load_text("dim B = 2, N = runtime\ninput X: f32[N]\noutput O: f32[B]\nO[i: B] = X[i] if i < N else 0.0\n")
    assert not needed(empty, {"X": np.ones(0)}, {"N": 0}).outside
