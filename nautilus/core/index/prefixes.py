"""Conditions that bound one variable by another one: prefixes (``u <= t``) and suffixes (``u >= t``) of a range.

A reduction over a prefix or a suffix of its axis for each position ``t`` of another one, on which nothing else of it
depends, gives running results: it is a *scan*.  ``u < t`` is the exclusive form, and ``u >= t`` and ``u > t`` are the
reverse ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from nautilus.core.expr.nodes import Expr, Op, Var, free_vars
from nautilus.core.index.linear import linear
from nautilus.core.records import dataclass


@dataclass(frozen=True, slots=True)
class Prefix:
    """``u <= t + shift``; with ``reverse``, ``u >= t - shift``."""

    shift: int
    reverse: bool

    @property
    def scans(self) -> bool:
        """Whether it is that of a scan, which has the element at ``t`` or ends before it."""
        return self.shift in (0, -1)

    @property
    def exclusive(self) -> bool:
        """Whether a scan leaves out the element at ``t``."""
        return self.shift == -1


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


def only_prefix(u: str, t: str, element: Expr, conditions: Sequence[Expr]) -> tuple[Expr, Prefix] | None:
    """The one of ``conditions`` that bounds ``u`` by ``t``, on which neither the others nor ``element`` depend."""
    for c in conditions:
        found = prefix(c, u, t)
        if found is not None and not any(t in free_vars(e) for e in (element, *(x for x in conditions if x is not c))):
            return c, found
    return None
