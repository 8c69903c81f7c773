"""Functions on numpy arrays that numpy lacks or defines differently.

Arguments are float64, int64 or bool arrays; integers stay integers.  ``core.numerics`` rounds results to a type.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


def some(x: Array) -> bool:
    """Whether an element is true: ``x.any()``, which takes three times as long for the registers of a warp."""
    return bool(np.count_nonzero(x))


def every(x: Array) -> bool:
    """Whether all elements are true: ``x.all()``, which takes three times as long for the registers of a warp."""
    return bool(np.count_nonzero(x) == np.size(x))


def floordiv(a: Array, b: Array) -> Array:
    """The quotient rounded towards minus infinity; an integer division by 0 gives 0, which no result may use."""
    if np.asarray(b).dtype.kind == "f" or every(b):
        return np.asarray(np.floor_divide(a, b))
    return np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b)))


def first_of(a: Array, b: Array, c: Array) -> Array:
    """``a`` in the shape of all arguments."""
    return np.broadcast_arrays(a, b, c)[0]


def mod(a: Array, b: Array) -> Array:
    """The remainder of :func:`floordiv`, which has the sign of ``b``."""
    if np.asarray(b).dtype.kind == "f" or every(b):
        return np.asarray(np.mod(a, b))
    return np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b)))


def power(a: Array, b: Array) -> Array:
    """``a`` to the power ``b``; of integers, a negative exponent truncates towards zero, as a division does."""
    if np.asarray(b).dtype.kind == "f":
        raised = np.asarray(np.power(a, b))
        # numpy takes a root for an exponent of 0.5 that all elements share, which is NaN of -inf
        return np.where((b == 0.5) & np.isinf(a), np.inf, raised) if np.size(b) == 1 else raised
    raised = np.power(a, np.maximum(b, 0))
    inverse = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    return np.where(b < 0, inverse, raised)


def shift_left(a: Array, n: Array) -> Array:
    """``a * 2 ** n`` modulo 2^64; 0 where ``n`` is negative or larger than 63."""
    inside = (n >= 0) & (n < 64)
    return np.where(inside, np.left_shift(a, np.where(inside, n, 0)), 0)


def shift_right(a: Array, n: Array) -> Array:
    """``a // 2 ** n``; -1 of a negative number and 0 of another one where ``n`` is negative or larger than 63."""
    return np.asarray(np.right_shift(a, np.where((n >= 0) & (n < 64), n, 63)))


def ctpop(a: Array) -> Array:
    """How many of the low 32 bits of ``a`` are set."""
    word = np.asarray(a).astype(np.int64) & 0xFFFFFFFF
    word = word - (word >> 1 & 0x55555555)  # the numbers of pairs, of nibbles, of bytes (Hacker's Delight, 5-1)
    word = (word & 0x33333333) + (word >> 2 & 0x33333333)
    word = word + (word >> 4) & 0x0F0F0F0F
    return np.asarray((word * 0x01010101 >> 24 & 0xFF).astype(np.asarray(a).dtype))


def rsqrt(x: Array) -> Array:
    """``1 / sqrt(x)``."""
    return np.asarray(1.0 / np.sqrt(x))


def binade(x: Array) -> Array:
    """The largest power of two that is at most ``x``, and within [2^-100, 2^127]; 2^127 of inf and NaN."""
    _, exponent = np.frexp(np.where(np.isfinite(x), x, 0.0))
    least = np.where(x <= 0.0, -100, np.clip(exponent - 1, -100, 127))
    return np.asarray(np.ldexp(1.0, np.where(np.isfinite(x) | (x < 0.0), least, 127)))


def rcp(x: Array) -> Array:
    """``1 / x``."""
    return np.asarray(1.0 / x)


def div_by(x: Array, y: Array, z: Array) -> Array:
    """``x / y``; ``z`` is the reciprocal of ``y`` that a device function needs."""
    return np.asarray(x / y)


def fma(a: Array, b: Array, c: Array) -> Array:
    """``a * b + c``."""
    return np.asarray(a * b + c)


def exp10(x: Array) -> Array:
    """``10 ** x``."""
    return np.asarray(np.power(10.0, x))


def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))`` without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


def erf(x: Array) -> Array:
    """The error function by the C library, which is accurate to a unit of float64."""
    return np.asarray(_erf(np.asarray(x, np.float64)), np.float64)


def erfc(x: Array) -> Array:
    """``1 - erf(x)`` by the C library, also accurate in the tail, where the subtraction would cancel."""
    return np.asarray(_erfc(np.asarray(x, np.float64)), np.float64)


_erf, _erfc = np.frompyfunc(math.erf, 1, 1), np.frompyfunc(math.erfc, 1, 1)


def maximum(a: Array, b: Array) -> Array:
    """The larger one, in the operands' type: NaN if one is NaN; -0 is less than +0."""
    value = np.asarray(np.maximum(a, b))
    if value.dtype.kind != "f" or np.all(value):
        return value
    return np.where((value == 0.0) & (np.equal(a, b)), np.add(a, b), value)  # -0 + 0 is +0


def minimum(a: Array, b: Array) -> Array:
    """The smaller one, in the operands' type: NaN if one is NaN; -0 is less than +0."""
    value = np.asarray(np.minimum(a, b))
    if value.dtype.kind != "f" or np.all(value):
        return value
    return np.where((value == 0.0) & (np.equal(a, b)), -(np.negative(a) + np.negative(b)), value)
