"""The validator defines every function of the compiler, independently, with equal values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nautilus.check.bound.exactness import instruction_error
from nautilus.check.validate import numbers
from nautilus.check.validate.meanings import KNOWN, apply
from nautilus.check.validate.numbers import Constants, Number
from nautilus.core.functions import FUNCTIONS, Types
from nautilus.core.numerics import eval_op
from nautilus.core.types import DType, integer_limits
from tests.check.elementary import ELEMENTARY

CONVERSIONS = {f.name for f in FUNCTIONS.values() if f.types is Types.CONVERSION}
BITWISE = {f.name for f in FUNCTIONS.values() if f.types is Types.INTEGER}
LOGIC = {f.name for f in FUNCTIONS.values() if f.types is Types.LOGIC}
POINTS = [-3.0, -1.25, -0.75, -0.5, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.5]


def points(arity: int) -> list[tuple[float, ...]]:
    shifted = [POINTS[n:] + POINTS[:n] for n in (0, 3, 5)][:arity]
    return list(zip(*shifted, strict=True))


def test_every_function_has_a_meaning() -> None:
    assert FUNCTIONS.keys() == KNOWN


@pytest.mark.parametrize("name", sorted(BITWISE))
@pytest.mark.parametrize("dtype", [DType.I32, DType.I64])
def test_bits_agree_with_the_compilers(name: str, dtype: DType) -> None:
    low, high = integer_limits(dtype)
    points = np.asarray([low, -33, -2, -1, 0, 1, 2, 5, 31, 32, 40, 63, 64, 70, high])
    args = np.meshgrid(*[points] * FUNCTIONS[name].arity)
    found = apply(name, args, dtype, dtype, Constants())
    got = eval_op(name, args, dtype)
    bits = dtype.bits
    for n, at in enumerate(zip(*(a.ravel().tolist() for a in args), strict=True)):
        value = ours(name, bits, *at)
        assert got.ravel()[n] == np.asarray(found).ravel()[n] == value, (name, at)


@pytest.mark.parametrize("name", ["floordiv", "mod", "fmod"])
def test_integers_by_zero_are_as_the_language_says(name: str) -> None:
    args = (np.asarray([-7, 0, 7]), np.asarray([0, 0, 0]))
    found = apply(name, args, DType.I32, DType.I32, Constants())
    assert np.asarray(found).tolist() == eval_op(name, args, DType.I32).tolist()


def ours(name: str, bits: int, a: int, b: int = 0) -> int:
    """The definition of the language reference, by Python's integers."""
    inside = 0 <= b < bits
    value = {
        "bit_and": a & b, "bit_or": a | b, "bit_xor": a ^ b, "bit_not": -1 - a,
        "shift_left": a * 2**b if inside else 0, "shift_right": a // 2**b if inside else -int(a < 0),
        "ctpop": f"{a % 2**32:b}".count("1"),
    }[name]  # fmt: skip
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - CONVERSIONS - LOGIC - BITWISE - {"select"}))
def test_values_agree_with_the_compilers(name: str) -> None:
    ours = FUNCTIONS[name].python
    assert ours is not None
    tried = 0
    for at in points(FUNCTIONS[name].arity):
        args = [numbers.exactly(np.asarray([x])) for x in at]
        found = apply(name, args, DType.F64, DType.F64, Constants())
        got = float((found.real if isinstance(found, Number) else found)[0])
        try:
            want = ours(*at)
        except (ArithmeticError, ValueError):
            assert not math.isfinite(got) or name == "pow"
            continue
        if not isinstance(want, complex):
            assert got == pytest.approx(float(want), rel=1e-13, abs=1e-15), at
            tried += 1
    assert tried > 2


@pytest.mark.parametrize("name", ELEMENTARY)
@pytest.mark.parametrize("fast", [True, False])
def test_the_stated_error_is_that_of_the_table(name: str, fast: bool) -> None:
    f = FUNCTIONS[name]
    u32, u64 = 2.0**-24, 2.0**-53
    assert instruction_error(name, u64, fast) == 2 * f.ulps[1] * u64
    assert instruction_error(name, u32, False) == 2 * f.ulps[0] * u32
    assert instruction_error(name, u32, True) >= instruction_error(name, u32, False)
