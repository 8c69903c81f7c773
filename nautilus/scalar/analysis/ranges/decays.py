"""Running sums whose terms decay with their distance from the result.

The weight of a term is a power of one factor, which depends neither on the result nor on the term::

    y[t] = sum_u w(t - u) * x[u]    where u <= t, and w(n + 1) = w(n) * a

Powers are ``pow(a, n)``, ``exp(c * n)`` and ``exp2(c * n)`` for a number ``n`` of steps that grows by one with each of
them, or products of such.  ``a`` and ``c`` are numbers, scalars, or elements of other tensors, such as a rate for each
channel; ``abs(a) <= 1`` is proved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nautilus.core.expr.build import integer, number
from nautilus.core.expr.nodes import Axis, Const, Expr, Op, Var, free_vars, rewrite, substitute
from nautilus.core.expr.products import factors, product_of
from nautilus.core.index.linear import linear
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.domains import prefix_of, split_guard

ONE = 1.0 + 1e-6  # the end of a range is rounded outwards


@dataclass(frozen=True, slots=True)
class Decay:
    """A sum over ``u <= t - lag`` of ``rest * weight``, of which ``rest`` does not depend on ``t``.

    ``step``: what one step multiplies the weight by; ``first``: the weight of the last term of a result, None for 1;
    ``reverse``: over ``t <= u - lag``.
    """

    u: Axis
    t: Axis
    weight: Expr
    rest: Expr
    step: Expr
    first: Expr | None
    lag: int
    reverse: bool


def decay(d: Def, interval: Callable[[Expr], tuple[float, float]]) -> Decay | None:
    """The sum of decaying terms that ``d`` is; None for another definition.

    ``interval``: bounds of an expression at the points of the results.
    """
    plain = d.op == "sum" and d.at is None and d.scatter is None and len(d.red) == 1
    if not plain or not d.value.dtype is d.buffer.dtype is DType.F32:
        return None
    (u,) = d.red
    parts, bound = factors(d.value), None
    for t in d.par:
        weights = [e for e in parts if t.name in free_vars(e)]
        rest = [e for e in parts if e not in weights] or [number(1, DType.F32)]
        bound = prefix_of(replace(d, value=product_of(rest))) if weights and t.extent == u.extent else None
        if bound is not None and bound.into == t.name and bound.bound.scans:
            break
    else:
        return None
    if split_guard(d) != ((bound.condition,), ()):
        return None
    reverse, lag = bound.bound.reverse, -bound.bound.shift
    last, first = (u, t) if reverse else (t, u)
    powers = [_power(e, last.name, first.name, interval) for e in weights]
    found = [p for p in powers if p is not None]
    if len(found) < len(powers) or any(p.ahead + lag < 0 for p in found):
        return None

    def at(steps: int, e: Expr) -> Expr:
        return _plain(simplify(substitute(e, {last.name: integer(steps), first.name: integer(0)})))

    step = product_of([at(1 - p.ahead, e) for p, e in zip(found, weights, strict=True)])
    later = [at(lag, e) for p, e in zip(found, weights, strict=True) if p.ahead + lag > 0]
    start = product_of(later) if later else None
    return Decay(u, t, product_of(weights), product_of(rest), step, start, lag, reverse)


@dataclass(frozen=True, slots=True)
class _Power:
    """A power whose exponent is ``rate`` times a number of steps, ``ahead`` at the distance 0."""

    rate: Expr
    ahead: int


def _power(e: Expr, last: str, first: str, interval: Callable[[Expr], tuple[float, float]]) -> _Power | None:
    """The power that ``e`` is, where a further step never makes it larger; None for another expression."""
    base: Expr | None = None
    match e:
        case Op(op="pow", args=(number_, exponent)) if not {last, first} & free_vars(number_):
            base, found = number_, _steps(exponent, last, first)
        case Op(op="exp" | "exp2", args=(exponent,)):
            found = _steps(exponent, last, first)
        case _:
            return None
    if found is None:
        return None
    low, high = interval(found.rate)
    if base is None:
        return found if high <= 0 else None
    least, most = interval(base)
    if found.rate == number(1, e.dtype):
        return found if least >= -ONE and most <= ONE else None
    shrinks = (least >= 0 and most <= ONE and low >= 0) or (least >= 1 and high <= 0)
    return found if shrinks else None


def _steps(e: Expr, last: str, first: str) -> _Power | None:
    """``e`` as a rate times ``last - first`` and a constant; None where it is no such product."""
    names = {last, first}
    match e:
        case Op(op="mul", args=(k, x)) if not names & free_vars(k):
            return _scaled("mul", x, k, last, first)
        case Op(op="mul" | "div" as op, args=(x, k)) if not names & free_vars(k):
            return _scaled(op, x, k, last, first)
        case Op(op="neg", args=(x,)):
            return _scaled("mul", x, Const(-1.0, e.dtype), last, first)
        case Op(op="cast", args=(x,)) if x.dtype.is_int and e.dtype.is_float:
            form = linear(x)
            slope = form.slope(last)
            alone = {*form.terms} == {Var(last), Var(first)} and slope == -form.slope(first)
            if not alone or slope not in (1, -1):
                return None
            return _Power(number(slope, e.dtype), form.const * slope)
    return None


def _scaled(op: str, x: Expr, k: Expr, last: str, first: str) -> _Power | None:
    """The steps of ``x`` with their rate times ``k``, or divided by it."""
    found = _steps(x, last, first)
    if found is None:
        return None
    rate = found.rate
    if isinstance(rate, Const) and isinstance(k, Const) and (op == "mul" or k.value):
        a, b = float(rate.value), float(k.value)
        return _Power(Const(a * b if op == "mul" else a / b, x.dtype), found.ahead)
    if op == "mul" and rate == number(1, x.dtype):
        return _Power(k, found.ahead)
    return _Power(Op(op, (rate, k), x.dtype), found.ahead)


def _plain(e: Expr) -> Expr:
    """``e`` without powers of 1 and factors of 1."""

    def rule(n: Expr) -> Expr | None:
        match n:
            case Op(op="cast", args=(Const(value=value),)) if n.dtype.is_float:
                return Const(float(value), n.dtype)
            case Op(op="pow" | "mul" | "div", args=(x, Const(value=1.0))) | Op(op="mul", args=(Const(value=1.0), x)):
                return x
        return None

    return rewrite(e, rule)
