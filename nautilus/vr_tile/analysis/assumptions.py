"""Assumptions about the variables at a point of a kernel, and simplification of expressions under them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Const, Expr, Var
from nautilus.core.index.simplify import FALSE, TRUE, bounds, conjuncts, simplify
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileAxis
from nautilus.core.types import DType


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Intervals of variables (``ranges``, inclusive) and conditions that hold (``conditions``).

    ``loose`` equals ``ranges`` except for loops of one iteration, whose variable has a second value: the variable must
    stay in an index, because otherwise the access would seem invariant and leave the loop and its chain.
    """

    ranges: dict[str, tuple[int, int]]
    loose: dict[str, tuple[int, int]]
    conditions: tuple[Expr, ...] = ()

    @staticmethod
    def of_axes(axes: Iterable[TileAxis]) -> Assumptions:
        """The assumptions about positions inside a tile with ``axes``."""
        ranges = {a.name: (0, a.size - 1) for a in axes}
        return Assumptions(ranges, ranges)

    def within(self, var: str, lo: Expr, hi: Expr, loop: bool) -> Assumptions:
        """These assumptions and ``lo <= var < hi``; ``loop``: whether ``var`` belongs to a loop, not to the grid."""
        low, high = bounds(lo, self.ranges, self.conditions)[0], bounds(hi, self.ranges, self.conditions)[1]
        new = self
        if low is not None and high is not None:
            last = max(low, high - 1)
            seen = max(last, low + 1) if loop else last
            new = replace(new, ranges={**self.ranges, var: (low, last)}, loose={**self.loose, var: (low, seen)})
        if isinstance(lo, Const) and isinstance(hi, Const):
            return new
        v = Var(var, lo.dtype)
        more = (calc("ge", v, lo), calc("lt", v, hi))
        return replace(new, conditions=(*self.conditions, *more))

    def simple(self, e: Expr) -> Expr:
        """``e`` simplified; a condition keeps only the conjuncts that do not always hold."""
        if e.dtype is not DType.BOOL:
            return simplify(e, self.loose, self.conditions)
        parts: list[Expr] = []
        for c in conjuncts(e):
            exact = simplify(c, self.ranges, self.conditions)
            if exact == FALSE:
                return FALSE
            if exact != TRUE:
                parts.append(c)
        return simplify(conjunction(parts) or TRUE, self.loose, self.conditions)

    def implied(self, cond: Expr, by: Sequence[Expr]) -> bool:
        """Whether ``cond`` holds wherever every expression of ``by`` holds."""
        return simplify(cond, self.ranges, [*self.conditions, *by]) == TRUE
