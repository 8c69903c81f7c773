"""Scans among the updates of tiles: ``A[t] op= f(u) where u <= t`` (:mod:`nautilus.core.index.prefixes`).

The tiles of ``u`` and of ``t`` have one size.  Without scans the lowering would make a tile over both axes.
"""

from __future__ import annotations

from collections.abc import Sequence

from nautilus.core.expr.nodes import Expr
from nautilus.core.index.prefixes import Prefix, only_prefix
from nautilus.core.records import dataclass
from nautilus.vr_tile.lowering.build import Builder


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan along ``axis``; ``into`` numbers its results, and ``condition``, which is ``bound``, relates both."""

    axis: str
    into: str
    bound: Prefix
    condition: Expr


def scan_of(b: Builder, e: Expr, reduced: frozenset[str], guard: Sequence[Expr]) -> Scan | None:
    """The scan that the reduction of ``e`` over ``reduced`` where ``guard`` holds is; None if it is none."""
    names = frozenset[str]().union(*map(b.names, guard))
    for u in sorted(names & reduced):
        for t in sorted(names - reduced):
            found = only_prefix(u, t, e, guard) if b.axes[u].size == b.axes[t].size else None
            if found is not None and found[1].scans:
                return Scan(u, t, found[1], found[0])
    return None
