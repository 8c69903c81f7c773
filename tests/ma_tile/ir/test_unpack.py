"""Steps by which numbers of four bits become floats, against the numbers and their bits."""

from __future__ import annotations

import numpy as np
import pytest

from nautilus.core.types import DType
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.ir.unpack import FORMS, byte_steps, is_exact, packed_layout, pair_steps, word_layout

F16, BF16 = DType.F16, DType.BF16


def from_bits(bits: int, dtype: DType) -> float:
    if dtype is F16:
        return float(np.uint16(bits).view(np.float16))
    return float(np.uint32(bits << 16).view(np.float32))


def put(form: str, code: int, flip: int, dtype: DType) -> float:
    """The float that has the bits of ``code``: in its last places, or as sign, exponent and mantissa."""
    if form == "f4e2m1":
        first = 9 if dtype is F16 else 6  # of the mantissa's ten or seven bits the first one
        return from_bits((code >> 3) << 15 | (code & 7) << first, dtype)
    return from_bits((0x6400 if dtype is F16 else 0x4300) | (code ^ flip), dtype)


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize(("form", "bias", "factor"), [
    ("u4", 0.0, 1.0), ("u4", 8.0, 1.0), ("u4", 8.0, 0.25), ("u4", 0.0, -2.0), ("i4", 0.0, 1.0), ("i4", 0.0, 4.0),
    ("f4e2m1", 0.0, 1.0), ("f4e2m1", 0.0, 0.5),
])  # fmt: skip
def test_every_code_becomes_its_number(form: str, bias: float, factor: float, dtype: DType) -> None:
    steps = pair_steps(form, bias, factor, dtype)
    if steps is None:
        assert not is_exact(form, bias, factor, dtype)
        assert (form == "f4e2m1" and dtype is F16 and factor < 1.0) or dtype is BF16
        return
    for code, n in enumerate(FORMS[form]):
        assert put(form, code, steps.flip, dtype) * steps.times + steps.plus == (n - bias) * factor, code


def test_steps_that_exist() -> None:
    assert pair_steps("u4", 8.0, 1.0, F16) and pair_steps("i4", 0.0, 1.0, BF16) and pair_steps("f4e2m1", 0.0, 1.0, F16)
    assert pair_steps("u4", 0.1, 1.0, F16) is None, "a number is not exact"
    assert pair_steps("u4", 0.0, 2.0**13, F16) is None, "15 * 2 ** 13 is no f16"
    assert pair_steps("f4e2m1", 1.0, 1.0, F16) is None and pair_steps("u4", 0.0, 1.0, DType.F32) is None


@pytest.mark.parametrize(("form", "bias", "factor", "steps"), [
    ("u4", 0.0, 1.0, (0, 0)), ("u4", 8.0, 1.0, (0, 8)), ("i4", 0.0, 1.0, (8, 8)), ("i4", -8.0, 1.0, (8, 0)),
    ("i4", -9.0, 1.0, None), ("u4", 128.0, 1.0, (0, 128)), ("u4", 129.0, 1.0, None), ("u4", -1.0, 1.0, None),
    ("u4", 0.5, 1.0, None), ("u4", 0.0, 2.0, None), ("f4e2m1", 0.0, 1.0, None),
])  # fmt: skip
def test_bytes(form: str, bias: float, factor: float, steps: tuple[int, int] | None) -> None:
    assert byte_steps(form, bias, factor) == steps
    assert is_exact(form, bias, factor, DType.I8) == (steps is not None)
    if steps is not None:
        flip, less = steps
        assert all((code ^ flip) - less == n - bias for code, n in enumerate(FORMS[form]))
        assert -less >= -128 and 15 - less <= 127


def test_numbers_of_the_forms() -> None:
    assert FORMS["u4"] == tuple(range(16)) and FORMS["i4"] == (*range(8), *range(-8, 0))
    assert FORMS["f4e2m1"] == (0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6)


def test_layouts_of_bytes() -> None:
    pairs = FragLayout((Mode(2, "k", 1), Mode(2, "m", 8)), (Mode(4, "k", 2), Mode(8, "m", 1)), (Mode(2, "k", 8),))
    assert packed_layout(pairs, "k", "p") == FragLayout(
        (Mode(2, "m", 8),), (Mode(4, "p", 1), Mode(8, "m", 1)), (Mode(2, "p", 4),)
    )
    four = FragLayout((Mode(4, "k", 1),), (Mode(32, "m", 1),), ())
    assert packed_layout(four, "k", "p") == FragLayout((Mode(2, "p", 1),), (Mode(32, "m", 1),), ())
    assert packed_layout(FragLayout((Mode(2, "k", 2),), (), ()), "k", "p") is None
    assert packed_layout(FragLayout((Mode(3, "k", 1),), (), ()), "k", "p") is None
    assert packed_layout(FragLayout((Mode(2, "m", 1),), (), ()), "k", "p") is None
    assert packed_layout(FragLayout((), (), ()), "k", "p") is None
    assert packed_layout(FragLayout((Mode(2, "k", 1),), (Mode(4, "k", 3),), ()), "k", "p") is None


def test_words_of_four_lanes() -> None:
    bytes_ = FragLayout((Mode(2, "m", 8),), (Mode(4, "p", 1), Mode(8, "m", 1)), ())
    assert word_layout(bytes_, "p") == FragLayout(
        (Mode(4, "p", 1), Mode(2, "m", 8)), (Mode(4, None), Mode(8, "m", 1)), ()
    )
    for first in (Mode(8, "p", 1), Mode(4, "p", 2), Mode(4, "m", 1)):
        assert word_layout(FragLayout((), (first, Mode(8, "m", 1)), ()), "p") is None
    assert word_layout(FragLayout((), (), ()), "p") is None
