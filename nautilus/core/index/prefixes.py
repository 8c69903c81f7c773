"""Conditions that bound one variable by another one: prefixes (``u <= t``) and suffixes (``u >= t``) of a range."""

from __future__ import annotations

from dataclasses import dataclass

from nautilus.core.expr.nodes import Expr, Op, Var
from nautilus.core.index.linear import linear


@dataclass(frozen=True, slots=True)
class Prefix:
    """``u <= t + shift``; with ``reverse``, ``u >= t - shift``."""

    shift: int
    reverse: bool


def prefix(condition: Expr, u: str, t: str) -> Prefix | None:
    """The bound of ``u`` by ``t`` that ``condition`` is; None for a condition of another form."""
    match condition:
        case Op(op="le" | "lt", args=(a, b)) | Op(op="ge" | "gt", args=(b, a)) if a.dtype.is_int:
            difference = linear(a) - linear(b)  # at most 0, or -1 where the comparison is strict
        case _:
            return None
    found = {a.name: c for a, c in difference.terms.items() if isinstance(a, Var)}
    if len(found) != len(difference.terms) or found.keys() != {u, t} or sorted(found.values()) != [-1, 1]:
        return None
    strict = condition.op in ("lt", "gt")
    return Prefix(-difference.const - strict, found[u] < 0)
