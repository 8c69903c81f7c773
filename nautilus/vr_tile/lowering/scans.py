"""Recognition of scans: reductions over a prefix or a suffix of an axis, for each position of another axis of its size.

``A[t] op= f(u) where u <= t``, with an element that does not vary along ``t``, is a running result: the ``scan`` of
``f`` along ``u``.  Without it the lowering would make a tile over both axes.  ``u < t`` is the exclusive form, and
``u >= t`` and ``u > t`` are the reverse ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nautilus.core.expr.nodes import Expr, free_vars
from nautilus.core.index.prefixes import prefix
from nautilus.vr_tile.lowering.build import Builder


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan along ``axis``; ``into`` numbers its results, and ``condition`` relates both."""

    axis: str
    into: str
    reverse: bool
    exclusive: bool
    condition: Expr


def scan_of(b: Builder, e: Expr, reduced: frozenset[str], guard: Sequence[Expr]) -> Scan | None:
    """The scan that the reduction of ``e`` over ``reduced`` where ``guard`` holds is; None if it is none."""
    for c in guard:
        rest = [e, *(g for g in guard if g is not c)]
        for u in sorted(b.names(c) & reduced):
            for t in sorted(b.names(c) - reduced):
                found = prefix(c, u, t)
                exact = found is not None and found.shift in (0, -1) and free_vars(c) == {u, t}
                alone = not any(t in b.names(x) for x in rest)
                if found is not None and exact and alone and b.axes[u].size == b.axes[t].size:
                    return Scan(u, t, found.reverse, found.shift == -1, c)
    return None
