"""How alike the rounding errors of the elements of a value are.

A rounding to nearest has an error that depends on the digits after the last one that is kept.  Where the elements have
many different digits there, errors have both signs, and those of a sum over n elements grow with the root of n.  Where
few different numbers occur, or all of them lie close together, as 1 + 1e-9 * x does, errors add up.

Which of them a value has is seen where it is evaluated: the roundings of its elements are known, and so is their mean
along each axis.  A kernel may round a multiple of the value instead, whose errors are others with the same
distribution.  So where the roundings do not vary, as those of equal numbers, they count as alike whatever they are.

The same operation on the same numbers is rounded alike in every definition: where the maximum of scaled scores is found
in one and subtracted from them in another one, the largest difference is 0.  So are the sides of a comparison of two
elements, as that of the ``exp(x[i]) > exp(x[j])`` of a rank: no element is greater than itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import sqrt
from typing import Final

import numpy as np

from nautilus.core.expr.nodes import COMPARISONS, Const, Expr, Load, Op, children, rewrite, walk
from nautilus.core.numerics import Array
from nautilus.core.records.memo import by_identity
from nautilus.frontend.spec import Spec

_MOST: Final = 1 << 14  # elements that are looked at
_LEAST: Final = 16  # elements of which a mean says something
_VARY: Final = 0.2  # the deviation of roundings that vary, in units of roundoff; of random digits it is 0.4
_WORD: Final = (1 << 64) - 1
_FACTORS: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # those of splitmix64
_SHIFT, _CUT = np.uint64(30), np.uint64(11)
_NODES: Final = 16  # nodes of an operation on numbers that other definitions have too
_ROUNDED: Final = frozenset({"add", "sub", "mul"})  # operations that every form of a kernel rounds to nearest
_MEAN: Final = 3.0  # factor between the mean of some roundings and one that others like them may have


def alike(x: Array, bits: int) -> float:
    """The mean error of roundings of ``x`` to ``bits`` binary digits, along the axis on which it is largest.

    It is in units of the largest error: 1 where errors are alike, and 0 where they are independent.
    """
    errors, known, _ = _errors(x, bits)
    spread = _spread(errors[known])
    if spread is None:
        return 1.0
    return min(1.0, _MEAN * max(_mean(errors, a, spread) for a, n in enumerate(errors.shape) if n > 1))


def _mean(errors: Array, axis: int, spread: float) -> float:
    """The mean of ``errors`` along ``axis``, as far as it is more than that of independent ones with this variance."""
    means = np.mean(errors, axis=axis)
    random = spread / errors.shape[axis] * (1.0 + _MEAN * sqrt(2.0 / means.size))
    return sqrt(max(0.0, float(np.mean(means * means)) - random))


def alike_in_binades(x: Array, bits: int) -> float:
    """The same of the elements of one binade, in which it is largest, of those that have many elements.

    Where all elements have a term in common that has more digits than the others, its rounding is theirs.
    """
    errors, known, binades = _errors(x, bits)
    found, which = errors[known], binades[known]
    if found.size < _LEAST:
        return 1.0
    parts = [found[which == n] for n in np.flatnonzero(np.bincount(which - which.min())) + which.min()]
    many = [e for e in parts if e.size >= max(_LEAST, found.size // _LEAST)]
    spreads = ((e, _spread(e)) for e in many)
    alone = (1.0 if spread is None else min(1.0, _MEAN * _mean(e, 0, spread)) for e, spread in spreads)
    return max(alone, default=1.0)


def _errors(x: Array, bits: int) -> tuple[Array, Array, Array]:
    """The errors of some elements, those that are known, and their binades."""
    most = int(_MOST ** (1 / max(1, sum(n > 1 for n in x.shape))))
    few = x[tuple(slice(None, None, max(1, -(-n // most))) for n in x.shape)]
    fraction, binades = np.frexp(few)
    scaled = fraction * 2.0**bits
    with np.errstate(all="ignore"):
        errors = (np.rint(scaled) - scaled) / np.abs(fraction)
    known = np.isfinite(errors) & (few != 0.0)
    return np.where(known, errors, 0.0), known, binades


def _spread(errors: Array) -> float | None:
    """The variance of ``errors``; None where they do not vary, or are so few that this is not known."""
    if errors.size < _LEAST:
        return None
    found = float(np.var(errors))
    return None if sqrt(found) < _VARY else found


def repeated(spec: Spec) -> frozenset[Expr]:
    """The sums and products, without the indices of elements, that more than one definition of ``spec`` has."""
    found = Counter(f for d in spec.definitions for f in {skeleton(e) for e in walk(d.expr) if _is_sum(e)})
    return frozenset(f for f, n in found.items() if n > 1)


@by_identity(1 << 8)
def names_of(e: Expr, known: frozenset[Expr]) -> Mapping[int, str]:
    """By identity, the nodes of ``e`` that are ``known`` without indices, or that both sides of a comparison have, with
    a name of each."""
    found = {id(n): repr(f) for n in walk(e) if _is_sum(n) and (f := skeleton(n)) in known} if known else {}
    for n in walk(e):
        if isinstance(n, Op) and n.op in COMPARISONS and n.args[0].dtype.is_float and isinstance(n.args[0], Op):
            a, b = n.args
            if skeleton(a) == skeleton(b):
                found |= {id(x): repr(skeleton(x)) for side in (a, b) for x in _values(side) if isinstance(x, Op)}
    return found


def skeleton(e: Expr) -> Expr:
    """``e`` without the indices of what it reads, which differ between the definitions that read the same elements."""
    return rewrite(e, lambda n: replace(n, index=()) if isinstance(n, Load) and n.index else None)


def of_values(x: Array, key: int) -> Array:
    """Numbers in [-1, 1] that look random, the same for equal elements of ``x``."""
    mixed = np.ascontiguousarray(x, np.float64).view(np.uint64) ^ np.uint64(key * 0x9E3779B97F4A7C15 & _WORD)
    for factor in _FACTORS:
        shifted = mixed >> _SHIFT
        shifted ^= mixed  # in place: new arrays take longer than products
        mixed = np.multiply(shifted, factor, out=shifted)
    found = (mixed >> _CUT) * 2.0**-52
    found -= 1.0
    return found.reshape(x.shape)


def _is_sum(e: Expr) -> bool:
    """Whether ``e`` is a sum or a product of few elements and numbers."""
    if not (isinstance(e, Op) and _is_rounded(e) and e.dtype.is_float):
        return False
    values = list(_values(e))
    return len(values) <= _NODES and all(isinstance(n, Load | Const) or _is_plain(n) for n in values)


def _values(e: Expr) -> Iterator[Expr]:
    """The nodes of ``e`` without those of indices."""
    waiting = [e]
    while waiting:
        yield (node := waiting.pop())
        waiting += [] if isinstance(node, Load) else children(node)


def _is_plain(e: Expr) -> bool:
    return isinstance(e, Op) and (_is_rounded(e) or e.op in ("cast", "neg"))


def _is_rounded(e: Op) -> bool:
    return e.op in _ROUNDED or (e.op == "div" and isinstance(e.args[1], Const))
