"""The numbers of the validator: a real number and residues of the same number.

``real`` decides comparisons, maxima and where a value is inf or NaN.  ``u`` (mod P) and ``v`` (mod Q, for use in an
exponent; None where the value has none) decide equality: two terms that are equal by the rules of a field and by
``exp(a + b) = exp(a) exp(b)`` have equal residues, and two terms that are not equal have different ones but for a
chance of about their degree over 2^30.  An element that is not finite has the residues 0.

A constant keeps its value, so that operations on constants are done in float64.  :class:`Constants` gives the residues
of constants.  A small rational, also times a power of 2, an integer and the root of a rational have their own residues.
Any other constant is an unknown, unless it is a product of powers of unknowns and a small rational to within 2^-50; so
``0.125 * log2(e)`` has the same residue whether it is folded or not.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import cache
from itertools import product
from typing import TypeAlias

import numpy as np

from nautilus.check.validate import residues
from nautilus.check.validate.residues import P, Q
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.core.types import DType

_CLOSE = 2.0**-50
_DIGITS = 24  # bits of a number that is written as it is, beside a power of 2
_WHOLE = 40  # bits of an integer that is written as it is: larger ones are close to results that were rounded
_SIMPLE = 4096  # numerator and denominator of a rational factor
_UNKNOWNS = 8  # products are sought among this many unknowns
_MIXED = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # splitmix64
LOG2E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class Number:
    """An array of numbers (module docstring).

    Without ``u`` the residues are not tracked.  ``constant``: the value where all elements are one literal.
    ``held``: a storage type that holds every element.
    """

    real: Array
    u: Array | None
    v: Array | None
    constant: float | None = None
    held: DType | None = None

    @property
    def exponent(self) -> Array | None:
        """The residue in an exponent; a fixed function of ``u`` where there is none."""
        if self.v is not None or self.u is None:
            return self.v
        return residues.scrambled("exponent", (self.u,), Q)

    def each(self, function: Callable[[Array], Array]) -> Number:
        """``function`` of the real and of the residues."""
        return Number(function(self.real), _of(function, self.u), _of(function, self.v), held=self.held)


#: Numbers, or an array of integers or bools, which are exact.
Value: TypeAlias = Number | Array


def _of(function: Callable[..., Array], *parts: Array | None) -> Array | None:
    """``function`` of residues; None if one is missing."""
    return None if any(p is None for p in parts) else np.asarray(function(*parts))


def number(real: Array, u: Array | None, v: Array | None) -> Number:
    """A number with the residues 0 where it is not finite."""
    real = np.asarray(real)
    fine = None if u is None else np.isfinite(real)
    if fine is None or fine.all():
        return Number(real, u, v)
    return Number(real, np.where(fine, u, 0), None if v is None else np.where(fine, v, 0))  # type: ignore[arg-type]


def exactly(x: Array, tracked: bool = True) -> Number:
    """Floats or integers as the rationals that they are."""
    x = np.asarray(x)
    if not tracked:
        return Number(x.astype(np.float64), None, None)
    if x.dtype.kind in "iub":
        return Number(x.astype(np.float64), residues.of_integers(x, P), residues.of_integers(x, Q))
    return Number(x, residues.of_floats(x, P), residues.of_floats(x, Q))


def like_constants(x: Array) -> Number:
    """Floats as the numbers that the same constants are, so that an element may equal one."""
    pairs = [Constants().residues(float(c)) for c in x]
    u, v = (np.array([pair[k] for pair in pairs], np.int64) for k in range(2))
    return Number(x, u, v)


@dataclass
class Constants:
    """The residues of the constants of one comparison, in the order in which they are asked for.

    ``moved``: the distance from 1 of random factors, of which each constant that is no integer has its own, and so have
    the results of functions that round.
    """

    moved: tuple[float, int] = (0.0, 0)  # the distance, and a seed
    unknowns: list[tuple[float, tuple[int, int]]] = field(default_factory=list)
    known: dict[float, tuple[int, int]] = field(default_factory=dict)
    made: dict[float, Number] = field(default_factory=dict)  # numbers but zeros, which have signs

    def __post_init__(self) -> None:
        self._unknown(LOG2E)

    def number(self, c: float) -> Number:
        """The number of the constant ``c``."""
        found = self.made.get(c)
        if found is None or c == 0.0:
            u, v = self.residues(c)
            found = self.made[c] = Number(np.asarray(self._real(float(c))), np.asarray(u), np.asarray(v), float(c))
        return found

    def _real(self, c: float) -> float:
        distance, seed = self.moved
        if not distance or not math.isfinite(c) or c.is_integer():
            return c
        return c * (1.0 + distance * random.Random(f"{seed} {c}").gauss(0.0, 1.0))

    def rounding(self, x: Number) -> Number:
        """``x``, moved as a rounding at the distance of ``moved`` may move it; equal numbers stay equal."""
        distance, seed = self.moved
        if not distance:
            return x
        bits = np.asarray(x.real, np.float64).view(np.uint64) + np.uint64(seed)
        for factor in _MIXED:
            bits = (bits ^ (bits >> np.uint64(31))) * factor
        share = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
        return replace(x, real=np.asarray(x.real * (1.0 + distance * share)))

    def residues(self, c: float) -> tuple[int, int]:
        """The residues of the constant ``c`` mod P and mod Q."""
        if c not in self.known:
            self.known[c] = self._found(c)
        return self.known[c]

    def _found(self, c: float) -> tuple[int, int]:
        if not math.isfinite(c):
            return 0, 0
        exact = _rational(c)
        if exact is not None:
            pair = _of_fraction(exact)
            if exact.denominator > _SIMPLE and exact.denominator & (exact.denominator - 1):
                self.unknowns.append((c, pair))  # a factor of other constants
            return pair
        root = _root(c)
        if root is not None:
            return root
        found = self._as_product(c)
        return self._unknown(c) if found is None else found

    def _as_product(self, c: float) -> tuple[int, int] | None:
        """The residues of ``c`` as a product of powers of unknowns and a rational, in the simplest way.

        The unknown may be a root: ``1 / sqrt(53)`` is ``1 / u``, and ``u / 53`` is the same number with other residues.
        """
        best: tuple[int, int, tuple[int, int]] | None = None
        for powers in _small_powers(min(len(self.unknowns), _UNKNOWNS)):
            count = sum(map(abs, powers))
            if best is not None and count > best[0]:
                break
            rest = c
            for (value, _), n in zip(self.unknowns, powers, strict=False):
                rest /= value**n
            factor = _simple(rest)
            if factor is not None and (best is None or factor[0] < best[1]):
                best = count, factor[0], self._product(factor[1], powers)
        return None if best is None else best[2]

    def _product(self, factor: tuple[int, int], powers: Sequence[int]) -> tuple[int, int]:
        out = list(factor)
        for (_, pair), n in zip(self.unknowns, powers, strict=False):
            for k, modulus in enumerate((P, Q)):
                out[k] = out[k] * pow(pair[k], n, modulus) % modulus
        return out[0], out[1]

    def _unknown(self, c: float) -> tuple[int, int]:
        rng = np.random.default_rng([len(self.unknowns), *np.float64(abs(c)).tobytes()])
        pair = int(rng.integers(2, P)), int(rng.integers(2, Q))
        self.unknowns.append((abs(c), pair))
        return pair if c > 0 else (P - pair[0], Q - pair[1])


def _rational(c: float) -> Fraction | None:
    """The small rational that ``c`` is, to within half a unit of float64, or a number of few digits times a power of 2.

    A result that was rounded to float64, as that of a root, is neither but by chance.
    """
    exact = Fraction(c)
    size = abs(exact.numerator)
    digits = size // max(1, size & -size)  # the odd part
    if digits < 1 << _DIGITS or (exact.denominator == 1 and size < 1 << _WHOLE):
        return exact
    near = exact.limit_denominator(1_000_000)
    fits = near != 0 and abs(near.numerator) < 1_000_000_000 and abs(near - exact) <= abs(exact) / (1 << 52)
    return near if fits else None


def _simple(c: float) -> tuple[int, tuple[int, int]] | None:
    """The height and the residues of a rational of small terms, or of a root, to within :data:`_CLOSE`."""
    near = Fraction(c).limit_denominator(_SIMPLE)
    if near != 0 and abs(near.numerator) <= _SIMPLE and abs(float(near) - c) <= _CLOSE * abs(c):
        return max(abs(near.numerator), near.denominator), _of_fraction(near)
    root = _root(c)
    return None if root is None else (1 << 30, root)


def _root(c: float) -> tuple[int, int] | None:
    """The residues of the root of a small rational whose primes are those of ``residues.ROOTED``."""
    square = Fraction(c * c).limit_denominator(1 << 22)
    if (
        square == 0
        or abs(square.numerator) * square.denominator > 1 << 26
        or abs(float(square) - c * c) > 4 * _CLOSE * c * c
    ):
        return None
    rest, out = square.numerator * square.denominator, [int(math.copysign(1, c))] * 2
    whole = 1
    for p in residues.ROOTED:
        while rest % (p * p) == 0:
            rest, whole = rest // (p * p), whole * p
        if rest % p == 0:
            rest //= p
            out = [x * residues.root(p, m) % m for x, m in zip(out, (P, Q), strict=True)]
    factor = _of_fraction(Fraction(whole * math.isqrt(rest), square.denominator))
    if math.isqrt(rest) ** 2 != rest:
        return None
    return out[0] * factor[0] % P, out[1] * factor[1] % Q


def _of_fraction(f: Fraction) -> tuple[int, int]:
    u, v = (f.numerator * pow(f.denominator, -1, m) % m for m in (P, Q))
    return u, v


@cache
def _small_powers(count: int) -> tuple[tuple[int, ...], ...]:
    """Exponents of at most three factors in all, fewest factors first."""
    found: Iterator[tuple[int, ...]] = product((0, 1, -1, 2, -2), repeat=count) if count <= 4 else _sparse(count)
    kept = (p for p in found if sum(map(abs, p)) <= 3)
    return tuple(sorted(kept, key=lambda p: sum(map(abs, p))))


def _sparse(count: int) -> Iterator[tuple[int, ...]]:
    seen: set[tuple[int, ...]] = set()
    for places in product(range(count), repeat=3):
        for signs in product((0, 1, -1), repeat=3):
            powers = [0] * count
            for place, sign in zip(places, signs, strict=True):
                powers[place] += sign
            seen.add(tuple(powers))
    yield from seen


# -- arithmetic -------------------------------------------------------------------------------------


def add(a: Number, b: Number) -> Number:
    """``a + b``."""
    u = _of(lambda x, y: (x + y) % P, a.u, b.u)
    return number(a.real + b.real, u, _of(lambda x, y: (x + y) % Q, a.v, b.v))


def negative(a: Number) -> Number:
    """``-a``."""
    out = number(-a.real, _of(lambda x: (P - x) % P, a.u), _of(lambda x: (Q - x) % Q, a.v))
    return replace(out, held=a.held)


def multiply(a: Number, b: Number) -> Number:
    """``a * b``."""
    u = _of(lambda x, y: x * y % P, a.u, b.u)
    return number(a.real * b.real, u, _of(lambda x, y: x * y % Q, a.v, b.v))


def reciprocal(a: Number) -> Number:
    """``1 / a``. The residue in an exponent is a function of ``u`` where ``a`` has none."""
    u = _of(lambda x: residues.inverse(x, P), a.u)
    v = _of(lambda x: residues.inverse(x, Q), a.v)
    return number(1.0 / a.real, u, Number(a.real, u, v).exponent)


def divide(a: Number, b: Number) -> Number:
    """``a / b``."""
    found = multiply(a, reciprocal(b))
    return number(a.real / b.real, found.u, found.v)


def choose(condition: Array, a: Value, b: Value) -> Value:
    """``a`` where ``condition`` holds, ``b`` elsewhere."""

    def where(x: Array, y: Array) -> Array:
        return np.where(condition, x, y)

    if not isinstance(a, Number) or not isinstance(b, Number):
        return where(_plain(a), _plain(b))
    held = a.held if a.held is b.held else None
    return Number(where(a.real, b.real), _of(where, a.u, b.u), _of(where, a.v, b.v), held=held)


def _plain(x: Value) -> Array:
    if isinstance(x, Number):
        raise TypeError("a number stands where an integer is expected")
    return x


def equal(a: Number, b: Number) -> Array:
    """Whether elements are equal: by their residues where the reals do not decide, else by the reals."""
    close = np.abs(a.real - b.real) <= 1e-9 * np.maximum(np.abs(a.real), np.abs(b.real))
    same = True if a.u is None or b.u is None else a.u == b.u
    return np.asarray(np.where(np.isfinite(a.real) & np.isfinite(b.real) & close, same, a.real == b.real))


def largest(a: Number, b: Number, sign: float = 1.0) -> Number:
    """The larger one (``sign`` -1: the smaller one); NaN if one is NaN."""
    first = (sign * a.real >= sign * b.real) | np.isnan(a.real)
    out = choose(first, a, b)
    assert isinstance(out, Number)
    return out


def power(a: Number, n: int) -> Number:
    """``a ** n``."""
    if n < 0:
        return reciprocal(power(a, -n))
    u = _of(lambda x: residues.power(x, n, P), a.u)
    return number(np.power(a.real, float(n)), u, _of(lambda x: residues.power(x, n, Q), a.v))


def exponential(a: Number, factor: tuple[int, int], real: Array) -> Number:
    """``2 ** (a * factor)`` with the value ``real``; 0 at -inf."""
    u = _of(lambda x: np.where(np.isneginf(a.real), 0, residues.raised(x * factor[1] % Q)), a.exponent)
    return number(real, u, None)


def unknown(name: str, real: Array, args: Sequence[Number]) -> Number:
    """An uninterpreted function with the value ``real``; exact where it maps 0 or 1 to an integer, as log 1 = 0."""
    us = [a.u for a in args if a.u is not None]
    if len(us) < len(args):
        return Number(real, None, None)
    u, v = (residues.scrambled(name, us, m) for m in (P, Q))
    if len(args) == 1:
        whole = np.isfinite(real) & (real == np.rint(real)) & (us[0] < 2) & (args[0].real == us[0])
        near = np.where(whole, real, 0).astype(np.int64)
        u, v = np.where(whole, near % P, u), np.where(whole, near % Q, v)
    return number(real, u, v)


# -- reductions -------------------------------------------------------------------------------------


def total(a: Number, dims: tuple[int, ...], mask: Array | None) -> Number:
    """The sum over ``dims`` of the elements where ``mask`` holds; the dims stay with size 1."""

    def summed(x: Array) -> Array:
        return np.asarray((x if mask is None else np.where(mask, x, 0)).sum(axis=dims, keepdims=True))

    u = _of(lambda x: summed(x) % P, a.u)
    return number(summed(a.real), u, _of(lambda x: summed(x) % Q, a.v))


def extreme(a: Number, dims: tuple[int, ...], mask: Array | None, sign: float) -> Number:
    """The largest (``sign`` -1: smallest) element over ``dims`` where ``mask`` holds; -inf (inf) of none."""
    real = a.real if mask is None else np.where(mask, a.real, -sign * np.inf)
    full = real.shape
    kept = [d for d in range(real.ndim) if d not in dims]
    flat = (*(full[d] for d in kept), math.prod(full[d] for d in dims))
    out = tuple(1 if d in dims else n for d, n in enumerate(full))
    if flat[-1] == 0:
        zero = np.zeros(out, np.int64)
        return Number(np.full(out, -sign * np.inf), zero, zero)

    def flattened(x: Array) -> Array:
        return np.broadcast_to(x, full).transpose((*kept, *dims)).reshape(flat)

    at = np.argmax(sign * flattened(real), axis=-1)[..., None]

    def picked(x: Array) -> Array:
        return np.take_along_axis(flattened(x), at, -1).reshape(out)

    return number(picked(real), _of(picked, a.u), _of(picked, a.v))


def product_over(a: Number, dims: tuple[int, ...], mask: Array | None) -> Number:
    """The product over ``dims`` of the elements where ``mask`` holds."""
    one = exactly(np.asarray(1.0))
    out = a if mask is None else choose(mask, a, one)
    assert isinstance(out, Number)
    for d in dims:
        rest = (*out.real.shape[:d], 1, *out.real.shape[d + 1 :])
        so_far = one.each(lambda x, shape=rest: np.broadcast_to(x, shape))  # type: ignore[misc]
        for n in range(out.real.shape[d]):
            so_far = multiply(so_far, out.each(lambda x, d=d, n=n: x.take([n], d)))  # type: ignore[misc]
        out = so_far
    return out
