"""Inputs are moved until they keep every promise, whatever they were."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.errors import InputError
from nautilus.frontend.interp import exactly
from nautilus.frontend.promises import keep
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Definition

TEXT = """dim N = 40
input x: f32[N], k: i32[N], w: i64[N], b: bool[N]
assume {fact}
output Y: f32[N]
Y[i] = x[i] + k[i] + w[i] + i32(b[i])
"""


@pytest.mark.parametrize(
    "fact",
    [
        "k[i] <= k[i + 1]", "2 * k[i] <= 7 and k[i] >= -3", "k[i] == 2 * k[i + 1] + 1", "k[i] % 8 == 0", "not b[i]",
        "b[i]",
        "abs(x[i]) < 2", "x[i] > 1.5", "x[i] <= x[i + 1]",
        # casts to narrower types, in which the values that were drawn wrap
        "i8(k[i]) >= 100", "i32(w[i]) == k[i]", "i32(w[i]) < 5", "i8(k[i]) <= i8(k[i + 1])", "u8(k[i]) == 200",
        "f16(x[i]) <= 1", "i32(w[i]) % 8 == 0",
    ],
)  # fmt: skip
def test_a_promise_holds_at_every_index_at_which_its_reads_are_inside(fact: str) -> None:
    spec, r = load_text(TEXT.format(fact=fact)), np.random.default_rng(0)
    k, w = r.integers(-(2**31), 2**31, 40), r.integers(-(2**62), 2**62, 40)
    found = keep(spec, {"x": r.normal(size=40) * 5, "k": k, "w": w, "b": r.random(40) < 0.5}, {})
    (promise,) = spec.facts
    (axis,) = promise.axes
    last = 1 if "i + 1" in fact else 0
    padded = {n: np.append(x, x[:1]) for n, x in found.items()}
    held = exactly(Definition("", None, (axis,), promise.condition, False), padded, {})[0]
    assert held[: 40 - last].all()


@pytest.mark.parametrize("fact", ["i32(x[i]) == 3", "k[i] < k[i]"])
def test_a_promise_for_which_no_inputs_are_found_is_an_error(fact: str) -> None:
    spec = load_text(TEXT.format(fact=fact))
    with pytest.raises(InputError, match="no inputs were found"):
        keep(spec, {"x": np.zeros(40), "k": np.zeros(40), "w": np.zeros(40), "b": np.zeros(40, bool)}, {})
