"""Conversion of selects inside reductions to guards, and proofs that a read is in range.

``op= select(c, e, identity)`` changes nothing where ``c`` is false, so it is ``op= e where c``.  In a sum
the select may be a factor, a dividend, or the argument of a negation or a conversion: ``select(c, e, 0) * f`` is
``e * f where c``.  Where ``c`` is false the product is absent, whatever ``f`` is: the 0 is structural, and an inf or
NaN in ``f`` does not reach the sum.  The zeros of a definition that a sum reads are structural too, whether the
definition is inlined or stored: :func:`presence` is the condition that the reader's guard takes over.  So are the
infinities of a false condition that a maximum or an exponential in a sum reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nautilus.core.expr.build import calc, number, within
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import (
    Const,
    Expr,
    Load,
    Op,
    Reduce,
    Var,
    children,
    identity,
    loads,
    substitute,
    with_children,
)
from nautilus.core.expr.structural import sources
from nautilus.core.index.simplify import TRUE, Ranges, simplify
from nautilus.core.index.sizes import Extent, at_most
from nautilus.core.records import dataclass
from nautilus.core.types import FORMATS, DType


def negation(e: Expr) -> Expr:
    """``not e``, without a double negation."""
    if isinstance(e, Op) and e.op == "not":
        return e.args[0]
    return calc("not", e)


def absorb_selects(op: str, value: Expr, guard: Expr | None) -> tuple[Expr, Expr | None]:
    """The update ``op= value where guard`` with its selects moved into the guard (module docstring)."""
    found: list[Expr] = [] if guard is None else [guard]
    while True:
        taken = _take(op, value)
        if taken is None:
            return value, conjunction(found)
        cond, value = taken
        found.append(cond)


def _take(op: str, e: Expr) -> tuple[Expr, Expr] | None:
    """``(cond, rest)`` such that ``rest where cond`` may replace ``e`` in the update, or None."""
    match e:
        case Op(op="cast", args=(c,)) if op == "sum" and c.dtype is DType.BOOL and _equates(c):
            return c, number(1, e.dtype)
        case Op(op="select", args=(c, a, b)):
            if b == identity(op, e.dtype):
                return c, a
            if a == identity(op, e.dtype):
                return negation(c), b
            return None
        case Op(op="mul", args=(a, b)) if op == "sum":
            for at, x in enumerate((a, b)):
                taken = _take(op, x)
                if taken is not None:
                    return taken[0], with_children(e, (taken[1], b) if at == 0 else (a, taken[1]))
        case Op(op="div" | "neg", args=(x, *rest)) if op == "sum":
            taken = _take(op, x)
            return None if taken is None else (taken[0], with_children(e, (taken[1], *rest)))
        case Op(op="cast" | "narrow", args=(x,)) if op == "sum" and x.dtype is not DType.BOOL and e.dtype.is_float:
            taken = _take(op, x)
            return None if taken is None else (taken[0], with_children(e, (taken[1],)))
    return None


@dataclass(frozen=True, slots=True)
class Presence:
    """Where an element of a buffer is not a structural value: ``cond`` over the variables ``axes`` of its index."""

    axes: tuple[str, ...]
    cond: Expr

    def at(self, index: tuple[Expr, ...]) -> Expr:
        """The condition at an index."""
        return substitute(self.cond, dict(zip(self.axes, index, strict=True)))


#: By buffer and structural value (0, inf or -inf), where an element of the buffer is not that value.
Known = Mapping[tuple[str, float], Presence]


def presence(e: Expr, known: Known, what: float = 0.0) -> Expr | None:
    """The condition under which ``e`` is not structurally ``what``; None: always.

    ``known``: the same of the buffers that ``e`` reads.
    """
    match e:
        case Load(buffer=buffer, index=index):
            return known[buffer, what].at(index) if (buffer, what) in known else None
        case Op(op="select", args=(c, a, b)):
            value = Const(what, e.dtype)
            if b == value:
                return conjunction((c, presence(a, known, what)))
            if a == value:
                return conjunction((negation(c), presence(b, known, what)))
            yes, no = presence(a, known, what), presence(b, known, what)
            return None if yes is None and no is None else calc("select", c, yes or TRUE, no or TRUE)
        case Op(op="cast", args=(x,)) if x.dtype is DType.BOOL:
            return x if what == 0 else None
        case Op(op="cast" | "narrow", args=(x,)) if e.dtype.is_float:
            return presence(x, known, what) if what == 0 or FORMATS[e.dtype].infinite else None
        case Op():
            return conjunction(presence(x, known, of) for x, of in sources(e, what))
    return None


def guarded_terms(op: str, e: Expr, known: Known) -> tuple[Expr, Expr | None]:
    """The element ``e`` of a reduction ``op`` of floats and its guard.

    A term that is structurally the identity is not evaluated.  Those of a sum may be operands of an addition, which
    become conditional expressions.
    """
    if op == "sum":
        if isinstance(e, Op) and e.op in ("add", "sub"):
            return with_children(e, tuple(_term(x, known) for x in e.args)), None
        return absorb_selects(op, e, presence(e, known))
    if op in ("max", "min"):
        return absorb_selects(op, e, presence(e, known, float(identity(op, e.dtype).value)))
    return absorb_selects(op, e, None)


def _term(e: Expr, known: Known) -> Expr:
    value, guard = guarded_terms("sum", e, known)
    return value if guard is None else calc("select", guard, value, identity("sum", e.dtype))


def _equates(cond: Expr) -> bool:
    """Whether ``cond`` equates integers, one of which is in memory: terms that satisfy it may be found by that key."""
    return any(isinstance(c, Op) and c.op == "eq" and c.args[0].dtype.is_int and loads(c) for c in conjuncts(cond))


# -- reads ------------------------------------------------------------------------------------


def scope_facts(scope: Mapping[str, Extent]) -> tuple[Ranges, tuple[Expr, ...]]:
    """``0 <= v < extent`` for every variable of ``scope``, as ranges and assumptions for ``core.index.simplify``."""
    ranges: dict[str, tuple[int, int]] = {}
    facts: list[Expr] = []
    for v, extent in scope.items():
        if isinstance(extent, int):
            ranges[v] = (0, extent - 1)
        else:
            ranges[v] = (0, max(at_most(extent) - 1, 0))
            facts.append(calc("lt", Var(v), extent))
    return ranges, tuple(facts)


def certainly_in_range(
    e: Expr,
    shapes: Mapping[str, tuple[Extent, ...]],
    scope: Mapping[str, Extent],
    given: Iterable[Expr] = (),
) -> bool:
    """Whether every load of ``e`` is proved to be in range at all points of ``scope`` where ``given`` holds."""
    ranges, facts = scope_facts(scope)
    return _safe(e, shapes, ranges, (*facts, *given))


def zero_outside(e: Expr, shapes: Mapping[str, tuple[Extent, ...]], scope: Mapping[str, Extent]) -> Expr:
    """``e``, a number without choices, where all of its loads are in range at a point of ``scope``, and 0 elsewhere."""
    ranges, facts = scope_facts(scope)
    inner = sorted(loads(e), key=lambda ld: len(loads(ld)))  # a position is read where its own loads are in range
    conditions = [c for ld in inner for i, n in zip(ld.index, shapes[ld.buffer], strict=True) for c in within(i, n)]
    for c in reversed([c for c in dict.fromkeys(conditions) if simplify(c, ranges, facts) != TRUE]):
        e = Op("select", (c, e, Const(0.0, e.dtype)), e.dtype)
    return e


def without_short_circuits(
    guard: Expr | None, shapes: Mapping[str, tuple[Extent, ...]], scope: Mapping[str, Extent]
) -> Expr | None:
    """``guard`` with ``a and b`` for each ``select(a, b, false)`` in it whose ``b`` may be evaluated everywhere."""
    parts: list[Expr] = []
    for c in conjuncts(guard):
        match c:
            case Op(op="select", args=(a, b, Const(value=False))) if certainly_in_range(b, shapes, scope):
                parts += [a, b]
            case _:
                parts.append(c)
    return conjunction(parts)


def _safe(e: Expr, shapes: Mapping[str, tuple[Extent, ...]], ranges: Ranges, given: tuple[Expr, ...]) -> bool:
    match e:
        case Op(op="select", args=(c, a, b)):
            return (
                _safe(c, shapes, ranges, given)
                and _safe(a, shapes, ranges, (*given, c))
                and _safe(b, shapes, ranges, (*given, negation(c)))
            )
        case Load():
            for i, n in zip(e.index, shapes[e.buffer], strict=True):
                if any(simplify(c, ranges, given) != TRUE for c in within(i, n)):
                    return False
        case Reduce():
            raise TypeError("a Reduce does not occur in Scalar IR")
    return all(_safe(c, shapes, ranges, given) for c in children(e))
