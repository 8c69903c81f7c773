"""Conditions as alternatives: a disjunction of conjunctions of comparisons of linear combinations.

:func:`alternatives` rewrites ``or``, ``not``, ``select``, ``==``, ``!=``, ``abs``, ``min`` and ``max`` until only forms
``x >= 0`` remain, where ``x`` is a linear combination (:mod:`nautilus.core.index.linear`)::

    abs(x) <= c      is  c - x >= 0 and c + x >= 0
    abs(x) >= c      is  x - c >= 0  or  -x - c >= 0
    a != b           is  a - b - 1 >= 0  or  b - a - 1 >= 0
    max(a, b) >= c   is  a - c >= 0  or  b - c >= 0

``//`` and ``%`` by a constant stay atoms; a ``//`` whose dividend has one of the functions above is isolated first,
``x // n >= e`` as ``x - n * e >= 0``.  A part that is no such comparison says nothing.  So the alternatives are a
superset of the condition: wherever it holds, all forms of one of them are at least 0.  An alternative that is *exact*
says the reverse too: the condition holds wherever its forms are at least 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import TypeAlias

from nautilus.core.expr.nodes import COMPARISONS, NEGATED, Const, Expr, Op, walk
from nautilus.core.index.intervals import UNKNOWN, fits, is_value
from nautilus.core.index.linear import Linear, divide, divided
from nautilus.core.records import dataclass
from nautilus.core.types import DType

MOST = 16  # alternatives of one condition; of more, a part says nothing


@dataclass(frozen=True, slots=True)
class Alternative:
    """``form >= 0`` for all of ``forms``; ``exact``: this implies the condition."""

    forms: tuple[Linear, ...] = ()
    exact: bool = True


Alternatives: TypeAlias = tuple[Alternative, ...]

_NOTHING: Alternatives = (Alternative((), exact=False),)
_ALWAYS: Alternatives = (Alternative(),)
_NEVER: Alternatives = ()
_SPLIT = frozenset({"abs", "min", "max", "select"})


def alternatives(e: Expr) -> Alternatives:
    """The alternatives of condition ``e``, at most :data:`MOST` (module docstring)."""
    return _condition(e, positive=True)


def _condition(e: Expr, positive: bool) -> Alternatives:
    match e:
        case Const(value=value):
            return _ALWAYS if bool(value) == positive else _NEVER
        case Op(op="not", args=(a,)):
            return _condition(a, not positive)
        case Op(op="implied", args=(a, _, _)):
            return _condition(a, positive)
        case Op(op="and" | "or" as op, args=args):
            join = _all if (op == "and") == positive else _any
            return join(*(_condition(a, positive) for a in args))
        case Op(op="select", args=(c, a, b)):
            first = _all(_condition(c, True), _condition(a, positive))
            return _any(first, _all(_condition(c, False), _condition(b, positive)))
        case Op(op=op, args=(a, b)) if op in COMPARISONS:
            return _comparison(op if positive else NEGATED[op], a, b)
    return _NOTHING


def _any(*parts: Alternatives) -> Alternatives:
    """One of ``parts`` holds."""
    found = tuple(dict.fromkeys(a for part in parts for a in part))
    if Alternative() in found:
        return _ALWAYS
    return found if len(found) <= MOST else _NOTHING


def _all(*parts: Alternatives) -> Alternatives:
    """All of ``parts`` hold."""
    total = _ALWAYS
    for part in parts:
        if len(total) * len(part) > MOST:
            part = _NOTHING
        total = tuple(dict.fromkeys(_both(a, b) for a, b in product(total, part)))
    return total


def _both(a: Alternative, b: Alternative) -> Alternative:
    return Alternative(tuple(dict.fromkeys((*a.forms, *b.forms))), a.exact and b.exact)


def _comparison(op: str, a: Expr, b: Expr) -> Alternatives:
    """A comparison in i64 says nothing, because the bounds of loops are i32; nor does one that may wrap."""
    if a.dtype is not DType.I32 or b.dtype is not DType.I32 or not (_exact(a) and _exact(b)):
        return _NOTHING
    d = divided(b) - divided(a)  # a <= b is d >= 0
    match op:
        case "le":
            return at_least_zero(d)
        case "lt":
            return at_least_zero(d.shift(-1))
        case "ge":
            return at_least_zero(d.scale(-1))
        case "gt":
            return at_least_zero(d.scale(-1).shift(-1))
        case "eq":
            return _all(at_least_zero(d), at_least_zero(d.scale(-1)))
    return _any(at_least_zero(d.shift(-1)), at_least_zero(d.scale(-1).shift(-1)))


def _exact(e: Expr) -> bool:
    """Whether no arithmetic of ``e`` wraps: elements of tensors are any integers."""
    return all(_sums_fit(n) for n in walk(e) if n.dtype is DType.I32)


def _sums_fit(e: Expr) -> bool:
    if not isinstance(e, Op) or e.op not in ("add", "sub", "mul", "neg", "abs") or not is_value(e):
        return True
    return e.op != "abs" and fits(divided(e), DType.I32, lambda _: UNKNOWN)


def at_least_zero(x: Linear) -> Alternatives:
    """The alternatives of ``x >= 0``, of which no part wraps: without the functions of ``_SPLIT``."""
    for a, c in x.terms.items():
        if not isinstance(a, Op):
            continue
        rest = x.without(a)
        if a.op in _SPLIT:
            return _split(a, c, rest)
        if a.op == "floordiv" and any(isinstance(n, Op) and n.op in _SPLIT for n in walk(a.args[0])):
            return at_least_zero(isolated(a, c, rest))
    if not x.terms:
        return _ALWAYS if x.const >= 0 else _NEVER
    return (Alternative((x,)),)


def _split(a: Op, c: int, rest: Linear) -> Alternatives:
    """``c * a + rest >= 0`` for ``a`` of one of the functions of ``_SPLIT``."""

    def put(value: Linear) -> Alternatives:
        return at_least_zero(rest + value.scale(c))

    if a.op == "select":
        cond, p, q = a.args
        return _any(_all(_condition(cond, True), put(divided(p))), _all(_condition(cond, False), put(divided(q))))
    values: Iterable[Linear]
    values = (divided(a.args[0]), divided(a.args[0]).scale(-1)) if a.op == "abs" else map(divided, a.args)
    join = _any if (a.op == "min") == (c < 0) else _all  # abs(x) is max(x, -x)
    return join(*map(put, values))


def isolated(quotient: Op, c: int, rest: Linear) -> Linear:
    """``x`` with ``x >= 0`` exactly where ``c * quotient + rest >= 0``, for a quotient by a constant n > 0.

    ``y // n >= -(rest // c)`` is ``y + n * (rest // c) >= 0``, and ``y // n <= e`` is ``y <= n * e + n - 1``.
    """
    n = int(quotient.args[1].value)  # type: ignore[union-attr]
    y, e = divided(quotient.args[0]), divide(rest, abs(c), quotient.dtype).scale(n)
    return y + e if c > 0 else (e - y).shift(n - 1)
