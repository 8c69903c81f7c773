"""Exact interval bounds of linear forms (:mod:`nautilus.core.index.linear`) of loop variables."""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.expr.nodes import Const, Expr, Op, Param, Var
from nautilus.core.index.linear import Linear, divided

Ranges = Mapping[str, tuple[int | None, int | None]]  # variable -> inclusive bounds, where known


def bounds(x: Linear, ranges: Ranges) -> tuple[int | None, int | None]:
    """Inclusive bounds of ``x``; None where unknown."""
    lo: int | None = x.const
    hi: int | None = x.const
    for atom, c in x.terms.items():
        a, b = _atom_bounds(atom, ranges)
        if c < 0:
            a, b = b, a
        lo = None if lo is None or a is None else lo + c * a
        hi = None if hi is None or b is None else hi + c * b
    return lo, hi


def _atom_bounds(atom: Expr, ranges: Ranges) -> tuple[int | None, int | None]:
    match atom:
        case Var(name=name):
            return ranges.get(name, (None, None))
        case Param():
            return atom.range
        case Op(op="floordiv", args=(a, Const(value=k))) if int(k) > 0:
            lo, hi = bounds(divided(a), ranges)
            return (None if lo is None else lo // int(k)), (None if hi is None else hi // int(k))
        case Op(op="mod", args=(_, Const(value=k))) if int(k) > 0:
            return 0, int(k) - 1
        case Op(op="min" | "max" as op, args=(a, b)):
            (la, ha), (lb, hb) = bounds(divided(a), ranges), bounds(divided(b), ranges)
            return _pick(op, la, lb, lower=True), _pick(op, ha, hb, lower=False)
        case Op(op="select", args=(_, a, b)):
            (la, ha), (lb, hb) = bounds(divided(a), ranges), bounds(divided(b), ranges)
            return (
                None if la is None or lb is None else min(la, lb),
                None if ha is None or hb is None else max(ha, hb),
            )
    return None, None


def _pick(op: str, a: int | None, b: int | None, *, lower: bool) -> int | None:
    if a is None or b is None:
        # One known side still bounds min from above and max from below.
        known = a if b is None else b
        return known if (op == "max") is lower else None
    return min(a, b) if op == "min" else max(a, b)
