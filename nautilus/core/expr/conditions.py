"""Conditions as conjunctions of parts; no condition (None) is ``true``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import NEGATED, Const, Expr, Op, Var, free_vars, rewrite
from nautilus.core.types import DType

TRUE = Const(True, DType.BOOL)
FALSE = Const(False, DType.BOOL)


def conjuncts(e: Expr | None) -> tuple[Expr, ...]:
    """The parts of a conjunction, left to right; none for ``true``.

    ``select(bound, inner, false)`` stays one part, because ``inner`` may be evaluated only where ``bound`` holds.
    """
    if e is None or e == TRUE:
        return ()
    if isinstance(e, Op) and e.op == "and":
        return (*conjuncts(e.args[0]), *conjuncts(e.args[1]))
    return (e,)


def all_conjuncts(e: Expr | None) -> Iterator[Expr]:
    """The parts of a conjunction, those that are evaluated after others (:func:`short_circuit`) included."""
    for c in conjuncts(e):
        if isinstance(c, Op) and c.op == "select" and c.args[2] == FALSE:
            yield from all_conjuncts(c.args[0])
            yield from all_conjuncts(c.args[1])
        else:
            yield c


def short_circuit(a: Expr, b: Expr) -> Expr:
    """``a and b``, where ``b`` is evaluated only if ``a`` holds, because it may read out of range otherwise."""
    return Op("select", (a, b, FALSE), DType.BOOL)


def implied(e: Expr, sufficient: Expr, necessary: Expr) -> Expr:
    """``e``, of which it is known that ``sufficient`` implies it and that it implies ``necessary``."""
    return Op("implied", (e, sufficient, necessary), DType.BOOL)


def without_implications(e: Expr) -> Expr:
    """``e`` without what is known about its conditions."""
    return rewrite(e, lambda n: n.args[0] if isinstance(n, Op) and n.op == "implied" else None)


def conjunction(conditions: Iterable[Expr | None]) -> Expr | None:
    """All of ``conditions``, each part once; None where that is ``true``."""
    total: Expr | None = None
    for part in dict.fromkeys(p for whole in conditions for p in conjuncts(whole)):
        total = part if total is None else calc("and", total, part)
    return total


def constant_last(e: Expr) -> Expr:
    """``e``; a choice of a constant or another value, as in ``-inf if i < j else x``, with the constant last.

    Its condition has ``<`` and ``<=`` alone, as simplified ones have: ``x if j <= i else -inf``.
    """
    match e:
        case Op(op="select", args=(c, Const() as a, b)) if not isinstance(b, Const):
            return Op("select", (rewrite(negated(c), _mirrored), b, a), e.dtype, e.span)
    return e


def _mirrored(e: Expr) -> Expr | None:
    match e:
        case Op(op="gt" | "ge" as op, args=(a, b)):
            return Op("lt" if op == "gt" else "le", (b, a), e.dtype, e.span)
    return None


def negated(e: Expr) -> Expr:
    """``not e``, pushed into integer comparisons (of floats it is not: NaN)."""
    match e:
        case Const(value=value):
            return FALSE if value else TRUE
        case Op(op="not", args=(a,)):
            return a
        case Op(op=op, args=(a, _)) if op in NEGATED and a.dtype.is_int:
            return Op(NEGATED[op], e.args, DType.BOOL)
    return calc("not", e)


def disjuncts(e: Expr) -> tuple[Expr, ...]:
    """The parts of a disjunction, left to right."""
    if isinstance(e, Op) and e.op == "or":
        return (*disjuncts(e.args[0]), *disjuncts(e.args[1]))
    return (e,)


def joined(op: str, parts: Sequence[Expr], empty: Const) -> Expr:
    """``parts`` under the operation ``op`` of two; ``empty`` for none."""
    if not parts:
        return empty
    total = parts[0]
    for p in parts[1:]:
        total = Op(op, (total, p), DType.BOOL)
    return total


def equations(cond: Expr | None, over: Collection[str]) -> tuple[dict[str, Expr], tuple[Expr, ...]] | None:
    """The values that ``cond`` gives to variables for each term over the axes ``over``, and its other parts.

    None where another part depends on other variables too, or no part gives a value.
    """
    found, rest = dict[str, Expr](), list[Expr]()
    for c in all_conjuncts(cond):
        for a, key in (c.args, c.args[::-1]) if isinstance(c, Op) and c.op == "eq" else ():
            if isinstance(a, Var) and a.name not in {*over, *found} and free_vars(key) <= set(over):
                found[a.name] = key
                break
        else:
            rest.append(c)
    return (found, tuple(rest)) if found and all(free_vars(c) <= set(over) for c in rest) else None
