"""The proof that a repair term neither overflows nor divides by zero for any running value of a sum.

A running maximum only grows, so ``exp(old - new)`` is at most 1, and ``repair`` proves that it bounds the exponents.  A
running sum has no such order: its partial results may pass 0, or exceed its final value by any factor.  A repair from
``G(old)`` to ``G(new)`` is right over the reals, but ``x * G(old)`` and ``G(new) / G(old)`` can be inf or 0 where
``x * G(final)`` is an ordinary number.

So the interval of all partial results (and of the reference 1 that replaces 0) must prove that |G| is in
[2^-60, 2^60], which bounds the factor by 2^120, and that ``x * G`` does not overflow, sums included.  A load has the
range of its type, and a sum has at most 2^31 terms; the proof uses nothing else, so it has one result at every stage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var
from nautilus.core.functions import FUNCTIONS
from nautilus.core.functions.intervals import (
    EVERYTHING,
    Interval,
    joined,
    magnitude,
    mul,
    outward,
    power,
    square,
    times,
)
from nautilus.core.numerics import LOG2E
from nautilus.core.types import value_limits
from nautilus.scalar.analysis.symbolic import Lin, Prod

_LEAST, _LARGEST = 2.0**-60, 2.0**60
_TERMS = 2.0**31
_SUMS = 2.0**126  # largest sum of the magnitudes of all elements, in f32


def partial_sums(element: Expr, known: Mapping[str, Interval]) -> Interval:
    """The interval of every partial sum of ``element``, the empty one and the reference 1 included."""
    lo, hi = interval(element, known)
    return joined(outward((times(min(lo, 0.0), _TERMS), times(max(hi, 0.0), _TERMS))), (0.0, 1.0))


def unproved(x: Expr | None, g: Prod | Lin, sums: Mapping[str, Interval], known: Mapping[str, Interval]) -> str:
    """The reason why the repair of ``x * g`` or ``x + g`` under the running ``sums`` is not proved finite, or ''.

    ``known``: the intervals of the other symbols.  Factors without a running sum are no part of the proof.
    """
    env = {**known, **sums}
    size: Interval = (1.0, 1.0)
    if isinstance(g, Lin):
        parts = [interval(atom, env) for (atom, _), _n in g.terms if _mentions(atom, sums)]
        bounded = all(magnitude(i)[1] <= _LARGEST for i in parts)
        return "" if bounded else f"a term of the running sum {', '.join(sums)} is not proved finite"
    for atom, n in g.powers:
        if _mentions(atom, sums):
            size = mul(size, power(interval(atom, env), n))
    for base, lin in g.exponents:
        size = mul(size, _exponential(base, lin, sums, env))
    lo, hi = outward(size)
    least = 0.0 if lo <= 0 <= hi else magnitude((lo, hi))[0]
    names = ", ".join(sums)
    if not (least >= _LEAST and magnitude((lo, hi))[1] <= _LARGEST):
        return f"the factor of the running sum {names} is in [{lo:.3g}, {hi:.3g}], which is not proved finite and not 0"
    largest = 0.0 if x is None else magnitude(interval(x, env))[1]
    if not largest * magnitude((lo, hi))[1] <= _SUMS:
        return f"an element under a partial result of {names} is not proved finite"
    return ""


def _exponential(base: str, lin: Lin, sums: Mapping[str, Interval], env: Mapping[str, Interval]) -> Interval:
    """The interval of the exponential of those terms of ``lin`` that mention a running sum."""
    top = 0.0
    for (atom, scale), n in lin.terms:
        if _mentions(atom, sums):
            size = magnitude(interval(atom, env))[1]
            top += times(abs(n) * size, 1.0 if scale is None else magnitude(interval(scale, env))[1])
    bits = top * (LOG2E if base == "exp" else 1.0)
    return EVERYTHING if bits > 1000 else (2.0**-bits, 2.0**bits)


def _mentions(e: Expr, names: Mapping[str, Interval]) -> bool:
    return (isinstance(e, Var) and e.name in names) or (isinstance(e, Op) and any(_mentions(a, names) for a in e.args))


def interval(e: Expr, env: Mapping[str, Interval]) -> Interval:
    """The interval of ``e`` where symbols have the intervals ``env`` and loads the range of their type."""
    match e:
        case Const(value=value):
            return (float(value), float(value)) if math.isfinite(value) else EVERYTHING
        case Var(name=name):
            return env.get(name, EVERYTHING)
        case Load(dtype=dtype):
            return value_limits(dtype)
        case Op(op="select", args=(_, a, b)):
            return joined(interval(a, env), interval(b, env))
        case Op(op="cast" | "narrow", args=(a,)):
            return interval(a, env)
        case Op(op="mul", args=(a, b)) if a == b:
            return outward(square(interval(a, env)))
        case Op(op="pow", args=(a, Const(value=n))) if float(n).is_integer() and abs(n) <= 64:
            return outward(power(interval(a, env), int(n)))
        case Op(op=name, args=args) if (rule := FUNCTIONS[name].interval) is not None:
            return outward(rule(*(interval(a, env) for a in args)), FUNCTIONS[name].is_exact)
    return EVERYTHING
