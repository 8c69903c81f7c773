"""More elements of an output are evaluated where few of them have most of the norm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nautilus.check.bound.recurrences import recurrent
from nautilus.check.bound.recurrences.excerpt import Known
from nautilus.check.bound.stated import stated
from nautilus.frontend.semantics.check import load_text
from nautilus.frontend.spec import Spec

#: States whose growth depends on a random input, by the size of the step.
STATES = """dim N = 3000, T = 16
input k: f32[N]
output x: f32[N]
recur s[t: T, n: N] = (s[t - 1, n] if t > 0 else 1) * (1 + {size} * k[n])
x[n] = s[T - 1, n] - s[T - 2, n]
"""


@pytest.mark.parametrize(("size", "more"), [(0.9, True), (0.001, False)])
def test_states_of_which_few_grow_are_evaluated_at_more_positions(
    monkeypatch: pytest.MonkeyPatch, size: float, more: bool
) -> None:
    sizes = []

    class Seen(Known):
        def __init__(self, fixed: Spec, *given: Any, **options: Any) -> None:
            super().__init__(fixed, *given, **options)
            sizes.append(self.few.spec.outputs[0].shape[0])

    monkeypatch.setattr(recurrent, "Known", Seen)
    assert 0.0 < stated(load_text(STATES.format(size=size)))["x"].relative < 1e-3
    assert sizes == [64, 1024][: 1 + more]


#: Paths of log-normal size, and a state whose terms have both signs.
PATHS = """dim P = 7, T = 64
input r: f32[P, T]
output a: f32[P, T], y: f32
recur c[p: P, t: T] = (c[p, t - 1] if t > 0 else 0) + r[p, t]
recur s[t: T] = 0.9 * s[t - 1] + r[0, t] if t > 0 else r[0, 0]
a[p, t] = exp(c[p, t])
y = s[T - 1]
"""


def test_the_figure_of_few_large_paths_holds_on_other_inputs() -> None:
    bounds = stated(load_text(PATHS))
    r = np.random.default_rng(1).standard_normal((200, 7, 64)).astype(np.float32)
    c, exact = np.zeros_like(r), np.cumsum(r.astype(float), axis=2)
    for t in range(64):
        c[..., t] = c[..., t - 1] + r[..., t] if t else r[..., 0]
    error = np.linalg.norm((np.exp(c) - np.exp(exact)).reshape(200, -1), axis=1)
    measured = error / np.linalg.norm(np.exp(exact).reshape(200, -1), axis=1)
    assert measured.max() < bounds["a"].relative < 10 * measured.max()
    assert bounds["a"].rare_inputs == 0.0
    assert bounds["y"].rare_inputs == 1 / 8  # the number may be close to 0
