"""Strides of tensors: of rows without gaps, of rows that lie anywhere, and the memory of both."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.expr.nodes import Param
from nautilus.core.index.strides import pad, places, row_major, span, spread
from nautilus.core.types import DType


def test_a_tensor_without_gaps() -> None:
    assert row_major((3, 4, 5)) == (20, 5, 1) and row_major((7,)) == (1,) and row_major(()) == ()


@pytest.mark.parametrize(("shape", "strides", "elements"), [
    ((3, 4), (4, 1), 12), ((3, 4), (6, 1), 16), ((3, 4), (1, 3), 12), ((1, 4), (100, 1), 4), ((0, 4), (4, 1), 0),
    ((3, 0), (4, 1), 0), ((2, 3, 4), (20, 6, 1), 36),
])  # fmt: skip
def test_the_span_ends_after_the_last_element(shape: tuple[int, ...], strides: tuple[int, ...], elements: int) -> None:
    assert span(shape, strides) == elements


def test_a_stride_that_the_caller_gives_leaves_a_gap_of_its_alignment() -> None:
    rows, matrices = Param("r", DType.I64, multiple=8), Param("m", DType.I64, multiple=4)
    numbers: dict[str, int] = {}
    assert pad((2, 3, 5), (matrices, rows, 1), numbers) == (52, 16, 1)
    assert numbers == {"r": 16, "m": 52}
    assert pad((2, 3, 5), (matrices, rows, 1), {"r": 40, "m": 7}) == (7, 40, 1)
    numbers = {}
    assert pad((2, 3), (1, rows), numbers) == (1, 16) and numbers == {"r": 16}


def test_elements_lie_at_their_strides_and_gaps_are_no_numbers() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    memory = spread(x, (2, 3), (5, 1))
    assert memory.shape == (8,) and memory.dtype == np.float32
    assert np.array_equal(memory[[0, 1, 2, 5, 6, 7]], x.ravel()) and np.isnan(memory[3:5]).all()
    assert np.array_equal(places(memory, (2, 3), (5, 1)), x)
    assert np.array_equal(places(spread(x, (2, 3), (1, 2)), (2, 3), (1, 2)), x)
