"""What the model takes the elements of tensors for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nautilus.cost import estimates
from nautilus.cost.estimates import FAR


@pytest.mark.parametrize("most", [0, 1, 5, 63, 64, 65, 4097, FAR])
def test_the_least_number_with_the_last_value_takes_few_evaluations(most: int) -> None:
    for first in sorted({0, min(1, most), min(2, most), most // 3, max(0, most - 1), most}):
        asked: list[int] = []

        def at(n: Any, first: int = first, asked: list[int] = asked) -> Any:
            asked.append(np.size(n))
            return np.minimum(n, first)

        assert estimates._first_of(at, most) == first
        assert len(asked) <= 7


def test_a_constant_has_its_last_value_from_the_first_number_on() -> None:
    assert estimates._first_of(lambda n: np.asarray(3), 1000) == 0
