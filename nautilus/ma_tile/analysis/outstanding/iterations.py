"""How often loops run, and what holds where they run a few times: the paths through loops that follow each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import inf
from typing import TypeAlias

from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import FALSE
from nautilus.core.expr.nodes import Expr, Op, substitute
from nautilus.core.index.simplify import bounds, simplify
from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.ops import ForOp

_PATHS = 4  # numbers of iterations of a chain of loops that have paths of their own
#: a number of iterations, what holds with so many, and whether there may be more of them
Path: TypeAlias = tuple[int, tuple[Expr, ...], bool]


@dataclass(slots=True)
class Iterations:
    """The iterations of the loops of a kernel, where variables are in ``ranges`` and the ``facts`` of its launch hold.

    ``stages``: of its longest pipeline; loops of fewer iterations have paths of their own.
    """

    ranges: Mapping[str, tuple[int, int]]
    facts: tuple[Expr, ...]
    stages: int
    _trips: dict[tuple[Expr, Expr], tuple[int, float]] = field(init=False, default_factory=dict)
    _empty: dict[tuple[Expr, Expr], bool] = field(init=False, default_factory=dict)
    _found: dict[tuple[Expr, Expr], list[Path]] = field(init=False, default_factory=dict)
    _never: dict[tuple[object, ...], bool] = field(init=False, default_factory=dict)

    def iterations(self, op: ForOp) -> tuple[int, float]:
        """The least and the largest number of iterations of the loop, as far as they are known."""
        return self._between(op.lo, op.hi)

    def paths(self, lo: Expr, hi: Expr) -> Sequence[Path]:
        """The paths of loops from ``lo`` to ``hi``: no iteration, one, and so on, and at last as many or more."""
        if (lo, hi) not in self._found:
            low, high = bounds(simplify(calc("sub", hi, lo), self.ranges), self.ranges)
            least = max(self._between(lo, hi)[0], low or 0)
            depth = self.stages if least >= self.stages else min(self.stages, _PATHS)
            found = self._found[lo, hi] = []
            for n in range(min(least, depth), depth + 1):
                if high is not None and n > max(high, 0):
                    break
                if not 0 < n < depth or simplify(calc("eq", hi, calc("add", lo, n)), self.ranges) != FALSE:
                    found.append((n, self._given(lo, hi, n, n == depth), n == depth))
        return self._found[lo, hi]

    def may_be_empty(self, lo: Expr, hi: Expr) -> bool:
        """Whether 0 is the fewest iterations from ``lo`` to ``hi``, which is not below ``lo``."""
        if (lo, hi) not in self._empty:
            self._empty[lo, hi] = bounds(simplify(calc("sub", hi, lo), self.ranges), self.ranges)[0] == 0
        return self._empty[lo, hi]

    def is_false(self, cond: Expr, at: Mapping[str, Expr], given: Sequence[Expr]) -> bool:
        """Whether ``cond`` never holds in iteration ``at`` where conditions are ``given``."""
        key = cond, *at.items(), *given
        if key not in self._never:
            here, tighter = substitute(cond, at), [simplify(e, self.ranges, self.facts) for e in given]
            self._never[key] = any(simplify(here, self.ranges, known) == FALSE for known in (given, tighter))
        return self._never[key]

    def _between(self, lo: Expr, hi: Expr) -> tuple[int, float]:
        """The least and the largest number of iterations from ``lo`` to ``hi``, as far as they are known."""
        if (lo, hi) not in self._trips:
            least, most = self._gap(lo, hi)
            self._trips[lo, hi] = int(max(0, least)), most
        return self._trips[lo, hi]

    def _gap(self, lo: Expr, end: Expr) -> tuple[float, float]:
        """Bounds of ``end - lo``, with those of the arguments of minima and maxima."""
        low, high = bounds(simplify(calc("sub", end, lo), self.ranges, self.facts), self.ranges, self.facts)
        least, most = -inf if low is None else low, inf if high is None else high
        if isinstance(end, Op) and end.op in ("min", "max"):
            pick = min if end.op == "min" else max
            lows, highs = zip(*(self._gap(lo, x) for x in end.args), strict=True)
            least, most = max(least, pick(lows)), min(most, pick(highs))
        return least, most

    def _given(self, lo: Expr, hi: Expr, n: int, more: bool) -> tuple[Expr, ...]:
        """What holds where loops from ``lo`` to ``hi`` have ``n`` iterations; ``more``: as many or more."""
        kinds = (*(("ge",) if n else ()), *(() if more else ("le",)))
        given = [calc(kind, hi, calc("add", lo, n)) for kind in kinds]
        known = simplify(hi, self.ranges, given)  # a minimum may be one of its arguments then
        return (*given, *(calc(kind, known, calc("add", lo, n)) for kind in kinds))
