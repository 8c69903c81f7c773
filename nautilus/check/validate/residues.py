"""Arithmetic on arrays of residues, for tests of polynomial identities (Schwartz 1980, Zippel 1979).

There are two prime fields.  A number has a residue mod :data:`P`; where it can stand in an exponent, it also has a
residue mod :data:`Q`, the order of the subgroup that :data:`BASE` generates.  ``x -> BASE ** x`` then maps sums to
products, as exp2 does, and it is exact (Mirage, arXiv 2405.05751, section 5).

Residues are int64 arrays.  Both primes are below 2^31, so a product of two residues fits.  Both are 3 mod 4, and the
small primes :data:`ROOTED` are squares modulo both, so the roots of their products exist.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache

import numpy as np

from nautilus.core.numerics import Array

Q = 1073512439
P = 2 * Q + 1  # a prime: the squares are a subgroup of order Q
BASE = 4  # a square other than 1, so its order is Q
ROOTED = (2, 3, 5, 7, 11, 13)
_LIMB = 11  # bits: a limb times a residue, summed over _DEPTH terms, is exact in float64
_DEPTH = 1 << 10
_HALF = 15
_PAIRED = 16  # elements that are inverted one by one


def power(x: Array, n: int, modulus: int) -> Array:
    """``x ** n`` for n >= 0."""
    out = np.ones_like(x)
    while n:
        if n & 1:
            out = out * x % modulus
        n >>= 1
        if n:
            x = x * x % modulus
    return out


def inverse(x: Array, modulus: int) -> Array:
    """``1 / x``; 0 of 0.

    Elements are multiplied in pairs, the inverses of the products found, and ``1 / a = b / (a * b)``: three products
    for each element instead of one for each bit of the modulus.
    """
    level = np.where(x == 0, 1, x).reshape(-1)
    levels = []
    while level.size > _PAIRED:
        level = np.append(level, 1) if level.size % 2 else level
        levels.append(level)
        level = level[0::2] * level[1::2] % modulus
    found = power(level, modulus - 2, modulus)
    for level in reversed(levels):
        of_pairs, found = found[: level.size // 2], np.empty_like(level)
        found[0::2] = of_pairs * level[1::2] % modulus
        found[1::2] = of_pairs * level[0::2] % modulus
    return np.where(x == 0, 0, found[: x.size].reshape(x.shape))


def root(n: int, modulus: int) -> int:
    """A square root of a prime of :data:`ROOTED`."""
    return pow(n, (modulus + 1) // 4, modulus)


@cache
def _powers() -> tuple[Array, Array]:
    """``BASE ** n`` and ``BASE ** (n * 2^15)`` for n < 2^15."""
    low = np.ones(1 << _HALF, np.int64)
    for n in range(1, len(low)):
        low[n] = low[n - 1] * BASE % P
    step = int(low[-1]) * BASE % P
    high = np.ones(1 << _HALF, np.int64)
    for n in range(1, len(high)):
        high[n] = high[n - 1] * step % P
    return low, high


def raised(v: Array) -> Array:
    """``BASE ** v`` mod P for a residue ``v`` mod Q."""
    low, high = _powers()
    return np.asarray(low[v & ((1 << _HALF) - 1)] * high[v >> _HALF] % P)


def scrambled(name: str, parts: Sequence[Array], modulus: int) -> Array:
    """A fixed random function ``name`` of residues: an uninterpreted function of the field."""
    with np.errstate(over="ignore"):
        state = np.asarray(np.uint64(zlib.crc32(name.encode()) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF))
        for x in parts:
            state = _mixed(state ^ x.astype(np.uint64))
        state = _mixed(state + np.uint64(modulus))
    return (state % np.uint64(modulus)).astype(np.int64)


def _mixed(x: Array) -> Array:
    """The finaliser of splitmix64."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def of_floats(x: Array, modulus: int) -> Array:
    """The residues of finite floats, which are integers times powers of 2; 0 of inf and NaN."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(x), x, 0.0))
    whole = np.asarray(mantissa * 2.0**53).astype(np.int64) % modulus
    return whole * _twos(modulus)[exponent.astype(np.int64) - 53 + 1200] % modulus


@cache
def _twos(modulus: int) -> Array:
    """``2 ** (n - 1200)`` for n < 2400."""
    return np.array([pow(2, (n - 1200) % (modulus - 1), modulus) for n in range(2400)], np.int64)


def of_integers(x: Array, modulus: int) -> Array:
    """The residues of integers."""
    return np.asarray(x, np.int64) % modulus


def products(a: Array, b: Array, modulus: int) -> Array:
    """The matrix product of ``a[..., m, k]`` and ``b[..., k, n]``, by exact products of limbs in float64."""
    total = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), np.int64)
    for start in range(0, a.shape[-1], _DEPTH):
        left, right = a[..., start : start + _DEPTH], b[..., start : start + _DEPTH, :].astype(np.float64)
        for shift in (2 * _LIMB, _LIMB, 0):
            limb = ((left >> shift) & ((1 << _LIMB) - 1)).astype(np.float64)
            part = (limb @ right).astype(np.int64) % modulus
            total = (total + part * (1 << shift)) % modulus
    return total
