"""Congruences: conditions that a linear combination of variables is a multiple of a number.

``(y + 1 - 2 * r) % 5 == 0`` is one.  :func:`solved` numbers the residues of ``y`` by those of ``r`` that satisfy it::

    c * y + a * r + k == 0  (modulo n),  c and n without common divisor,  g = gcd(a, n)
    y = n * quotient + (slope * residue + offset + const) % n      0 <= residue < n / g,  0 <= offset < g
    r = (n / g) * quotient' + residue                              if offset == 0, and none otherwise

with ``slope = -a / c`` and ``const = -k / c`` modulo ``n``.  Every ``y`` has one ``(quotient, residue, offset)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from nautilus.core.expr.nodes import Const, Expr, Op
from nautilus.core.index.linear import Linear, linear
from nautilus.core.records import dataclass
from nautilus.core.types import DType


@dataclass(frozen=True, slots=True)
class Congruence:
    """``form`` is a multiple of ``modulus``, which is at least 2; coefficients are positive and below it."""

    form: Linear
    modulus: int


@dataclass(frozen=True, slots=True)
class Residues:
    """The numbering of the module docstring: ``residues`` is n / g and ``offsets`` is g."""

    modulus: int
    slope: int
    const: int
    residues: int
    offsets: int

    def at(self, residue: int, offset: int) -> int:
        """``slope * residue + offset + const``."""
        return self.slope * residue + offset + self.const

    def carry(self) -> tuple[int, int, int] | None:
        """``at // modulus`` as coefficients of residue and offset, and a constant; None where it is not linear."""
        n = self.modulus
        zero = self.at(0, 0) // n
        by_residue = self.at(1, 0) // n - zero if self.residues > 1 else 0
        by_offset = self.at(0, 1) // n - zero if self.offsets > 1 else 0
        points = ((i, j) for i in range(self.residues) for j in range(self.offsets))
        if all(self.at(i, j) // n == zero + by_residue * i + by_offset * j for i, j in points):
            return by_residue, by_offset, zero
        return None


def congruence(condition: Expr) -> Congruence | None:
    """``condition`` as a congruence of 32-bit integers in lowest terms.

    None for any other condition, and for one that never holds.
    """
    match condition:
        case Op(op="eq", args=(Op(op="mod", args=(a, Const(value=n))), Op(op="mod", args=(b, Const(value=m))))):
            form = linear(a) - linear(b)
            if n != m:
                return None
        case Op(op="eq", args=(Op(op="mod", args=(a, Const(value=n))), Const(value=k))) if 0 <= k < n:
            form = linear(a).shift(-int(k))
        case _:
            return None
    if n < 2 or a.dtype is not DType.I32:
        return None
    return _reduced(form.terms, form.const, int(n))


def _reduced(terms: Mapping[Expr, int], const: int, n: int) -> Congruence | None:
    terms = {v: c % n for v, c in terms.items() if c % n}
    g = gcd(n, *terms.values())
    if const % g or n == g:
        return None
    n //= g
    return Congruence(Linear({v: c // g for v, c in terms.items()}, const // g % n), n)


def solved(modulus: int, c: int, a: int, k: int) -> Residues | None:
    """The residues of ``c * y + a * r + k == 0``; None where ``c`` and the modulus have a common divisor."""
    if gcd(c, modulus) > 1:
        return None
    inverse = pow(c, -1, modulus)
    offsets = gcd(a, modulus)
    slope, const = -inverse * a % modulus, -inverse * k % modulus
    candidates = [Residues(modulus, s, const, modulus // offsets, offsets) for s in (slope, slope - modulus)]
    return next((r for r in candidates if r.carry() is not None), candidates[0])
