"""More elements of an output are evaluated where few of them have most of the norm."""

from __future__ import annotations

from typing import Any

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
