"""The normal form of a sum: terms, each a product of operands that is summed over axes.

``s_i = sum_j(sum_k(a_ik * b_kj) + c_j)`` has the terms ``sum_jk(a_ik * b_kj)`` and ``sum_j(c_j)``.  A term says which
products are added and not in which order, so the order can be chosen (:mod:`.trees`).

**Infinities.**  A factor may leave a sum: where ``sum_k(f * x_k)`` is defined, ``f * sum_k(x_k)`` is the same number,
inf included.  It must not enter one: with ``f`` = inf and ``x`` = (1, 1, -1), ``f * sum_k(x_k)`` is inf and
``sum_k(f * x_k)`` is NaN.  So an operand that stood outside of the sum over ``k`` has ``k`` in its *fence*, unless it
is finite or NaN for certain, and no order may sum over ``k`` with that operand inside.  Integers need no fence.
For the same reason a product is distributed over an addition only where its other operands are finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.expr.build import integer
from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Param, substitute
from nautilus.core.functions import FUNCTIONS
from nautilus.core.functions.intervals import EVERYTHING
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.core.types import FORMATS, DType
from nautilus.scalar.analysis.definitions import Def, rename_axes

Finite = Collection[str]
NOTHING: Finite = frozenset()

MOST_TERMS = 8
_MOST_OPERANDS = 12
_FINITE_IF_ARGUMENTS = frozenset({"neg", "abs", "min", "max", "cast", "narrow", "floor", "ceil", "round"})


@dataclass(frozen=True, slots=True)
class Operand:
    """A factor of a term; ``inverse``: a divisor; ``condition``: a bool that says where there are terms."""

    value: Expr
    fence: frozenset[str] = frozenset()
    inverse: bool = False
    condition: bool = False


@dataclass(frozen=True, slots=True)
class Term:
    """The sum over ``red`` of the product of ``operands``."""

    red: tuple[Axis, ...]
    operands: tuple[Operand, ...]


def terms(
    d: Def, defs: Mapping[str, Def], enters: Callable[[Def], bool], finite: Finite = NOTHING
) -> tuple[Term, ...] | None:
    """The terms of the sum ``d``, with the sums that it reads as products expanded where ``enters`` permits it.

    None where there are too many of them.  ``finite``: the inputs without inf.
    """
    start = Term(d.red, (Operand(d.value), *(Operand(c, condition=True) for c in conjuncts(d.guard))))
    taken = {a.name for a in d.axes}
    todo, done = [start], list[Term]()
    while todo:
        t = todo.pop()
        found = _expanded(t, defs, enters, taken, finite)
        if found is None:
            done.append(_without_unit_axes(t))
        else:
            todo.extend(reversed(found))
        if len(todo) + len(done) > MOST_TERMS or len(t.operands) > _MOST_OPERANDS:
            return None
    return tuple(done)


def _without_unit_axes(t: Term) -> Term:
    """``t`` at the only position of each axis of one element: such a sum has no order."""
    units: Mapping[str, Expr] = {a.name: integer(0) for a in t.red if a.extent == 1}
    if not units:
        return t
    own = (replace(o, value=substitute(o.value, units), fence=o.fence.difference(units)) for o in t.operands)
    return Term(tuple(a for a in t.red if a.name not in units), tuple(own))


def _expanded(
    t: Term, defs: Mapping[str, Def], enters: Callable[[Def], bool], taken: set[str], finite: Finite
) -> tuple[Term, ...] | None:
    """``t`` with its first composite operand in parts; None where all are simple."""
    for n, o in enumerate(t.operands):
        others = (*t.operands[:n], *t.operands[n + 1 :])
        if o.condition:
            continue
        parts = _parts(o)
        if parts is not None:
            return (replace(t, operands=(*t.operands[:n], *parts, *t.operands[n + 1 :])),)
        match o.value:
            case Op(op="add" | "sub" as name, args=(a, b)) if not o.inverse and all(
                _enters_any_sum(x, finite) for x in others
            ):
                minus = (Operand(Const(-1.0 if a.dtype.is_float else -1, a.dtype)),) * (name == "sub")
                return (
                    replace(t, operands=(*others, replace(o, value=a))),
                    replace(t, operands=(*others, replace(o, value=b), *minus)),
                )
            case Load(buffer=buffer) as ld if not o.inverse and buffer in defs and enters(defs[buffer]):
                return (_entered(t, n, ld, defs[buffer], taken, finite),)
    return None


def _parts(o: Operand) -> tuple[Operand, ...] | None:
    """The factors of an operand that is a product, quotient or sign."""
    e = o.value
    if not isinstance(e, Op) or (e.op in ("div", "rcp") and not e.dtype.is_float):
        return None
    match e.op, e.args:
        case "mul", (a, b):
            return replace(o, value=a), replace(o, value=b)
        case "div", (a, b):
            return replace(o, value=a), replace(o, value=b, inverse=not o.inverse)
        case "rcp", (a,):
            return (replace(o, value=a, inverse=not o.inverse),)
        case "neg", (a,):
            return replace(o, value=a), Operand(Const(-1.0 if e.dtype.is_float else -1, e.dtype))
    return None


def _entered(t: Term, n: int, ld: Load, d: Def, taken: set[str], finite: Finite) -> Term:
    """``t`` whose operand ``n``, an element of the sum ``d``, is in the sum of ``t``."""
    own = with_own_axes(d, taken)
    at = {a.name: e for a, e in zip(own.par, ld.index, strict=True)}
    fence = frozenset(a.name for a in own.red)
    outside = t.operands[n].fence
    inner = Operand(substitute(own.value, at), outside)
    conditions = (Operand(substitute(c, at), condition=True) for c in conjuncts(own.guard))
    others = [o if _enters_any_sum(o, finite) else replace(o, fence=o.fence | fence) for o in t.operands]
    return Term((*t.red, *own.red), (*others[:n], inner, *others[n + 1 :], *conditions))


def with_own_axes(d: Def, taken: set[str]) -> Def:
    """``d`` whose axes of the sum have names that are not ``taken``; they are from now on."""
    names: dict[str, str] = {}
    for a in d.red:
        names[a.name] = unused(a.name, taken | {p.name for p in d.par})
        taken.add(names[a.name])
    return rename_axes(d, names)


def may_enter(d: Def, reader: Def) -> bool:
    """Whether ``d`` is a sum that is not rounded before ``reader`` reads it."""
    return d.op == "sum" and d.at is None and d.buffer.space is Space.TEMP and d.buffer.dtype is reader.buffer.dtype


def _enters_any_sum(o: Operand, finite: Finite) -> bool:
    e = o.value
    return o.condition or e.dtype.is_int or (not o.inverse and never_infinite(e, finite)) or _finite_divisor(o)


def _finite_divisor(o: Operand) -> bool:
    return o.inverse and isinstance(o.value, Const) and o.value.value != 0


def _bounded(op: str) -> bool:
    """Whether the results of function ``op`` are NaN or between two numbers, whatever the arguments are."""
    f = FUNCTIONS[op]
    return f.interval is not None and all(map(math.isfinite, f.interval(*[EVERYTHING] * f.arity)))


def never_infinite(e: Expr, finite: Finite = NOTHING) -> bool:
    """Whether ``e`` is finite or NaN, whatever the inputs are beside those that are ``finite``."""
    match e:
        case Const(value=value):
            return math.isfinite(value)
        case Load(buffer=buffer, dtype=dtype):
            return buffer in finite or dtype.is_int or dtype is DType.BOOL or not FORMATS[dtype].infinite
        case Op(op="select", args=(_, a, b)):
            return never_infinite(a, finite) and never_infinite(b, finite)
        case Op(op=op, args=args):
            if e.dtype.is_int or e.dtype is DType.BOOL or _bounded(op):
                return True
            if op == "cast" and e.dtype.bits < args[0].dtype.bits and FORMATS[e.dtype].infinite:
                return False  # may overflow
            return op in _FINITE_IF_ARGUMENTS and all(never_infinite(a, finite) for a in args)
    return not isinstance(e, Param) and (e.dtype.is_int or e.dtype is DType.BOOL)
