"""What is known about the variables at a point of a kernel, and expressions simplified by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Const, Expr, Var
from nautilus.core.index.simplify import FALSE, TRUE, bounds, conjuncts, simplify
from nautilus.core.tiles import TileAxis
from nautilus.core.types import DType


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Intervals of variables (``ranges``, inclusive) and conditions that hold (``facts``).

    ``loose`` is ``ranges`` but for loops of one iteration, whose variable gets a second value there: it
    must stay in an index, or the access would look invariant and leave the loop (and its chain).
    """

    ranges: dict[str, tuple[int, int]]
    loose: dict[str, tuple[int, int]]
    facts: tuple[Expr, ...] = ()

    @staticmethod
    def of_axes(axes: Iterable[TileAxis]) -> Knowledge:
        """Tile axes alone: the positions inside a tile."""
        ranges = {a.name: (0, a.size - 1) for a in axes}
        return Knowledge(ranges, ranges)

    def within(self, var: str, lo: Expr, hi: Expr, loop: bool) -> Knowledge:
        """Where also ``lo <= var < hi``; ``loop``: a loop's variable, not the grid's."""
        low, high = bounds(lo, self.ranges, self.facts)[0], bounds(hi, self.ranges, self.facts)[1]
        new = self
        if low is not None and high is not None:
            last = max(low, high - 1)
            seen = max(last, low + 1) if loop else last
            new = replace(new, ranges={**self.ranges, var: (low, last)}, loose={**self.loose, var: (low, seen)})
        if isinstance(lo, Const) and isinstance(hi, Const):
            return new
        v = Var(var, lo.dtype)
        more = (calc("ge", v, lo), calc("lt", v, hi))
        return replace(new, facts=(*self.facts, *more))

    def simple(self, e: Expr) -> Expr:
        """``e`` in simplest form; of a condition only the conjuncts that do not always hold."""
        if e.dtype is not DType.BOOL:
            return simplify(e, self.loose, self.facts)
        parts: list[Expr] = []
        for c in conjuncts(e):
            exact = simplify(c, self.ranges, self.facts)
            if exact == FALSE:
                return FALSE
            if exact != TRUE:
                parts.append(c)
        return simplify(conjunction(parts) or TRUE, self.loose, self.facts)

    def implied(self, cond: Expr, by: Sequence[Expr]) -> bool:
        """``cond`` holds wherever every expression of ``by`` does."""
        return simplify(cond, self.ranges, [*self.facts, *by]) == TRUE
