"""Several ranges of blocks as one loop: a sink and a window, or a block for all rows and the own ones.

:func:`live_ranges` gives disjoint ranges in ascending order that have all blocks of some spans.  Ranges that touch are
joined, and a span of which it is not known whether it lies before or after a range is cut at that range.

A :class:`Concatenation` is one loop over such ranges.  Its variable counts in blocks of the last range, and the blocks
of an earlier one are the values right before it: where ``[0, 1)`` and ``[a, b)`` are visited, the variable ``v`` runs
from ``a - 1`` to ``b``, and the block is ``select(v < a, v - (a - 1), v)``.  So all passes below see one loop, whose
body has one index for each position.
"""

from __future__ import annotations

from collections.abc import Sequence

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Var
from nautilus.core.index.linear import Linear, build, divided
from nautilus.core.index.linear_bounds import Ranges
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.blocks.cover import (
    conditional,
    empty,
    full_part,
    joined,
    largest,
    live_hull,
    size,
    smallest,
    touch,
)
from nautilus.scalar.analysis.blocks.spans import Span, meet

MOST = 3  # ranges of one loop
_WORTH = 0.85  # the share of the hull below which separate ranges are worth their cost


def live_ranges(spans: Sequence[Span], whole: Span, ranges: Ranges) -> tuple[Span, ...]:
    """At most :data:`MOST` ranges with all blocks of ``spans`` and none outside of ``whole``: disjoint, ascending.

    One range, the hull, where more do not save enough blocks.
    """
    hull = live_hull(spans, whole, ranges)
    found = [conditional(s, ranges) for s in (meet(whole, s) for s in spans) if not empty(s, ranges)]
    parts: list[Span] = []
    for s in sorted(found, key=lambda s: sum(len(x.terms) for x in (*s.lo, *s.hi))):
        parts = _with(parts, s, ranges)
        if len(parts) > MOST:
            return (hull,)
    saves = 0 < sum(size(s, ranges) for s in parts) <= _WORTH * size(hull, ranges)
    return tuple(parts) if len(parts) > 1 and saves else (hull,)


def _with(parts: list[Span], s: Span, ranges: Ranges) -> list[Span]:
    """``parts`` with the blocks of ``s``: joined with the ranges that it touches, and cut at the others."""
    for r in parts:
        if touch(r, s, ranges):
            return _with([x for x in parts if x is not r], joined(r, s, ranges), ranges)
    out: list[Span] = []
    rest = s
    for r in parts:
        below = Span(rest.lo, (*rest.hi, divided(largest(r.lo, ranges))))
        if not empty(below, ranges):
            out.append(below)
        out.append(r)
        rest = Span((*rest.lo, divided(largest((*r.lo, divided(smallest(r.hi, ranges))), ranges))), rest.hi)
    return out if empty(rest, ranges) else [*out, rest]


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks from ``lo`` to ``hi``, which is not below ``lo``; the loop variable is ``shift`` more than the block."""

    lo: Linear
    hi: Linear
    shift: Linear


@dataclass(frozen=True, slots=True)
class Concatenation:
    """One loop over ``parts``, in ascending order (module docstring)."""

    parts: tuple[Part, ...]

    @property
    def visit(self) -> Span:
        """The range of the loop variable."""
        first, last = self.parts[0], self.parts[-1]
        return Span((first.lo + first.shift,), (last.hi,))

    def block(self, var: str) -> Expr:
        """The block at which the loop variable ``var`` stands."""
        v = divided(Var(var))
        out = build(v - self.parts[0].shift, DType.I32)
        for p in self.parts[1:]:
            here = calc("lt", Var(var), build(p.lo + p.shift, DType.I32))
            out = calc("select", here, out, build(v - p.shift, DType.I32))
        return out

    def full(self, spans: Sequence[Span], ranges: Ranges) -> Span | None:
        """A range of the loop variable in whose blocks one of ``spans`` is, as large as can be told."""
        found = [(p, s) for p in self.parts if (s := full_part(spans, Span((p.lo,), (p.hi,)), ranges)) is not None]
        if not found:
            return None
        p, s = max(found, key=lambda x: size(x[1], ranges))
        lo, hi = divided(largest(s.lo, ranges)), divided(smallest(s.hi, ranges))
        return Span((lo + p.shift,), (hi + p.shift,))


def concatenation(parts: Sequence[Span], ranges: Ranges) -> Concatenation:
    """The loop over ``parts``, which are disjoint and in ascending order."""
    out: list[Part] = []
    next_lo: Linear | None = None
    shift = Linear({})
    for s in reversed(parts):
        lo = divided(largest(s.lo, ranges))
        hi = divided(largest((lo, divided(smallest(s.hi, ranges))), ranges))
        if next_lo is not None:
            shift = shift + next_lo - hi
        out.append(Part(lo, hi, shift))
        next_lo = lo
    return Concatenation(tuple(reversed(out)))
