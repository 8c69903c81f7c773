"""Comparison of arrays within error bounds.

Errors are Frobenius norms: ``|got - want| / |want|`` over the elements that are finite in both.  The positions of inf
(with its sign) and NaN must agree.  Integers and bools must be equal.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import numpy as np

from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.core.text.words import counted
from nautilus.core.types import FORMATS, LARGEST, DType

_LEAST = 2.0**-149  # the least positive f32
_EDGE = 1 / 64  # relative distance below the largest number within which rounding decides about overflow
_FLIPS = 1 / 200  # allowed share of elements that round differently when both sides compute over the reals


@dataclass(frozen=True, slots=True)
class Difference:
    """The first wrong element and the number of wrong ones.  ``measured``: relative error; inf if not comparable."""

    index: tuple[int, ...]
    got: float
    want: float
    measured: float
    count: int

    @property
    def text(self) -> str:
        """The difference in one line."""
        at = ", ".join(map(str, self.index))
        wrong = counted(self.count, "wrong element")
        return f"[{at}] is {self.got!r}, expected {self.want!r} ({wrong})"


def norm(x: Array) -> float:
    """The Frobenius norm of the finite part, without overflow."""
    y = np.abs(np.asarray(x, np.float64))
    y = y[np.isfinite(y)]
    top = float(y.max()) if y.size else 0.0
    return top * float(np.sqrt(np.sum((y / top) ** 2))) if top > 0.0 else 0.0


def relative(got: Array, want: Array, size: float | None = None) -> float:
    """Frobenius error relative to ``size`` (None: the norm of ``want``).

    It is inf where positions of inf or NaN differ, and for any error against 0.
    """
    if _unlike(got, want) is not None:
        return float("inf")
    error, size = norm(_delta(got, want)), norm(want) if size is None else size
    return error / size if size > 0.0 else (0.0 if error == 0.0 else float("inf"))


def without_largest(error: Array, want: Array, share: float) -> float:
    """The norm of ``error`` without the ``share`` of the largest errors, relative to the norm of ``want`` without the
    ``share`` of the largest values.

    An error that is inf or NaN is among the largest; a part of an element counts as one.
    """
    rest, values = (_smallest(x, share) for x in (error, np.where(np.isfinite(want), want, 0.0)))
    if np.isinf(rest).any():
        return float("inf")
    whole = norm(values)
    return norm(rest) / whole if whole > 0.0 else (float("inf") if rest.any() else 0.0)


def differences(got: Array, want: Array) -> Array:
    """``|got - want|``: 0 where both are the same inf or NaN, and inf or NaN where one is."""
    with np.errstate(invalid="ignore"):
        got = np.asarray(got, np.float64)
        return np.where((got == want) | (np.isnan(got) & np.isnan(want)), 0.0, np.abs(got - want))


def _smallest(x: Array, share: float) -> Array:
    """The magnitudes of ``x`` without the ``share`` of the largest."""
    size = np.nan_to_num(np.abs(np.ravel(x)), nan=np.inf, posinf=np.inf)
    kept = size.size - ceil(share * size.size - 1e-9)
    return np.partition(size, kept)[:kept] if kept < size.size else size


def add_relative(x: Array, relative: float, xi: Array) -> Array:
    """``x * (1 + relative * xi)``; ``xi``, which nothing else has, is overwritten: new arrays take longer than sums."""
    xi *= relative
    xi += 1.0
    return np.asarray(x * xi)


def spacing(x: Array, dtype: DType) -> Array:
    """The distance between neighbouring numbers of float type ``dtype`` at ``x``."""
    finite = np.where(np.isfinite(x), x, 0.0)
    _, exponent = np.frexp(finite)
    exponent = np.where(finite == 0.0, FORMATS[dtype].least, exponent - 1)
    return np.asarray(np.ldexp(1.0, np.maximum(exponent, FORMATS[dtype].least) - dtype.mantissa))


def floor(dtype: DType) -> float:
    """The absolute error that any element may have.

    Results below the least normal f32 may be flushed to 0, and rounding to a 16-bit or 8-bit type loses half a step of
    its denormals.
    """
    least = max(FORMATS[dtype].least, -126) if dtype is not DType.F64 else -1022
    return max(2.0**least if FORMATS[dtype].least <= -126 else 0.0, 2.0 ** (least - dtype.mantissa))


def exact(
    got: Array, want: Array, share: float = 0.0, step: float = np.inf, free: Callable[[], Array] | None = None
) -> Difference | None:
    """Compare integers or bools; ``share`` of the elements may differ, by up to ``step``, and so may those in ``free``.

    Floats close to a tie decide about these.
    """
    if np.shape(got) != np.shape(want):
        return _shapes(got)
    wrong = np.asarray(got) != np.asarray(want)
    if not wrong.any():
        return None
    far = np.zeros((), bool)
    if np.isfinite(step):
        far = np.abs(np.asarray(got, np.int64) - np.asarray(want, np.int64)) > step
    if free is not None:
        wrong &= far | ~free()
    if np.count_nonzero(wrong) <= (0.0 if far.any() else share) * wrong.size:
        return None
    return _difference(got, want, wrong, float("inf"))


def within(got: Array, want: Array, allowed: float, each: Array | None = None) -> Difference | None:
    """Compare floats: None where ``|got - want| <= allowed`` (an absolute norm) and inf and NaN agree.

    ``each``: instead, the allowed error of each element, which may have any value where that is inf.
    """
    if each is not None and np.shape(each) == np.shape(got) == np.shape(want):
        return _within_each(np.asarray(got, np.float64), np.asarray(want, np.float64), each)
    if (unlike := _unlike(got, want)) is not None:
        return unlike
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    delta = _delta(got, want)
    if norm(delta) <= allowed:
        return None
    typical = allowed / max(1.0, np.sqrt(delta.size))
    return _difference(got, want, np.abs(delta) > typical, relative(got, want))


def _within_each(got: Array, want: Array, each: Array) -> Difference | None:
    free = np.isinf(each)
    got = np.where(free, want, got)
    if (unlike := _unlike(got, want)) is not None:
        return unlike
    wrong = np.abs(_delta(got, want)) > np.where(free, 0.0, each)
    return _difference(got, want, wrong, relative(got, want)) if wrong.any() else None


def overflown(got: Array, want: Array, dtype: DType) -> Array:
    """Elements that are inf on one side and close to the largest number of ``dtype``, with the same sign, on the other.

    Rounding decides about their overflow.
    """
    if dtype not in LARGEST:
        return np.zeros(np.shape(got), bool)
    least = (1.0 - _EDGE) * LARGEST[dtype]
    one = np.isinf(got) != np.isinf(want)
    close = (np.abs(got) >= least) & (np.abs(want) >= least) & (np.signbit(got) == np.signbit(want))
    return np.asarray(one & close)


def same_reals(
    got: Array, want: Array, dtype: DType, slack: float = 0.0, truth: Array | None = None
) -> Difference | None:
    """Compare two results over the reals, stored as ``dtype``, to 1e-9 plus ``slack`` (an absolute norm).

    What is less than the least number of f32 is 0 in an element of up to 32 bits.
    A type below 32 bits rounds at the end.  Elements whose unrounded value ``truth`` is a tie may round either way, and
    so may a few others, because ``truth`` is not always known.
    """
    if not dtype.is_float:
        return exact(got, want)
    if (unlike := _unlike(got, want)) is not None:
        return unlike
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    delta = _delta(got, want)
    if dtype.bits < 32:
        step = spacing(want, dtype)
        off = (delta != 0.0) & (np.abs(delta) <= 1.01 * step)
        if truth is not None:
            with np.errstate(invalid="ignore"):
                tie = off & (np.abs(truth - (got + want) / 2) <= 1e-3 * step)
            delta, off = np.where(tie, 0.0, delta), off & ~tie
        if np.count_nonzero(off) <= max(2.0, _FLIPS * off.size):
            delta = np.where(off, 0.0, delta)
    least = _LEAST * np.sqrt(delta.size) if dtype.bits <= 32 else 0.0
    return within(np.where(delta == 0.0, want, got), want, 1e-9 * norm(want) + slack + least)


def _delta(got: Array, want: Array) -> Array:
    good = np.isfinite(got) & np.isfinite(want)
    return np.where(good, np.where(good, got, 0.0) - np.where(good, want, 0.0), 0.0)


def _unlike(got: Array, want: Array) -> Difference | None:
    """The difference where the shapes differ, or inf and NaN do not stand at the same places."""
    if np.shape(got) != np.shape(want):
        return _shapes(got)
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    wrong = np.asarray(~same & ~(np.isfinite(got) & np.isfinite(want)))
    return _difference(got, want, wrong, float("inf")) if wrong.any() else None


def _shapes(got: Array) -> Difference:
    return Difference(np.shape(got), float("nan"), float("nan"), float("inf"), int(np.size(got)))


def _difference(got: Array, want: Array, wrong: Array, measured: float) -> Difference:
    if not np.any(wrong):
        wrong = np.asarray(got) != np.asarray(want)
    at = tuple(int(i[0]) for i in np.nonzero(wrong)) if np.ndim(wrong) else ()
    got, want = np.asarray(got), np.asarray(want)
    return Difference(at, got[at].item(), want[at].item(), measured, int(np.count_nonzero(wrong)))
